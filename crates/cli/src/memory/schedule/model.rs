//! Schedules of a model on stdout: one row each, with what was measured of the one that ran.

use std::fmt;

use edgecut_session::memory::schedule::{
    model::{Execution, ModelSchedules, RunCost, ScheduleRun},
    offload::OffloadExecution,
    row::ScheduleRow,
};

use super::flags::{ExecutionFlags, Schedule};
use crate::{
    Outcome,
    format::{self, Format},
    memory::times::times,
    stdout::print_line,
};

/// Prints the schedules, and what was measured of the one that ran.
pub(super) fn print(arguments: &Schedule, schedules: &ModelSchedules) -> Outcome {
    match arguments.format {
        Format::Csv => format::print_csv(&schedules.rows),
        Format::Json => format::print_json(&schedules.rows),
        Format::Table => {
            print_rows(&schedules.rows, &notes(&arguments.execution, schedules));
            match &schedules.execution {
                Some(Execution::Here { run, .. }) => print_line!("{}", RunTable(run)),
                Some(Execution::OnAgents(execution)) => print_offload(execution),
                None => {}
            }
            Ok(())
        }
    }
}

/// The lower bound, where times come from, and what was not run.
fn notes(flags: &ExecutionFlags, schedules: &ModelSchedules) -> Vec<String> {
    let (bound, times) = (schedules.bound_peak_bytes, times(&schedules.times));
    let mut notes = vec![format!("lower bound of the peak: {bound}; times {times}")];
    if flags.cluster.is_some() && !flags.run {
        notes.push("copies to a neighbour are simulated at the link's cost; --run runs them on the agents".to_string());
    }
    notes
}

fn print_rows(rows: &[ScheduleRow], notes: &[String]) {
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
    if let [
        ScheduleRow {
            repeated: Some(repeated),
            stored: Some(stored),
            segments: Some(segments),
            parts: Some(parts),
            ..
        },
    ] = rows
    {
        print_line!(
            "{repeated} groups run again, {stored} copies to a neighbour; {segments} segments in {parts} parts"
        );
    }
    if let [ScheduleRow { tvm_arena_bytes: Some(arena), .. }] = rows {
        print_line!("program order in TVM's default arena: {arena}");
    }
}

/// A run on the agents of two servers.
fn print_offload(execution: &OffloadExecution) {
    let OffloadExecution { device, arena, predicted, schedule, program_order, difference } = execution;
    print_line!("predicted of both devices: {predicted}, an arena of {arena} on {device}");
    print_line!("{:<16} {:>14} {:>12} {:>12} {:>12}", "measured", "with scratch", "parameters", "neighbour", "time");
    for (name, ran) in [("schedule", schedule), ("program order", program_order)] {
        let [peak, parameters, neighbour] =
            [ran.peak, ran.parameters, ran.neighbour_peak].map(|bytes| bytes.to_string());
        print_line!("{name:<16} {peak:>14} {parameters:>12} {neighbour:>12} {:>12}", ran.time.to_string());
    }
    print_line!("results          {difference}");
}

/// What was measured, as a table: the schedule, program order, and the model as one piece.
struct RunTable<'a>(&'a ScheduleRun);

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
