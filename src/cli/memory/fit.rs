//! `edgecut memory --graph`: schedules of a DLMO or MAGIS graph under a limit on memory or time.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use miette::Report;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{Memory, spread};
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
        kind::{self, Kind},
    },
    memory::{
        fit::Options,
        workload::{Solved, Target, Workload, Written},
    },
    units::{Bytes, Micros},
};

/// What is told of one schedule.
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
    /// Of what is made small: the time under a limit, the peak under a slowdown.
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

pub fn run(memory: &Memory, input: &Path) -> Outcome {
    let workload = read(input)?;
    let Some(target) = memory.target() else { return front(&solve(&workload, memory)?, memory) };
    if memory.seeds > 1 {
        return spread::run(memory, &workload, target);
    }
    let solved = solve(&workload, memory)?;
    let Some(best) = solved.best(target) else {
        return Err(Failure::NoPlan(Report::msg(none(&solved, target))));
    };
    let written = solved.write(best).map_err(Failure::failed)?;
    if let Some(output) = &memory.output {
        file::write(output, written.json.as_bytes())?;
    }
    let summary = summary(&workload, &solved, best, target, &written);
    match memory.format {
        Format::Csv => format::print_csv(&[summary]),
        Format::Json => format::print_json(&summary),
        Format::Table => {
            println!("{summary}");
            Ok(())
        }
    }
}

/// Whether a file has operators that say whether they are element-wise: a network to place rather than to schedule.
pub fn is_network(input: &Path) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct Form {
        tensors: Option<IgnoredAny>,
        ops: Option<Vec<Operator>>,
    }
    #[derive(Deserialize)]
    struct Operator {
        elementwise: Option<bool>,
    }
    let text = file::read(input)?;
    let form: Option<Form> = serde_json::from_slice(&text).ok();
    let says = |ops: &Vec<Operator>| ops.iter().any(|op| op.elementwise.is_some());
    Ok(form.is_some_and(|form| form.tensors.is_some() && form.ops.as_ref().is_some_and(says)))
}

/// Reads a graph of either form.
pub fn read(input: &Path) -> Result<Workload, Failure> {
    let bytes = file::read(input)?;
    Workload::parse(&bytes).map_err(|error| kind::instead(input, &bytes, Kind::Graph, error))
}

/// Searches as long as the flags say.
pub fn solve<'a>(workload: &'a Workload, memory: &Memory) -> Result<Solved<'a>, Failure> {
    let start = Instant::now();
    let solved = solve_from(workload, memory, memory.seed)?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = solved.evaluated as f64 / seconds;
    eprintln!("looked at {} schedules in {seconds:.2} s: {rate:.0} a second", solved.evaluated);
    Ok(solved)
}

/// The same from a seed of its own.
pub fn solve_from<'a>(workload: &'a Workload, memory: &Memory, seed: u64) -> Result<Solved<'a>, Failure> {
    let bar =
        ProgressBar::new_spinner().with_message(format!("searching schedules of {} operators", workload.operators()));
    bar.enable_steady_tick(Duration::from_millis(100));
    let options = Options { seed, budget: memory.effort(70), cut_off: None };
    let solved = workload.solve(&options).map_err(Failure::bad_input);
    bar.finish_and_clear();
    solved
}

/// Why no schedule keeps the target, in figures.
pub fn none(solved: &Solved<'_>, target: Target) -> String {
    let (smallest, fastest) = (solved.front.first(), solved.front.last());
    match target {
        Target::Limit(limit) => {
            let limit = solved.limit(limit);
            let bound = solved.bound.peak_bytes;
            let reason = match bound > limit {
                true => format!("no schedule needs less than {bound}, {} more", limit.shortfall(bound)),
                false => format!("the lower bound is {bound}; --effort searches longer"),
            };
            let smallest =
                smallest.map_or(String::new(), |f| format!("; the smallest one found needs {}", f.peak_bytes));
            format!("no schedule within {limit} was found: {reason}{smallest}")
        }
        Target::Slowdown(factor) => {
            let fastest = fastest.map_or(String::new(), |f| format!("; the fastest one takes {}", f.time_us));
            format!("no schedule takes at most {factor} times {}{fastest}", solved.original.time_us)
        }
    }
}

/// The share by which a figure is above its bound.
pub fn gap(solved: &Solved<'_>, best: usize, target: Target) -> f64 {
    let (found, bound) = (&solved.front[best], &solved.bound);
    let ratio = match target {
        Target::Limit(_) => found.time_us.0 / bound.time_us.0,
        Target::Slowdown(_) => found.peak_bytes.0 as f64 / bound.peak_bytes.0 as f64,
    };
    if ratio.is_finite() { (ratio - 1.0).max(0.0) } else { 0.0 }
}

fn summary(workload: &Workload, solved: &Solved<'_>, best: usize, target: Target, written: &Written) -> Summary {
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
        peak_bytes: solved.front[best].peak_bytes,
        time_us: solved.front[best].time_us,
        bound_peak_bytes: solved.bound.peak_bytes,
        bound_time_us: solved.bound.time_us,
        gap: gap(solved, best, target),
        repeated: written.repeated,
        stored: written.stored,
        parts: written.parts,
        schedules: solved.evaluated,
    }
}

fn front(solved: &Solved<'_>, memory: &Memory) -> Outcome {
    let points: Vec<Point> = solved
        .front
        .iter()
        .map(|f| Point {
            peak_bytes: f.peak_bytes,
            time_us: f.time_us,
            peak_ratio: f.peak_bytes.0 as f64 / solved.original.peak_bytes.0 as f64,
            time_ratio: f.time_us.0 / solved.original.time_us.0,
        })
        .collect();
    match memory.format {
        Format::Csv => format::print_csv(&points),
        Format::Json => format::print_json(&points),
        Format::Table => {
            println!("{:>12} {:>7} {:>12} {:>9}", "peak", "", "time", "");
            for point in &points {
                println!(
                    "{:>12} {:>6.1}% {:>12} {:>+8.2}%",
                    point.peak_bytes.to_string(),
                    100.0 * point.peak_ratio,
                    point.time_us.to_string(),
                    100.0 * (point.time_ratio - 1.0)
                );
            }
            println!("lower bounds: {} and {}", solved.bound.peak_bytes, solved.bound.time_us);
            Ok(())
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
