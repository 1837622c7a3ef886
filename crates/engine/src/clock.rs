//! Clocks of a measurement: monotonic wall clock, and CPU time of the compute threads.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

use edgecut_graph::units::Micros;

/// The threads whose CPU time a measurement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// The current thread alone.
    Thread,
    /// All threads of the process: accurate only while no other thread is busy.
    Process,
}

/// Runs `work` and returns its result, wall-clock time and CPU time.
///
/// The wall clock is read last before and first after the work, which excludes the system call that reads CPU time.
pub fn timed<R>(clock: CpuClock, work: impl FnOnce() -> R) -> (R, Micros, Micros) {
    let cpu_start = clock.now();
    let start = Instant::now();
    let result = work();
    let wall = start.elapsed();
    let cpu = clock.now().saturating_sub(cpu_start);
    (result, wall.into(), cpu.into())
}

impl CpuClock {
    /// CPU time used so far.
    pub fn now(self) -> Duration {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(match self {
            CpuClock::Thread => ClockId::ThreadCPUTime,
            CpuClock::Process => ClockId::ProcessCPUTime,
        });
        Duration::new(tv_sec.max(0) as u64, tv_nsec.max(0) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_takes_wall_time_but_no_cpu_time() {
        let pause = Duration::from_millis(20);
        let ((), wall, cpu) = timed(CpuClock::Thread, || std::thread::sleep(pause));
        assert!(wall >= Micros::from(pause));
        assert!(cpu.0 < wall.0);
    }
}
