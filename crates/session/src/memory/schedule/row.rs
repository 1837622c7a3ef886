//! Schedules of a model as rows, with what was measured of the one that ran.

use edgecut_agent::results::Difference;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    model::{Schedule, ScheduleFront},
    remat::ScheduleStep,
};
use serde::Serialize;

use crate::run::{offload::OffloadRun, schedule_bench::ScheduleRun};

/// One schedule of the front; its arena and what follows only where it was chosen by a target.
#[derive(Debug, Default, Serialize)]
pub struct ScheduleRow {
    pub peak_bytes: Bytes,
    pub time_us: Micros,
    pub peak_ratio: f64,
    pub time_ratio: f64,
    pub arena_bytes: Option<Bytes>,
    pub repeated: Option<usize>,
    /// Copies to a neighbour.
    pub stored: Option<usize>,
    /// Segments that are computed in parts, and the parts of all of them.
    pub segments: Option<usize>,
    pub parts: Option<u64>,
    /// TVM's default arena for program order.
    pub tvm_arena_bytes: Option<Bytes>,
    pub run_arena_bytes: Option<Bytes>,
    /// Tensors and the engine's workspace.
    pub run_peak_bytes: Option<Bytes>,
    pub run_time_us: Option<Micros>,
    pub run_parameter_bytes: Option<Bytes>,
    /// The same of the model's groups in program order.
    pub plain_arena_bytes: Option<Bytes>,
    pub plain_peak_bytes: Option<Bytes>,
    pub plain_time_us: Option<Micros>,
    pub plain_parameter_bytes: Option<Bytes>,
    /// Elements of the results that differ from the model's.
    pub wrong: Option<u64>,
    /// Of the neighbour, without parameters.
    pub neighbour_peak_bytes: Option<Bytes>,
}

impl ScheduleRow {
    /// Peak and time.
    pub(super) fn of(fitted: &ScheduleFront, schedule: &Schedule<'_>) -> ScheduleRow {
        let (peak, time) = fitted.original;
        ScheduleRow {
            peak_bytes: schedule.peak,
            time_us: schedule.time,
            peak_ratio: schedule.peak.0 as f64 / peak.0.max(1) as f64,
            time_ratio: schedule.time.0 / time.0,
            ..ScheduleRow::default()
        }
    }

    /// The same with what the schedule does.
    pub(super) fn detailed(fitted: &ScheduleFront, schedule: &Schedule<'_>) -> ScheduleRow {
        let steps = schedule.steps();
        let count = |wanted: fn(&ScheduleStep) -> bool| steps.iter().filter(|step| wanted(step)).count();
        let operators = schedule.variant.lowered.program.operators.len();
        ScheduleRow {
            stored: Some(count(|step| matches!(step, ScheduleStep::Store(_)))),
            repeated: Some(count(|step| matches!(step, ScheduleStep::Run(_))).saturating_sub(operators)),
            segments: Some(schedule.variant.segments.len()),
            parts: Some(schedule.variant.segments.iter().map(|segment| segment.tiles).sum()),
            ..ScheduleRow::of(fitted, schedule)
        }
    }

    /// Adds what was measured on this machine.
    pub(super) fn add_run(&mut self, run: &ScheduleRun) {
        let ScheduleRun { schedule, program_order, .. } = run;
        (self.run_arena_bytes, self.run_peak_bytes) = (Some(schedule.arena), Some(schedule.peak));
        (self.run_time_us, self.run_parameter_bytes) = (Some(schedule.time), Some(schedule.parameters));
        (self.plain_arena_bytes, self.plain_peak_bytes) = (Some(program_order.arena), Some(program_order.peak));
        (self.plain_time_us, self.plain_parameter_bytes) = (Some(program_order.time), Some(program_order.parameters));
        self.wrong = Some(run.difference.wrong);
    }

    /// Adds what was measured on the agents of two servers.
    pub(super) fn add_offload(&mut self, ran: &OffloadRun, plain: &OffloadRun, difference: &Difference) {
        (self.run_peak_bytes, self.run_time_us) = (Some(ran.peak), Some(ran.time));
        (self.plain_peak_bytes, self.plain_time_us) = (Some(plain.peak), Some(plain.time));
        self.run_parameter_bytes = Some(ran.parameters);
        self.plain_parameter_bytes = Some(plain.parameters);
        self.wrong = Some(difference.wrong);
        self.neighbour_peak_bytes = Some(ran.neighbour_peak);
    }
}
