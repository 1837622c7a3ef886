//! A [`GpuDriver`] without a GPU: kernels compiled by this machine's C compiler, on main memory.
//!
//! Tests everything but NVIDIA's driver on machines without a GPU: the translation of operators, the index arithmetic of
//! kernels, and the accounting of memory. It is not meant to be fast.

use std::{
    alloc::{Layout, alloc, dealloc},
    collections::HashMap,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use libloading::Library;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder, linalg::general_mat_mul};

use super::{
    arguments::Product,
    driver::{Address, ConvolutionSizes, Event, GpuDriver, GpuError, Grid, Launch, LibraryConvolution},
    gemm::{Gemm, MatrixLayout},
    source::{Kernel, KernelFamily},
};
use edgecut_graph::units::{Bytes, Micros};

/// Runs kernels on the CPU.
pub(super) struct FakeDriver {
    state: Mutex<FakeState>,
    start: Instant,
}

#[derive(Default)]
struct FakeState {
    libraries: HashMap<KernelFamily, Library>,
    allocations: HashMap<Address, Layout>,
    folder: Option<tempfile::TempDir>,
}

/// Alignment of all allocations, as guaranteed by the CUDA driver.
const ALIGNMENT: usize = 256;

type Function = unsafe extern "C" fn(*const u64, u32, u32);

