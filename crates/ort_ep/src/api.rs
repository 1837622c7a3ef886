//! What the provider uses of ONNX Runtime's C API, version 23: `onnxruntime_c_api.h` and `onnxruntime_ep_c_api.h`.
//!
//! The API is a table of functions, to which new versions append. Functions that are not used here are gaps of the table.

use std::ffi::{c_char, c_int, c_void};

/// The version of the API. ONNX Runtime 1.23 is the first whose plugins can take nodes of a graph.
pub const VERSION: u32 = 23;

/// Types of ONNX Runtime that are only pointed to.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(#[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        })*
    };
}

opaque! {
    OrtStatus OrtValue OrtTensorTypeAndShapeInfo OrtKernelContext OrtSessionOptions OrtLogger OrtValueInfo OrtGraph OrtNode
    OrtHardwareDevice OrtKeyValuePairs OrtEpDevice OrtEpGraphSupportInfo OrtNodeComputeContext
}

/// An error, or null.
pub type Status = *mut OrtStatus;

/// `OrtErrorCode`.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    InvalidArgument = 2,
    EpFail = 11,
}

/// `ORT_LOGGING_LEVEL_WARNING`.
pub const WARNING: c_int = 2;

/// `OrtHardwareDeviceType_CPU`.
pub const CPU: c_int = 0;

/// A function that is not used.
pub type Unused = *const c_void;

/// `OrtApiBase`.
#[repr(C)]
pub struct OrtApiBase {
    pub get_api: unsafe extern "system" fn(version: u32) -> *const OrtApi,
}

