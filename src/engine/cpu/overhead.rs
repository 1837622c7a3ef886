//! What a measurement adds: the time to call a plan that computes nothing.
//!
//! Every step is measured around a call of tract's plan, which costs the same whatever the plan computes. A model that
//! runs as a whole pays it once, and small operators take no longer than it does: it is measured here and left out.

use tract_core::internal::*;

use super::program::start;
use crate::{
    engine::{CpuClock, timed},
    units::Micros,
};

/// Calls that are measured; the first ones, which warm up, are not counted.
const CALLS: usize = 300;
const WARM_UP: usize = 100;

/// Median wall and processor time of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overhead {
    pub(super) wall: Micros,
    pub(super) cpu: Micros,
}

impl Overhead {
    /// Measures it, with the clocks that computations are measured by.
    ///
    /// # Errors
    /// If tract cannot run a plan without operators.
    pub(super) fn measure(clock: CpuClock, options: &RunOptions) -> TractResult<Overhead> {
        let mut model = TypedModel::default();
        let operand = model.add_source("operand", f32::scalar_fact())?;
        model.select_output_outlets(&[operand])?;
        let mut state = start(model, options)?;
        let (mut walls, mut cpus) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
        for call in 0..WARM_UP + CALLS {
            let operands = tvec!(tensor0(0f32).into_tvalue());
            let (results, wall, cpu) = timed(clock, || state.run(operands));
            results?;
            if call >= WARM_UP {
                walls.push(wall.0);
                cpus.push(cpu.0);
            }
        }
        let median = |mut times: Vec<f64>| {
            times.sort_unstable_by(f64::total_cmp);
            Micros(times[times.len() / 2])
        };
        Ok(Overhead { wall: median(walls), cpu: median(cpus) })
    }
}
