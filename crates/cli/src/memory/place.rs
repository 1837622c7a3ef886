//! `edgecut memory place`: the arena in program order and in the order of least peak.

use std::{fmt, path::PathBuf};

use edgecut_graph::units::Bytes;
use edgecut_session::memory::{
    self, FigureOptions, PlaceOptions,
    figures::{OffloadLink, offload_link},
    place::{FusionEffect, FusionPatterns, PlaceSummary, Placed},
};

use super::{files, subject::SubjectFlags, times::times};
use crate::{
    Outcome,
    format::{self, Format},
    source_file, stderr,
    stdout::print_line,
};

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
    #[arg(long, value_name = "[NAME=]RATE", requires = "figures", value_parser = offload_link, help_heading = "Figures")]
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

impl Place {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        self.figures.as_deref().map_or(Ok(()), |folder| source_file::check_folder("figures", folder))?;
        let mut placed = memory::place(&self.input, &self.options(), &stderr::events())?;
        placed.summary.times = times(&placed.times);
        self.print(&placed)?;
        let table = || match &self.output {
            Some(path) => source_file::write(path, &format::to_csv(&placed.buffers())?),
            None => Ok(()),
        };
        let figures = || match &self.figures {
            Some(folder) => {
                let options = FigureOptions { link: self.link.clone(), display_names: self.display_names };
                files::write_all(folder, &placed.figures(&options)?)
            }
            None => Ok(()),
        };
        let writes: [&dyn Fn() -> Outcome; 2] = [&table, &figures];
        source_file::all(writes.into_iter().map(|write| write()))
    }

    fn options(&self) -> PlaceOptions {
        PlaceOptions {
            subject: self.flags.options(),
            fuse: match &self.fuse {
                None => FusionPatterns::None,
                Some(None) => FusionPatterns::BuiltIn,
                Some(Some(path)) => FusionPatterns::File(path.clone()),
            },
            capacity: self.capacity,
            effort: self.effort,
        }
    }

    fn print(&self, placed: &Placed) -> Outcome {
        match self.format {
            Format::Csv => format::print_csv(&placed.buffers()),
            Format::Json => format::print_json(&placed.summary),
            Format::Table => {
                print_line!("{}", SummaryTable(&placed.summary));
                if self.map { format::print_all(format!("\n{}", placed.map()).as_bytes()) } else { Ok(()) }
            }
        }
    }
}

/// The figures of a placement, as a table.
struct SummaryTable<'a>(&'a PlaceSummary);

impl fmt::Display for SummaryTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SummaryTable(summary) = self;
        writeln!(f, "model        {}", summary.model)?;
        writeln!(f, "operators    {}, {:.3} GFLOP", summary.operators, summary.flops as f64 / 1e9)?;
        writeln!(f, "parameters   {}", summary.parameter_bytes)?;
        writeln!(f, "             program order   best order")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, before: Bytes, after: Bytes| {
            writeln!(f, "{name:<12} {:>13}   {:>10}", before.to_string(), after.to_string())
        };
        row(f, "peak", summary.program_order_peak_bytes, summary.peak_bytes)?;
        row(f, "arena", summary.program_order_arena_bytes, summary.arena_bytes)?;
        writeln!(f, "lower bound  {} for this order, {} for any", summary.bound_arena_bytes, summary.bound_peak_bytes)?;
        writeln!(f, "gap          {:.2} %", 100.0 * summary.gap)?;
        if summary.joined_in_place > 0 {
            writeln!(f, "joined       {} concatenations in place", summary.joined_in_place)?;
        }
        write!(f, "times        {}", summary.times)?;
        summary.fusion.as_ref().map_or(Ok(()), |fusion| write!(f, "\n\n{}", Fused(fusion)))
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
