//! Schedules of a model on stdout: one row each, with what was measured of the one that ran.

use std::fmt;

use edgecut_cluster::run::schedule_bench::{RunCost, ScheduleRun};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    model::{Schedule, ScheduleFront},
    remat::ScheduleStep,
};
use serde::Serialize;

use crate::{
    Outcome,
    format::{self, Format},
    stdout::print_line,
};

/// One schedule of the front; its arena and what follows only where it was chosen by a target.
#[derive(Serialize, Default)]
pub(super) struct Row {
    pub(super) peak_bytes: Bytes,
    pub(super) time_us: Micros,
    pub(super) peak_ratio: f64,
    pub(super) time_ratio: f64,
    pub(super) arena_bytes: Option<Bytes>,
    pub(super) repeated: Option<usize>,
    /// Copies to a neighbour.
    pub(super) stored: Option<usize>,
    /// Segments that are computed in parts, and the parts of all of them.
    pub(super) segments: Option<usize>,
    pub(super) parts: Option<u64>,
    /// TVM's default arena for program order.
    pub(super) tvm_arena_bytes: Option<Bytes>,
    pub(super) run_arena_bytes: Option<Bytes>,
    /// Tensors and the engine's workspace.
    pub(super) run_peak_bytes: Option<Bytes>,
    pub(super) run_time_us: Option<Micros>,
    pub(super) run_parameter_bytes: Option<Bytes>,
    /// The same of the model's groups in program order.
    pub(super) plain_arena_bytes: Option<Bytes>,
    pub(super) plain_peak_bytes: Option<Bytes>,
    pub(super) plain_time_us: Option<Micros>,
    pub(super) plain_parameter_bytes: Option<Bytes>,
    /// Elements of the results that differ from the model's.
    pub(super) wrong: Option<u64>,
    /// Of the neighbour, without parameters.
    pub(super) neighbour_peak_bytes: Option<Bytes>,
}

impl Row {
    /// Peak and time.
    pub(super) fn of(fitted: &ScheduleFront, schedule: &Schedule<'_>) -> Row {
        let (peak, time) = fitted.original;
        Row {
            peak_bytes: schedule.peak,
            time_us: schedule.time,
            peak_ratio: schedule.peak.0 as f64 / peak.0.max(1) as f64,
            time_ratio: schedule.time.0 / time.0,
            ..Row::default()
        }
    }

    /// The same with what the schedule does.
    pub(super) fn detailed(fitted: &ScheduleFront, schedule: &Schedule<'_>) -> Row {
        let steps = schedule.steps();
        let count = |wanted: fn(&ScheduleStep) -> bool| steps.iter().filter(|step| wanted(step)).count();
        let operators = schedule.variant.lowered.program.operators.len();
        Row {
            stored: Some(count(|step| matches!(step, ScheduleStep::Store(_)))),
            repeated: Some(count(|step| matches!(step, ScheduleStep::Run(_))).saturating_sub(operators)),
            segments: Some(schedule.variant.segments.len()),
            parts: Some(schedule.variant.segments.iter().map(|segment| segment.tiles).sum()),
            ..Row::of(fitted, schedule)
        }
    }

    /// Adds what was measured.
    pub(super) fn add_run(&mut self, run: &ScheduleRun) {
        let ScheduleRun { schedule, program_order, .. } = run;
        (self.run_arena_bytes, self.run_peak_bytes) = (Some(schedule.arena), Some(schedule.peak));
        (self.run_time_us, self.run_parameter_bytes) = (Some(schedule.time), Some(schedule.parameters));
        (self.plain_arena_bytes, self.plain_peak_bytes) = (Some(program_order.arena), Some(program_order.peak));
        (self.plain_time_us, self.plain_parameter_bytes) = (Some(program_order.time), Some(program_order.parameters));
        self.wrong = Some(run.difference.wrong);
    }
}

/// Prints rows; `notes` follow them in a table.
pub(super) fn print(format: Format, rows: &[Row], notes: &[String]) -> Outcome {
    match format {
        Format::Csv => return format::print_csv(rows),
        Format::Json => return format::print_json(&rows),
        Format::Table => {}
    }
    print_line!("{:>12} {:>7} {:>12} {:>9} {:>12}", "peak", "", "time", "", "arena");
    for row in rows {
        print_line!(
            "{:>12} {:>6.1}% {:>12} {:>+8.2}% {:>12}",
            row.peak_bytes.to_string(),
            100.0 * row.peak_ratio,
            row.time_us.to_string(),
            100.0 * (row.time_ratio - 1.0),
            row.arena_bytes.map_or(String::new(), |bytes| bytes.to_string())
        );
    }
    notes.iter().for_each(|note| print_line!("{note}"));
    if let [Row { repeated: Some(repeated), stored: Some(stored), segments: Some(segments), parts: Some(parts), .. }] =
        rows
    {
        print_line!(
            "{repeated} groups run again, {stored} copies to a neighbour; {segments} segments in {parts} parts"
        );
    }
    if let [Row { tvm_arena_bytes: Some(arena), .. }] = rows {
        print_line!("program order in TVM's default arena: {arena}");
    }
    Ok(())
}

/// What was measured, as a table: the schedule, program order, and the model as one piece.
pub(super) struct RunTable<'a>(pub(super) &'a ScheduleRun);

impl fmt::Display for RunTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunTable(run) = self;
        let head = ["measured", "tensors", "with scratch", "parameters", "time"];
        writeln!(f, "{:<16} {:>12} {:>14} {:>12} {:>12}", head[0], head[1], head[2], head[3], head[4])?;
        // The engine does not report the tensors inside a piece.
        let inside = None;
        for (name, cost, tensors) in [
            ("schedule", &run.schedule, Some(run.schedule.arena)),
            ("program order", &run.program_order, Some(run.program_order.arena)),
            ("as one piece", &run.one_piece, inside),
        ] {
            let slower = 100.0 * (cost.time.0 / run.program_order.time.0 - 1.0);
            let RunCost { peak, parameters, time, .. } = *cost;
            let [peak, parameters] = [peak, parameters].map(|bytes| bytes.to_string());
            let (tensors, time) = (tensors.map_or("-".to_string(), |bytes| bytes.to_string()), time.to_string());
            writeln!(f, "{name:<16} {tensors:>12} {peak:>14} {parameters:>12} {time:>12} {slower:>+8.2}%")?;
        }
        write!(f, "results          {}", run.difference)
    }
}
