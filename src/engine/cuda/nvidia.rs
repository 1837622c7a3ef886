//! A [`Card`] by NVIDIA's driver, its run-time compiler and its matrix library, all loaded when the program runs.
//!
//! One stream: everything is done in the order in which it is asked for. Of the card's settings nothing is changed.

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
    blas::Blas,
    card::{Address, Card, CardError, Launch, Mark, Threads},
    cublas::{Cublas, Multiplier},
    libraries::{NEWEST, NotFound},
    nvrtc::Compiler,
    source::{Family, Kernel},
};
use crate::{
    engine::gpu::CudaVersion,
    units::{Bytes, Micros},
};

/// Threads of a block that work each for itself.
const BLOCK: u32 = 256;
/// Threads of a block that work together: `TEAM` in the kernels.
const TEAM: u32 = 256;
/// Marks that are kept.
const MARKS: usize = 64;

/// One NVIDIA GPU.
pub(super) struct Nvidia {
    /// Ends before the stream that it works on.
    blas: Option<Multiplier>,
    compiler: Compiler,
    /// Compute capability, as 10 · major + minor.
    architecture: i32,
    /// Whether memory comes from the driver's pool, which costs next to nothing, or waits for the card.
    pooled: bool,
    state: Mutex<State>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

#[derive(Default)]
struct State {
    modules: HashMap<Family, Arc<CudaModule>>,
    functions: HashMap<Kernel, CudaFunction>,
    marks: VecDeque<(Mark, CudaEvent)>,
    marked: Mark,
}

impl Nvidia {
    /// The card number `ordinal` of the list of a driver for CUDA `driver`, with the libraries that suit both.
    ///
    /// # Errors
    /// If the driver does not give the card to this process, no compiler makes code for it, or cuBLAS is there and does
    /// not start.
    pub(super) fn open(ordinal: usize, driver: Option<CudaVersion>) -> Result<Nvidia, CardError> {
        let newest = driver.map_or(NEWEST, CudaVersion::major);
        let context = CudaContext::new(ordinal).map_err(|e| failed("opening the card", e))?;
        let capability = context.compute_capability();
        let (major, minor) = capability.map_err(|e| failed("asking for the card's architecture", e))?;
        let architecture = 10 * major + minor;
        let compiler = Compiler::for_card(newest, architecture)
            .map_err(|NotFound(why)| CardError(format!("NVRTC for compute {major}.{minor} cannot be loaded: {why}")))?;
        let stream = context.new_stream().map_err(|e| failed("making a stream", e))?;
        let blas = match Cublas::find(newest) {
            // SAFETY: the context is current since it was made, and the stream is one of it.
            Ok(found) => Some(unsafe { found.start(stream.cu_stream().cast::<c_void>()) }?),
            Err(NotFound(_)) => None,
        };
        let pooled = context.has_async_alloc();
        if pooled {
            keep_freed_memory(&context)?;
        }
        Ok(Nvidia { blas, compiler, architecture, pooled, state: Mutex::default(), stream, context })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the card the one that this thread's requests are for.
    fn bind(&self) -> Result<(), CardError> {
        self.context.bind_to_thread().map_err(|e| failed("turning to the card", e))
    }

    fn take(&self, bytes: usize) -> Result<Address, result::DriverError> {
        // SAFETY: the stream lives as long as the card; who gets the address writes before reading.
        unsafe {
            match self.pooled {
                true => result::malloc_async(self.stream.cu_stream(), bytes),
                false => result::malloc_sync(bytes),
            }
        }
    }

    /// Gives the card what the pool keeps of freed memory, which may lie in pieces too small for anything.
    fn empty_pool(&self) -> Result<(), result::DriverError> {
        self.stream.synchronize()?;
        // SAFETY: the device is open, and its pool is always there.
        unsafe { result::mem_pool::trim_to(result::device::get_default_mem_pool(self.context.cu_device())?, 0) }
    }

    fn compiled(&self, family: Family) -> Result<Arc<CudaModule>, CardError> {
        let code = self.compiler.compile(&family.source(), self.architecture);
        let code = code.map_err(|e| CardError(format!("compiling the {family:?} kernels: {e}")))?;
        let module = self.context.load_module(Ptx::from_binary(code));
        module.map_err(|e| failed(&format!("loading the {family:?} kernels"), e))
    }
}

impl Drop for Nvidia {
    /// What is given back now is this card's, whatever thread does it.
    fn drop(&mut self) {
        let _ = self.bind();
    }
}

/// Tells this process's pool to keep what is freed until the process ends, so that a run does not wait for the
/// memory that the one before it gave back.
fn keep_freed_memory(context: &CudaContext) -> Result<(), CardError> {
    let mut threshold = u64::MAX;
    // SAFETY: the device is open, and the attribute takes a 64-bit number, which outlives the call.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device());
        let pool = pool.map_err(|e| failed("asking for the memory pool", e))?;
        let attribute = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let value: *mut u64 = &mut threshold;
        sys::cuMemPoolSetAttribute(pool, attribute, value.cast::<c_void>()).result()
    }
    .map_err(|e| failed("setting up the memory pool", e))
}

fn failed(doing: &str, error: result::DriverError) -> CardError {
    let words = error.error_string().map(|words| words.to_string_lossy().into_owned());
    CardError(format!("{doing}: {} ({:?})", words.unwrap_or_else(|_| "no reason is given".to_string()), error.0))
}

impl Card for Nvidia {
    fn allocate(&self, bytes: usize) -> Result<Address, CardError> {
        self.bind()?;
        let memory = match self.take(bytes) {
            Err(error) if self.pooled && error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                self.empty_pool().and_then(|()| self.take(bytes))
            }
            taken => taken,
        };
        memory.map_err(|e| failed(&format!("taking {} of the card's memory", Bytes(bytes as u64)), e))
    }

