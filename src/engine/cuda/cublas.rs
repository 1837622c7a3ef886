//! NVIDIA's matrix library, as far as it is called: products of single precision, one after the other on one stream.

use std::{
    ffi::{c_int, c_longlong, c_void},
    ptr::null_mut,
};

use super::{
    blas::{Blas, Stored},
    card::{Address, CardError},
    libraries::{NotFound, find, functions},
};
use crate::engine::gpu::CudaVersion;

/// `cublasHandle_t`.
type Handle = *mut c_void;

functions! {
    Functions {
        property = cublasGetProperty(c_int, *mut c_int),
        create = cublasCreate_v2(*mut Handle),
        destroy = cublasDestroy_v2(Handle),
        set_stream = cublasSetStream_v2(Handle, *mut c_void),
        multiply = cublasSgemmStridedBatched(
            Handle, c_int, c_int, c_int, c_int, c_int,
            *const f32, *const f32, c_int, c_longlong, *const f32, c_int, c_longlong,
            *const f32, *mut f32, c_int, c_longlong, c_int
        ),
    }
}

/// `libraryPropertyType`.
const MAJOR_VERSION: c_int = 0;
const MINOR_VERSION: c_int = 1;

/// A matrix library that was found on this machine.
pub(super) struct Cublas {
    functions: Functions,
    pub version: CudaVersion,
}

/// The library at work on one stream.
pub(super) struct Multiplier {
    functions: Functions,
    handle: Handle,
}

// SAFETY: the handle may be used by any thread in turn, and computations take turns (`Core::turn`).
unsafe impl Send for Multiplier {}
// SAFETY: as above; the library itself is safe for use by several threads.
unsafe impl Sync for Multiplier {}

impl Cublas {
    /// The newest matrix library that a driver for CUDA `newest` works with.
    pub(super) fn find(newest: u32) -> Result<Cublas, NotFound> {
        find("cublas", newest, |library| {
            let functions = Functions::of(library)?;
            let (mut major, mut minor) = (0, 0);
            // SAFETY: the functions write one number to each place.
            unsafe {
                (functions.property)(MAJOR_VERSION, &mut major);
                (functions.property)(MINOR_VERSION, &mut minor);
            }
            let version = CudaVersion(1000 * major + 10 * minor);
            match version.major() > newest {
                true => Err(format!("version {version} is newer than the driver")),
                false => Ok(Cublas { functions, version }),
            }
        })
    }

    /// Starts it in the current context, for a stream of that, which outlives it.
    ///
    /// # Errors
    /// If the card has no memory left for it, or is too old for it.
    ///
    /// # Safety
    /// `stream` is one of the context that is current.
    pub(super) unsafe fn start(self, stream: *mut c_void) -> Result<Multiplier, CardError> {
        let mut started = Multiplier { functions: self.functions, handle: null_mut() };
        // SAFETY: the function writes a handle; the stream is the caller's promise.
        unsafe {
            check("starting cuBLAS", (started.functions.create)(&mut started.handle))?;
            check("starting cuBLAS", (started.functions.set_stream)(started.handle, stream))?;
        }
        Ok(started)
    }
}

impl Multiplier {
    /// Asks for a batch of products, of matrices that begin at these addresses.
    ///
    /// # Safety
    /// The context of the handle is current, and the matrices are as large as `call` says.
    pub(super) unsafe fn multiply(
        &self,
        call: &Blas,
        first: Address,
        second: Address,
        to: Address,
    ) -> Result<(), CardError> {
        let operation = |stored: Stored| c_int::from(stored.transposed);
        let (one, zero) = (1f32, 0f32);
        // SAFETY: the caller's promise; the factors are read before the call returns.
        let status = unsafe {
            (self.functions.multiply)(
                self.handle,
                operation(call.first),
                operation(call.second),
                call.rows as c_int,
                call.columns as c_int,
                call.depth as c_int,
                &one,
                first as *const f32,
                call.first.leading,
                call.batch_steps[0],
                second as *const f32,
                call.second.leading,
                call.batch_steps[1],
                &zero,
                to as *mut f32,
                call.leading,
                call.batch_steps[2],
                call.batch as c_int,
            )
        };
        check("multiplying matrices", status)
    }
}

impl Drop for Multiplier {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was created, and is not used any more. A card that has failed says so elsewhere.
            let _ = unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

/// `cublasStatus_t` in words.
fn check(doing: &str, status: c_int) -> Result<(), CardError> {
    let why = match status {
        0 => return Ok(()),
        1 => "it does not start with this driver",
        3 => "out of memory",
        7 => "it does not take the matrices",
        8 => "the card is too old for it",
        13 => "the card failed",
        15 => "it cannot compute this",
        _ => "it failed",
    };
    Err(CardError(format!("{doing}: {why} (status {status} of cuBLAS)")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cuda::libraries::NEWEST;

    #[test]
    fn a_library_that_is_there_has_what_is_called_and_needs_a_driver_to_start() {
        let cublas = match Cublas::find(NEWEST) {
            Ok(cublas) => cublas,
            Err(NotFound(why)) => return eprintln!("SKIPPED, NOT RUN: cuBLAS cannot be loaded ({why})"),
        };
        println!("cuBLAS {}", cublas.version);
        assert!((11..=NEWEST).contains(&cublas.version.major()));
        if crate::engine::GpuReport::look().gpus.is_empty() {
            // SAFETY: no stream is made use of where there is no card.
            let error = unsafe { cublas.start(null_mut()) }.err().unwrap();
            assert!(error.0.starts_with("starting cuBLAS: "), "{error}");
        }
    }
}
