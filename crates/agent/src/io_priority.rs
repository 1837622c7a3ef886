//! Scheduling priority of I/O threads.
//!
//! Where compute and I/O threads share a core, the kernel lets a compute thread finish its time slice of some
//! milliseconds before it runs a thread woken by a message: a halo then waits as long as an operator takes. Since Linux
//! 6.12 a thread can request a shorter slice. It then preempts threads with longer slices when it wakes up, as long as
//! it has not exceeded its share of the core; the share stays the same, so that no privilege is needed. A thread that
//! has just sent much has exceeded its share. A high priority enlarges the share, but needs a privilege (root,
//! `LimitNICE=` of systemd).

/// Requests a short time slice for the calling thread, and a high priority if it is permitted. Threads that it starts
/// inherit neither. Kernels before Linux 6.12 grant the priority only.
#[cfg(target_os = "linux")]
pub fn raise_io_priority() {
    // SAFETY: it reads the calling thread's nice value and accesses no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // A process that was started with a positive nice value keeps it.
    let _ = (nice <= 0 && request_short_slice(HIGH_PRIORITY)) || request_short_slice(nice);
}

/// A nice value near the highest priority of an ordinary thread: 70 times the weight of a compute thread.
#[cfg(target_os = "linux")]
const HIGH_PRIORITY: i32 = -19;

/// Requests the shortest time slice at a nice value; returns whether it was granted.
#[cfg(target_os = "linux")]
fn request_short_slice(nice: i32) -> bool {
    /// The kernel's minimum, in nanoseconds.
    const SLICE: u64 = 100_000;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread; the kernel only reads the structure, whose size it is given, during the call. If
    // the call fails, slice and priority are unchanged.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Does nothing: other systems have no such request.
#[cfg(not(target_os = "linux"))]
pub fn raise_io_priority() {}
