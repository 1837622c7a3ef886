//! `edgecut memory liveness`: births, deaths and idle periods of tensors, of a model or of a traced PyTorch graph.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use edgecut_graph::{OperatorId, units::Bytes};
use edgecut_interop::{fx, g10};
use edgecut_memory::{PackOptions, liveness::Trace, place::best_placement, trace::trace};
use edgecut_session::error::Message;
use serde::Serialize;

use super::{effort, figures, subject::SubjectFlags};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    ineffective, source_file,
};

/// Millions of placements that are tried if `--effort` is not given.
const EFFORT: u64 = 30;

/// Report when the tensors of a model, or of a PyTorch trace, are live and idle.
///
/// A model's operators run in the order of least peak.
#[derive(clap::Args)]
pub struct Liveness {
    /// An ONNX model, Relay text, or a network of bare tensors and operators (JSON)
    #[arg(value_name = "MODEL", required_unless_present = "trace")]
    input: Option<PathBuf>,

    #[command(flatten)]
    flags: SubjectFlags,

    /// Millions of placements to try for the order [default: 30]
    #[arg(long, value_name = "MILLIONS", help_heading = "Placement")]
    effort: Option<u64>,

    /// A traced graph's forward function as Python text, instead of MODEL
    #[arg(long, value_name = "FWD.py", conflicts_with = "input", help_heading = "PyTorch trace")]
    trace: Option<PathBuf>,

    /// Its backward function
    #[arg(long, value_name = "BWD.py", help_heading = "PyTorch trace")]
    backward: Option<PathBuf>,

    /// Times of its kernels: lines of `0 0.125 ms`
    #[arg(long, value_name = "FILE", help_heading = "PyTorch trace")]
    times: Option<PathBuf>,

    /// Write tables and the files of the G10 liveness tool into this folder
    ///
    /// liveness.csv, idle.csv, memory.csv, and the five files that the G10 tool writes.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// What G10's files are named after [default: run1]
    #[arg(long, value_name = "NAME", requires = "output")]
    run_name: Option<String>,

    /// Count as the G10 tool does, quirks included
    #[arg(long, requires = "output")]
    g10_compat: bool,

    /// How to print the result: CSV is that of liveness.csv
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The figures of a trace.
#[derive(Serialize)]
struct Summary {
    kernels: usize,
    tensors: usize,
    global_bytes: Bytes,
    peak_bytes: Bytes,
    peak_kernel: usize,
    idle_periods: usize,
}

impl Liveness {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), |folder| source_file::check_folder("--output", folder))?;
        let trace = match (&self.trace, &self.input) {
            (Some(forward), _) => self.traced(forward)?,
            (None, Some(input)) => self.of_model(input)?,
            // clap requires one of them.
            (None, None) => return Ok(()),
        };
        let tables = g10::tables(&trace);
        let summary = Summary::of(&trace);
        match self.format {
            Format::Csv => format::print_all(tables[0].1.as_bytes())?,
            Format::Json => format::print_json(&summary)?,
            Format::Table => format::print_all(format!("{summary}\n").as_bytes())?,
        }
        let Some(folder) = &self.output else { return Ok(()) };
        let name = self.run_name.as_deref().unwrap_or("run1");
        let files = g10::files(&trace, name, self.g10_compat).into_iter().chain(tables);
        let files: Vec<(String, Vec<u8>)> = files.map(|(name, text)| (name, text.into_bytes())).collect();
        figures::write_all(folder, &files)
    }

    /// The kernels of a model in the order of least peak.
    fn of_model(&self, input: &Path) -> Result<Trace, Failure> {
        let flags = [("--backward", self.backward.is_some()), ("--times", self.times.is_some())];
        ineffective::refuse(&flags, "a model: only with --trace")?;
        let subject = self.flags.read(input)?;
        let (problem, align) = (&subject.problem, self.flags.align());
        let options = PackOptions { capacity: None, effort: effort::steps(self.effort, EFFORT) };
        problem.storage_rules(align, |rules| {
            let placements = best_placement(&problem.graph, rules, &options).map_err(Failure::bad_input)?;
            let time = |id: OperatorId| problem.time(id);
            Ok(trace(&problem.graph, &placements.best.order, rules, &time))
        })
    }

    /// The kernels of a traced PyTorch graph.
    fn traced(&self, forward: &Path) -> Result<Trace, Failure> {
        let mut flags = self.flags.all();
        flags.push(("--effort", self.effort.is_some()));
        ineffective::refuse(&flags, "--trace")?;
        let text = |path: &Path| Ok::<_, Failure>(String::from_utf8_lossy(&source_file::read(path)?).into_owned());
        let bad = |path: &Path, error| Failure::BadInput(Message::from(format!("{}: {error}", path.display())));
        let times = match &self.times {
            Some(path) => fx::times(&text(path)?).map_err(|error| bad(path, error))?,
            None => Vec::new(),
        };
        let backward = self.backward.as_deref().map(text).transpose()?.unwrap_or_default();
        fx::parse(&text(forward)?, &backward, &times).map_err(|error| bad(forward, error))
    }
}

impl Summary {
    fn of(trace: &Trace) -> Summary {
        let used = trace.memory();
        let peak = used.iter().enumerate().max_by_key(|(index, m)| (m.total, std::cmp::Reverse(*index)));
        let (peak_kernel, peak_bytes) = peak.map_or((0, Bytes::ZERO), |(kernel, memory)| (kernel, memory.total));
        Summary {
            kernels: trace.kernels.len(),
            tensors: trace.tensors.len(),
            global_bytes: trace.tensors.iter().filter(|t| t.global).map(|t| t.bytes).sum(),
            peak_bytes,
            peak_kernel,
            idle_periods: trace.liveness().iter().map(|life| life.idle.len()).sum(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peak, kernel) = (self.peak_bytes, self.peak_kernel);
        writeln!(f, "kernels       {}", self.kernels)?;
        writeln!(f, "tensors       {}, {} of them global", self.tensors, self.global_bytes)?;
        writeln!(f, "peak          {peak} ({} bytes) at kernel {kernel}", peak.0)?;
        write!(f, "idle periods  {}", self.idle_periods)
    }
}
