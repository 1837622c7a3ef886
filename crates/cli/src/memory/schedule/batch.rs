//! `--configs`: many graphs, each under its limit, one row of results for each.

use std::path::Path;

use edgecut_interop::memory_workload::batch::{BatchRow, entries};
use edgecut_memory::target::Target;
use edgecut_session::error::Message;

use super::{flags::Schedule, search};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    source_file,
    stdout::print_line,
};

pub(super) fn run(arguments: &Schedule, list: &Path) -> Outcome {
    let text = String::from_utf8_lossy(&source_file::read(list)?).into_owned();
    let folder = list.parent().unwrap_or(Path::new("."));
    let place = |line: usize| format!("{}:{line}", list.display());
    let entries = entries(&text)
        .map_err(|error| Failure::BadInput(Message::from(format!("{}: {error}", place(error.line())))))?;
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for entry in &entries {
        let path = folder.join(&entry.path);
        let bytes = source_file::read(&path).map_err(|failure| failure.at(place(entry.line)))?;
        let workload = search::parse(&path, &bytes).map_err(|failure| failure.at(place(entry.line)))?;
        let solved = search::solve(arguments, &workload)?;
        let row = BatchRow::of(entry, &workload, &solved).map_err(Failure::failed)?;
        if !row.is_found() {
            missed.push(format!("{}: {}", row.name, solved.why_none(Target::Limit(entry.limit))));
        }
        eprintln!("{} {}", row.name, if row.is_found() { "done" } else { "not within its limit" });
        rows.push(row);
    }
    match arguments.format {
        Format::Json => format::print_json(&rows)?,
        Format::Csv => format::print_csv(&rows)?,
        Format::Table => table(&rows),
    }
    arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, &format::to_csv(&rows)?))?;
    if missed.is_empty() { Ok(()) } else { Err(Failure::NoPlan(Message::from(missed.join("\n")))) }
}

fn table(rows: &[BatchRow]) {
    print_line!("{:<40} {:>12} {:>9} {:>9}", "graph", "limit", "peak", "time");
    for row in rows {
        let figures = match (row.opt_simul_memory, row.opt_simul_latency) {
            (Some(peak), Some(latency)) => {
                let share = 100.0 * peak as f64 / row.ori_simul_memory.max(1) as f64;
                format!("{share:>8.1}% {:>+8.2}%", 100.0 * (latency / row.ori_simul_latency - 1.0))
            }
            _ => format!("{:>9} {:>9}", "-", "-"),
        };
        print_line!("{:<40} {:>12} {figures}", row.name, row.limit().to_string());
    }
}
