//! cuDNN: convolutions in single precision, on one stream, by its legacy interface, which versions 8 and 9 share.

use std::{
    ffi::{c_int, c_void},
    ptr::null_mut,
    sync::Arc,
};

use cudarc::driver::{CudaContext, CudaStream};

use super::{
    driver::{Address, ConvolutionSizes, GpuError, LibraryConvolution},
    libraries::{NotFound, find_versions, functions},
};
use crate::{CudaVersion, CudnnVersion};

/// Major versions with all functions, newest first.
const VERSIONS: [u32; 2] = [9, 8];

/// A pointer to an object of the library.
type Object = *mut c_void;

functions! {
    Functions {
        create = cudnnCreate(*mut Object),
        destroy = cudnnDestroy(Object),
        set_stream = cudnnSetStream(Object, *mut c_void),
        create_tensor = cudnnCreateTensorDescriptor(*mut Object),
        set_tensor = cudnnSetTensorNdDescriptor(Object, c_int, c_int, *const c_int, *const c_int),
        destroy_tensor = cudnnDestroyTensorDescriptor(Object),
        create_filter = cudnnCreateFilterDescriptor(*mut Object),
        set_filter = cudnnSetFilterNdDescriptor(Object, c_int, c_int, c_int, *const c_int),
        destroy_filter = cudnnDestroyFilterDescriptor(Object),
        create_convolution = cudnnCreateConvolutionDescriptor(*mut Object),
        set_convolution = cudnnSetConvolutionNdDescriptor(
            Object, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int
        ),
        set_groups = cudnnSetConvolutionGroupCount(Object, c_int),
        set_math = cudnnSetConvolutionMathType(Object, c_int),
        destroy_convolution = cudnnDestroyConvolutionDescriptor(Object),
        algorithms = cudnnGetConvolutionForwardAlgorithm_v7(
            Object, Object, Object, Object, Object, c_int, *mut c_int, *mut Algorithm
        ),
        workspace = cudnnGetConvolutionForwardWorkspaceSize(
            Object, Object, Object, Object, Object, c_int, *mut usize
        ),
        convolve = cudnnConvolutionForward(
            Object, *const f32, Object, *const f32, Object, *const f32, Object, c_int, *mut c_void, usize,
            *const f32, Object, *mut f32
        ),
    }
}

/// `cudnnConvolutionFwdAlgoPerf_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Algorithm {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    determinism: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// `CUDNN_DATA_FLOAT`.
const FLOAT: c_int = 0;
/// `CUDNN_TENSOR_NCHW`.
const CHANNELS_FIRST: c_int = 0;
/// `CUDNN_CROSS_CORRELATION`: what networks call a convolution.
const CROSS_CORRELATION: c_int = 1;
/// `CUDNN_FMA_MATH`: single precision, as the engine computes elsewhere, and not TF32.
const FMA_MATH: c_int = 3;
/// At least the number of algorithms, with and without tensor cores.
const MAX_ALGORITHMS: usize = 16;

/// A cuDNN library found on this machine.
pub(super) struct CudnnLibrary {
    functions: Functions,
    pub version: CudnnVersion,
}

impl CudnnLibrary {
    /// The newest cuDNN that works with a driver for CUDA `newest`.
    pub(super) fn find(newest: u32) -> Result<CudnnLibrary, NotFound> {
        let names = VERSIONS.iter().map(|major| format!("libcudnn.so.{major}")).chain(["libcudnn.so".to_string()]);
        find_versions(&names.collect::<Vec<_>>(), |library| {
            // SAFETY: `size_t cudnnGetVersion(void)` and `size_t cudnnGetCudartVersion(void)`.
            let [version, cuda] = unsafe {
                let number = |name: &[u8]| library.get::<unsafe extern "C" fn() -> usize>(name).map(|f| f());
                [number(b"cudnnGetVersion"), number(b"cudnnGetCudartVersion")]
            };
            let [version, cuda] = [version, cuda].map(|number| number.map_err(|e| super::libraries::reason(&e)));
            let (version, cuda) = (CudnnVersion(version?), CudaVersion(i32::try_from(cuda?).unwrap_or(i32::MAX)));
            match () {
                () if !VERSIONS.contains(&version.major()) => Err(format!("version {version} is not supported")),
                () if cuda.major() > newest => Err(format!("built for CUDA {cuda}, which is newer than the driver")),
                () => Ok(CudnnLibrary { functions: Functions::of(library)?, version }),
            }
        })
    }

