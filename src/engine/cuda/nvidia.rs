//! A [`Card`] by NVIDIA's driver, its run-time compiler and its matrix library, all loaded when the program runs.
//!
//! One stream: everything is done in the order in which it is asked for. Of the card's settings nothing is changed.

use std::{
    collections::{HashMap, VecDeque},
    ffi::c_void,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::{
    cublas::{self, CudaBlas, sys::cublasOperation_t},
    driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream, result, sys},
    nvrtc::{CompileOptions, compile_ptx_with_opts},
};

use super::{
    arguments::Product,
    blas::{Blas, Stored},
    card::{Address, Card, CardError, Launch, Mark, Threads},
    source::{Family, Kernel},
};
use crate::units::{Bytes, Micros};

/// Threads of a block that work each for itself.
const BLOCK: u32 = 256;
/// Threads of a block that work together: `TEAM` in the kernels.
const TEAM: u32 = 256;
/// Marks that are kept.
const MARKS: usize = 64;

/// One NVIDIA GPU.
pub(super) struct Nvidia {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// Whether memory comes from the driver's pool, which costs next to nothing, or waits for the card.
    pooled: bool,
    blas: Option<CudaBlas>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    modules: HashMap<Family, Arc<CudaModule>>,
    functions: HashMap<Kernel, CudaFunction>,
    marks: VecDeque<(Mark, CudaEvent)>,
    marked: Mark,
}

impl Nvidia {
    /// The card number `ordinal` of the driver's list; `with_blas` says whether cuBLAS is there.
    ///
    /// # Panics
    /// If a library lacks a function that is called: to be contained by the caller.
    pub(super) fn open(ordinal: usize, with_blas: bool) -> Result<Nvidia, CardError> {
        let context = CudaContext::new(ordinal).map_err(|e| failed("opening the card", e))?;
        let stream = context.new_stream().map_err(|e| failed("making a stream", e))?;
        let blas = match with_blas {
            true => Some(CudaBlas::new(Arc::clone(&stream)).map_err(|e| CardError(format!("starting cuBLAS: {e}")))?),
            false => None,
        };
        let pooled = context.has_async_alloc();
        if pooled {
            keep_freed_memory(&context)?;
        }
        Ok(Nvidia { context, stream, pooled, blas, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the card the one that this thread's requests are for.
    fn bind(&self) -> Result<(), CardError> {
        self.context.bind_to_thread().map_err(|e| failed("turning to the card", e))
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
    CardError(format!("{doing}: {error}"))
}

impl Card for Nvidia {
    fn allocate(&self, bytes: usize) -> Result<Address, CardError> {
        self.bind()?;
        // SAFETY: the stream lives as long as the card; who gets the address writes before reading.
        let memory = unsafe {
            match self.pooled {
                true => result::malloc_async(self.stream.cu_stream(), bytes),
                false => result::malloc_sync(bytes),
            }
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
        self.bind()?;
        // SAFETY: `to` has room for the bytes; pageable memory is copied before the call returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }
            .map_err(|e| failed("copying to the card", e))
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), CardError> {
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
        let module = match state.modules.get(&kernel.family) {
            Some(module) => Arc::clone(module),
            None => {
                let module = compiled(&self.context, kernel.family)?;
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
        let operation = |stored: Stored| match stored.transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        let (one, zero) = (1f32, 0f32);
        // SAFETY: the operands are tensors of single precision that are alive and as large as their steps say.
        unsafe {
            cublas::result::sgemm_strided_batched(
                *blas.handle(),
                operation(call.first),
                operation(call.second),
                call.rows as i32,
                call.columns as i32,
                call.depth as i32,
                &one,
                first as *const f32,
                call.first.leading,
                call.batch_steps[0],
                second as *const f32,
                call.second.leading,
                call.batch_steps[1],
                &zero,
                product.to as *mut f32,
                call.leading,
                call.batch_steps[2],
                call.batch as i32,
            )
        }
        .map_err(|e| CardError(format!("multiplying matrices: {e}")))?;
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

/// Compiles a family for this card.
fn compiled(context: &Arc<CudaContext>, family: Family) -> Result<Arc<CudaModule>, CardError> {
    let (major, minor) = context.compute_capability().map_err(|e| failed("asking for the card's architecture", e))?;
    let options = CompileOptions {
        // As exact as C: sums of products may be joined, roots and quotients are rounded to nearest.
        prec_sqrt: Some(true),
        prec_div: Some(true),
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        ..CompileOptions::default()
    };
    let source = family.source();
    let ptx = compile_ptx_with_opts(&source, options)
        // A compiler that is older than the card does not know its architecture; the driver translates older code.
        .or_else(|_| compile_ptx_with_opts(&source, CompileOptions::default()))
        .map_err(|e| CardError(format!("compiling the {family:?} kernels: {e}")))?;
    context.load_module(ptx).map_err(|e| failed(&format!("loading the {family:?} kernels"), e))
}
