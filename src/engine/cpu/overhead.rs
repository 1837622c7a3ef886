//! What a measurement adds: the time to call a plan that computes nothing.
//!
//! Every step is measured around a call of tract's plan, which costs the same whatever the plan computes. A model that
//! runs as a whole pays it once, and small operators take no longer than it does: it is measured here and left out.

use tract_core::internal::*;

use super::program::start;
use crate::engine::CpuClock;

pub(super) use crate::engine::overhead::Overhead;

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
        let operands = || Ok(tvec!(tensor0(0f32).into_tvalue()));
        Overhead::of(clock, operands, |operands| state.run(operands))
    }
}
