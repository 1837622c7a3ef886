//! [`GpuDriver`] on NVIDIA's driver, NVRTC, cuBLAS and cuDNN, all loaded at run time. Uses one stream, and does not change device
//! settings.

use std::{
    collections::{HashMap, VecDeque},
    ffi::c_void,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::{
    driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream, result, sys},
    nvrtc::Ptx,
};

use super::{
    arguments::Product,
    cublas::{CublasHandle, CublasLibrary},
    cudnn::{Cudnn, CudnnLibrary},
    driver::{Address, ConvolutionSizes, Event, GpuDriver, GpuError, Grid, Launch, LibraryConvolution},
    gemm::Gemm,
    libraries::{NEWEST, NotFound},
    nvrtc::NvrtcLibrary,
    source::{Kernel, KernelFamily},
};
use crate::CudaVersion;
use edgecut_graph::units::{Bytes, Micros};

/// Block size of kernels with independent threads.
const BLOCK: u32 = 256;
/// Block size of kernels with cooperating threads: `BLOCK_SIZE` in the kernels.
const COOPERATIVE_BLOCK: u32 = 256;
/// Events that are kept.
const MAX_EVENTS: usize = 64;

/// One NVIDIA GPU.
pub(super) struct NvidiaDriver {
    /// Dropped before its stream.
    blas: Option<CublasHandle>,
    dnn: Option<Arc<Cudnn>>,
    compiler: NvrtcLibrary,
    /// Compute capability, as 10 · major + minor.
    architecture: i32,
    /// Whether memory is allocated from the driver's stream-ordered pool, instead of synchronously.
    pooled: bool,
    state: Mutex<DriverState>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

#[derive(Default)]
struct DriverState {
    modules: HashMap<KernelFamily, Arc<CudaModule>>,
    functions: HashMap<Kernel, CudaFunction>,
    events: VecDeque<(Event, CudaEvent)>,
    last_event: Event,
}

impl NvidiaDriver {
    /// Opens GPU number `ordinal` of a driver for CUDA `driver`, with matching libraries.
    ///
    /// # Errors
    /// If the driver denies access to the GPU, no compiler supports it, or an installed cuBLAS cannot be initialised.
    pub(super) fn open(ordinal: usize, driver: Option<CudaVersion>) -> Result<NvidiaDriver, GpuError> {
        let newest = driver.map_or(NEWEST, CudaVersion::major);
        let context = CudaContext::new(ordinal).map_err(|e| failed("opening the GPU", e))?;
        let capability = context.compute_capability();
        let (major, minor) = capability.map_err(|e| failed("querying the architecture of the GPU", e))?;
        let architecture = 10 * major + minor;
        let compiler = NvrtcLibrary::for_capability(newest, architecture).map_err(|NotFound(why)| {
            GpuError::Failed(format!("NVRTC for compute {major}.{minor} cannot be loaded: {why}"))
        })?;
        let stream = context.new_stream().map_err(|e| failed("creating a stream", e))?;
        let blas = match CublasLibrary::find(newest) {
            // SAFETY: creating the context made it current, and the stream belongs to it.
            Ok(found) => Some(unsafe { found.start(stream.cu_stream().cast::<c_void>()) }?),
            Err(NotFound(_)) => None,
        };
        let dnn = match CudnnLibrary::find(newest) {
            // A cuDNN that does not start, for lack of one of its libraries or of memory, is as none.
            Ok(found) => found.start(&stream).ok(),
            Err(NotFound(_)) => None,
        };
        let pooled = context.has_async_alloc();
        if pooled {
            keep_freed_memory(&context)?;
        }
        Ok(NvidiaDriver { blas, dnn, compiler, architecture, pooled, state: Mutex::default(), stream, context })
    }

    fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context current for this thread.
    fn bind(&self) -> Result<(), GpuError> {
        self.context.bind_to_thread().map_err(|e| failed("binding the context", e))
    }

    fn allocate_raw(&self, bytes: usize) -> Result<Address, result::DriverError> {
        // SAFETY: the stream lives as long as `self`; buffers are written before they are read.
        unsafe {
            match self.pooled {
                true => result::malloc_async(self.stream.cu_stream(), bytes),
                false => result::malloc_sync(bytes),
            }
        }
    }

