//! `--seeds`: how far the results of several seeds scatter.

use edgecut_engine::statistics::quantile;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_interop::memory_workload::MemoryWorkload;
use edgecut_memory::target::Target;
use serde::Serialize;

use super::{flags::Schedule, search};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    source_file,
    stdout::print_line,
};

/// The result of one seed; empty if it found none.
#[derive(Serialize)]
struct Row {
    seed: u64,
    peak_bytes: Option<Bytes>,
    time_us: Option<Micros>,
    peak_ratio: Option<f64>,
    time_ratio: Option<f64>,
}

pub(super) fn run(arguments: &Schedule, workload: &MemoryWorkload, target: Target, count: u64) -> Outcome {
    let first = arguments.search.seed;
    let mut rows = Vec::new();
    for seed in first..first.saturating_add(count) {
        let solved = search::solve_from(arguments, workload, seed)?;
        let best = solved.best(target);
        // Writing a schedule checks it.
        let written = best.map(|best| solved.write(best)).transpose().map_err(Failure::failed)?;
        let found = written.map(|written| written.figures);
        rows.push(Row {
            seed,
            peak_bytes: found.map(|f| f.peak_bytes),
            time_us: found.map(|f| f.time_us),
            peak_ratio: found.map(|f| f.peak_bytes.0 as f64 / solved.original.peak_bytes.0 as f64),
            time_ratio: found.map(|f| f.time_us.0 / solved.original.time_us.0),
        });
    }
    match arguments.format {
        Format::Csv => format::print_csv(&rows)?,
        Format::Json => format::print_json(&rows)?,
        Format::Table => print(&rows),
    }
    arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, &format::to_csv(&rows)?))
}

fn print(rows: &[Row]) {
    print_line!("{:>6} {:>9} {:>9}", "seed", "peak", "time");
    for row in rows {
        match (row.peak_ratio, row.time_ratio) {
            (Some(peak), Some(time)) => {
                print_line!("{:>6} {:>8.2}% {:>+8.2}%", row.seed, 100.0 * peak, 100.0 * (time - 1.0))
            }
            _ => print_line!("{:>6} {:>9} {:>9}", row.seed, "-", "-"),
        }
    }
    for (name, mut values) in [
        ("peak", rows.iter().filter_map(|r| Some(100.0 * r.peak_ratio?)).collect::<Vec<f64>>()),
        ("time", rows.iter().filter_map(|r| Some(100.0 * (r.time_ratio? - 1.0))).collect()),
    ] {
        values.sort_by(f64::total_cmp);
        if let (Some(least), Some(median), Some(most)) = (values.first(), quantile(&values, 0.5), values.last()) {
            print_line!("{name}: least {least:.2} %, median {median:.2} %, most {most:.2} %");
        }
    }
}
