//! Reads a DLMO or MAGIS graph and searches its schedules.

use std::{path::Path, time::Instant};

use edgecut_interop::memory_workload::{MemoryWorkload, Solved};

use super::options::SearchOptions;
use crate::{
    Error, Event, Events,
    file_kind::{self as kind, FileKind},
};

/// Reads a graph of either form.
pub(super) fn parse(input: &Path, bytes: &[u8]) -> Result<MemoryWorkload, Error> {
    MemoryWorkload::parse(bytes).map_err(|error| kind::mismatch_error(input, bytes, FileKind::Graph, error))
}

/// Searches, and reports how fast that went.
pub(super) fn solve<'a>(
    workload: &'a MemoryWorkload,
    options: &SearchOptions,
    events: &Events,
) -> Result<Solved<'a>, Error> {
    let start = Instant::now();
    let solved = solve_quietly(workload, options, events)?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = solved.evaluated as f64 / seconds;
    events.notice(format_args!("looked at {} schedules in {seconds:.2} s: {rate:.0} a second", solved.evaluated));
    Ok(solved)
}

/// Searches, with progress alone.
pub(super) fn solve_quietly<'a>(
    workload: &'a MemoryWorkload,
    options: &SearchOptions,
    events: &Events,
) -> Result<Solved<'a>, Error> {
    events.check()?;
    let _shown = events.progress();
    let what = format!("searching schedules of {} operators", workload.operators());
    events.emit(Event::Planning { what: &what, remaining: None });
    workload.solve(&options.of_graph(workload.operators())).map_err(Error::bad_input)
}
