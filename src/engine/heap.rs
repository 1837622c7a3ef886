//! The heap as computations want it: what is freed stays in the process, and pages are large where the system has such.
//!
//! By default glibc gives large blocks back to the system at once, and takes them again, page fault by page fault, in
//! the next run: a convolution that needs a megabyte of workspace loses a third of a millisecond on each. And weights are
//! read through once a run, in pages of 4 KiB each of which costs a walk through the page tables: pages of 2 MiB make
//! resnet50 and a YOLO 5 to 9 % faster on a virtual machine.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use glibc as system;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use other as system;

/// Tells the allocator of the C library to keep what is freed, up to the most that was ever allocated, and to take what
/// all threads need from one place, which [`advise_large_pages`] asks large pages for. For a program's `main`; does
/// nothing where the C library is another one.
pub fn prepare_heap() {
    system::prepare();
}

/// Asks for large pages where `size` bytes were allocated at `pointer` and not touched yet. For an allocator, which this
/// neither calls nor unwinds into.
pub(super) fn advise_large_pages(pointer: *mut u8, size: usize) {
    if size >= WORTHWHILE {
        system::advise(pointer, size);
    }
}

/// Smaller blocks do not make the heap grow by much.
const WORTHWHILE: usize = 64 << 10;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// The largest threshold that glibc takes: half of an arena's `HEAP_MAX_SIZE`. Larger blocks are mapped by themselves.
    const MAPPED: usize = 32 << 20;

    /// The heap grows by this much more than is needed. The allocator writes behind each block, and a large page is only
    /// had where nothing was written before it is asked for: so it is asked for much at a time.
    const AHEAD: libc::c_int = 64 << 20;

    const LARGE_PAGE: usize = 2 << 20;

    /// The heap's end when large pages were last asked for; 0 as long as nobody wants them.
    static ADVISED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn prepare() {
        // SAFETY: `mallopt` only sets parameters of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED as libc::c_int);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
            libc::mallopt(libc::M_TOP_PAD, AHEAD);
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
        ADVISED.store(end(), Relaxed);
    }

    pub(super) fn advise(pointer: *mut u8, size: usize) {
        let before = ADVISED.load(Relaxed);
        if before == 0 {
            return;
        }
        let end = end();
        if end > before {
            ADVISED.fetch_max(end, Relaxed);
            large_pages(before, end);
        }
        if size >= MAPPED {
            large_pages(pointer as usize, pointer as usize + size);
        }
    }

    fn end() -> usize {
        // SAFETY: `sbrk(0)` moves nothing.
        unsafe { libc::sbrk(0) as usize }
    }

    /// Asks for large pages between two addresses, and around them.
    fn large_pages(from: usize, to: usize) {
        let from = from - from % LARGE_PAGE;
        // SAFETY: advice changes no content; where nothing is mapped it is refused, which does no harm.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod other {
    pub(super) fn prepare() {}

    pub(super) fn advise(_pointer: *mut u8, _size: usize) {}
}
