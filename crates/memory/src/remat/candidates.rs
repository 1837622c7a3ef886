//! Candidate moves at the peak step: for every value that is idle across it, freeing the value, or moving the operator
//! that writes it or uses it next; where the peak is part of a recomputation, retaining its intermediate values.

use super::{
    precedence::{Precedence, positions},
    schedule_decision::{HostTransfer, NO_READ, ReadIndex, ReadMode, ScheduleDecision, ScheduleMove},
    schedule_expander::ScheduleExpander,
    schedule_step::{Access, ScheduleStep},
};
use crate::program::ValueIndex;
use edgecut_graph::units::Bytes;

/// Tolerance of comparisons between times, in microseconds.
const EPSILON: f64 = 1e-6;

/// Moves that retain values which are recomputed more than once on the way to the operator of the peak step, the
/// slowest first. `expander` must have traced `decision`.
pub(super) fn retain_candidates(
    expander: &ScheduleExpander<'_>,
    decision: &ScheduleDecision,
    found: &mut Vec<ScheduleMove>,
) {
    let program = expander.program;
    let Some(peak) = peak_step(expander) else { return };
    let after = expander.step_of.partition_point(|&step| step < peak);
    let begin = after.checked_sub(1).map_or(0, |before| expander.step_of[before] + 1);
    let end = expander.step_of.get(after).copied().unwrap_or(u32::MAX);
    let mut written = vec![false; program.values.len()];
    let mut again: Vec<(f64, ValueIndex)> = Vec::new();
    for access in expander.accesses.iter().filter(|access| access.written && access.step < end) {
        let before = std::mem::replace(&mut written[access.value as usize], true);
        if before && access.step >= begin && !decision.retained[access.value as usize] {
            let producer = program.value(access.value).producer;
            again.push((producer.map_or(0.0, |producer| program.operator(producer).time.0), access.value));
        }
    }
    again.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    again.dedup_by_key(|entry| entry.1);
    found.extend(again.iter().map(|entry| ScheduleMove::Retain(entry.1)));
}

/// The last step with the peak load.
fn peak_step(expander: &ScheduleExpander<'_>) -> Option<u32> {
    (0..expander.load.len()).rev().max_by_key(|&step| expander.load[step]).map(|step| step as u32)
}

/// The accesses to one value around the peak step.
#[derive(Clone, Copy)]
struct IdleSpan {
    before: Option<Access>,
    after: Option<Access>,
    /// The next read in the order.
    read: ReadIndex,
}

/// For each value its accesses around `peak`.
fn idle_spans(expander: &ScheduleExpander<'_>, peak: u32) -> Vec<IdleSpan> {
    let mut idle = vec![IdleSpan { before: None, after: None, read: NO_READ }; expander.program.values.len()];
    for access in &expander.accesses {
        let entry = &mut idle[access.value as usize];
        if access.step <= peak {
            entry.before = Some(*access);
        } else {
            entry.after = entry.after.or(Some(*access));
            if entry.read == NO_READ && access.read != NO_READ {
                entry.read = access.read;
            }
        }
    }
    idle
}

