//! `edgecut memory place`: the arena in program order and in the order of least peak.

use edgecut_session::file_kind::{self as kind, FileKind};
use std::{
    fmt,
    path::{Path, PathBuf},
};

use edgecut_graph::units::Bytes;
use edgecut_memory::{
    PackOptions,
    meta::{
        effect::{FusionEffect, fuse_and_place},
        library::{Library, LibraryError},
    },
    place::{PlacementResult, best_placement},
    problem::MemoryProblem,
};
use edgecut_report::memory::{charts::OffloadLink, layout::Layout, text};
use edgecut_session::error::Message;
use serde::Serialize;

use super::{
    effort,
    figures::{self, Figures},
    subject::{Subject, SubjectFlags},
};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    source_file,
    stdout::print_line,
};

/// Millions of placements that are tried if `--effort` is not given.
const EFFORT: u64 = 30;

/// Place the tensors of a model in one arena, in the order of least peak.
#[derive(clap::Args)]
pub struct Place {
    /// An ONNX model, Relay text, or a network of bare tensors and operators (JSON)
    #[arg(value_name = "MODEL")]
    input: PathBuf,

    #[command(flatten)]
    flags: SubjectFlags,

    /// Fuse operators first, by the patterns of a file or the built-in ones
    #[arg(long, value_name = "FILE", num_args = 0..=1, help_heading = "Placement")]
    fuse: Option<Option<PathBuf>>,

    /// Exit with code 3 if the arena is larger than this
    #[arg(long, value_name = "SIZE", help_heading = "Placement", value_parser = Bytes::with_unit)]
    capacity: Option<Bytes>,

    /// Millions of placements to try [default: 30]; 30 take about 1 s
    #[arg(long, value_name = "MILLIONS", help_heading = "Placement")]
    effort: Option<u64>,

    /// Write figures into this folder: HTML, SVG, text, Perfetto, Aidge
    ///
    /// One HTML page, SVG (and PNG, if built with the feature `png`), a text map, counters for Perfetto, Aidge's
    /// memory_info.txt.
    #[arg(long, value_name = "DIR", help_heading = "Figures")]
    figures: Option<PathBuf>,

    /// Draw a link into the figure of sizes and idle times; repeatable
    ///
    /// The line shows what the link could carry away and back while a tensor lies idle. If not given, the links of
    /// profiles/links.csv are drawn, but for those of loopback.
    #[arg(long, value_name = "[NAME=]RATE", requires = "figures", value_parser = figures::link, help_heading = "Figures")]
    link: Vec<OffloadLink>,

    /// Write all names into the arena map, even where they do not fit
    #[arg(long, requires = "figures", help_heading = "Figures")]
    display_names: bool,

    /// Print the arena as a map of 80 columns
    #[arg(long, help_heading = "Figures")]
    map: bool,

    /// Write offsets and lifetimes of all buffers to this file
    #[arg(long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// How to print the result: CSV has a row a buffer
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The figures of a placement.
#[derive(Serialize)]
struct Summary {
    model: String,
    operators: usize,
    flops: u64,
    parameter_bytes: Bytes,
    program_order_peak_bytes: Bytes,
    program_order_arena_bytes: Bytes,
    peak_bytes: Bytes,
    arena_bytes: Bytes,
    /// Lower bound of the arena for that order.
    bound_arena_bytes: Bytes,
    /// Lower bound of the peak over all orders.
    bound_peak_bytes: Bytes,
    /// Of the arena to the lower of both bounds.
    gap: f64,
    times: String,
    /// Concatenations whose operands are written where the result is.
    joined_in_place: usize,
    /// What fusing changed, if the operators were fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    fusion: Option<FusionEffect>,
}

/// One tensor or workspace of the placement.
#[derive(Serialize)]
struct Row<'a> {
    buffer: &'a str,
    kind: &'static str,
    bytes: Bytes,
    offset: Bytes,
    birth: u64,
    death: u64,
}