impl FakeDriver {
    pub(super) fn new() -> FakeDriver {
        FakeDriver { state: Mutex::default(), start: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if `[address, address + bytes)` is not within an allocation.
    fn check(&self, address: Address, bytes: usize) -> Result<(), GpuError> {
        let state = self.state();
        let holds = |(first, layout): (&Address, &Layout)| {
            (*first..*first + layout.size() as u64).contains(&address)
                && address + bytes as u64 <= *first + layout.size() as u64
        };
        match bytes == 0 || state.allocations.iter().any(holds) {
            true => Ok(()),
            false => Err(GpuError::Failed(format!("{bytes} bytes at {address:#x} are not allocated"))),
        }
    }
}

impl Drop for FakeDriver {
    fn drop(&mut self) {
        let addresses: Vec<Address> = self.state().allocations.keys().copied().collect();
        addresses.into_iter().for_each(|address| self.free(address));
    }
}

impl GpuDriver for FakeDriver {
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT);
        let layout = layout.map_err(|e| GpuError::Failed(format!("allocating {bytes} bytes: {e}")))?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(GpuError::Failed(format!("allocating {bytes} bytes: out of memory")));
        }
        // Memory is not zeroed on a GPU either.
        // SAFETY: the memory has this many bytes.
        unsafe { memory.write_bytes(0xa5, layout.size()) };
        self.state().allocations.insert(memory as Address, layout);
        Ok(memory as Address)
    }

    fn free(&self, address: Address) {
        if let Some(layout) = self.state().allocations.remove(&address) {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.check(to, bytes.len())?;
        // SAFETY: the range is allocated (checked above), and not referenced elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.check(from, bytes.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn prepare(&self, kernel: &Kernel) -> Result<(), GpuError> {
        let mut state = self.state();
        if !state.libraries.contains_key(&kernel.family) {
            let library = compiled(kernel.family, &mut state.folder)?;
            state.libraries.insert(kernel.family, library);
        }
        let library = &state.libraries[&kernel.family];
        // SAFETY: every kernel is compiled with this type.
        let function = unsafe { library.get::<Function>(kernel.name.as_bytes()) };
        function.map(drop).map_err(|e| GpuError::Failed(format!("loading the kernel {}: {e}", kernel.name)))
    }

    fn launch(&self, launch: &Launch) -> Result<(), GpuError> {
        let state = self.state();
        let library = state.libraries.get(&launch.kernel.family);
        let library =
            library.ok_or_else(|| GpuError::Failed(format!("the kernel {} was not prepared", launch.kernel.name)))?;
        // Small blocks of an odd size, so that the last block has idle threads.
        let (blocks, threads) = match launch.grid {
            Grid::Threads(count) => (count.div_ceil(7), 7),
            Grid::Blocks(count) => (count, 1),
        };
        // SAFETY: the arguments are the bytes of the kernel's struct, whose size the compiler has checked.
        unsafe {
            let function = library.get::<Function>(launch.kernel.name.as_bytes());
            let function = function.map_err(|e| GpuError::Failed(format!("the kernel {}: {e}", launch.kernel.name)))?;
            function(launch.arguments.as_ptr(), blocks, threads);
        }
        Ok(())
    }

    /// Interprets the same description of matrices that is passed to cuBLAS.
    fn multiply(&self, product: &Product) -> Result<bool, GpuError> {
        let Some(call) = Gemm::of(product) else { return Ok(false) };
        let (first, second) = if call.swapped { (product.right, product.left) } else { (product.left, product.right) };
        let strides = |layout: MatrixLayout| match layout.transposed {
            false => [1, layout.leading as usize],
            true => [layout.leading as usize, 1],
        };
        let (rows, columns, depth) = (call.rows as usize, call.columns as usize, call.depth as usize);
        for i in 0..i64::from(call.batch) {
            let at = |address: Address, which: usize| address + (i * call.batch_strides[which]) as u64 * 4;
            let (first_strides, second_strides) = (strides(call.first), strides(call.second));
            // SAFETY: the addresses belong to buffers with matrices of these sizes and strides; the result does not
            // overlap the operands.
            unsafe {
                let a =
                    ArrayView2::from_shape_ptr((rows, depth).strides(first_strides.into()), at(first, 0) as *const f32);
                let b = ArrayView2::from_shape_ptr(
                    (depth, columns).strides(second_strides.into()),
                    at(second, 1) as *const f32,
                );
                let to_strides = [1, call.leading as usize];
                let mut c = ArrayViewMut2::from_shape_ptr(
                    (rows, columns).strides(to_strides.into()),
                    at(product.to, 2) as *mut f32,
                );
                // The uninitialised memory may contain NaN.
                c.fill(0.0);
                general_mat_mul(1.0, &a, &b, 0.0, &mut c);
            }
        }
        Ok(true)
    }

    fn convolution(&self, _: &ConvolutionSizes, _: usize) -> Option<Box<dyn LibraryConvolution>> {
        None
    }

    fn compute_library(&self) -> String {
        "fake".to_string()
    }

    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, GpuError> {
        self.allocate(bytes).map(|address| address as *mut u8)
    }

    fn unlock_memory(&self, first: *mut u8) {
        self.free(first as Address);
    }

    fn synchronise(&self) -> Result<(), GpuError> {
        Ok(())
    }

    fn record_event(&self) -> Result<Event, GpuError> {
        Ok(self.start.elapsed().as_nanos() as Event)
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<Micros, GpuError> {
        Ok(Micros(to.saturating_sub(from) as f64 / 1e3))
    }

    fn memory(&self) -> Result<(Bytes, Bytes), GpuError> {
        let all = Bytes(1 << 40);
        let used: usize = self.state().allocations.values().map(Layout::size).sum();
        Ok((all - Bytes(used as u64), all))
    }
}

/// Compiles a family with the system's C compiler, and loads it.
fn compiled(family: KernelFamily, folder: &mut Option<tempfile::TempDir>) -> Result<Library, GpuError> {
    let error = |what: String| GpuError::Failed(format!("compiling the {family:?} kernels for this machine: {what}"));
    if folder.is_none() {
        *folder = Some(tempfile::tempdir().map_err(|e| error(e.to_string()))?);
    }
    let Some(folder) = folder.as_ref() else { return Err(error("no temporary folder".to_string())) };
    let (source, library) = (folder.path().join(format!("{family:?}.c")), folder.path().join(format!("{family:?}.so")));
    std::fs::write(&source, family.source()).map_err(|e| error(e.to_string()))?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-lm")
        .output()
        .map_err(|e| error(e.to_string()))?;
    if !output.status.success() {
        return Err(error(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    // SAFETY: the library contains only kernels; loading it runs no code.
    unsafe { Library::new(&library) }.map_err(|e| error(e.to_string()))
}
