//! The heap as computations want it: what is freed stays in the process, and pages are large where the system has such.
//!
//! By default glibc gives large blocks back to the system at once, and takes them again, page fault by page fault, in
//! the next run: a convolution that needs a megabyte of workspace loses a third of a millisecond on each. And weights are
//! read through once a run, in pages of 4 KiB each of which costs a walk through the page tables: pages of 2 MiB make
//! models of convolutions 3 to 9 % faster on a virtual machine.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use glibc as system;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use other as system;

/// Tells the allocator of the C library to keep what is freed, but for blocks so large that each is mapped by itself, and
/// to take what all threads need from one place, which [`CountingAllocator`](super::CountingAllocator) then asks large
/// pages for. For the beginning of a program's `main`: threads that have allocated keep places of their own. Does nothing
/// where the C library is another one.
pub fn prepare_heap() {
    system::prepare();
}

/// Asks for large pages where the heap has grown, and for a block that is mapped by itself: `size` bytes at `pointer`
/// that were just allocated. For an allocator, which this neither calls nor unwinds into.
pub(super) fn advise_large_pages(pointer: *mut u8, size: usize) {
    if size >= LOOKED_AT {
        system::advise(pointer, size);
    }
}

/// Smaller blocks are not worth a look at the heap's end.
const LOOKED_AT: usize = 64 << 10;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// The largest threshold that glibc takes: half of an arena's `HEAP_MAX_SIZE`. Larger blocks are mapped by themselves where
    /// no free piece holds them.
    const MAPPED: usize = 32 << 20;

    /// The heap grows by this much more than is needed. The allocator writes behind each block, and a large page is only
    /// had where nothing was written before it is asked for: so it is asked for much at a time.
    const AHEAD: libc::c_int = 64 << 20;

    const LARGE_PAGE: usize = 2 << 20;
    /// The smallest page that there is: a block that is mapped begins just behind the beginning of one.
    const PAGE: usize = 4 << 10;

    /// The heap's end when large pages were last asked for; 0 as long as nobody wants them.
    static ADVISED: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn prepare() {
        // SAFETY: `mallopt` only sets parameters of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED as libc::c_int);
            libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
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
        if end != before {
            ADVISED.store(end, Relaxed);
            large_pages(before - before % LARGE_PAGE, end);
        }
        if size >= MAPPED {
            let from = pointer as usize;
            large_pages(from - from % PAGE, from.saturating_add(size));
        }
    }

    fn end() -> usize {
        // SAFETY: `sbrk(0)` moves nothing. It reads one word that another thread's allocation may be changing: with the
        // old or the new value, advice comes later or sooner.
        unsafe { libc::sbrk(0) as usize }
    }

    /// Asks for large pages between two addresses, the first one of a page's beginning.
    fn large_pages(from: usize, to: usize) {
        if from < to {
            // SAFETY: advice changes no content, and passes over what is not mapped. It may set `errno`, as any
            // allocation may.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod other {
    pub(super) fn prepare() {}

    pub(super) fn advise(_pointer: *mut u8, _size: usize) {}
}
