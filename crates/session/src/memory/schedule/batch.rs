//! Many graphs, each under its limit, one row of results for each.

use std::path::Path;

pub use edgecut_interop::memory_workload::batch::BatchRow;
use edgecut_interop::memory_workload::batch::entries;
use edgecut_memory::target::Target;

use super::{options::SearchOptions, search};
use crate::{Error, Events, input as file};

/// The schedules of a list of graphs.
pub struct ScheduledBatch {
    pub rows: Vec<BatchRow>,
    /// Why graphs have no schedule within their limit.
    missed: Vec<String>,
}

/// Schedules the DLMO and MAGIS graphs of `list`: lines of `path limit`, paths being relative to the list's folder. `#`
/// begins a comment.
///
/// # Errors
/// If a file cannot be read, or a schedule fails its check. Graphs without a schedule within their limit are reported by
/// [`ScheduledBatch::check`].
pub fn schedule_batch(list: &Path, options: &SearchOptions, events: &Events) -> Result<ScheduledBatch, Error> {
    let text = String::from_utf8_lossy(&file::read(list)?).into_owned();
    let folder = list.parent().unwrap_or(Path::new("."));
    let place = |line: usize| format!("{}:{line}", list.display());
    let entries =
        entries(&text).map_err(|error| Error::BadInput(format!("{}: {error}", place(error.line())).into()))?;
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for entry in &entries {
        let path = folder.join(&entry.path);
        let bytes = file::read(&path).map_err(|error| error.at(place(entry.line)))?;
        let workload = search::parse(&path, &bytes).map_err(|error| error.at(place(entry.line)))?;
        let solved = search::solve(&workload, options, events)?;
        let row = BatchRow::of(entry, &workload, &solved).map_err(Error::failed)?;
        if !row.is_found() {
            missed.push(format!("{}: {}", row.name, solved.why_none(Target::Limit(entry.limit))));
        }
        events.notice(format_args!("{} {}", row.name, if row.is_found() { "done" } else { "not within its limit" }));
        rows.push(row);
    }
    Ok(ScheduledBatch { rows, missed })
}

impl ScheduledBatch {
    /// Checks that every graph has a schedule within its limit.
    ///
    /// # Errors
    /// If one has none. The message lists all of them.
    pub fn check(&self) -> Result<(), Error> {
        if self.missed.is_empty() { Ok(()) } else { Err(Error::NoPlan(self.missed.join("\n").into())) }
    }
}
