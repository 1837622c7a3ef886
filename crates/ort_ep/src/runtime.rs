//! Calls of ONNX Runtime, with its errors as results and its arrays as vectors.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    ptr::{null, null_mut},
};

use bytes::Bytes;
use edgecut_graph::{DType, TensorData, TensorType};
use edgecut_onnx::{dtype, element_type};
use edgecut_session::Error as SessionError;

use crate::{api::*, error::Error};

/// The ONNX Runtime that has loaded this library.
#[derive(Clone, Copy)]
pub struct Runtime {
    api: &'static OrtApi,
    ep: &'static OrtEpApi,
}

/// A function that says the length of an array of a `T`, and one that copies it.
type Getters<T, E> = (
    unsafe extern "system" fn(*const T, *mut usize) -> Status,
    unsafe extern "system" fn(*const T, *mut E, usize) -> Status,
);

impl Runtime {
    /// The runtime of `base`; `None` if it is older than [`VERSION`].
    ///
    /// # Safety
    /// `base` is the `OrtApiBase` of an ONNX Runtime that is not unloaded.
    pub unsafe fn of(base: *const OrtApiBase) -> Option<Runtime> {
        // SAFETY: by the caller; ONNX Runtime's tables are static.
        unsafe {
            let api = (base.as_ref()?.get_api)(VERSION).as_ref()?;
            Some(Runtime { api, ep: (api.get_ep_api)().as_ref()? })
        }
    }

