//! Schedules of a DLMO or MAGIS graph.

use std::{fmt, path::Path};

use edgecut_graph::units::{Bytes, Micros};
use edgecut_interop::memory_workload::{MemoryWorkload, Solved, WrittenSchedule};
use edgecut_memory::target::Target;
use edgecut_session::error::Message;
use serde::Serialize;

use super::{flags::Schedule, search, seeds};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    source_file,
    stdout::print_line,
};

/// The figures of one schedule.
#[derive(Serialize)]
struct Summary {
    operators: usize,
    original_peak_bytes: Bytes,
    original_time_us: Micros,
    limit_bytes: Option<Bytes>,
    limit_time_us: Option<Micros>,
    peak_bytes: Bytes,
    time_us: Micros,
    bound_peak_bytes: Bytes,
    bound_time_us: Micros,
    /// Of the time under a limit, of the peak under a slowdown.
    gap: f64,
    repeated: usize,
    stored: usize,
    parts: u64,
    schedules: u64,
}

/// One point of the front.
#[derive(Serialize)]
struct Point {
    peak_bytes: Bytes,
    time_us: Micros,
    peak_ratio: f64,
    time_ratio: f64,
}

pub(super) fn run(arguments: &Schedule, input: &Path, bytes: &[u8]) -> Outcome {
    let workload = search::parse(input, bytes)?;
    let target = arguments.target();
    if let (Some(count), Some(target)) = (arguments.search.seeds, target) {
        return seeds::run(arguments, &workload, target, count);
    }
    let solved = search::solve(arguments, &workload)?;
    let Some(target) = target else { return front(arguments, &solved) };
    let Some(best) = solved.best(target) else {
        return Err(Failure::NoPlan(Message::from(solved.why_none(target).to_string())));
    };
    let written = solved.write(best).map_err(Failure::failed)?;
    let summary = summary(&workload, &solved, target, &written);
    match arguments.format {
        Format::Csv => format::print_csv(&[summary])?,
        Format::Json => format::print_json(&summary)?,
        Format::Table => print_line!("{summary}"),
    }
    arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, written.json.as_bytes()))
}

fn summary(workload: &MemoryWorkload, solved: &Solved<'_>, target: Target, written: &WrittenSchedule) -> Summary {
    let (limit, slowdown) = match target {
        Target::Limit(limit) => (Some(solved.limit(limit)), None),
        Target::Slowdown(factor) => (None, Some(Micros(solved.original.time_us.0 * factor))),
    };
    Summary {
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

fn front(arguments: &Schedule, solved: &Solved<'_>) -> Outcome {
    let original = &solved.original;
    let points = solved.front.iter().map(|found| Point {
        peak_bytes: found.peak_bytes,
        time_us: found.time_us,
        peak_ratio: found.peak_bytes.0 as f64 / original.peak_bytes.0 as f64,
        time_ratio: found.time_us.0 / original.time_us.0,
    });
    let points: Vec<Point> = points.collect();
    match arguments.format {
        Format::Csv => format::print_csv(&points)?,
        Format::Json => format::print_json(&points)?,
        Format::Table => {
            print_line!("{:>12} {:>7} {:>12} {:>9}", "peak", "", "time", "");
            for point in &points {
                print_line!(
                    "{:>12} {:>6.1}% {:>12} {:>+8.2}%",
                    point.peak_bytes.to_string(),
                    100.0 * point.peak_ratio,
                    point.time_us.to_string(),
                    100.0 * (point.time_ratio - 1.0)
                );
            }
            print_line!("lower bounds: {} and {}", solved.bound.peak_bytes, solved.bound.time_us);
        }
    }
    arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, &format::to_csv(&points)?))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: Bytes| 100.0 * part.0 as f64 / self.original_peak_bytes.0 as f64;
        writeln!(f, "operators    {}", self.operators)?;
        writeln!(f, "original     {}, {}", self.original_peak_bytes, self.original_time_us)?;
        if let Some(limit) = self.limit_bytes {
            writeln!(f, "limit        {limit} ({:.1} % of the original peak)", share(limit))?;
        }
        if let Some(limit) = self.limit_time_us {
            writeln!(f, "limit        {limit}")?;
        }
        let slower = 100.0 * (self.time_us.0 / self.original_time_us.0 - 1.0);
        writeln!(f, "peak         {} ({:.1} % of the original)", self.peak_bytes, share(self.peak_bytes))?;
        writeln!(f, "time         {} ({slower:+.2} %)", self.time_us)?;
        writeln!(f, "lower bound  {}, {}", self.bound_peak_bytes, self.bound_time_us)?;
        writeln!(f, "gap          {:.2} %", 100.0 * self.gap)?;
        writeln!(f, "run again    {} operators", self.repeated)?;
        writeln!(f, "to the host  {} values", self.stored)?;
        writeln!(f, "batch split  {}", if self.parts == 1 { "no".into() } else { format!("{} parts", self.parts) })?;
        write!(f, "looked at    {} schedules", self.schedules)
    }
}
