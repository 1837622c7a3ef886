//! The turns on the processor of threads that move messages.
//!
//! Where a device computes on the core that also sends and receives, the kernel lets a computing thread finish its turn,
//! which is some milliseconds, before it gives the core to one that a message woke up: halos then lie about for as long as
//! an operator takes. Since Linux 6.12 a thread may ask for shorter turns, and goes ahead of one with longer turns when it
//! wakes up, if it has had no more than its share of the core lately. It gets no more of the processor by that, so anybody
//! may. A thread that has just sent much has had more than its share; one of high priority has a larger share, and
//! hardly ever waits: that is for those who may raise priorities (root, `LimitNICE=` of systemd).

/// Asks for short turns for the calling thread, and for high priority where it may have that. Threads that it starts have
/// neither. Kernels before Linux 6.12 give the priority alone.
#[cfg(target_os = "linux")]
pub fn ask_to_go_first() {
    // SAFETY: it reads the calling thread's nice value and touches no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // Who was started to be nicer than others stays so.
    let _ = (nice <= 0 && ask_for_turns(HIGH)) || ask_for_turns(nice);
}

/// Almost the highest priority of an ordinary thread, as a nice value: it weighs 70 times as much as a computing one.
#[cfg(target_os = "linux")]
const HIGH: i32 = -19;

/// Asks for short turns at the priority `nice`; gives whether that is granted.
#[cfg(target_os = "linux")]
fn ask_for_turns(nice: i32) -> bool {
    /// The shortest that the kernel gives, in nanoseconds.
    const TURN: u64 = 100_000;
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: TURN,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: 0 is the calling thread; the structure has the size that it says and is only read, during the call.
    // Where the call fails, turns and priority stay as they are.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) == 0 }
}

/// Elsewhere nobody can ask.
#[cfg(not(target_os = "linux"))]
pub fn ask_to_go_first() {}
