//! The arena of a schedule, checked against the peak that the search predicted, and TVM's arena to compare with.

use edgecut_graph::units::Bytes;

use super::{GroupedGraph, Schedule};
use crate::{
    ArenaError, OrderError, PackOptions, Packing, bound,
    check::{self, PackingViolation},
    pack,
    remat::ScheduleStep,
    schedule_buffers::schedule_buffers,
    tvm,
};

/// Why a schedule has no arena.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleArenaError {
    #[error("the schedule's buffers take {found} at one time, {predicted} were predicted")]
    Peak { found: Bytes, predicted: Bytes },
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("a packing does not pass its check: {0}")]
    Check(#[from] PackingViolation),
}

/// Packs the buffers of a schedule, at multiples of `align` and with `effort` steps of search.
///
/// # Errors
/// If they need more at one time than the search said, or cannot be packed.
pub fn arena(schedule: &Schedule<'_>, align: u64, effort: u64) -> Result<Packing, ScheduleArenaError> {
    let program = &schedule.variant.lowered.program;
    let held = schedule_buffers(program, &schedule.steps(), align);
    let (found, predicted) = (bound::peak(&held).bytes + program.resident, schedule.peak);
    if found > predicted {
        return Err(ScheduleArenaError::Peak { found, predicted });
    }
    let packing = pack(&held, &PackOptions { capacity: None, effort })?;
    check::packing(&held, &packing)?;
    Ok(packing)
}

/// TVM's default arena for the groups in program order, without results in operands' bytes.
///
/// # Errors
/// If the size of a tensor is not known.
pub fn tvm_arena(grouped: &GroupedGraph, align: u64) -> Result<Bytes, OrderError> {
    let mut plain = grouped.clone();
    plain.groups.iter_mut().for_each(|group| (group.in_place, group.workspace) = (false, Bytes::ZERO));
    let program = plain.lower()?.program;
    let steps: Vec<ScheduleStep> = (0..program.operators.len() as u32).map(ScheduleStep::Run).collect();
    Ok(tvm::greedy_by_size(&schedule_buffers(&program, &steps, align)).height)
}
