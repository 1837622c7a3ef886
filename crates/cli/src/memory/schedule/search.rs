//! Reads a DLMO or MAGIS graph and searches its schedules, with progress on stderr.

use edgecut_session::file_kind::{self as kind, FileKind};
use std::{
    path::Path,
    time::{Duration, Instant},
};

use edgecut_interop::memory_workload::{MemoryWorkload, Solved};
use indicatif::ProgressBar;

use super::flags::Schedule;
use crate::Failure;

/// Reads a graph of either form.
pub(super) fn parse(input: &Path, bytes: &[u8]) -> Result<MemoryWorkload, Failure> {
    MemoryWorkload::parse(bytes).map_err(|error| kind::mismatch_error(input, bytes, FileKind::Graph, error))
}

/// Searches, and says on stderr how fast that went.
pub(super) fn solve<'a>(arguments: &Schedule, workload: &'a MemoryWorkload) -> Result<Solved<'a>, Failure> {
    let start = Instant::now();
    let solved = solve_from(arguments, workload, arguments.search.seed)?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = solved.evaluated as f64 / seconds;
    eprintln!("looked at {} schedules in {seconds:.2} s: {rate:.0} a second", solved.evaluated);
    Ok(solved)
}

/// Searches from a seed.
pub(super) fn solve_from<'a>(
    arguments: &Schedule,
    workload: &'a MemoryWorkload,
    seed: u64,
) -> Result<Solved<'a>, Failure> {
    let message = format!("searching schedules of {} operators", workload.operators());
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    let solved = workload.solve(&arguments.options(seed, workload.operators())).map_err(Failure::bad_input);
    bar.finish_and_clear();
    solved
}
