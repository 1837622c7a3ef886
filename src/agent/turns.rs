//! Short turns for threads that move messages.
//!
//! Where a device computes on the core that also sends and receives, the kernel lets a computing thread finish its turn,
//! which is some milliseconds, before it gives the core to one that a message woke up: halos then lie about for as long as
//! an operator takes. Since Linux 6.12 a thread may ask for shorter turns, and goes ahead of one with longer turns when it
//! wakes up. It gets no more of the processor by that, so anybody may.

/// Asks for short turns for the calling thread. Does nothing where the kernel knows of no such thing.
#[cfg(target_os = "linux")]
pub fn ask_for_short_turns() {
    /// The shortest that the kernel gives, in nanoseconds.
    const TURN: u64 = 100_000;
    // SAFETY: it reads the calling thread's nice value and touches no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: TURN,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread; the structure has the size that it says and is only read, during the call.
    // Where the call fails, as on older kernels, turns stay as they are.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

/// Elsewhere nobody can ask.
#[cfg(not(target_os = "linux"))]
pub fn ask_for_short_turns() {}
