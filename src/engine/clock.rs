//! The clocks of a measurement: monotonic wall clock, and processor time of the threads that compute.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::units::Micros;

/// Whose processor time a measurement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuClock {
    /// The current thread alone.
    Thread,
    /// All threads of the process: right only while the computation's threads are the only busy ones.
    Process,
}

/// Runs `work` and returns its result, its wall time and its processor time.
///
/// The wall clock is read last before and first after the work, so that reading the processor clock
/// (a system call) is not in it.
pub fn timed<R>(clock: CpuClock, work: impl FnOnce() -> R) -> (R, Micros, Micros) {
    let cpu_start = clock.now();
    let start = Instant::now();
    let result = work();
    let wall = start.elapsed();
    let cpu = clock.now().saturating_sub(cpu_start);
    (result, wall.into(), cpu.into())
}

impl CpuClock {
    /// Processor time used so far.
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
    fn sleeping_takes_wall_time_and_no_processor_time() {
        let pause = Duration::from_millis(20);
        let ((), wall, cpu) = timed(CpuClock::Thread, || std::thread::sleep(pause));
        assert!(wall >= Micros::from(pause));
        assert!(cpu.0 < wall.0);
    }
}
