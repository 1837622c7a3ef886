//! The overhead of calling a tract plan, measured with an empty one.
//!
//! Every step is measured around a call of its plan, and the cost of the call does not depend on the plan. A model that
//! runs as a whole pays it once, while small operators take no longer than the call itself. So it is measured and
//! subtracted.

use tract_core::internal::*;

use super::plan::start;
use crate::{CpuClock, overhead::Overhead};

/// Measures the call of a plan without operators, with the clock used for computations.
///
/// # Errors
/// If tract cannot run such a plan.
pub(super) fn measure_call(clock: CpuClock, options: &RunOptions) -> TractResult<Overhead> {
    let mut model = TypedModel::default();
    let operand = model.add_source("operand", f32::scalar_fact())?;
    model.select_output_outlets(&[operand])?;
    let mut state = start(model, options)?;
    let operands = || Ok(tvec!(tensor0(0f32).into_tvalue()));
    Overhead::of(clock, operands, |operands| state.run(operands))
}