    /// Returns freed memory from the pool to the device: it may be too fragmented for an allocation.
    fn trim_pool(&self) -> Result<(), result::DriverError> {
        self.stream.synchronize()?;
        // SAFETY: the device is open, and every device has a default pool.
        unsafe { result::mem_pool::trim_to(result::device::get_default_mem_pool(self.context.cu_device())?, 0) }
    }

    fn compiled(&self, family: KernelFamily) -> Result<Arc<CudaModule>, GpuError> {
        let code = self.compiler.compile(&family.source(), self.architecture);
        let code = code.map_err(|e| GpuError::Failed(format!("compiling the {family:?} kernels: {e}")))?;
        let module = self.context.load_module(Ptx::from_binary(code));
        module.map_err(|e| failed(&format!("loading the {family:?} kernels"), e))
    }
}

impl Drop for NvidiaDriver {
    /// The fields free their resources in the current context, so it must be bound on the dropping thread.
    fn drop(&mut self) {
        let _ = self.bind();
    }
}

/// Configures the memory pool to keep freed memory until the process ends, so that a run does not wait for memory freed
/// by the previous one.
fn keep_freed_memory(context: &CudaContext) -> Result<(), GpuError> {
    let mut threshold = u64::MAX;
    // SAFETY: the device is open; the attribute is a 64-bit number, which outlives the call.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device());
        let pool = pool.map_err(|e| failed("querying the memory pool", e))?;
        let attribute = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value: *mut u64 = &mut threshold;
        sys::cuMemPoolSetAttribute(pool, attribute, value.cast::<c_void>()).result()
    }
    .map_err(|e| failed("configuring the memory pool", e))
}

fn failed(doing: &str, error: result::DriverError) -> GpuError {
    let words = error.error_string().map(|words| words.to_string_lossy().into_owned());
    let what = format!("{doing}: {} ({:?})", words.unwrap_or_else(|_| "no description".to_string()), error.0);
    match is_sticky(error.0 as u32) {
        true => GpuError::Lost(what),
        false => GpuError::Failed(what),
    }
}

/// Whether all later calls in the process fail too, by the documentation of `CUresult`: an uncorrectable memory or link error, and
/// what kernels do wrong.
fn is_sticky(code: u32) -> bool {
    matches!(code, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719)
}