impl Place {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        self.figures.as_deref().map_or(Ok(()), |folder| source_file::check_folder("--figures", folder))?;
        let subject = self.flags.read(&self.input)?;
        let options = PackOptions { capacity: self.capacity, effort: effort::steps(self.effort, EFFORT) };
        let align = self.flags.align();
        match &self.fuse {
            None => {
                let problem = &subject.problem;
                let placed = problem.storage_rules(align, |rules| best_placement(&problem.graph, rules, &options));
                self.show(&subject, problem, &placed.map_err(Failure::bad_input)?, None)
            }
            Some(library) => {
                let library = read_library(library.as_deref())?;
                let fusion = fuse_and_place(&subject.problem, &library, align, &options).map_err(Failure::bad_input)?;
                self.show(&subject, &fusion.problem, &fusion.placements, Some(fusion.effect))
            }
        }
    }

    /// Prints and writes what was asked for.
    fn show(
        &self,
        subject: &Subject,
        problem: &MemoryProblem,
        placements: &PlacementResult,
        fusion: Option<FusionEffect>,
    ) -> Outcome {
        let best = &placements.best;
        if let Some(capacity) = self.capacity.filter(|capacity| best.packing.height > *capacity) {
            let (height, bound) = (best.packing.height, best.packing.bound);
            let short = capacity.shortfall(height);
            let text = format!("the arena needs {height}, {short} more than {capacity}; its lower bound is {bound}");
            return Err(Failure::NoPlan(Message::from(text)));
        }
        let mut layout = Layout::new(&subject.title, &problem.graph, best, &|id| problem.time(id));
        layout.capacity = self.capacity;
        let rows = layout.blocks.iter().map(|block| Row {
            buffer: &block.name,
            kind: block.kind.name(),
            bytes: block.size,
            offset: block.offset,
            birth: block.lower,
            death: block.upper,
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let summary = Summary { fusion, ..summary(subject, problem, placements) };
        match self.format {
            Format::Csv => format::print_csv(&rows)?,
            Format::Json => format::print_json(&summary)?,
            Format::Table => {
                print_line!("{summary}");
                if self.map {
                    format::print_all(format!("\n{}", text::map(&layout)).as_bytes())?;
                }
            }
        }
        let table = || match &self.output {
            Some(path) => source_file::write(path, &format::to_csv(&rows)?),
            None => Ok(()),
        };
        let figures = || match &self.figures {
            Some(folder) => {
                let (links, align) = (&self.link[..], self.flags.align());
                let figures = Figures { links, display_names: self.display_names, align };
                figures.write(folder, problem, placements, &layout)
            }
            None => Ok(()),
        };
        let writes: [&dyn Fn() -> Outcome; 2] = [&table, &figures];
        source_file::all(writes.into_iter().map(|write| write()))
    }
}

fn summary(subject: &Subject, problem: &MemoryProblem, placements: &PlacementResult) -> Summary {
    let (before, best) = (&placements.program_order, &placements.best);
    Summary {
        model: subject.title.clone(),
        operators: problem.graph.operators().len(),
        flops: problem.flops,
        parameter_bytes: problem.parameter_bytes(),
        program_order_peak_bytes: before.lifetimes.peak(),
        program_order_arena_bytes: before.packing.height,
        peak_bytes: best.lifetimes.peak(),
        arena_bytes: best.packing.height,
        bound_arena_bytes: best.packing.bound,
        bound_peak_bytes: placements.bound,
        gap: placements.gap(),
        times: subject.times.clone(),
        joined_in_place: best.elided.len(),
        fusion: None,
    }
}

/// The library of a file, or the built-in one.
fn read_library(path: Option<&Path>) -> Result<Library, Failure> {
    let Some(path) = path else { return Library::built_in().map_err(Failure::failed) };
    let text = String::from_utf8_lossy(&source_file::read(path)?).into_owned();
    Library::parse(&text).map_err(|LibraryError { message, span }| {
        if kind::mismatch(text.as_bytes(), FileKind::Patterns).is_some() {
            return kind::mismatch_error(path, text.as_bytes(), FileKind::Patterns, message);
        }
        let Some(span) = span else {
            return Failure::BadInput(Message::from(format!("{}: {message}", path.display())));
        };
        Failure::BadInput(Message::in_toml(message, path, text, Some(span)))
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model        {}", self.model)?;
        writeln!(f, "operators    {}, {:.3} GFLOP", self.operators, self.flops as f64 / 1e9)?;
        writeln!(f, "parameters   {}", self.parameter_bytes)?;
        writeln!(f, "             program order   best order")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, before: Bytes, after: Bytes| {
            writeln!(f, "{name:<12} {:>13}   {:>10}", before.to_string(), after.to_string())
        };
        row(f, "peak", self.program_order_peak_bytes, self.peak_bytes)?;
        row(f, "arena", self.program_order_arena_bytes, self.arena_bytes)?;
        writeln!(f, "lower bound  {} for this order, {} for any", self.bound_arena_bytes, self.bound_peak_bytes)?;
        writeln!(f, "gap          {:.2} %", 100.0 * self.gap)?;
        if self.joined_in_place > 0 {
            writeln!(f, "joined       {} concatenations in place", self.joined_in_place)?;
        }
        write!(f, "times        {}", self.times)?;
        self.fusion.as_ref().map_or(Ok(()), |fusion| write!(f, "\n\n{}", Fused(fusion)))
    }
}

/// What fusing changed, as a table.
struct Fused<'a>(&'a FusionEffect);

impl fmt::Display for Fused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fused(effect) = self;
        let width = effect.meta_operators.iter().map(|u| u.name.len()).max().unwrap_or(0).max("meta-operator".len());
        writeln!(f, "{:<width$}  matches  operators", "meta-operator")?;
        for found in effect.meta_operators.iter().filter(|found| found.matches > 0) {
            writeln!(f, "{:<width$}  {:>7}  {:>9}", found.name, found.matches, found.operators)?;
        }
        writeln!(f, "             {:>10} {:>10}   without scratch", "unfused", "fused")?;
        writeln!(f, "operators    {:>10} {:>10}", effect.unfused_operators, effect.fused_operators)?;
        let all = [&effect.unfused, &effect.fused, &effect.without_scratch];
        let row = |f: &mut fmt::Formatter<'_>, name: &str, [a, b, c]: [Bytes; 3]| {
            writeln!(f, "{name:<12} {:>10} {:>10}   {:>15}", a.to_string(), b.to_string(), c.to_string())
        };
        row(f, "peak", all.map(|figures| figures.peak_bytes))?;
        row(f, "arena", all.map(|figures| figures.arena_bytes))?;
        let of = effect.largest_scratch_of.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        write!(f, "scratch      {} at most{of}", effect.largest_scratch_bytes)
    }
}
