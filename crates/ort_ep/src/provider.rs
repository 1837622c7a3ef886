//! The provider of one session: takes the whole model, or nothing of it.

use std::{
    collections::BTreeSet,
    ffi::c_char,
    fs::File,
    sync::{Mutex, PoisonError},
};

use crate::{
    api::{OrtEp, OrtEpGraphSupportInfo, OrtGraph, OrtLogger, OrtNode, OrtNodeComputeInfo, Status, VERSION},
    error::Error,
    kernel::Kernel,
    placement::Placement,
    runtime::Runtime,
    settings::{NAME, Settings},
};

/// The provider of a session. ONNX Runtime knows its first field.
#[repr(C)]
pub struct Provider {
    ep: OrtEp,
    runtime: Runtime,
    settings: Settings,
    /// Of the session, which outlives its providers.
    logger: *const OrtLogger,
    model: Mutex<State>,
}

/// The model of the session.
enum State {
    /// Not read yet.
    Unread,
    /// Its plan is loaded, and it is not compiled yet.
    Placed(Box<Placement>),
    /// It is left to other providers.
    Left,
    /// Why it cannot be computed. Kept for `Compile`, whose errors fail the session: ONNX Runtime only logs errors of
    /// `GetCapability` and continues with other providers.
    Failed(Error),
}

impl Provider {
    /// A provider with these settings.
    ///
    /// # Safety
    /// `logger` lives as long as the provider.
    pub unsafe fn new(runtime: Runtime, settings: Settings, logger: *const OrtLogger) -> Provider {
        let unused = std::ptr::null();
        let ep = OrtEp {
            version: VERSION,
            get_name,
            get_capability,
            compile,
            release_node_compute_infos,
            get_preferred_data_layout: unused,
            should_convert_data_layout_for_op: unused,
            set_dynamic_options: unused,
            on_run_start: unused,
            on_run_end: unused,
            create_allocator: unused,
            create_sync_stream_for_device: unused,
            get_compiled_model_compatibility_info: unused,
        };
        Provider { ep, runtime, settings, logger, model: Mutex::new(State::Unread) }
    }

