//! The tensors of a model in one arena: in program order, and in the order of minimum peak.

use std::path::{Path, PathBuf};

use edgecut_graph::units::Bytes;
pub use edgecut_memory::meta::effect::FusionEffect;
use edgecut_memory::{
    PackOptions,
    meta::{
        effect::fuse_and_place,
        library::{Library, LibraryError},
    },
    place::{PlacementResult, best_placement},
    problem::MemoryProblem,
};
use edgecut_report::memory::{layout::Layout, text};
use serde::{Deserialize, Serialize};

use super::{
    effort::steps,
    subject::{MemorySubject, SubjectOptions, TimesSource},
};
use crate::{
    Error, Events,
    error::Message,
    file_kind::{self as kind, FileKind},
    input as file, option_values,
};

/// Default number of placements that are tried, in millions.
const EFFORT: u64 = 30;

/// How the tensors of a model are placed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceOptions {
    /// How the model is read, and rules for placing its tensors.
    pub subject: SubjectOptions,
    /// Whether operators are fused first.
    pub fuse: FusionPatterns,
    /// Maximum size of the arena. It is an error if the arena is larger.
    #[serde(deserialize_with = "option_values::optional_size")]
    pub capacity: Option<Bytes>,
    /// Millions of placements to try. By default, 30; these take about 1 s.
    pub effort: Option<u64>,
}

/// The patterns by which operators are fused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FusionPatterns {
    /// Operators are not fused.
    #[default]
    None,
    BuiltIn,
    /// Those of a library of patterns (TOML).
    File(PathBuf),
}

/// The tensors of a model, placed in an arena.
pub struct Placed {
    pub summary: PlaceSummary,
    pub times: TimesSource,
    pub(super) problem: MemoryProblem,
    pub(super) placements: PlacementResult,
    pub(super) layout: Layout,
    pub(super) align: u64,
}

/// The figures of a placement.
#[derive(Debug, Serialize)]
pub struct PlaceSummary {
    pub model: String,
    pub operators: usize,
    pub flops: u64,
    pub parameter_bytes: Bytes,
    pub program_order_peak_bytes: Bytes,
    pub program_order_arena_bytes: Bytes,
    pub peak_bytes: Bytes,
    pub arena_bytes: Bytes,
    /// Lower bound of the arena for that order.
    pub bound_arena_bytes: Bytes,
    /// Lower bound of the peak over all orders.
    pub bound_peak_bytes: Bytes,
    /// Of the arena to the lower of both bounds.
    pub gap: f64,
    /// [`Placed::times`] as text.
    pub times: String,
    /// Number of concatenations whose operands are written where the result is.
    pub joined_in_place: usize,
    /// What fusing changed, if the operators were fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<FusionEffect>,
}

/// One tensor or workspace of a placement. It is live in the steps `birth..death`.
#[derive(Debug, Serialize)]
pub struct PlacedBuffer<'a> {
    pub buffer: &'a str,
    pub kind: &'static str,
    pub bytes: Bytes,
    pub offset: Bytes,
    pub birth: u64,
    pub death: u64,
}

/// Places the tensors of `input` in an arena: an ONNX model, Relay text, or a network of bare tensors and operators
/// (JSON).
///
/// # Errors
/// If a file cannot be read, a size is not known, or the arena is larger than the capacity.
pub fn place(input: &Path, options: &PlaceOptions, events: &Events) -> Result<Placed, Error> {
    options.subject.check()?;
    let MemorySubject { title, problem, times, .. } = options.subject.read(input, events)?;
    let (align, search) =
        (options.subject.align(), PackOptions { capacity: options.capacity, effort: steps(options.effort, EFFORT) });
    let (problem, placements, fusion) = match options.fuse.library()? {
        None => {
            let placed = problem.storage_rules(align, |rules| best_placement(&problem.graph, rules, &search));
            let placements = placed.map_err(Error::bad_input)?;
            (problem, placements, None)
        }
        Some(library) => {
            let fusion = fuse_and_place(&problem, &library, align, &search).map_err(Error::bad_input)?;
            (fusion.problem, fusion.placements, Some(fusion.effect))
        }
    };
    let best = &placements.best;
    if let Some(capacity) = options.capacity.filter(|capacity| best.packing.height > *capacity) {
        let (height, bound) = (best.packing.height, best.packing.bound);
        let short = capacity.shortfall(height);
        let text = format!("the arena needs {height}, {short} more than {capacity}; its lower bound is {bound}");
        return Err(Error::NoPlan(text.into()));
    }
    let mut layout = Layout::new(&title, &problem.graph, best, &|id| problem.time(id));
    layout.capacity = options.capacity;
    let summary = PlaceSummary { fusion, ..summary(title, &problem, &placements, &times) };
    Ok(Placed { summary, times, problem, placements, layout, align })
}

fn summary(title: String, problem: &MemoryProblem, placements: &PlacementResult, times: &TimesSource) -> PlaceSummary {
    let (before, best) = (&placements.program_order, &placements.best);
    PlaceSummary {
        model: title,
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
        times: times.to_string(),
        joined_in_place: best.elided.len(),
        fusion: None,
    }
}

impl Placed {
    /// All tensors and workspaces, with offsets and lifetimes.
    pub fn buffers(&self) -> Vec<PlacedBuffer<'_>> {
        let rows = self.layout.blocks.iter().map(|block| PlacedBuffer {
            buffer: &block.name,
            kind: block.kind.name(),
            bytes: block.size,
            offset: block.offset,
            birth: block.lower,
            death: block.upper,
        });
        rows.collect()
    }

    /// The arena as a map of 80 columns.
    pub fn map(&self) -> String {
        text::map(&self.layout)
    }
}

impl FusionPatterns {
    /// Reads the library, if operators are fused.
    fn library(&self) -> Result<Option<Library>, Error> {
        let path = match self {
            FusionPatterns::None => return Ok(None),
            FusionPatterns::BuiltIn => return Library::built_in().map(Some).map_err(Error::failed),
            FusionPatterns::File(path) => path,
        };
        let text = String::from_utf8_lossy(&file::read(path)?).into_owned();
        Library::parse(&text).map(Some).map_err(|LibraryError { message, span }| {
            if kind::mismatch(text.as_bytes(), FileKind::Patterns).is_some() {
                return kind::mismatch_error(path, text.as_bytes(), FileKind::Patterns, message);
            }
            let Some(span) = span else {
                return Error::BadInput(format!("{}: {message}", path.display()).into());
            };
            Error::BadInput(Message::in_toml(message, path, text, Some(span)))
        })
    }
}
