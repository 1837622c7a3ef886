//! Keeping freed memory in the process, so that a computation does not wait for pages that the one before it gave back.

/// Tells the allocator of the C library to keep what is freed, up to the most that was ever allocated.
///
/// By default glibc gives large blocks back to the system at once, and takes them again, page fault by page fault, in
/// the next run: a convolution that needs a megabyte of workspace loses a third of a millisecond on each. For a
/// program's `main`; does nothing where the C library is another one.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest threshold that glibc takes: half of an arena's `HEAP_MAX_SIZE`.
        const LARGEST_BLOCK: libc::c_int = 32 << 20;
        // SAFETY: `mallopt` only sets parameters of the allocator, under its own lock.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_BLOCK);
            libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        }
    }
}
