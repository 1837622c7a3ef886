//! Measurement overhead: the time measured for a call that computes nothing.

use crate::{CpuClock, statistics::median, timed};
use edgecut_graph::units::Micros;

/// Measured calls, after the warm-up.
const CALLS: usize = 300;
const WARM_UP: usize = 100;

/// Median wall-clock and CPU time of a call that computes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overhead {
    pub wall: Micros,
    pub cpu: Micros,
}

impl Overhead {
    /// Measures `call` with the given clock. `prepare` makes the argument of a call and is not timed.
    ///
    /// # Errors
    /// The first error of `prepare` or `call`.
    pub(super) fn of<T, R, E>(
        clock: CpuClock,
        mut prepare: impl FnMut() -> Result<T, E>,
        mut call: impl FnMut(T) -> Result<R, E>,
    ) -> Result<Overhead, E> {
        let (mut walls, mut cpus) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
        for number in 0..WARM_UP + CALLS {
            let prepared = prepare()?;
            let (done, wall, cpu) = timed(clock, || call(prepared));
            done?;
            if number >= WARM_UP {
                walls.push(wall);
                cpus.push(cpu);
            }
        }
        Ok(Overhead { wall: median(&walls), cpu: median(&cpus) })
    }

    /// `wall` and `cpu` of a measurement around `calls` calls, without the overhead.
    pub(super) fn subtract(&self, calls: usize, wall: Micros, cpu: Micros) -> (Micros, Micros) {
        let without = |time: Micros, overhead: Micros| Micros((time.0 - calls as f64 * overhead.0).max(0.0));
        (without(wall, self.wall), without(cpu, self.cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_subtracted_per_call_and_times_stay_non_negative() {
        let overhead = Overhead { wall: Micros(2.0), cpu: Micros(1.0) };
        assert_eq!(overhead.subtract(3, Micros(10.0), Micros(2.5)), (Micros(4.0), Micros::ZERO));
        assert_eq!(overhead.subtract(0, Micros(10.0), Micros(2.5)), (Micros(10.0), Micros(2.5)));
    }
}
