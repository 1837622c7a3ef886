//! An execution provider of ONNX Runtime whose device is a cluster: a plugin library that a session of any language loads.
//!
//! The provider takes a whole model or nothing of it. A plan of the model is loaded, or made, when the session is created, and
//! each call sends its inputs to the agents. ONNX Runtime 1.23 and later load it by `RegisterExecutionProviderLibrary`;
//! docs/engines.md has the options.
//!
//! | module | contents |
//! |---|---|
//! | `api` | the part of ONNX Runtime's C API that is used |
//! | `runtime` | its calls, as functions with results |
//! | `factory` | what the library registers |
//! | `settings` | the options of the provider |
//! | `provider` | the provider of a session: which nodes it takes |
//! | `placement` | a model whose plan is loaded on the agents |
//! | `kernel` | the node that stands for the model |
//! | `error` | errors |

mod api;
mod error;
mod factory;
mod kernel;
mod placement;
mod provider;
mod runtime;
mod settings;

use std::{ffi::c_char, ptr::null_mut};

use api::{OrtApiBase, OrtEpFactory, OrtLogger, Status};
use factory::Factory;
use runtime::Runtime;

/// Makes the factory of the library. ONNX Runtime calls it when the library is registered.
///
/// # Safety
/// As `CreateEpApiFactoriesFn` of ONNX Runtime says.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn CreateEpFactories(
    _registered_name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    factories: *mut *mut OrtEpFactory,
    most: usize,
    number: *mut usize,
) -> Status {
    // SAFETY: `factories` has room for `most`, and ONNX Runtime outlives its plugins.
    unsafe {
        // ONNX Runtime 1.22 passes other arguments: write nothing. Without its API there is no way to make an error.
        let Some(runtime) = Runtime::of(base) else { return null_mut() };
        *number = 0;
        if most > 0 {
            *factories = Factory::new(runtime).into_raw();
            *number = 1;
        }
    }
    null_mut()
}

/// Releases a factory of [`CreateEpFactories`].
///
/// # Safety
/// `factory` is of [`CreateEpFactories`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn ReleaseEpFactory(factory: *mut OrtEpFactory) -> Status {
    if !factory.is_null() {
        // SAFETY: by the caller.
        drop(unsafe { Factory::from_raw(factory) });
    }
    null_mut()
}
