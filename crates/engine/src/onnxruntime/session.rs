//! A session of ONNX Runtime: a part of a graph, written as ONNX, prepared and run as a whole.

use std::{
    collections::HashMap,
    ffi::{CString, c_char},
    path::{Path, PathBuf},
    ptr::null_mut,
    sync::Arc,
};

use edgecut_graph::{Graph, OperatorId, TensorData, TensorId};
use edgecut_onnx::{ExportOptions, Weight, export};
use ort::{
    AsPointer, Error,
    logging::LogLevel,
    session::{
        Session,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
    sys,
};

use crate::heap::{allocated_bytes, prepare_heap};

use super::{
    context::OrtContext,
    shared_weights::SharedWeights,
    value::OrtTensor,
    weights::{Weights, is_shareable, is_table},
};

/// A session, and how it relates to its part.
pub(super) struct OrtSession {
    session: Session,
    input_names: Vec<CString>,
    output_names: Vec<CString>,
    /// By name of an operator or a value of the model, one of which kernels are named after: the operators of the part.
    pub operators: HashMap<String, Vec<OperatorId>>,
    /// What the session refers to: weights that it uses as they are, and does not copy.
    _weights: Vec<OrtTensor>,
    /// Bytes that it holds: those weights, and what ONNX Runtime made of them.
    pub held: u64,
    /// Where the session writes its profile, until [`OrtSession::end_profile`].
    profile: Option<PathBuf>,
}

/// Which weights are registered as initializers in addition. ONNX Runtime uses these as they are: others that it does not pack, it
/// copies.
enum Registered<'a> {
    None,
    /// Tables that are read by index.
    Tables,
    /// All that sessions can share.
    Shared(&'a SharedWeights),
}

/// Why there is no session for a part.
#[derive(Debug)]
pub(super) struct SessionError {
    /// The operators of the part that it is about; none if that is not known.
    pub operators: Vec<OperatorId>,
    pub what: String,
}

impl SessionError {
    fn of(what: impl ToString) -> SessionError {
        SessionError { operators: Vec::new(), what: what.to_string() }
    }
}

impl OrtSession {
    /// Writes `graph` as ONNX with the contents that `content` gives, and prepares it. With `profile`, the session
    /// records its kernels' times in a file of that folder.
    pub fn new(
        context: &OrtContext,
        graph: &Graph,
        content: &dyn Fn(TensorId) -> Result<Option<TensorData>, String>,
        profile: Option<&Path>,
    ) -> Result<OrtSession, SessionError> {
        let written = export(graph, &ExportOptions::new(content)).map_err(|error| SessionError {
            operators: error.operator().into_iter().collect(),
            what: error.to_string(),
        })?;
        if !written.trapping.is_empty() {
            let what = "its kernel can end the process where an integer is divided by 0 or -1".to_string();
            return Err(SessionError { operators: written.trapping, what });
        }
        let operators = written.operators.clone();
        let name = |name: &String| CString::new(name.as_str()).map_err(SessionError::of);
        let input_names = written.inputs.iter().map(|(input, _)| name(input)).collect::<Result<_, _>>()?;
        let output_names = written.outputs.iter().map(name).collect::<Result<_, _>>()?;
        // A weight that is transposed in its place is no longer the one that was registered.
        let is_fixed = !written.has_transposes();
        let shared = context.shared.as_deref().filter(|_| is_fixed);
        let (model, weights) = written.into_bytes_and_weights();
        let mut weights = Weights::store(weights, shared);
        prepare_heap(usize::try_from(weights.packed).unwrap_or_default());
        let before = allocated_bytes();
        // Kernels that cannot share what they pack refuse a session that does: those of earlier versions, for example.
        let mut created = shared.and_then(|shared| {
            let created = create(context, &model, &weights, (profile, Registered::Shared(shared))).ok()?;
            weights.share(shared);
            Some(created)
        });
        if created.is_none() && is_fixed && weights.has_large_table() {
            created = create(context, &model, &weights, (profile, Registered::Tables)).ok();
        }
        let created = created.map_or_else(|| create(context, &model, &weights, (profile, Registered::None)), Ok);
        let (session, tensors) = created.map_err(|error| {
            let what = error.to_string();
            // The message quotes the operator without a kernel.
            let quoted = what.split(['\'', '(', ')', ' ', ':']).find_map(|word| operators.get(word));
            SessionError { operators: quoted.cloned().unwrap_or_default(), what }
        })?;
        // Most of it ONNX Runtime allocates by itself, not through the allocator that it was given.
        let made = allocated_bytes().zip(before).map_or(0, |(after, before)| after.saturating_sub(before));
        weights.release();
        let held = made.max(weights.packed) + weights.unpacked;
        Ok(OrtSession {
            session,
            input_names,
            output_names,
            operators,
            _weights: tensors,
            held,
            profile: profile.map(Path::to_path_buf),
        })
    }

    /// Computes the outputs; `inputs` in the order of the part's: parameters all have contents. Each pair of `in_place` is an
    /// input that ONNX Runtime allocated and nothing else refers to, and the output that its kernel writes there.
    pub fn run(
        &mut self,
        inputs: Vec<Arc<OrtTensor>>,
        in_place: &[(usize, usize)],
    ) -> Result<Vec<Arc<OrtTensor>>, String> {
        let names = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<*const c_char>>();
        let (input_names, output_names) = (names(&self.input_names), names(&self.output_names));
        let values: Vec<*const sys::OrtValue> = inputs.iter().map(|input| input.pointer()).collect();
        if values.len() != input_names.len() {
            return Err(format!("{} inputs are needed, {} were given", input_names.len(), values.len()));
        }
        let mut results: Vec<*mut sys::OrtValue> = vec![null_mut(); output_names.len()];
        for (input, output) in in_place {
            results[*output] = values[*input].cast_mut();
        }
        // SAFETY: names and values are as many as is said and live during the call; `results` has room for all outputs. An
        // output that is given has the type that the kernel writes, and nothing reads its memory meanwhile but the kernel.
        let status = unsafe {
            (ort::api().Run)(
                self.session.ptr().cast_mut(),
                std::ptr::null(),
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                results.as_mut_ptr(),
            )
        };
        let made = |(number, result): (usize, *mut sys::OrtValue)| {
            let given = in_place.iter().find(|(_, output)| *output == number);
            match given {
                Some((input, _)) => Some(Arc::clone(&inputs[*input])),
                None if result.is_null() => None,
                // SAFETY: it is an owned tensor in main memory: nothing else is declared as an output.
                None => Some(Arc::new(unsafe { OrtTensor::owned(result) })),
            }
        };
        let results: Vec<Arc<OrtTensor>> = results.into_iter().enumerate().filter_map(made).collect();
        // SAFETY: the status comes from the call.
        unsafe { Error::result_from_status(status) }.map_err(|error| error.to_string())?;
        Ok(results)
    }

    /// Ends the recording of kernels' times and returns what was recorded, if it was begun and not ended.
    pub fn end_profile(&mut self) -> Option<Result<String, String>> {
        self.profile.take()?;
        let read = self.session.end_profiling().map_err(|error| error.to_string());
        Some(read.and_then(|path| {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
            // Its folder is temporary.
            let _ = std::fs::remove_file(&path);
            text
        }))
    }
}

/// Creates the session. Weights are handed over in memory, which must live as long as the session: it copies those that it
/// packs, and uses the others as they are.
fn create(
    context: &OrtContext,
    model: &[u8],
    weights: &Weights,
    (profile, registered): (Option<&Path>, Registered<'_>),
) -> Result<(Session, Vec<OrtTensor>), Error> {
    let OrtContext { library, options, .. } = context;
    let mut builder = Session::builder(&library.environment)?
        .with_log_level(LogLevel::Fatal)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(options.threads)?
        .with_inter_threads(1)?
        .with_env_allocators()?
        // Threads wait actively while a session runs and stop when it returns, because other devices share the machine.
        .with_config_entry("session.force_spinning_stop", "1")?;
    if let Some(folder) = profile {
        builder = builder.with_profiling(folder.join("session"))?;
    }
    for provider in &options.providers {
        builder = provider.add_to(builder)?;
    }
    let tensors = give_weights(&mut builder, &weights.list, &registered)?;
    if let Registered::Shared(shared) = registered {
        builder = builder.with_prepacked_weights(&shared.packed)?;
    }
    Ok((builder.commit_from_memory(model)?, tensors))
}

/// Hands the weights to the sessions of `builder`, and registers some.
fn give_weights(
    builder: &mut SessionBuilder,
    weights: &[Weight],
    registered: &Registered<'_>,
) -> Result<Vec<OrtTensor>, Error> {
    let is_registered = match registered {
        Registered::None => |_: &Weight| false,
        Registered::Tables => is_table,
        Registered::Shared(_) => is_shareable,
    };
    let (mut names, mut tensors) = (Vec::with_capacity(weights.len()), Vec::with_capacity(weights.len()));
    for weight in weights {
        names.push(CString::new(weight.name.as_str()).map_err(Error::wrap)?);
        tensors.push(OrtTensor::viewing(&weight.content).map_err(Error::new)?);
    }
    let name_pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let values: Vec<*const sys::OrtValue> = tensors.iter().map(OrtTensor::pointer).collect();
    if values.is_empty() {
        return Ok(tensors);
    }
    // SAFETY: names and values are as many as is said and live during the call; the values and what they view live in the tensors
    // returned, which outlive the session.
    unsafe {
        let options = builder.ptr_mut();
        let status =
            (ort::api().AddExternalInitializers)(options, name_pointers.as_ptr(), values.as_ptr(), values.len());
        Error::result_from_status(status)?;
        for ((name, value), _) in
            name_pointers.iter().zip(&values).zip(weights).filter(|(_, weight)| is_registered(weight))
        {
            Error::result_from_status((ort::api().AddInitializer)(builder.ptr_mut(), *name, *value))?;
        }
    }
    Ok(tensors)
}