    /// Creates a handle for `stream`, whose context is current.
    ///
    /// # Errors
    /// If the GPU has too little memory, or a library that cuDNN needs is missing.
    pub(super) fn start(self, stream: &Arc<CudaStream>) -> Result<Arc<Cudnn>, GpuError> {
        let mut started = Cudnn {
            functions: self.functions,
            handle: null_mut(),
            version: self.version,
            context: Arc::clone(stream.context()),
            stream: Arc::clone(stream),
        };
        // SAFETY: the function writes a handle; the stream outlives it.
        unsafe {
            check("starting cuDNN", (started.functions.create)(&mut started.handle))?;
            let stream = started.stream.cu_stream().cast::<c_void>();
            check("starting cuDNN", (started.functions.set_stream)(started.handle, stream))?;
        }
        Ok(Arc::new(started))
    }
}

/// A cuDNN handle for one stream.
pub(super) struct Cudnn {
    functions: Functions,
    handle: Object,
    pub version: CudnnVersion,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

// SAFETY: any thread may use the handle, and computations exclude each other (`GpuContext::lock`).
unsafe impl Send for Cudnn {}
// SAFETY: as above; the library is thread-safe.
unsafe impl Sync for Cudnn {}

impl Cudnn {
    /// A convolution with the fastest algorithm, by cuDNN's heuristics, that needs at most `max_workspace` bytes; `None`
    /// if cuDNN has none for these sizes.
    pub(super) fn prepare(
        self: &Arc<Cudnn>,
        sizes: &ConvolutionSizes,
        max_workspace: usize,
    ) -> Option<CudnnConvolution> {
        let [x, w, y] = [sizes.data(), sizes.weight(), sizes.result()];
        let mut convolution = CudnnConvolution {
            cudnn: Arc::clone(self),
            data: null_mut(),
            weight: null_mut(),
            result: null_mut(),
            convolution: null_mut(),
            algorithm: 0,
            workspace: 0,
        };
        let f = &self.functions;
        let axes = sizes.axes();
        let (rank, count) = (x.len() as c_int, axes as c_int);
        let (before, stride, dilation) =
            (sizes.spatial(&sizes.before), sizes.spatial(&sizes.stride), sizes.spatial(&sizes.dilation));
        let (mut found, mut algorithms) = (0, [Algorithm::default(); MAX_ALGORITHMS]);
        // SAFETY: descriptors are created before they are set, and arrays have the announced lengths.
        let is_supported = unsafe {
            let of = &mut convolution;
            (f.create_tensor)(&mut of.data) == 0
                && (f.create_tensor)(&mut of.result) == 0
                && (f.create_filter)(&mut of.weight) == 0
                && (f.create_convolution)(&mut of.convolution) == 0
                && (f.set_tensor)(of.data, FLOAT, rank, x.as_ptr(), strides(&x).as_ptr()) == 0
                && (f.set_tensor)(of.result, FLOAT, rank, y.as_ptr(), strides(&y).as_ptr()) == 0
                && (f.set_filter)(of.weight, FLOAT, CHANNELS_FIRST, rank, w.as_ptr()) == 0
                && (f.set_convolution)(
                    of.convolution,
                    count,
                    before.as_ptr(),
                    stride.as_ptr(),
                    dilation.as_ptr(),
                    CROSS_CORRELATION,
                    FLOAT,
                ) == 0
                && (f.set_groups)(of.convolution, sizes.groups) == 0
                && (f.set_math)(of.convolution, FMA_MATH) == 0
                && (f.algorithms)(
                    self.handle,
                    of.data,
                    of.weight,
                    of.convolution,
                    of.result,
                    MAX_ALGORITHMS as c_int,
                    &mut found,
                    algorithms.as_mut_ptr(),
                ) == 0
        };
        let found =
            algorithms.iter().take(usize::try_from(found).unwrap_or(0)).filter(|a| is_supported && a.status == 0);
        // The heuristics may name algorithms of other precisions. Asking for the workspace fails if this descriptor lacks one.
        let of = &mut convolution;
        (of.algorithm, of.workspace) = found.map(|a| a.algorithm).find_map(|algorithm| {
            let mut bytes = 0;
            // SAFETY: the descriptors were set above, and the function writes one number.
            let status = unsafe {
                (f.workspace)(self.handle, of.data, of.weight, of.convolution, of.result, algorithm, &mut bytes)
            };
            (status == 0 && bytes <= max_workspace).then_some((algorithm, bytes))
        })?;
        Some(convolution)
    }
}

impl Drop for Cudnn {
    fn drop(&mut self) {
        if !self.handle.is_null() && self.context.bind_to_thread().is_ok() {
            // SAFETY: the handle was created and is not used afterwards. A failed GPU reports its error elsewhere.
            let _ = unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

/// A convolution of known sizes.
pub(super) struct CudnnConvolution {
    cudnn: Arc<Cudnn>,
    data: Object,
    weight: Object,
    result: Object,
    convolution: Object,
    algorithm: c_int,
    workspace: usize,
}

// SAFETY: descriptors are plain memory, used by one thread at a time.
unsafe impl Send for CudnnConvolution {}

impl LibraryConvolution for CudnnConvolution {
    fn workspace(&self) -> usize {
        self.workspace
    }

    unsafe fn enqueue(&self, data: Address, weight: Address, workspace: Address, to: Address) -> Result<(), GpuError> {
        let bound = self.cudnn.context.bind_to_thread();
        bound.map_err(|e| GpuError::Failed(format!("binding the context: {e:?}")))?;
        let (one, zero) = (1f32, 0f32);
        // SAFETY: guaranteed by the caller; the factors are read before the call returns.
        let status = unsafe {
            (self.cudnn.functions.convolve)(
                self.cudnn.handle,
                &one,
                self.data,
                data as *const f32,
                self.weight,
                weight as *const f32,
                self.convolution,
                self.algorithm,
                workspace as *mut c_void,
                self.workspace,
                &zero,
                self.result,
                to as *mut f32,
            )
        };
        check("convolving", status)
    }
}

impl Drop for CudnnConvolution {
    fn drop(&mut self) {
        let f = &self.cudnn.functions;
        let destroy = |object: Object, destroy: unsafe extern "C" fn(Object) -> c_int| {
            if !object.is_null() {
                // SAFETY: created by the matching function, and destroyed once.
                let _ = unsafe { destroy(object) };
            }
        };
        destroy(self.data, f.destroy_tensor);
        destroy(self.result, f.destroy_tensor);
        destroy(self.weight, f.destroy_filter);
        destroy(self.convolution, f.destroy_convolution);
    }
}

/// Strides of a dense row-major tensor.
fn strides(shape: &[c_int]) -> Vec<c_int> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Converts a `cudnnStatus_t`, whose numbers differ between versions 8 and 9.
fn check(doing: &str, status: c_int) -> Result<(), GpuError> {
    let why = match status {
        0 => return Ok(()),
        1 | 1001 | 1002 | 1008 | 3009 => "not initialised, or a library that it needs is missing",
        2 | 4003 | 4004 => "out of memory",
        3 | 2000..=2999 => "invalid sizes",
        6 | 3007 => "the GPU is not supported",
        9 | 3000..=3999 => "not supported",
        8 | 5000..=5999 => "the GPU failed",
        _ => "failed",
    };
    Err(GpuError::Failed(format!("{doing}: {why} (cuDNN status {status})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::libraries::NEWEST;

    #[test]
    fn an_installed_library_has_all_functions() {
        match CudnnLibrary::find(NEWEST) {
            Ok(cudnn) => assert!(VERSIONS.contains(&cudnn.version.major()), "{}", cudnn.version),
            Err(NotFound(why)) => eprintln!("SKIPPED, NOT RUN: cuDNN cannot be loaded ({why})"),
        }
    }

    #[test]
    fn tensors_are_dense() {
        assert_eq!(strides(&[2, 3, 5, 7]), [105, 35, 7, 1]);
    }
}