/// `OrtApi`. Comments number functions; a test compares these numbers with the offsets.
#[repr(C)]
pub struct OrtApi {
    /// 0
    pub create_status: unsafe extern "system" fn(ErrorCode, *const c_char) -> Status,
    _1: [Unused; 1],
    /// 2
    pub get_error_message: unsafe extern "system" fn(*const OrtStatus) -> *const c_char,
    _3: [Unused; 47],
    /// 50
    pub is_tensor: unsafe extern "system" fn(*const OrtValue, *mut c_int) -> Status,
    /// 51
    pub get_tensor_mutable_data: unsafe extern "system" fn(*mut OrtValue, *mut *mut c_void) -> Status,
    _52: [Unused; 8],
    /// 60
    pub get_tensor_element_type: unsafe extern "system" fn(*const OrtTensorTypeAndShapeInfo, *mut c_int) -> Status,
    /// 61
    pub get_dimensions_count: unsafe extern "system" fn(*const OrtTensorTypeAndShapeInfo, *mut usize) -> Status,
    /// 62
    pub get_dimensions: unsafe extern "system" fn(*const OrtTensorTypeAndShapeInfo, *mut i64, usize) -> Status,
    _63: [Unused; 2],
    /// 65
    pub get_tensor_type_and_shape:
        unsafe extern "system" fn(*const OrtValue, *mut *mut OrtTensorTypeAndShapeInfo) -> Status,
    _66: [Unused; 24],
    /// 90
    pub kernel_context_get_input:
        unsafe extern "system" fn(*const OrtKernelContext, usize, *mut *const OrtValue) -> Status,
    /// 91
    pub kernel_context_get_output:
        unsafe extern "system" fn(*mut OrtKernelContext, usize, *const i64, usize, *mut *mut OrtValue) -> Status,
    _92: [Unused; 1],
    /// 93
    pub release_status: unsafe extern "system" fn(Status),
    _94: [Unused; 5],
    /// 99
    pub release_tensor_type_and_shape_info: unsafe extern "system" fn(*mut OrtTensorTypeAndShapeInfo),
    _100: [Unused; 147],
    /// 247
    pub logger_log_message: unsafe extern "system" fn(
        *const OrtLogger,
        severity: c_int,
        message: *const c_char,
        file: *const PathChar,
        line: c_int,
        function: *const c_char,
    ) -> Status,
    _248: [Unused; 41],
    /// 289
    pub get_value_info_name: unsafe extern "system" fn(*const OrtValueInfo, *mut *const c_char) -> Status,
    _290: [Unused; 8],
    /// 298
    pub get_key_value_pairs: unsafe extern "system" fn(
        *const OrtKeyValuePairs,
        keys: *mut *const *const c_char,
        values: *mut *const *const c_char,
        *mut usize,
    ),
    _299: [Unused; 1],
    /// 300
    pub release_key_value_pairs: unsafe extern "system" fn(*mut OrtKeyValuePairs),
    _301: [Unused; 6],
    /// 307
    pub hardware_device_type: unsafe extern "system" fn(*const OrtHardwareDevice) -> c_int,
    _308: [Unused; 9],
    /// 317
    pub get_ep_api: unsafe extern "system" fn() -> *const OrtEpApi,
    _318: [Unused; 11],
    /// 329
    pub value_info_is_optional_graph_input: unsafe extern "system" fn(*const OrtValueInfo, *mut bool) -> Status,
    _330: [Unused; 4],
    /// 334
    pub graph_get_model_path: unsafe extern "system" fn(*const OrtGraph, *mut *const PathChar) -> Status,
    _335: [Unused; 3],
    /// 338
    pub graph_get_num_inputs: unsafe extern "system" fn(*const OrtGraph, *mut usize) -> Status,
    /// 339
    pub graph_get_inputs: unsafe extern "system" fn(*const OrtGraph, *mut *const OrtValueInfo, usize) -> Status,
    /// 340
    pub graph_get_num_outputs: unsafe extern "system" fn(*const OrtGraph, *mut usize) -> Status,
    /// 341
    pub graph_get_outputs: unsafe extern "system" fn(*const OrtGraph, *mut *const OrtValueInfo, usize) -> Status,
    _342: [Unused; 2],
    /// 344
    pub graph_get_num_nodes: unsafe extern "system" fn(*const OrtGraph, *mut usize) -> Status,
    /// 345
    pub graph_get_nodes: unsafe extern "system" fn(*const OrtGraph, *mut *const OrtNode, usize) -> Status,
    /// 346
    pub graph_get_parent_node: unsafe extern "system" fn(*const OrtGraph, *mut *const OrtNode) -> Status,
    _347: [Unused; 6],
    /// 353
    pub node_get_num_inputs: unsafe extern "system" fn(*const OrtNode, *mut usize) -> Status,
    /// 354
    pub node_get_inputs: unsafe extern "system" fn(*const OrtNode, *mut *const OrtValueInfo, usize) -> Status,
    /// 355
    pub node_get_num_outputs: unsafe extern "system" fn(*const OrtNode, *mut usize) -> Status,
    /// 356
    pub node_get_outputs: unsafe extern "system" fn(*const OrtNode, *mut *const OrtValueInfo, usize) -> Status,
    _357: [Unused; 22],
    /// 379
    pub get_session_options_config_entries:
        unsafe extern "system" fn(*const OrtSessionOptions, *mut *mut OrtKeyValuePairs) -> Status,
}

// `ORTCHAR_T`, of which paths are.
#[cfg(not(windows))]
pub use std::ffi::c_char as PathChar;
#[cfg(windows)]
pub use std::primitive::u16 as PathChar;

/// `OrtEpApi`.
#[repr(C)]
pub struct OrtEpApi {
    pub create_ep_device: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const OrtHardwareDevice,
        metadata: *const OrtKeyValuePairs,
        options: *const OrtKeyValuePairs,
        *mut *mut OrtEpDevice,
    ) -> Status,
    _release_ep_device: Unused,
    pub ep_graph_support_info_add_nodes_to_fuse: unsafe extern "system" fn(
        *mut OrtEpGraphSupportInfo,
        *const *const OrtNode,
        usize,
        *const OrtNodeFusionOptions,
    ) -> Status,
}

/// `OrtNodeFusionOptions`.
#[repr(C)]
pub struct OrtNodeFusionOptions {
    pub version: u32,
    pub drop_constant_initializers: bool,
}

