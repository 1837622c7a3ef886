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

/// One row, with the columns of MAGIS's results.csv. Nothing is measured here: what would be is left empty.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Bytes.
    device_memory_limit: u64,
    /// Milliseconds; empty if there is none.
    latency_limit: Option<f64>,
    memory_limit: u64,
    /// Of the original.
    latency_ratio: Option<f64>,
    memory_ratio: Option<f64>,
    weight_memory: u64,
    is_prof: bool,
    opt_latency: Option<f64>,
    opt_memory: Option<u64>,
    opt_simulated_latency: Option<f64>,
    opt_simulated_memory: Option<u64>,
    orig_latency: Option<f64>,
    orig_memory: Option<u64>,
    orig_simulated_latency: f64,
    orig_simulated_memory: u64,
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
        let workload = fit::read(&folder.join(path.trim()))?;
        let solved = fit::solve(&workload, memory)?;
        let row = row(path.trim(), &workload, &solved, limit)?;
        if row.opt_simulated_memory.is_none() {
            missed.push(format!("{}: {}", row.name, fit::none(&solved, Target::Limit(limit))));
        }
        eprintln!("{} {}", row.name, if row.opt_simulated_memory.is_some() { "done" } else { "not within its limit" });
        rows.push(row);
    }
    let csv = csv(&rows)?;
    if let Some(output) = &memory.output {
        file::write(output, csv.as_bytes())?;
    }
    match memory.format {
        Format::Json => format::print_json(&rows)?,
        Format::Csv => print!("{csv}"),
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
    let original = solved.original;
    let bytes = solved.limit(limit).0;
    Ok(Row {
        name: name.to_string(),
        device_memory_limit: bytes,
        latency_limit: None,
        memory_limit: bytes,
        latency_ratio: found.map(|f| f.time_us.0 / original.time_us.0),
        memory_ratio: found.map(|f| f.peak_bytes.0 as f64 / original.peak_bytes.0 as f64),
        weight_memory: workload.weights().0,
        is_prof: false,
        opt_latency: None,
        opt_memory: None,
        opt_simulated_latency: found.map(|f| f.time_us.0 / 1e3),
        opt_simulated_memory: found.map(|f| f.peak_bytes.0),
        orig_latency: None,
        orig_memory: None,
        orig_simulated_latency: original.time_us.0 / 1e3,
        orig_simulated_memory: original.peak_bytes.0,
    })
}

fn csv(rows: &[Row]) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Failure::failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| Failure::failed(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn table(rows: &[Row]) {
    println!("{:<40} {:>12} {:>9} {:>9}", "graph", "limit", "peak", "time");
    for row in rows {
        let figures = match (row.memory_ratio, row.latency_ratio) {
            (Some(memory), Some(latency)) => format!("{:>8.1}% {:>+8.2}%", 100.0 * memory, 100.0 * (latency - 1.0)),
            _ => format!("{:>9} {:>9}", "-", "-"),
        };
        println!("{:<40} {:>12} {figures}", row.name, crate::units::Bytes(row.memory_limit).to_string());
    }
}