    /// Gives the provider to ONNX Runtime.
    pub fn into_raw(self) -> *mut OrtEp {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes a provider back.
    ///
    /// # Safety
    /// `raw` is of [`Provider::into_raw`], and is not used again.
    pub unsafe fn from_raw(raw: *mut OrtEp) -> Box<Provider> {
        // SAFETY: by the caller.
        unsafe { Box::from_raw(raw.cast()) }
    }

    /// Takes all nodes of `graph`, once the plan of its model is loaded. A model that cannot be planned is left to other providers.
    ///
    /// # Safety
    /// The arguments are those of a call of `GetCapability`.
    unsafe fn take(&self, graph: *const OrtGraph, support: *mut OrtEpGraphSupportInfo) -> Result<(), Error> {
        // SAFETY: by the caller.
        unsafe {
            let nodes = self.runtime.nodes(graph)?;
            if nodes.is_empty() || self.runtime.is_nested(graph)? {
                return Ok(());
            }
            let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
            if matches!(*model, State::Unread) {
                *model = match self.place(graph) {
                    Ok(placement) => State::Placed(Box::new(placement)),
                    Err(error) if error.is_of_model() && !self.settings.is_of_one_model() => {
                        let what = "other providers compute the model";
                        self.runtime.warn(self.logger, &format!("edgecut: {what}: {error}"));
                        State::Left
                    }
                    Err(error) => State::Failed(error),
                };
            }
            if let State::Placed(placement) = &*model {
                // ONNX Runtime 1.23 reports no parent for the body of a node, which `is_nested` then misses.
                if !placement.outputs().eq(self.runtime.graph_outputs(graph)?) {
                    return Ok(());
                }
                if let Some(name) = self.runtime.inputs_with_default(graph)?.first() {
                    let what = "has a default, which a plan cannot replace: remove it from the inputs of the model";
                    *model = State::Failed(Error::Refused(format!("input `{name}` {what}")));
                }
            }
            match *model {
                State::Placed(_) | State::Failed(_) => self.runtime.fuse(support, &nodes),
                State::Unread | State::Left => Ok(()),
            }
        }
    }

    /// # Safety
    /// As of [`Provider::take`].
    unsafe fn place(&self, graph: *const OrtGraph) -> Result<Placement, Error> {
        // SAFETY: by the caller.
        let path = unsafe { self.runtime.model_path(graph)? };
        let file = match (path, &self.settings.model) {
            (Some(path), None) => path,
            (None, Some(given)) => given.clone(),
            (Some(_), Some(_)) => {
                return Err(Error::Refused(
                    "option `model` is for sessions created from memory: this one has a file".to_string(),
                ));
            }
            (None, None) => {
                let what = "the session is created from memory: set option `model` to the file of the model";
                return Err(Error::Refused(what.to_string()));
            }
        };
        if let Err(error) = File::open(&file) {
            return Err(Error::Refused(format!("{}: {error}", file.display())));
        }
        Placement::of(&file, &self.settings)
    }

    /// The kernel of `node`, which stands for the model that was taken.
    ///
    /// # Safety
    /// `node` is that of a call of `Compile`.
    unsafe fn kernel(&self, node: *const OrtNode) -> Result<Kernel, Error> {
        // SAFETY: by the caller.
        let (inputs, outputs) = unsafe { (self.runtime.node_inputs(node)?, self.runtime.node_outputs(node)?) };
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let placement = match std::mem::replace(&mut *model, State::Left) {
            State::Placed(placement) => placement,
            State::Failed(error) => return Err(error),
            State::Unread | State::Left => {
                return Err(Error::Refused("one node was fused, but several are compiled".to_string()));
            }
        };
        let planned: BTreeSet<&str> = placement.inputs().collect();
        if let Some(name) = inputs.iter().find(|name| !planned.contains(name.as_str())) {
            let what = "is not an input of the plan: if the model's `seeded_parameters` list it, store its contents in the \
                        model; if it is the result of a node, another provider took that node";
            return Err(Error::Refused(format!("`{name}` {what}")));
        }
        if let Some(name) = planned.iter().find(|name| !inputs.iter().any(|input| input == *name)) {
            let what = "is read by the plan, and this version of ONNX Runtime does not pass it to the provider";
            return Err(Error::Refused(format!("input `{name}` {what}")));
        }
        let number = |name: &String| {
            let number = placement.outputs().position(|output| output == name);
            number.ok_or_else(|| Error::Refused(format!("`{name}` is no output of the model")))
        };
        let outputs = outputs.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Kernel::new(self.runtime, *placement, inputs, outputs))
    }
}

unsafe extern "system" fn get_name(_: *const OrtEp) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_capability(
    ep: *mut OrtEp,
    graph: *const OrtGraph,
    support: *mut OrtEpGraphSupportInfo,
) -> Status {
    // SAFETY: `ep` is the first field of a provider that is not released.
    let provider = unsafe { &*ep.cast::<Provider>() };
    // SAFETY: the arguments are those of this call.
    provider.runtime.status(|| unsafe { provider.take(graph, support) })
}

unsafe extern "system" fn compile(
    ep: *mut OrtEp,
    _: *const *const OrtGraph,
    nodes: *const *const OrtNode,
    count: usize,
    infos: *mut *mut OrtNodeComputeInfo,
    _: *mut *mut OrtNode,
) -> Status {
    // SAFETY: `ep` is the first field of a provider that is not released.
    let provider = unsafe { &*ep.cast::<Provider>() };
    provider.runtime.status(|| {
        for index in 0..count {
            // SAFETY: both arrays have `count` elements.
            unsafe { *infos.add(index) = provider.kernel(*nodes.add(index))?.into_raw() };
        }
        Ok(())
    })
}

unsafe extern "system" fn release_node_compute_infos(_: *mut OrtEp, infos: *mut *mut OrtNodeComputeInfo, count: usize) {
    for index in 0..count {
        // SAFETY: the array has `count` elements, each of `compile` and released once, or null.
        unsafe {
            let info = *infos.add(index);
            if !info.is_null() {
                drop(Kernel::from_raw(info));
            }
        }
    }
}
