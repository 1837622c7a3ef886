//! What makes providers: the object that the library registers with ONNX Runtime.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

use crate::{
    api::{
        OrtEp, OrtEpDevice, OrtEpFactory, OrtHardwareDevice, OrtKeyValuePairs, OrtLogger, OrtSessionOptions, Status,
        VERSION,
    },
    provider::Provider,
    runtime::Runtime,
    settings::{NAME, Settings},
};

/// The factory of the library. ONNX Runtime knows its first field.
#[repr(C)]
pub struct Factory {
    factory: OrtEpFactory,
    runtime: Runtime,
}

const VENDOR: &CStr = c"edgecut";

const PACKAGE_VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

impl Factory {
    /// A factory of providers for `runtime`.
    pub fn new(runtime: Runtime) -> Factory {
        let factory = OrtEpFactory {
            version: VERSION,
            get_name,
            get_vendor,
            get_supported_devices,
            create_ep,
            release_ep,
            get_vendor_id,
            get_version,
            validate_compiled_model_compatibility_info,
            create_allocator,
            release_allocator,
            create_data_transfer,
            is_stream_aware,
            create_sync_stream_for_device,
        };
        Factory { factory, runtime }
    }

    /// Gives the factory to ONNX Runtime.
    pub fn into_raw(self) -> *mut OrtEpFactory {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes a factory back.
    ///
    /// # Safety
    /// `raw` is of [`Factory::into_raw`], and is not used again.
    pub unsafe fn from_raw(raw: *mut OrtEpFactory) -> Box<Factory> {
        // SAFETY: by the caller.
        unsafe { Box::from_raw(raw.cast()) }
    }
}

/// The runtime of a factory.
///
/// # Safety
/// `factory` is of [`Factory::into_raw`] and not released.
unsafe fn runtime_of(factory: *const OrtEpFactory) -> Runtime {
    // SAFETY: by the caller.
    unsafe { (*factory.cast::<Factory>()).runtime }
}

unsafe extern "system" fn get_name(_: *const OrtEpFactory) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_vendor(_: *const OrtEpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn get_version(_: *const OrtEpFactory) -> *const c_char {
    PACKAGE_VERSION.as_ptr()
}

/// No vendor of PCI devices.
unsafe extern "system" fn get_vendor_id(_: *const OrtEpFactory) -> u32 {
    0
}

/// ONNX Runtime pairs each provider with local hardware: the cluster is offered as the CPU of this machine.
unsafe extern "system" fn get_supported_devices(
    factory: *mut OrtEpFactory,
    devices: *const *const OrtHardwareDevice,
    count: usize,
    found: *mut *mut OrtEpDevice,
    most: usize,
    number: *mut usize,
) -> Status {
    // SAFETY: the factory is not released; `devices` has `count` elements, `found` room for `most`.
    unsafe {
        let runtime = runtime_of(factory);
        *number = 0;
        runtime.status(|| {
            let cpu = (0..count).map(|index| *devices.add(index)).find(|device| runtime.is_cpu(*device));
            if let Some(cpu) = cpu.filter(|_| most > 0) {
                *found = runtime.ep_device(factory, cpu)?;
                *number = 1;
            }
            Ok(())
        })
    }
}

unsafe extern "system" fn create_ep(
    factory: *mut OrtEpFactory,
    _: *const *const OrtHardwareDevice,
    _: *const *const OrtKeyValuePairs,
    _: usize,
    options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    ep: *mut *mut OrtEp,
) -> Status {
    // SAFETY: the factory is not released; the other arguments are those of this call, and `logger` outlives the provider.
    unsafe {
        let runtime = runtime_of(factory);
        *ep = null_mut();
        runtime.status(|| {
            *ep = Provider::new(runtime, Settings::of(runtime, options)?, logger).into_raw();
            Ok(())
        })
    }
}

unsafe extern "system" fn release_ep(_: *mut OrtEpFactory, ep: *mut OrtEp) {
    if !ep.is_null() {
        // SAFETY: `ep` is of `create_ep`, and is released once.
        drop(unsafe { Provider::from_raw(ep) });
    }
}

/// `OrtCompiledModelCompatibility_EP_NOT_APPLICABLE`: models are not compiled ahead of time.
unsafe extern "system" fn validate_compiled_model_compatibility_info(
    _: *mut OrtEpFactory,
    _: *const *const OrtHardwareDevice,
    _: usize,
    _: *const c_char,
    compatibility: *mut c_int,
) -> Status {
    // SAFETY: ONNX Runtime passes a place for the result.
    unsafe { *compatibility = 0 };
    null_mut()
}

/// Inputs and outputs are in the memory of the CPU.
unsafe extern "system" fn create_allocator(
    _: *mut OrtEpFactory,
    _: *const c_void,
    _: *const OrtKeyValuePairs,
    allocator: *mut *mut c_void,
) -> Status {
    // SAFETY: ONNX Runtime passes a place for the result.
    unsafe { *allocator = null_mut() };
    null_mut()
}

unsafe extern "system" fn release_allocator(_: *mut OrtEpFactory, _: *mut c_void) {}

unsafe extern "system" fn create_data_transfer(_: *mut OrtEpFactory, transfer: *mut *mut c_void) -> Status {
    // SAFETY: ONNX Runtime passes a place for the result.
    unsafe { *transfer = null_mut() };
    null_mut()
}

unsafe extern "system" fn is_stream_aware(_: *const OrtEpFactory) -> bool {
    false
}

unsafe extern "system" fn create_sync_stream_for_device(
    _: *mut OrtEpFactory,
    _: *const c_void,
    _: *const OrtKeyValuePairs,
    stream: *mut *mut c_void,
) -> Status {
    // SAFETY: ONNX Runtime passes a place for the result.
    unsafe { *stream = null_mut() };
    null_mut()
}
