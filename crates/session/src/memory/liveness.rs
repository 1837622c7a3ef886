//! Births, deaths and idle periods of tensors, of a model or of a traced PyTorch graph.

use std::path::{Path, PathBuf};

use edgecut_graph::{OperatorId, units::Bytes};
use edgecut_interop::{fx, g10};
use edgecut_memory::{PackOptions, liveness::Trace, place::best_placement, trace::trace};
use serde::{Deserialize, Serialize};

use super::{
    effort::steps,
    figures::NamedFile,
    subject::{MemorySubject, SubjectOptions},
};
use crate::{Error, Events, input as file};

/// Default number of placements that are tried, in millions.
const EFFORT: u64 = 30;

/// How the order of a model's operators is chosen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LivenessOptions {
    /// How the model is read, and rules for placing its tensors.
    pub subject: SubjectOptions,
    /// Millions of placements to try for the order. By default, 30.
    pub effort: Option<u64>,
}

/// More files of a traced PyTorch graph.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceOptions {
    /// The backward function.
    pub backward: Option<PathBuf>,
    /// Times of the kernels: lines of `0 0.125 ms`.
    pub times: Option<PathBuf>,
}

/// When the tensors of kernels are live and idle.
pub struct Liveness {
    pub summary: LivenessSummary,
    trace: Trace,
}

/// The figures of a trace.
#[derive(Debug, Serialize)]
pub struct LivenessSummary {
    pub kernels: usize,
    pub tensors: usize,
    pub global_bytes: Bytes,
    pub peak_bytes: Bytes,
    pub peak_kernel: usize,
    pub idle_periods: usize,
}

/// The liveness of the tensors of a model or a network of bare tensors, whose operators run in the order of minimum peak.
///
/// # Errors
/// If a file cannot be read, or a size is not known.
pub fn liveness(input: &Path, options: &LivenessOptions, events: &Events) -> Result<Liveness, Error> {
    options.subject.check()?;
    let MemorySubject { problem, .. } = options.subject.read(input, events)?;
    let search = PackOptions { capacity: None, effort: steps(options.effort, EFFORT) };
    problem.storage_rules(options.subject.align(), |rules| {
        let placements = best_placement(&problem.graph, rules, &search).map_err(Error::bad_input)?;
        let time = |id: OperatorId| problem.time(id);
        Ok(Liveness::of(trace(&problem.graph, &placements.best.order, rules, &time)))
    })
}

/// The liveness of the tensors of a traced PyTorch graph. `forward` is its forward function as Python text.
///
/// # Errors
/// If a file cannot be read.
pub fn liveness_of_trace(forward: &Path, options: &TraceOptions) -> Result<Liveness, Error> {
    let text = |path: &Path| Ok::<_, Error>(String::from_utf8_lossy(&file::read(path)?).into_owned());
    let bad = |path: &Path, error| Error::BadInput(format!("{}: {error}", path.display()).into());
    let times = match &options.times {
        Some(path) => fx::times(&text(path)?).map_err(|error| bad(path, error))?,
        None => Vec::new(),
    };
    let backward = options.backward.as_deref().map(text).transpose()?.unwrap_or_default();
    fx::parse(&text(forward)?, &backward, &times).map(Liveness::of).map_err(|error| bad(forward, error))
}

impl Liveness {
    fn of(trace: Trace) -> Liveness {
        Liveness { summary: LivenessSummary::of(&trace), trace }
    }

    /// The table of births, deaths and idle periods, as CSV.
    pub fn csv(&self) -> String {
        g10::tables(&self.trace).swap_remove(0).1
    }

    /// The tables liveness.csv, idle.csv and memory.csv, after the five files of the G10 tool, which are named after
    /// `run_name`. If `compatible`, tensors are counted as that tool does, quirks included.
    pub fn files(&self, run_name: &str, compatible: bool) -> Vec<NamedFile> {
        let files = g10::files(&self.trace, run_name, compatible).into_iter().chain(g10::tables(&self.trace));
        files.map(|(name, text)| (name, text.into_bytes())).collect()
    }
}

impl LivenessSummary {
    fn of(trace: &Trace) -> LivenessSummary {
        let used = trace.memory();
        let peak = used.iter().enumerate().max_by_key(|(index, m)| (m.total, std::cmp::Reverse(*index)));
        let (peak_kernel, peak_bytes) = peak.map_or((0, Bytes::ZERO), |(kernel, memory)| (kernel, memory.total));
        LivenessSummary {
            kernels: trace.kernels.len(),
            tensors: trace.tensors.len(),
            global_bytes: trace.tensors.iter().filter(|t| t.global).map(|t| t.bytes).sum(),
            peak_bytes,
            peak_kernel,
            idle_periods: trace.liveness().iter().map(|life| life.idle.len()).sum(),
        }
    }
}
