//! cuBLAS: batched matrix products in single precision, on one stream.

use std::{
    ffi::{c_int, c_longlong, c_void},
    ptr::null_mut,
};

use super::{
    driver::{Address, GpuError},
    gemm::{Gemm, MatrixLayout},
    libraries::{NotFound, find, functions},
};
use crate::CudaVersion;

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

/// A cuBLAS library found on this machine.
pub(super) struct CublasLibrary {
    functions: Functions,
    pub version: CudaVersion,
}

/// A cuBLAS handle for one stream.
pub(super) struct CublasHandle {
    functions: Functions,
    handle: Handle,
    pub version: CudaVersion,
}

// SAFETY: any thread may use the handle, and computations exclude each other (`GpuContext::lock`).
unsafe impl Send for CublasHandle {}
// SAFETY: as above; the library is thread-safe.
unsafe impl Sync for CublasHandle {}

impl CublasLibrary {
    /// The newest cuBLAS that works with a driver for CUDA `newest`.
    pub(super) fn find(newest: u32) -> Result<CublasLibrary, NotFound> {
        find("cublas", newest, |library| {
            let functions = Functions::of(library)?;
            let (mut major, mut minor) = (0, 0);
            // SAFETY: the functions write one number to each address.
            unsafe {
                (functions.property)(MAJOR_VERSION, &mut major);
                (functions.property)(MINOR_VERSION, &mut minor);
            }
            let version = CudaVersion(1000 * major + 10 * minor);
            match version.major() > newest {
                true => Err(format!("version {version} is newer than the driver")),
                false => Ok(CublasLibrary { functions, version }),
            }
        })
    }

    /// Creates a handle in the current context, for one of its streams, which must outlive the handle.
    ///
    /// # Errors
    /// If the GPU has too little memory, or is not supported.
    ///
    /// # Safety
    /// `stream` belongs to the current context.
    pub(super) unsafe fn start(self, stream: *mut c_void) -> Result<CublasHandle, GpuError> {
        let mut started = CublasHandle { functions: self.functions, handle: null_mut(), version: self.version };
        // SAFETY: the function writes a handle; the caller guarantees the stream.
        unsafe {
            check("starting cuBLAS", (started.functions.create)(&mut started.handle))?;
            check("starting cuBLAS", (started.functions.set_stream)(started.handle, stream))?;
        }
        Ok(started)
    }
}

impl CublasHandle {
    /// Enqueues a batched product of the matrices at these addresses.
    ///
    /// # Safety
    /// The handle's context is current, and the matrices have the sizes of `call`.
    pub(super) unsafe fn multiply(
        &self,
        call: &Gemm,
        first: Address,
        second: Address,
        to: Address,
    ) -> Result<(), GpuError> {
        let operation = |layout: MatrixLayout| c_int::from(layout.transposed);
        let (one, zero) = (1f32, 0f32);
        // SAFETY: guaranteed by the caller; the factors are read before the call returns.
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
                call.batch_strides[0],
                second as *const f32,
                call.second.leading,
                call.batch_strides[1],
                &zero,
                to as *mut f32,
                call.leading,
                call.batch_strides[2],
                call.batch as c_int,
            )
        };
        check("multiplying matrices", status)
    }
}

impl Drop for CublasHandle {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle was created and is not used afterwards. A failed GPU reports its error elsewhere.
            let _ = unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

/// Converts a `cublasStatus_t`.
fn check(doing: &str, status: c_int) -> Result<(), GpuError> {
    let why = match status {
        0 => return Ok(()),
        1 => "not compatible with this driver",
        3 => "out of memory",
        7 => "invalid matrices",
        8 => "the GPU is not supported",
        13 => "the GPU failed",
        15 => "not supported",
        _ => "failed",
    };
    Err(GpuError::Failed(format!("{doing}: {why} (cuBLAS status {status})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::libraries::NEWEST;

    #[test]
    fn an_installed_library_has_all_functions_and_needs_a_driver() {
        let cublas = match CublasLibrary::find(NEWEST) {
            Ok(cublas) => cublas,
            Err(NotFound(why)) => return eprintln!("SKIPPED, NOT RUN: cuBLAS cannot be loaded ({why})"),
        };
        println!("cuBLAS {}", cublas.version);
        assert!((11..=NEWEST).contains(&cublas.version.major()));
        if crate::GpuReport::detect().gpus.is_empty() {
            // SAFETY: without a GPU the stream is not used.
            let error = unsafe { cublas.start(null_mut()) }.err().unwrap();
            assert!(error.to_string().starts_with("starting cuBLAS: "), "{error}");
        }
    }
}
