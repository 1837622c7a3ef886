//! `edgecut memory --configs`: many graphs, each under its limit, one row of results for each.

use std::path::Path;

use miette::Report;
use serde::Serialize;

use super::{Memory, fit};
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
    },
    memory::workload::{Limit, Solved, Target, Workload},
};

/// What MAGIS writes where figures come from its simulation and not from a run.
const SIMULATED: &str = "False";

/// One row, with the columns of MAGIS's results.csv in their order. Nothing is measured here, so that latency and memory
/// are the simulated ones, as they are there. Memory in bytes, latency in milliseconds; what is not known is empty.
#[derive(Serialize)]
struct Row {
    name: String,
    device_memory_limit: u64,
    latency_limit: Option<f64>,
    memory_limit: u64,
    /// Of the original.
    latency_limit_ratio: Option<f64>,
    memory_limit_ratio: f64,
    weight_memory: u64,
    opt_is_prof_result: &'static str,
    opt_latency: Option<f64>,
    opt_memory: Option<u64>,
    opt_simul_latency: Option<f64>,
    opt_simul_memory: Option<u64>,
    ori_is_prof_result: &'static str,
    ori_latency: f64,
    ori_memory: u64,
    ori_simul_latency: f64,
    ori_simul_memory: u64,
}

pub fn run(memory: &Memory, input: &Path) -> Outcome {
    let text = String::from_utf8_lossy(&file::read(input)?).into_owned();
    let folder = input.parent().unwrap_or(Path::new("."));
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bad = |what: String| Failure::BadInput(Report::msg(format!("{}:{number}: {what}", input.display())));
        let (path, limit) = line
            .rsplit_once(char::is_whitespace)
            .ok_or_else(|| bad(format!("`{line}` is not `path limit`, such as `unet.json 40%`")))?;
        let limit: Limit = limit.parse().map_err(|error| bad(format!("{error}")))?;
        let place = || format!("{}:{number}", input.display());
        let workload = fit::read(&folder.join(path.trim())).map_err(|failure| failure.at(place()))?;
        let solved = fit::solve(&workload, memory)?;
        let row = row(path.trim(), &workload, &solved, limit)?;
        if row.opt_simul_memory.is_none() {
            missed.push(format!("{}: {}", row.name, fit::none(&solved, Target::Limit(limit))));
        }
        eprintln!("{} {}", row.name, if row.opt_simul_memory.is_some() { "done" } else { "not within its limit" });
        rows.push(row);
    }
    if let Some(output) = &memory.output {
        file::write(output, &format::to_csv(&rows)?)?;
    }
    match memory.format {
        Format::Json => format::print_json(&rows)?,
        Format::Csv => format::print_csv(&rows)?,
        Format::Table => table(&rows),
    }
    if missed.is_empty() { Ok(()) } else { Err(Failure::NoPlan(Report::msg(missed.join("\n")))) }
}

fn row(name: &str, workload: &Workload, solved: &Solved<'_>, limit: Limit) -> Result<Row, Failure> {
    let best = solved.best(Target::Limit(limit));
    if let Some(best) = best {
        // Writing checks it.
        solved.write(best).map_err(Failure::failed)?;
    }
    let found = best.map(|best| solved.front[best]);
    let (latency, peak) = (found.map(|f| f.time_us.0 / 1e3), found.map(|f| f.peak_bytes.0));
    let (original_latency, original_peak) = (solved.original.time_us.0 / 1e3, solved.original.peak_bytes.0);
    let bytes = solved.limit(limit).0;
    Ok(Row {
        name: name.to_string(),
        device_memory_limit: bytes,
        latency_limit: None,
        memory_limit: bytes,
        latency_limit_ratio: None,
        memory_limit_ratio: bytes as f64 / original_peak.max(1) as f64,
        weight_memory: workload.weights().0,
        opt_is_prof_result: SIMULATED,
        opt_latency: latency,
        opt_memory: peak,
        opt_simul_latency: latency,
        opt_simul_memory: peak,
        ori_is_prof_result: SIMULATED,
        ori_latency: original_latency,
        ori_memory: original_peak,
        ori_simul_latency: original_latency,
        ori_simul_memory: original_peak,
    })
}

fn table(rows: &[Row]) {
    println!("{:<40} {:>12} {:>9} {:>9}", "graph", "limit", "peak", "time");
    for row in rows {
        let figures = match (row.opt_simul_memory, row.opt_simul_latency) {
            (Some(peak), Some(latency)) => {
                let share = 100.0 * peak as f64 / row.ori_simul_memory.max(1) as f64;
                format!("{share:>8.1}% {:>+8.2}%", 100.0 * (latency / row.ori_simul_latency - 1.0))
            }
            _ => format!("{:>9} {:>9}", "-", "-"),
        };
        println!("{:<40} {:>12} {figures}", row.name, crate::units::Bytes(row.memory_limit).to_string());
    }
}