    fn free(&self, address: Address) {
        if self.bind().is_err() {
            return;
        }
        // A card that has failed frees nothing, and says so at the next request.
        // SAFETY: regions free their own address, once; the stream frees it after what was asked before.
        let _ = unsafe {
            match self.pooled {
                true => result::free_async(address, self.stream.cu_stream()),
                false => self.stream.synchronize().and_then(|()| result::free_sync(address)),
            }
        };
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), CardError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: `to` has room for the bytes, which are there until the stream has been waited for.
        let copied = unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) };
        // The driver does not promise to have read pageable memory when it returns, and has not read locked memory.
        let waited = self.stream.synchronize();
        copied.and(waited).map_err(|e| failed("copying to the card", e))
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), CardError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: `from` has so many bytes, and the buffer is there until the stream has been waited for.
        let copied = unsafe { result::memcpy_dtoh_async(bytes, from, self.stream.cu_stream()) };
        let waited = self.stream.synchronize();
        copied.and(waited).map_err(|e| failed("copying from the card", e))
    }

    fn prepare(&self, kernel: &Kernel) -> Result<(), CardError> {
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
        let function = function.map_err(|e| failed(&format!("looking for the kernel {}", kernel.name), e))?;
        state.functions.insert(kernel.clone(), function);
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> Result<(), CardError> {
        let (blocks, threads) = match launch.threads {
            Threads::Each(count) => (count.div_ceil(BLOCK), BLOCK),
            Threads::Teams(count) => (count, TEAM),
        };
        if blocks == 0 {
            return Ok(());
        }
        self.bind()?;
        let state = self.state();
        let name = &launch.kernel.name;
        let function = state.functions.get(&launch.kernel);
        let function = function.ok_or_else(|| CardError(format!("the kernel {name} was not prepared")))?;
        let mut parameters = [launch.arguments.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel takes one struct, whose size the compiler has compared with Rust's; its addresses are of
        // regions that are alive, and its sizes those of the tensors that lie there. Parameters are copied at once.
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
        .map_err(|e| failed(&format!("calling the kernel {name}"), e))
    }

    fn multiply(&self, product: &Product) -> Result<bool, CardError> {
        let (Some(blas), Some(call)) = (&self.blas, Blas::of(product)) else { return Ok(false) };
        let Product { batch, rows, columns, depth, .. } = *product;
        if batch == 0 || rows == 0 || columns == 0 {
            return Ok(true);
        }
        if depth == 0 {
            // Sums of nothing: the kernel writes zeroes.
            return Ok(false);
        }
        self.bind()?;
        let (first, second) = if call.swapped { (product.right, product.left) } else { (product.left, product.right) };
        // SAFETY: the context is current, and the operands are tensors of single precision that are alive and as large
        // as their steps say.
        unsafe { blas.multiply(&call, first, second, product.to) }?;
        Ok(true)
    }

    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, CardError> {
        self.bind()?;
        // SAFETY: who gets the address writes before reading.
        let memory = unsafe { result::malloc_host(bytes, 0) };
        memory.map(|first| first.cast::<u8>()).map_err(|e| failed("locking main memory", e))
    }

    fn unlock_memory(&self, first: *mut u8) {
        if self.bind().is_ok() {
            // SAFETY: it came from `lock_memory` and is given back once. A failure has nobody to be told to.
            let _ = unsafe { result::free_host(first.cast::<c_void>()) };
        }
    }

    fn synchronise(&self) -> Result<(), CardError> {
        self.stream.synchronize().map_err(|e| failed("waiting for the card", e))
    }

    fn mark(&self) -> Result<Mark, CardError> {
        let event = self.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
        let event = event.map_err(|e| failed("making an event", e))?;
        event.record(&self.stream).map_err(|e| failed("recording an event", e))?;
        let mut state = self.state();
        state.marked += 1;
        let mark = state.marked;
        state.marks.push_back((mark, event));
        if state.marks.len() > MARKS {
            state.marks.pop_front();
        }
        Ok(mark)
    }

    fn between(&self, from: Mark, to: Mark) -> Result<Micros, CardError> {
        let state = self.state();
        let event = |mark: Mark| state.marks.iter().find(|(kept, _)| *kept == mark).map(|(_, event)| event);
        let (Some(from), Some(to)) = (event(from), event(to)) else {
            return Err(CardError("a mark is too old".to_string()));
        };
        let milliseconds = from.elapsed_ms(to).map_err(|e| failed("reading the card's clock", e))?;
        Ok(Micros(f64::from(milliseconds) * 1e3))
    }

    fn memory(&self) -> Result<(Bytes, Bytes), CardError> {
        let (free, total) = self.context.mem_get_info().map_err(|e| failed("asking for the card's memory", e))?;
        Ok((Bytes(free as u64), Bytes(total as u64)))
    }
}
