//! Heap settings for inference: freed memory stays in the process, and the heap uses huge pages.
//!
//! By default, glibc returns large blocks to the system when they are freed, and the next run page-faults them in again:
//! for a convolution with one megabyte of workspace that costs a third of a millisecond per run. Weights are read once
//! per run, and every 4 KiB page costs a TLB miss: 2 MiB pages make convolutional networks 3 to 9 % faster on a virtual
//! machine.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use glibc as system;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use other as system;

/// Configures glibc's allocator to keep freed memory, except blocks large enough to be mapped individually, and to use a
/// single arena, for which [`CountingAllocator`](crate::CountingAllocator) then requests huge pages.
///
/// Call it at the beginning of `main`: threads that have allocated before keep their own arenas. Has no effect with other
/// C libraries.
pub fn configure_heap() {
    system::configure();
}

/// Requests huge pages after `size` bytes at `pointer` were allocated: for the part by which the heap has grown, and for
/// blocks that are mapped individually. Callable from an allocator: neither allocates nor unwinds.
pub(super) fn advise_huge_pages(pointer: *mut u8, size: usize) {
    if size >= MIN_ADVISED {
        system::advise(pointer, size);
    }
}

/// Bytes that the process has allocated from the C library and not freed, by Rust and by other libraries; `None` where it
/// does not tell.
#[cfg(feature = "onnxruntime")]
pub(super) fn allocated_bytes() -> Option<u64> {
    system::allocated_bytes()
}

/// Returns freed memory to the system, which [`configure_heap`] keeps: what loading freed, running does not need.
pub fn release_freed() {
    system::release_freed();
}

/// Reserves `bytes` of the heap, in huge pages, for what a C library is about to allocate itself, such as the weights that ONNX Runtime
/// packs. Takes no memory until it is written. Has no effect before [`configure_heap`].
///
/// A token of a decoder of 1.1 billion parameters of 4 bits takes 26.6 ms instead of 28.3 ms on one core.
pub fn prepare_heap(bytes: usize) {
    system::prepare(bytes);
}

/// For smaller blocks, checking the end of the heap costs more than it gains.
const MIN_ADVISED: usize = 64 << 10;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    /// The largest threshold that glibc accepts: half of an arena's `HEAP_MAX_SIZE`. Larger blocks are mapped individually
    /// unless a free chunk fits.
    const MMAP_THRESHOLD: usize = 32 << 20;

    /// The heap grows by this much more than needed. A huge page is only assigned to untouched memory, and the allocator
    /// writes after each block, so huge pages are requested well ahead.
    const TOP_PAD: libc::c_int = 64 << 20;

    const HUGE_PAGE: usize = 2 << 20;
    /// Smallest page size: a mapped block starts shortly after a page boundary.
    const PAGE: usize = 4 << 10;

    /// End of the heap at the last request for huge pages; 0 before [`configure`].
    static ADVISED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn configure() {
        // SAFETY: `mallopt` only sets parameters of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD as libc::c_int);
            libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
            libc::mallopt(libc::M_TOP_PAD, TOP_PAD);
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
        ADVISED.store(end(), Relaxed);
    }

    /// `struct mallinfo2`: of all arenas, and of blocks that are mapped individually.
    #[cfg(feature = "onnxruntime")]
    #[repr(C)]
    struct Mallinfo {
        from_system: usize,
        free_chunks: usize,
        fast_chunks: usize,
        mapped_blocks: usize,
        mapped_bytes: usize,
        unused: usize,
        fast_bytes: usize,
        used_bytes: usize,
        free_bytes: usize,
        releasable_bytes: usize,
    }

    #[cfg(feature = "onnxruntime")]
    pub(super) fn allocated_bytes() -> Option<u64> {
        // SAFETY: the name is a C string; the result is null before glibc 2.33, which is checked.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: glibc's function of this name has this signature; it only reads, under the allocator's locks.
        let info = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> Mallinfo>(found) }();
        Some((info.used_bytes + info.mapped_bytes) as u64)
    }

    pub(super) fn release_freed() {
        // SAFETY: it works under the allocator's locks, on memory that is not in use.
        unsafe { libc::malloc_trim(0) };
        // The heap may have become smaller: memory that it gains after this has not been advised.
        ADVISED.fetch_min(end(), Relaxed);
    }

    /// glibc's default of `M_MMAP_MAX`.
    const MMAP_MAX: libc::c_int = 65536;

    /// Held while `M_MMAP_MAX` is changed.
    static PREPARING: Mutex<()> = Mutex::new(());

    pub(super) fn prepare(bytes: usize) {
        if ADVISED.load(Relaxed) == 0 || bytes < HUGE_PAGE {
            return;
        }
        let _preparing = PREPARING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `mallopt` only sets a parameter of the allocator: meanwhile, large blocks of other threads also come from the heap.
        // The block is not used, and freed once.
        unsafe {
            libc::mallopt(libc::M_MMAP_MAX, 0);
            let block = libc::malloc(bytes);
            libc::mallopt(libc::M_MMAP_MAX, MMAP_MAX);
            if !block.is_null() {
                let from = block as usize;
                advise_range(from - from % HUGE_PAGE, from + bytes);
                libc::free(block);
            }
        }
    }

    pub(super) fn advise(pointer: *mut u8, size: usize) {
        let before = ADVISED.load(Relaxed);
        if before == 0 {
            return;
        }
        let end = end();
        if end != before {
            ADVISED.store(end, Relaxed);
            advise_range(before - before % HUGE_PAGE, end);
        }
        if size >= MMAP_THRESHOLD {
            let from = pointer as usize;
            advise_range(from - from % PAGE, from.saturating_add(size));
        }
    }

    fn end() -> usize {
        // SAFETY: `sbrk(0)` changes nothing. It reads one word that another thread's allocation may be changing; either
        // value is fine, since it only determines when advice is given.
        unsafe { libc::sbrk(0) as usize }
    }

    /// Requests huge pages between two addresses, of which the first is page-aligned.
    fn advise_range(from: usize, to: usize) {
        if from < to {
            // SAFETY: advice does not change memory contents and skips unmapped ranges. It may set `errno`, as any
            // allocation may.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod other {
    pub(super) fn configure() {}

    #[cfg(feature = "onnxruntime")]
    pub(super) fn allocated_bytes() -> Option<u64> {
        None
    }

    pub(super) fn release_freed() {}

    pub(super) fn prepare(_bytes: usize) {}

    pub(super) fn advise(_pointer: *mut u8, _size: usize) {}
}
