//! Many graphs, each under its limit: lines of `path limit`, and rows with the columns of MAGIS's `results.csv`.

use edgecut_graph::units::{Bytes, UnitError};
use edgecut_memory::target::{Limit, Target};
use serde::Serialize;

use super::{MemoryWorkload, MemoryWorkloadError, Solved};

/// MAGIS's mark of figures that come from its simulation and not from a run.
const SIMULATED: &str = "False";

/// One graph of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchEntry {
    /// Counted from 1.
    pub line: usize,
    /// As the file has it.
    pub path: String,
    pub limit: Limit,
}

/// A line that is not `path limit`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BatchError {
    #[error("`{text}` is not `path limit`, such as `unet.json 40%`")]
    Form { line: usize, text: String },
    #[error("{error}")]
    Limit { line: usize, error: UnitError },
}

impl BatchError {
    /// Counted from 1.
    pub fn line(&self) -> usize {
        match self {
            BatchError::Form { line, .. } | BatchError::Limit { line, .. } => *line,
        }
    }
}

/// The graphs that `text` lists; `#` begins a comment.
///
/// # Errors
/// At the first line of another form.
pub fn entries(text: &str) -> Result<Vec<BatchEntry>, BatchError> {
    let content = |line: &str| line.split('#').next().unwrap_or_default().trim().to_string();
    let lines = (1..).zip(text.lines()).map(|(line, text)| (line, content(text)));
    let entry = |(line, text): (usize, String)| {
        let Some((path, limit)) = text.rsplit_once(char::is_whitespace) else {
            return Err(BatchError::Form { line, text });
        };
        let limit = limit.parse().map_err(|error| BatchError::Limit { line, error })?;
        Ok(BatchEntry { line, path: path.trim().to_string(), limit })
    };
    lines.filter(|(_, text)| !text.is_empty()).map(entry).collect()
}

/// One row, with the columns of MAGIS's results in their order. Latency and memory are the simulated ones, memory in
/// bytes, latency in milliseconds; what is not known is empty.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchRow {
    pub name: String,
    pub device_memory_limit: u64,
    pub latency_limit: Option<f64>,
    pub memory_limit: u64,
    /// Of the original.
    pub latency_limit_ratio: Option<f64>,
    pub memory_limit_ratio: f64,
    pub weight_memory: u64,
    pub opt_is_prof_result: &'static str,
    pub opt_latency: Option<f64>,
    pub opt_memory: Option<u64>,
    pub opt_simul_latency: Option<f64>,
    pub opt_simul_memory: Option<u64>,
    pub ori_is_prof_result: &'static str,
    pub ori_latency: f64,
    pub ori_memory: u64,
    pub ori_simul_latency: f64,
    pub ori_simul_memory: u64,
}

impl BatchRow {
    /// The best schedule within the entry's limit, checked; its figures are empty if none was found.
    ///
    /// # Errors
    /// If the schedule does not pass its check.
    pub fn of(
        entry: &BatchEntry,
        workload: &MemoryWorkload,
        solved: &Solved<'_>,
    ) -> Result<BatchRow, MemoryWorkloadError> {
        let best = solved.best(Target::Limit(entry.limit));
        // Writing a schedule checks it.
        let found = best.map(|best| solved.write(best)).transpose()?.map(|written| written.figures);
        let (latency, peak) = (found.map(|f| f.time_us.0 / 1e3), found.map(|f| f.peak_bytes.0));
        let (original_latency, original_peak) = (solved.original.time_us.0 / 1e3, solved.original.peak_bytes.0);
        let bytes = solved.limit(entry.limit).0;
        Ok(BatchRow {
            name: entry.path.clone(),
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

    /// Whether a schedule within the limit was found.
    pub fn is_found(&self) -> bool {
        self.opt_simul_memory.is_some()
    }

    pub fn limit(&self) -> Bytes {
        Bytes(self.memory_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paths_with_limits() {
        let entry = |line, path: &str, limit| BatchEntry { line, path: path.to_string(), limit };
        let all = [entry(2, "a b.json", Limit::Share(0.6)), entry(4, "c.json", Limit::Bytes(Bytes(2048)))];
        assert_eq!(entries("# graphs\na b.json 60% # half\n\n c.json\t2KiB\n"), Ok(all.to_vec()));
        assert_eq!(entries("a.json 1KiB\nb.json\n").map_err(|error| error.line()), Err(2));
        assert!(matches!(entries("a.json much"), Err(BatchError::Limit { line: 1, .. })));
    }
}