impl GpuDriver for NvidiaDriver {
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        self.bind()?;
        let memory = match self.allocate_raw(bytes) {
            Err(error) if self.pooled && error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                self.trim_pool().and_then(|()| self.allocate_raw(bytes))
            }
            result => result,
        };
        memory.map_err(|e| failed(&format!("allocating {} of GPU memory", Bytes(bytes as u64)), e))
    }

    fn free(&self, address: Address) {
        if self.bind().is_err() {
            return;
        }
        // Errors of a failed GPU are reported by the next request.
        // SAFETY: buffers free their own address once; the stream frees it after previous requests.
        let _ = unsafe {
            match self.pooled {
                true => result::free_async(address, self.stream.cu_stream()),
                false => self.stream.synchronize().and_then(|()| result::free_sync(address)),
            }
        };
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: `to` is large enough, and `bytes` outlives the synchronisation below.
        let copied = unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) };
        // The driver may not have read pageable memory when it returns, and has not read page-locked memory.
        let waited = self.stream.synchronize();
        copied.and(waited).map_err(|e| failed("copying to the GPU", e))
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: `from` has this many bytes, and `bytes` outlives the synchronisation below.
        let copied = unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) };
        let waited = self.stream.synchronize();
        copied.and(waited).map_err(|e| failed("copying from the GPU", e))
    }

    fn prepare(&self, kernel: &Kernel) -> Result<(), GpuError> {
        let mut state = self.state();
        if state.functions.contains_key(kernel) {
            return Ok(());
        }
        self.bind()?;
        let module = match state.modules.get(&kernel.family) {
            Some(module) => Arc::clone(module),
            None => {
                let module = self.compiled(kernel.family)?;
                state.modules.insert(kernel.family, Arc::clone(&module));
                module
            }
        };
        let function = module.load_function(&kernel.name);
        let function = function.map_err(|e| failed(&format!("loading the kernel {}", kernel.name), e))?;
        state.functions.insert(kernel.clone(), function);
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> Result<(), GpuError> {
        let (blocks, threads) = match launch.grid {
            Grid::Threads(count) => (count.div_ceil(BLOCK), BLOCK),
            Grid::Blocks(count) => (count, COOPERATIVE_BLOCK),
        };
        if blocks == 0 {
            return Ok(());
        }
        self.bind()?;
        let state = self.state();
        let name = &launch.kernel.name;
        let function = state.functions.get(&launch.kernel);
        let function = function.ok_or_else(|| GpuError::Failed(format!("the kernel {name} was not prepared")))?;
        let mut parameters = [launch.arguments.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one struct, whose size the compiler has checked against Rust's; its addresses belong to
        // live buffers of the tensors' sizes. Parameters are copied before the call returns.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (blocks, 1, 1),
                (threads, 1, 1),
                0,
                self.stream.cu_stream(),
                &mut parameters,
            )
        }
        .map_err(|e| failed(&format!("launching the kernel {name}"), e))
    }

    fn multiply(&self, product: &Product) -> Result<bool, GpuError> {
        let (Some(blas), Some(call)) = (&self.blas, Gemm::of(product)) else { return Ok(false) };
        let Product { batch, rows, columns, depth, .. } = *product;
        if batch == 0 || rows == 0 || columns == 0 {
            return Ok(true);
        }
        if depth == 0 {
            // Empty sums: our kernel writes zeros.
            return Ok(false);
        }
        self.bind()?;
        let (first, second) = if call.swapped { (product.right, product.left) } else { (product.left, product.right) };
        // SAFETY: the context is current, and the operands are live single-precision tensors with the sizes and strides
        // of `call`.
        unsafe { blas.multiply(&call, first, second, product.to) }?;
        Ok(true)
    }

    fn convolution(&self, sizes: &ConvolutionSizes, max_workspace: usize) -> Option<Box<dyn LibraryConvolution>> {
        self.bind().ok()?;
        let convolution = self.dnn.as_ref()?.prepare(sizes, max_workspace)?;
        Some(Box::new(convolution))
    }

    fn compute_library(&self) -> String {
        match (&self.dnn, &self.blas) {
            (Some(dnn), _) => format!("cudnn{}", dnn.version),
            (None, Some(blas)) => format!("cublas{}", blas.version),
            (None, None) => "kernels".to_string(),
        }
    }

    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, GpuError> {
        self.bind()?;
        // SAFETY: the memory is written before it is read.
        let memory = unsafe { result::malloc_host(bytes, 0) };
        memory.map(|first| first.cast::<u8>()).map_err(|e| failed("allocating page-locked memory", e))
    }

    fn unlock_memory(&self, first: *mut u8) {
        if self.bind().is_ok() {
            // SAFETY: allocated by `lock_memory` and freed once. An error cannot be reported from here.
            let _ = unsafe { result::free_host(first.cast::<c_void>()) };
        }
    }

    fn synchronise(&self) -> Result<(), GpuError> {
        self.stream.synchronize().map_err(|e| failed("synchronising with the GPU", e))
    }

    fn record_event(&self) -> Result<Event, GpuError> {
        let event = self.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
        let event = event.map_err(|e| failed("creating an event", e))?;
        event.record(&self.stream).map_err(|e| failed("recording an event", e))?;
        let mut state = self.state();
        state.last_event += 1;
        let id = state.last_event;
        state.events.push_back((id, event));
        if state.events.len() > MAX_EVENTS {
            state.events.pop_front();
        }
        Ok(id)
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<Micros, GpuError> {
        let state = self.state();
        let event = |id: Event| state.events.iter().find(|(kept, _)| *kept == id).map(|(_, event)| event);
        let (Some(from), Some(to)) = (event(from), event(to)) else {
            return Err(GpuError::Failed("an event is no longer kept".to_string()));
        };
        let milliseconds = from.elapsed_ms(to).map_err(|e| failed("reading the elapsed time", e))?;
        Ok(Micros(f64::from(milliseconds) * 1e3))
    }

    fn memory(&self) -> Result<(Bytes, Bytes), GpuError> {
        let (free, total) = self.context.mem_get_info().map_err(|e| failed("querying GPU memory", e))?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_do_wrong_loses_the_context() {
        for (code, lost) in [
            (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
            (sys::CUresult::CUDA_ERROR_INVALID_VALUE, false),
            (sys::CUresult::CUDA_ERROR_NOT_READY, false),
            (sys::CUresult::CUDA_ERROR_ECC_UNCORRECTABLE, true),
            (sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, true),
            (sys::CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, true),
            (sys::CUresult::CUDA_ERROR_LAUNCH_FAILED, true),
        ] {
            assert_eq!(is_sticky(code as u32), lost, "{code:?}");
        }
    }
}
