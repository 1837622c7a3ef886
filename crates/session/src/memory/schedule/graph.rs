//! Schedules of a DLMO or MAGIS graph.

use edgecut_graph::units::{Bytes, Micros};
use edgecut_interop::memory_workload::{MemoryWorkload, PeakAndTime, Solved, WrittenSchedule};
use edgecut_memory::target::Target;
use serde::Serialize;

use crate::Error;

/// The schedule of a graph that meets a target best.
pub struct GraphSchedule {
    pub summary: GraphSummary,
    /// The schedule in the form of the input.
    pub json: String,
}

/// The figures of one schedule.
#[derive(Debug, Serialize)]
pub struct GraphSummary {
    pub operators: usize,
    pub original_peak_bytes: Bytes,
    pub original_time_us: Micros,
    pub limit_bytes: Option<Bytes>,
    pub limit_time_us: Option<Micros>,
    pub peak_bytes: Bytes,
    pub time_us: Micros,
    pub bound_peak_bytes: Bytes,
    pub bound_time_us: Micros,
    /// Of the time under a limit, of the peak under a slowdown.
    pub gap: f64,
    /// Operators that run again.
    pub repeated: usize,
    /// Values that are copied to the host.
    pub stored: usize,
    /// Parts that the batch is split into.
    pub parts: u64,
    /// Schedules that were evaluated.
    pub schedules: u64,
}

/// All schedules of a graph that no other one beats in peak and time.
pub struct GraphFront {
    pub points: Vec<GraphPoint>,
    pub bound_peak_bytes: Bytes,
    pub bound_time_us: Micros,
}

/// One point of the front.
#[derive(Debug, Serialize)]
pub struct GraphPoint {
    pub peak_bytes: Bytes,
    pub time_us: Micros,
    pub peak_ratio: f64,
    pub time_ratio: f64,
}

/// The best schedule for `target`, checked.
pub(super) fn best(workload: &MemoryWorkload, solved: &Solved<'_>, target: Target) -> Result<GraphSchedule, Error> {
    let Some(best) = solved.best(target) else {
        return Err(Error::NoPlan(solved.why_none(target).to_string().into()));
    };
    let written = solved.write(best).map_err(Error::failed)?;
    Ok(GraphSchedule { summary: summary(workload, solved, target, &written), json: written.json })
}

fn summary(workload: &MemoryWorkload, solved: &Solved<'_>, target: Target, written: &WrittenSchedule) -> GraphSummary {
    let (limit, slowdown) = match target {
        Target::Limit(limit) => (Some(solved.limit(limit)), None),
        Target::Slowdown(factor) => (None, Some(Micros(solved.original.time_us.0 * factor))),
    };
    GraphSummary {
        operators: workload.operators(),
        original_peak_bytes: solved.original.peak_bytes,
        original_time_us: solved.original.time_us,
        limit_bytes: limit,
        limit_time_us: slowdown,
        peak_bytes: written.figures.peak_bytes,
        time_us: written.figures.time_us,
        bound_peak_bytes: solved.bound.peak_bytes,
        bound_time_us: solved.bound.time_us,
        gap: solved.gap(written.figures, target),
        repeated: written.repeated,
        stored: written.stored,
        parts: written.parts,
        schedules: solved.evaluated,
    }
}

/// The front, with ratios to the original order.
pub(super) fn front(solved: &Solved<'_>) -> GraphFront {
    let original = &solved.original;
    let point = |found: &PeakAndTime| GraphPoint {
        peak_bytes: found.peak_bytes,
        time_us: found.time_us,
        peak_ratio: found.peak_bytes.0 as f64 / original.peak_bytes.0 as f64,
        time_ratio: found.time_us.0 / original.time_us.0,
    };
    GraphFront {
        points: solved.front.iter().map(point).collect(),
        bound_peak_bytes: solved.bound.peak_bytes,
        bound_time_us: solved.bound.time_us,
    }
}