    /// Does `work`. Errors and panics become a status of ONNX Runtime.
    pub fn status(self, work: impl FnOnce() -> Result<(), Error>) -> Status {
        let error = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return null_mut(),
            Ok(Err(error)) => error,
            Err(_) => Error::Refused("internal error: a panic; please report it".to_string()),
        };
        // After `EpFail` in a call, ONNX Runtime's Python package continues without the provider.
        let code = match error {
            Error::Refused(_) | Error::Model(_) => ErrorCode::InvalidArgument,
            Error::Session(SessionError::BadInput(_) | SessionError::Model(_) | SessionError::Cluster(_)) => {
                ErrorCode::InvalidArgument
            }
            Error::Runtime(_) | Error::Session(_) => ErrorCode::EpFail,
        };
        let text = c_string(&format!("edgecut: {error}"));
        // SAFETY: the text is copied.
        unsafe { (self.api.create_status)(code, text.as_ptr()) }
    }

    fn check(self, status: Status) -> Result<(), Error> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a status that is not null has a message, and is released once.
        unsafe {
            let text = text_of((self.api.get_error_message)(status));
            (self.api.release_status)(status);
            Err(Error::Runtime(text))
        }
    }

    /// Logs a warning.
    ///
    /// # Safety
    /// `logger` is one of ONNX Runtime's.
    pub unsafe fn warn(self, logger: *const OrtLogger, text: &str) {
        let (text, file, function) = (c_string(text), path_chars(file!()), c_string("edgecut"));
        // SAFETY: by the caller; the texts are copied. A warning that cannot be logged is lost.
        unsafe {
            let line = line!() as i32;
            let logged =
                (self.api.logger_log_message)(logger, WARNING, text.as_ptr(), file.as_ptr(), line, function.as_ptr());
            let _ = self.check(logged);
        }
    }

    /// The configuration of a session, by key.
    ///
    /// # Safety
    /// `options` are those of a session that is being made.
    pub unsafe fn config(self, options: *const OrtSessionOptions) -> Result<BTreeMap<String, String>, Error> {
        let mut pairs = null_mut();
        // SAFETY: by the caller. Both arrays have `count` texts, which are copied before the pairs are released, once.
        unsafe {
            self.check((self.api.get_session_options_config_entries)(options, &mut pairs))?;
            let (mut keys, mut values, mut count) = (null(), null(), 0);
            (self.api.get_key_value_pairs)(pairs, &mut keys, &mut values, &mut count);
            let pair = |index: usize| (text_of(*keys.add(index)), text_of(*values.add(index)));
            let config = (0..count).map(pair).collect();
            (self.api.release_key_value_pairs)(pairs);
            Ok(config)
        }
    }

    /// Whether `device` is a CPU.
    ///
    /// # Safety
    /// `device` is one of ONNX Runtime's.
    pub unsafe fn is_cpu(self, device: *const OrtHardwareDevice) -> bool {
        // SAFETY: by the caller.
        unsafe { (self.api.hardware_device_type)(device) == CPU }
    }

    /// `device` as one of `factory`.
    ///
    /// # Safety
    /// Both are ONNX Runtime's or known to it.
    pub unsafe fn ep_device(
        self,
        factory: *mut OrtEpFactory,
        device: *const OrtHardwareDevice,
    ) -> Result<*mut OrtEpDevice, Error> {
        let mut made = null_mut();
        // SAFETY: by the caller.
        self.check(unsafe { (self.ep.create_ep_device)(factory, device, null(), null(), &mut made) })?;
        Ok(made)
    }

    /// The file of the model of `graph`; `None` if the model was read from memory.
    ///
    /// # Safety
    /// `graph` is one that ONNX Runtime shows, as in the other functions about graphs.
    pub unsafe fn model_path(self, graph: *const OrtGraph) -> Result<Option<PathBuf>, Error> {
        let mut path = null();
        // SAFETY: by the caller; the path ends with zero and lives as long as the graph.
        unsafe {
            self.check((self.api.graph_get_model_path)(graph, &mut path))?;
            Ok(path_of(path).filter(|path| !path.as_os_str().is_empty()))
        }
    }

    /// Whether `graph` is a body of a node, such as the branch of an `If`.
    ///
    /// # Safety
    /// As of [`Runtime::model_path`].
    pub unsafe fn is_nested(self, graph: *const OrtGraph) -> Result<bool, Error> {
        let mut parent = null();
        // SAFETY: by the caller.
        self.check(unsafe { (self.api.graph_get_parent_node)(graph, &mut parent) })?;
        Ok(!parent.is_null())
    }

    /// The nodes of `graph`.
    ///
    /// # Safety
    /// As of [`Runtime::model_path`].
    pub unsafe fn nodes(self, graph: *const OrtGraph) -> Result<Vec<*const OrtNode>, Error> {
        // SAFETY: by the caller.
        unsafe { self.array(graph, null(), (self.api.graph_get_num_nodes, self.api.graph_get_nodes)) }
    }

    /// The names of the inputs of `graph` that have a default, and may be given.
    ///
    /// # Safety
    /// As of [`Runtime::model_path`].
    pub unsafe fn inputs_with_default(self, graph: *const OrtGraph) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        // SAFETY: by the caller; inputs live as long as the graph.
        unsafe {
            for input in self.array(graph, null(), (self.api.graph_get_num_inputs, self.api.graph_get_inputs))? {
                let mut has_default = false;
                self.check((self.api.value_info_is_optional_graph_input)(input, &mut has_default))?;
                if has_default {
                    names.push(self.name(input)?);
                }
            }
        }
        Ok(names)
    }

    /// The names of the outputs of `graph`.
    ///
    /// # Safety
    /// As of [`Runtime::model_path`].
    pub unsafe fn graph_outputs(self, graph: *const OrtGraph) -> Result<Vec<String>, Error> {
        // SAFETY: by the caller.
        unsafe { self.names(graph, (self.api.graph_get_num_outputs, self.api.graph_get_outputs)) }
    }

    /// The names of the inputs of `node`.
    ///
    /// # Safety
    /// `node` is one that ONNX Runtime shows.
    pub unsafe fn node_inputs(self, node: *const OrtNode) -> Result<Vec<String>, Error> {
        // SAFETY: by the caller.
        unsafe { self.names(node, (self.api.node_get_num_inputs, self.api.node_get_inputs)) }
    }

    /// The names of the outputs of `node`.
    ///
    /// # Safety
    /// As of [`Runtime::node_inputs`].
    pub unsafe fn node_outputs(self, node: *const OrtNode) -> Result<Vec<String>, Error> {
        // SAFETY: by the caller.
        unsafe { self.names(node, (self.api.node_get_num_outputs, self.api.node_get_outputs)) }
    }

    /// The array that `getters` get of `owner`; `empty` is an element before it is copied.
    ///
    /// # Safety
    /// `owner` is one that ONNX Runtime shows, and `getters` are two of its functions for one array.
    unsafe fn array<T, E: Copy>(self, owner: *const T, empty: E, getters: Getters<T, E>) -> Result<Vec<E>, Error> {
        let (count, fill) = getters;
        let mut length = 0;
        // SAFETY: by the caller; `values` has `length` elements.
        unsafe {
            self.check(count(owner, &mut length))?;
            let mut values = vec![empty; length];
            self.check(fill(owner, values.as_mut_ptr(), length))?;
            Ok(values)
        }
    }

    /// The names of the values that `getters` get of `owner`.
    ///
    /// # Safety
    /// As of [`Runtime::array`].
    unsafe fn names<T>(self, owner: *const T, getters: Getters<T, *const OrtValueInfo>) -> Result<Vec<String>, Error> {
        // SAFETY: by the caller; values live as long as their owner.
        unsafe { self.array(owner, null(), getters)?.into_iter().map(|value| self.name(value)).collect() }
    }

    /// # Safety
    /// `value` is null or belongs to a graph that ONNX Runtime shows.
    unsafe fn name(self, value: *const OrtValueInfo) -> Result<String, Error> {
        // An operand that is left out.
        if value.is_null() {
            return Ok(String::new());
        }
        let mut name = null();
        // SAFETY: by the caller; a name ends with zero.
        unsafe {
            self.check((self.api.get_value_info_name)(value, &mut name))?;
            Ok(text_of(name))
        }
    }

    /// Has `nodes` computed by the provider, as one node without constants as inputs.
    ///
    /// # Safety
    /// `support` and `nodes` are those of a call of `GetCapability`.
    pub unsafe fn fuse(self, support: *mut OrtEpGraphSupportInfo, nodes: &[*const OrtNode]) -> Result<(), Error> {
        let options = OrtNodeFusionOptions { version: VERSION, drop_constant_initializers: true };
        // SAFETY: by the caller; the arguments are copied.
        self.check(unsafe {
            (self.ep.ep_graph_support_info_add_nodes_to_fuse)(support, nodes.as_ptr(), nodes.len(), &options)
        })
    }

    /// The tensor that is input `index` of a call.
    ///
    /// # Safety
    /// `context` is that of the call in progress.
    pub unsafe fn input(self, context: *const OrtKernelContext, index: usize) -> Result<TensorData, Error> {
        let mut value = null();
        let mut is_tensor = 0;
        // SAFETY: by the caller; `value` lives as long as the call.
        unsafe {
            self.check((self.api.kernel_context_get_input)(context, index, &mut value))?;
            if !value.is_null() {
                self.check((self.api.is_tensor)(value, &mut is_tensor))?;
            }
        }
        if is_tensor == 0 {
            return Err(Error::Refused(format!("input {index} is no tensor")));
        }
        // SAFETY: `value` is a tensor.
        let (number, shape) = unsafe { self.type_of(value)? };
        let dtype = dtype(number.into()).map_err(Error::Refused)?;
        let shape: Vec<u64> = shape.into_iter().map(|size| size.max(0) as u64).collect();
        let ty = TensorType::of(dtype, &shape);
        // Of exotic types, some have several elements in a byte.
        let bytes = ty.bytes().filter(|_| !matches!(dtype, DType::Exotic(_)));
        let length =
            bytes.ok_or_else(|| Error::Refused(format!("input {index} of type {ty} is not supported")))?.0 as usize;
        let mut data: *mut c_void = null_mut();
        // SAFETY: the function only reads the value; a tensor of this type and shape has `length` bytes, which are copied.
        let content = unsafe {
            self.check((self.api.get_tensor_mutable_data)(value.cast_mut(), &mut data))?;
            match length {
                0 => &[],
                _ => std::slice::from_raw_parts(data.cast::<u8>(), length),
            }
        };
        TensorData::new(dtype, shape, Bytes::copy_from_slice(content))
            .map_err(|error| Error::Refused(error.to_string()))
    }

    /// The number of the element type, and the shape, of a tensor.
    ///
    /// # Safety
    /// `value` is a tensor.
    unsafe fn type_of(self, value: *const OrtValue) -> Result<(i32, Vec<i64>), Error> {
        let mut info = null_mut();
        // SAFETY: by the caller; `info` is released once, after its last use.
        unsafe {
            self.check((self.api.get_tensor_type_and_shape)(value, &mut info))?;
            let mut number = 0;
            let known = self.check((self.api.get_tensor_element_type)(info, &mut number));
            let getters = (self.api.get_dimensions_count, self.api.get_dimensions);
            let shape = known.and_then(|()| self.array(info.cast_const(), 0, getters));
            (self.api.release_tensor_type_and_shape_info)(info);
            Ok((number, shape?))
        }
    }

    /// Makes `tensor` the output `index` of a call.
    ///
    /// # Safety
    /// `context` is that of the call in progress.
    pub unsafe fn set_output(
        self,
        context: *mut OrtKernelContext,
        index: usize,
        tensor: &TensorData,
    ) -> Result<(), Error> {
        let shape: Vec<i64> = tensor.shape().iter().map(|size| *size as i64).collect();
        let mut value = null_mut();
        // SAFETY: by the caller.
        unsafe {
            let made = (self.api.kernel_context_get_output)(context, index, shape.as_ptr(), shape.len(), &mut value);
            self.check(made)?;
        }
        if value.is_null() {
            return Ok(());
        }
        // SAFETY: `value` is the tensor that was made.
        let (number, _) = unsafe { self.type_of(value)? };
        let wanted = element_type(tensor.dtype()).map_err(Error::Refused)?;
        if number != wanted {
            let what = format!("output {index} has elements of type {number} in ONNX Runtime, {wanted} on the agents");
            return Err(Error::Refused(what));
        }
        let mut data: *mut c_void = null_mut();
        let content = tensor.bytes();
        // SAFETY: the tensor has the type and the shape of `content`, and therefore its length.
        unsafe {
            self.check((self.api.get_tensor_mutable_data)(value, &mut data))?;
            if !content.is_empty() {
                std::ptr::copy_nonoverlapping(content.as_ptr(), data.cast::<u8>(), content.len());
            }
        }
        Ok(())
    }
}

/// `text` as a C string, with spaces for NUL characters.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// # Safety
/// `text` is null or ends with zero.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(not(windows))]
fn path_chars(path: &str) -> CString {
    c_string(path)
}

#[cfg(windows)]
fn path_chars(path: &str) -> Vec<PathChar> {
    path.encode_utf16().chain([0]).collect()
}

/// # Safety
/// `path` is null or ends with zero.
#[cfg(not(windows))]
unsafe fn path_of(path: *const PathChar) -> Option<PathBuf> {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    // SAFETY: by the caller.
    (!path.is_null()).then(|| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// # Safety
/// `path` is null or ends with zero.
#[cfg(windows)]
unsafe fn path_of(path: *const PathChar) -> Option<PathBuf> {
    use std::{ffi::OsString, os::windows::ffi::OsStringExt};
    if path.is_null() {
        return None;
    }
    // SAFETY: by the caller.
    let length = (0..).take_while(|at| unsafe { *path.add(*at) } != 0).count();
    // SAFETY: `path` has `length` elements.
    Some(PathBuf::from(OsString::from_wide(unsafe { std::slice::from_raw_parts(path, length) })))
}
