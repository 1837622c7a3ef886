//! A [`Card`] that is none: the kernels compiled by this machine's C compiler, and main memory.
//!
//! By it everything of the engine but the driver is tested on machines without a GPU: what operators become, every
//! kernel's arithmetic of indices, memory that is taken and given back. It says nothing about speed.

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
    blas::{Blas, Stored},
    card::{Address, Card, CardError, Launch, Mark, Threads},
    source::{Family, Kernel},
};
use crate::units::{Bytes, Micros};

/// What a machine without a GPU computes with in its stead.
pub(super) struct Rehearsal {
    state: Mutex<State>,
    began: Instant,
}

#[derive(Default)]
struct State {
    libraries: HashMap<Family, Library>,
    taken: HashMap<Address, Layout>,
    folder: Option<tempfile::TempDir>,
}

/// Alignment of all memory: what the driver promises.
const ALIGNMENT: usize = 256;

type Function = unsafe extern "C" fn(*const u64, u32, u32);

impl Rehearsal {
    pub(super) fn new() -> Rehearsal {
        Rehearsal { state: Mutex::default(), began: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if `[address, address + bytes)` is not inside of what was taken.
    fn check(&self, address: Address, bytes: usize) -> Result<(), CardError> {
        let state = self.state();
        let holds = |(first, layout): (&Address, &Layout)| {
            (*first..*first + layout.size() as u64).contains(&address)
                && address + bytes as u64 <= *first + layout.size() as u64
        };
        match bytes == 0 || state.taken.iter().any(holds) {
            true => Ok(()),
            false => Err(CardError(format!("{bytes} bytes at {address:#x} were never taken"))),
        }
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        let taken: Vec<Address> = self.state().taken.keys().copied().collect();
        taken.into_iter().for_each(|address| self.free(address));
    }
}

impl Card for Rehearsal {
    fn allocate(&self, bytes: usize) -> Result<Address, CardError> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT);
        let layout = layout.map_err(|e| CardError(format!("taking {bytes} bytes: {e}")))?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(CardError(format!("taking {bytes} bytes: none are left")));
        }
        // Nobody may count on zeroes.
        // SAFETY: the memory has so many bytes.
        unsafe { memory.write_bytes(0xa5, layout.size()) };
        self.state().taken.insert(memory as Address, layout);
        Ok(memory as Address)
    }

    fn free(&self, address: Address) {
        if let Some(layout) = self.state().taken.remove(&address) {
            // SAFETY: it was allocated with this layout, and is freed once.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), CardError> {
        self.check(to, bytes.len())?;
        // SAFETY: so many bytes were taken there, by the check, and nobody else knows of them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), CardError> {
        self.check(from, bytes.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn prepare(&self, kernel: &Kernel) -> Result<(), CardError> {
        let mut state = self.state();
        if !state.libraries.contains_key(&kernel.family) {
            let library = compiled(kernel.family, &mut state.folder)?;
            state.libraries.insert(kernel.family, library);
        }
        let library = &state.libraries[&kernel.family];
        // SAFETY: every kernel is compiled with this type.
        let function = unsafe { library.get::<Function>(kernel.name.as_bytes()) };
        function.map(drop).map_err(|e| CardError(format!("looking for the kernel {}: {e}", kernel.name)))
    }

    fn launch(&self, launch: &Launch) -> Result<(), CardError> {
        let state = self.state();
        let library = state.libraries.get(&launch.kernel.family);
        let library =
            library.ok_or_else(|| CardError(format!("the kernel {} was not prepared", launch.kernel.name)))?;
        // A few threads a block, so that the last one has some that have nothing to do.
        let (blocks, threads) = match launch.threads {
            Threads::Each(count) => (count.div_ceil(7), 7),
            Threads::Teams(count) => (count, 1),
        };
        // SAFETY: the kernel takes the struct that these are the bytes of, which the compiler has compared with ours.
        unsafe {
            let function = library.get::<Function>(launch.kernel.name.as_bytes());
            let function = function.map_err(|e| CardError(format!("the kernel {}: {e}", launch.kernel.name)))?;
            function(launch.arguments.as_ptr(), blocks, threads);
        }
        Ok(())
    }

    /// As the matrix library of a card: by the same description of how matrices are stored.
    fn multiply(&self, product: &Product) -> Result<bool, CardError> {
        let Some(call) = Blas::of(product) else { return Ok(false) };
        let (first, second) = if call.swapped { (product.right, product.left) } else { (product.left, product.right) };
        let steps = |stored: Stored| match stored.transposed {
            false => [1, stored.leading as usize],
            true => [stored.leading as usize, 1],
        };
        let (rows, columns, depth) = (call.rows as usize, call.columns as usize, call.depth as usize);
        for i in 0..i64::from(call.batch) {
            let at = |address: Address, which: usize| address + (i * call.batch_steps[which]) as u64 * 4;
            let (first_steps, second_steps) = (steps(call.first), steps(call.second));
            // SAFETY: the addresses are of regions that hold matrices of these sizes and steps; the result's is
            // another one than the operands'.
            unsafe {
                let a =
                    ArrayView2::from_shape_ptr((rows, depth).strides(first_steps.into()), at(first, 0) as *const f32);
                let b = ArrayView2::from_shape_ptr(
                    (depth, columns).strides(second_steps.into()),
                    at(second, 1) as *const f32,
                );
                let to_steps = [1, call.leading as usize];
                let mut c = ArrayViewMut2::from_shape_ptr(
                    (rows, columns).strides(to_steps.into()),
                    at(product.to, 2) as *mut f32,
                );
                // What lies there now may be no number at all.
                c.fill(0.0);
                general_mat_mul(1.0, &a, &b, 0.0, &mut c);
            }
        }
        Ok(true)
    }

    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, CardError> {
        self.allocate(bytes).map(|address| address as *mut u8)
    }

    fn unlock_memory(&self, first: *mut u8) {
        self.free(first as Address);
    }

    fn synchronise(&self) -> Result<(), CardError> {
        Ok(())
    }

    fn mark(&self) -> Result<Mark, CardError> {
        Ok(self.began.elapsed().as_nanos() as Mark)
    }

    fn between(&self, from: Mark, to: Mark) -> Result<Micros, CardError> {
        Ok(Micros(to.saturating_sub(from) as f64 / 1e3))
    }

    fn memory(&self) -> Result<(Bytes, Bytes), CardError> {
        let all = Bytes(1 << 40);
        let taken: usize = self.state().taken.values().map(Layout::size).sum();
        Ok((all - Bytes(taken as u64), all))
    }
}

/// Compiles a family by the system's C compiler, and loads it.
fn compiled(family: Family, folder: &mut Option<tempfile::TempDir>) -> Result<Library, CardError> {
    let error = |what: String| CardError(format!("compiling the {family:?} kernels for this machine: {what}"));
    if folder.is_none() {
        *folder = Some(tempfile::tempdir().map_err(|e| error(e.to_string()))?);
    }
    let Some(folder) = folder.as_ref() else { return Err(error("there is no folder".to_string())) };
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
    // SAFETY: the library has kernels only: nothing runs when it is loaded.
    unsafe { Library::new(&library) }.map_err(|e| error(e.to_string()))
}