/// At most `count` moves of each kind that may lower the peak below `limit`, the most promising first. `expander` must
/// have traced `decision`.
pub(super) fn candidates(
    expander: &ScheduleExpander<'_>,
    precedence: &Precedence,
    decision: &ScheduleDecision,
    limit: Bytes,
    count: usize,
    found: &mut Vec<ScheduleMove>,
) {
    found.clear();
    let program = expander.program;
    let Some(peak) = peak_step(expander) else { return };
    // The number of overloaded steps before each step.
    let mut over = Vec::with_capacity(expander.load.len() + 1);
    over.push(0u32);
    for &load in &expander.load {
        over.push(over[over.len() - 1] + u32::from(load > limit.0));
    }
    let positions = positions(&decision.order);
    let peak_position = expander.step_of.partition_point(|&step| step < peak) as u32;
    let mut remats: Vec<(f64, ScheduleMove)> = Vec::new();
    let mut offloads: Vec<(f64, ScheduleMove)> = Vec::new();
    let mut shifts: Vec<(u64, ScheduleMove)> = Vec::new();
    for (value, idle) in (0..).zip(&idle_spans(expander, peak)) {
        let (Some(before), Some(after)) = (idle.before, idle.after) else { continue };
        let bytes = program.value(value).bytes.0;
        if bytes == 0 || before.step == peak || after.written || idle.read == NO_READ {
            continue;
        }
        let gain = bytes as f64 * f64::from((over[after.step as usize] - over[before.step as usize + 1]).max(1));
        let mode = decision.modes[idle.read as usize];
        let producer = program.value(value).producer;
        if let Some(producer) = producer.filter(|&p| program.operator(p).repeatable) {
            let is_kept = matches!(mode, ReadMode::Keep | ReadMode::Offload);
            let to = if is_kept { ReadMode::Remat } else { ReadMode::RematLate };
            let score = gain / (program.operator(producer).time.0 + 1.0);
            remats.push((score, ScheduleMove::Mode(idle.read, to)));
        }
        if mode != ReadMode::Offload
            && program.host.is_some()
            && let Some(transfer) = transfer(expander, decision, value, idle.read, before.step, after.step)
        {
            offloads.push((gain, ScheduleMove::Offload(transfer)));
        }
        if before.written
            && let (Some(producer), ScheduleStep::Run(user)) = (producer, expander.steps[after.step as usize])
            && expander.steps[before.step as usize] == ScheduleStep::Run(producer)
        {
            let to = precedence.range(program, &positions, producer).1.min(positions[user as usize].saturating_sub(1));
            if to >= peak_position && to > positions[producer as usize] {
                shifts.push((bytes, ScheduleMove::Shift(producer, to)));
            }
        }
        if let ScheduleStep::Run(user) = expander.steps[after.step as usize] {
            let to = precedence.range(program, &positions, user).0;
            if to < peak_position && to < positions[user as usize] {
                shifts.push((bytes, ScheduleMove::Shift(user, to)));
            }
        }
    }
    remats.sort_by(|a, b| b.0.total_cmp(&a.0));
    offloads.sort_by(|a, b| b.0.total_cmp(&a.0));
    shifts.sort_by_key(|s| std::cmp::Reverse(s.0));
    found.extend(shifts.iter().take(count).map(|s| s.1));
    found.extend(offloads.iter().take(count).map(|s| s.1));
    found.extend(remats.iter().take(count).map(|s| s.1));
}

/// Free windows of the copy stream between two accesses to a value: the earliest for the store, the latest for the load.
fn transfer(
    expander: &ScheduleExpander<'_>,
    decision: &ScheduleDecision,
    value: ValueIndex,
    read: ReadIndex,
    from: u32,
    until: u32,
) -> Option<HostTransfer> {
    let program = expander.program;
    let time = program.copy_time(value)?.0;
    let order = &decision.order;
    let busy: Vec<(f64, f64)> = expander
        .steps
        .iter()
        .zip(&expander.starts)
        .filter_map(|(step, &start)| match step {
            ScheduleStep::Store(v) | ScheduleStep::Load(v) => Some((start, start + program.copy_time(*v)?.0)),
            ScheduleStep::Run(_) => None,
        })
        .collect();
    let is_free =
        |start: f64| busy.iter().all(|&(from, until)| start + time <= from + EPSILON || start >= until - EPSILON);
    let start_of = |position: u32| expander.starts[expander.step_of[position as usize] as usize];
    let first = expander.step_of.partition_point(|&step| step <= from) as u32;
    let last = expander.step_of.partition_point(|&step| step < until) as u32;
    if first >= last || last as usize >= order.len() {
        return None;
    }
    let store = (first..last).find(|&position| is_free(start_of(position)))?;
    let stored = start_of(store) + time;
    let needed = expander.starts[until as usize];
    let fits = |&position: &u32| {
        let start = start_of(position);
        start >= stored - EPSILON && start + time <= needed + EPSILON && is_free(start)
    };
    let load = (store + 1..last).rev().find(fits)?;
    Some(HostTransfer { read, store: order[store as usize], load: order[load as usize] })
}
