//! What a measurement adds to every time: the time of one that measures nothing.

use super::{CpuClock, timed};
use crate::{statistics::median, units::Micros};

/// Calls that are measured; the first ones, which warm up, are not counted.
const CALLS: usize = 300;
const WARM_UP: usize = 100;

/// Median wall and processor time of a call that computes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overhead {
    pub wall: Micros,
    pub cpu: Micros,
}

impl Overhead {
    /// Measures `call` with the clock that computations are measured by. `prepare` makes what a call takes, which is
    /// not in the time.
    ///
    /// # Errors
    /// The first of a call.
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
}
