//! `edgecut memory liveness`: births, deaths and idle periods of tensors, of a model or of a traced PyTorch graph.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use edgecut_session::memory::{self, LivenessOptions, TraceOptions, liveness::LivenessSummary};

use super::{files, subject::SubjectFlags};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    ineffective, source_file, stderr,
    stdout::print_line,
};

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

impl Liveness {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), |folder| source_file::check_folder("output", folder))?;
        let liveness = match (&self.trace, &self.input) {
            (Some(forward), _) => self.traced(forward)?,
            (None, Some(input)) => self.of_model(input)?,
            // clap requires one of them.
            (None, None) => return Ok(()),
        };
        match self.format {
            Format::Csv => format::print_all(liveness.csv().as_bytes())?,
            Format::Json => format::print_json(&liveness.summary)?,
            Format::Table => print_line!("{}", SummaryTable(&liveness.summary)),
        }
        let Some(folder) = &self.output else { return Ok(()) };
        let name = self.run_name.as_deref().unwrap_or("run1");
        files::write_all(folder, &liveness.files(name, self.g10_compat))
    }

    /// The kernels of a model in the order of least peak.
    fn of_model(&self, input: &Path) -> Result<memory::liveness::Liveness, Failure> {
        let flags = [("--backward", self.backward.is_some()), ("--times", self.times.is_some())];
        ineffective::refuse(&flags, "a model: only with --trace")?;
        let options = LivenessOptions { subject: self.flags.options(), effort: self.effort };
        memory::liveness(input, &options, &stderr::events())
    }

    /// The kernels of a traced PyTorch graph.
    fn traced(&self, forward: &Path) -> Result<memory::liveness::Liveness, Failure> {
        let mut flags = self.flags.all();
        flags.push(("--effort", self.effort.is_some()));
        ineffective::refuse(&flags, "--trace")?;
        let options = TraceOptions { backward: self.backward.clone(), times: self.times.clone() };
        memory::liveness_of_trace(forward, &options)
    }
}

/// The figures of a trace, as a table.
struct SummaryTable<'a>(&'a LivenessSummary);

impl fmt::Display for SummaryTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SummaryTable(summary) = self;
        let (peak, kernel) = (summary.peak_bytes, summary.peak_kernel);
        writeln!(f, "kernels       {}", summary.kernels)?;
        writeln!(f, "tensors       {}, {} of them global", summary.tensors, summary.global_bytes)?;
        writeln!(f, "peak          {peak} ({} bytes) at kernel {kernel}", peak.0)?;
        write!(f, "idle periods  {}", summary.idle_periods)
    }
}