/// `OrtEpFactory`: what the library makes.
#[repr(C)]
pub struct OrtEpFactory {
    pub version: u32,
    pub get_name: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    pub get_vendor: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    pub get_supported_devices: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const *const OrtHardwareDevice,
        usize,
        *mut *mut OrtEpDevice,
        usize,
        *mut usize,
    ) -> Status,
    pub create_ep: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const *const OrtHardwareDevice,
        *const *const OrtKeyValuePairs,
        usize,
        *const OrtSessionOptions,
        *const OrtLogger,
        *mut *mut OrtEp,
    ) -> Status,
    pub release_ep: unsafe extern "system" fn(*mut OrtEpFactory, *mut OrtEp),
    pub get_vendor_id: unsafe extern "system" fn(*const OrtEpFactory) -> u32,
    pub get_version: unsafe extern "system" fn(*const OrtEpFactory) -> *const c_char,
    pub validate_compiled_model_compatibility_info: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const *const OrtHardwareDevice,
        usize,
        *const c_char,
        *mut c_int,
    ) -> Status,
    pub create_allocator: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const c_void,
        *const OrtKeyValuePairs,
        *mut *mut c_void,
    ) -> Status,
    pub release_allocator: unsafe extern "system" fn(*mut OrtEpFactory, *mut c_void),
    pub create_data_transfer: unsafe extern "system" fn(*mut OrtEpFactory, *mut *mut c_void) -> Status,
    pub is_stream_aware: unsafe extern "system" fn(*const OrtEpFactory) -> bool,
    pub create_sync_stream_for_device: unsafe extern "system" fn(
        *mut OrtEpFactory,
        *const c_void,
        *const OrtKeyValuePairs,
        *mut *mut c_void,
    ) -> Status,
}

/// `OrtEp`: the provider of a session. Functions that are null have a default.
#[repr(C)]
pub struct OrtEp {
    pub version: u32,
    pub get_name: unsafe extern "system" fn(*const OrtEp) -> *const c_char,
    pub get_capability: unsafe extern "system" fn(*mut OrtEp, *const OrtGraph, *mut OrtEpGraphSupportInfo) -> Status,
    pub compile: unsafe extern "system" fn(
        *mut OrtEp,
        *const *const OrtGraph,
        *const *const OrtNode,
        usize,
        *mut *mut OrtNodeComputeInfo,
        *mut *mut OrtNode,
    ) -> Status,
    pub release_node_compute_infos: unsafe extern "system" fn(*mut OrtEp, *mut *mut OrtNodeComputeInfo, usize),
    pub get_preferred_data_layout: Unused,
    pub should_convert_data_layout_for_op: Unused,
    pub set_dynamic_options: Unused,
    pub on_run_start: Unused,
    pub on_run_end: Unused,
    pub create_allocator: Unused,
    pub create_sync_stream_for_device: Unused,
    pub get_compiled_model_compatibility_info: Unused,
}

/// `OrtNodeComputeInfo`: how a compiled node is computed.
#[repr(C)]
pub struct OrtNodeComputeInfo {
    pub version: u32,
    pub create_state:
        unsafe extern "system" fn(*mut OrtNodeComputeInfo, *mut OrtNodeComputeContext, *mut *mut c_void) -> Status,
    pub compute: unsafe extern "system" fn(*mut OrtNodeComputeInfo, *mut c_void, *mut OrtKernelContext) -> Status,
    pub release_state: unsafe extern "system" fn(*mut OrtNodeComputeInfo, *mut c_void),
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn functions_are_at_their_numbers() {
        macro_rules! numbers {
            ($($name:ident = $number:expr),* $(,)?) => {
                $(assert_eq!(offset_of!(OrtApi, $name), $number * size_of::<Unused>(), stringify!($name));)*
            };
        }
        numbers! {
            create_status = 0, get_error_message = 2, is_tensor = 50, get_tensor_mutable_data = 51, get_tensor_element_type = 60, get_dimensions_count = 61, get_dimensions = 62, get_tensor_type_and_shape = 65, kernel_context_get_input = 90, kernel_context_get_output = 91, release_status = 93, release_tensor_type_and_shape_info = 99, logger_log_message = 247, get_value_info_name = 289, get_key_value_pairs = 298, release_key_value_pairs = 300, hardware_device_type = 307, get_ep_api = 317, value_info_is_optional_graph_input = 329, graph_get_model_path = 334, graph_get_num_inputs = 338, graph_get_inputs = 339, graph_get_num_outputs = 340, graph_get_outputs = 341, graph_get_num_nodes = 344, graph_get_nodes = 345, graph_get_parent_node = 346, node_get_num_inputs = 353, node_get_inputs = 354, node_get_num_outputs = 355, node_get_outputs = 356, get_session_options_config_entries = 379,
        }
    }
}
