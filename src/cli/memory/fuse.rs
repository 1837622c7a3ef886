//! `edgecut memory MODEL --fuse`: the same with meta-operators, beside the model as it is.

use std::path::Path;

use miette::{LabeledSpan, NamedSource, Report, miette};
use serde::Serialize;

use super::{Memory, place, subject::Subject};
use crate::{
    cli::{
        Failure, Outcome, file,
        kind::{self, Kind},
    },
    graph::Contracted,
    memory::meta::{
        fuse::{Use, fuse},
        library::{Library, LibraryError},
        scratch::{Inside, inside},
    },
    units::Bytes,
};

/// What fusing changed.
#[derive(Serialize)]
pub struct Fusion {
    meta_operators: Vec<Use>,
    /// Before and after.
    unfused_operators: usize,
    fused_operators: usize,
    unfused: Figures,
    fused: Figures,
    /// If no meta-operator needed inner tensors: what kernels that stream their elements could do.
    without_scratch: Figures,
    /// The largest scratch of a meta-operator, and whose it is.
    largest_scratch_bytes: Bytes,
    largest_scratch_of: Option<String>,
}

/// In the best order found.
#[derive(Serialize)]
struct Figures {
    peak_bytes: Bytes,
    arena_bytes: Bytes,
}

/// Fuses after a library and shows the placement of what comes of it.
pub fn run(memory: &Memory, subject: &Subject, library: Option<&Path>) -> Outcome {
    let fused = fuse(&subject.graph, &read(library)?).map_err(Failure::bad_input)?;
    let contracted = &fused.contracted;
    let inside = subject
        .sharing(memory.align, |sharing| {
            contracted
                .members
                .iter()
                .map(|members| inside(&subject.graph, members, sharing))
                .collect::<Result<Vec<Inside>, _>>()
        })
        .map_err(Failure::bad_input)?;
    let whole = subject.contracted(contracted, &inside);
    let figures = |subject: &Subject| {
        let placements = place::placements(memory, subject)?;
        let best = &placements.best;
        let figures = Figures { peak_bytes: best.lifetimes.peak(), arena_bytes: best.packing.height };
        Ok::<_, Failure>((figures, placements))
    };
    let (with_scratch, placements) = figures(&whole)?;
    let largest = largest(contracted, &inside);
    let fusion = Fusion {
        unfused_operators: subject.graph.operators().len(),
        fused_operators: contracted.graph.operators().len(),
        unfused: figures(subject)?.0,
        fused: with_scratch,
        without_scratch: figures(&subject.contracted(contracted, &streaming(contracted, &inside)))?.0,
        largest_scratch_bytes: largest.map_or(Bytes::ZERO, |(_, bytes)| bytes),
        largest_scratch_of: largest.map(|(index, _)| whole.names[index].clone()),
        meta_operators: fused.uses,
    };
    place::show(memory, &whole, &placements, Some(fusion))
}

/// The library of a file, or the one that is built in.
fn read(path: Option<&Path>) -> Result<Library, Failure> {
    let Some(path) = path else { return Library::built_in().map_err(Failure::failed) };
    let text = String::from_utf8_lossy(&file::read(path)?).into_owned();
    Library::parse(&text).map_err(|LibraryError { message, span }| {
        if kind::other(text.as_bytes(), Kind::Patterns).is_some() {
            return kind::instead(path, text.as_bytes(), Kind::Patterns, message);
        }
        let Some(span) = span else { return Failure::BadInput(Report::msg(format!("{}: {message}", path.display()))) };
        let report: Report = miette!(labels = vec![LabeledSpan::new_with_span(None, span)], "{message}");
        Failure::BadInput(report.with_source_code(NamedSource::new(path.to_string_lossy(), text).with_language("toml")))
    })
}

/// Meta-operators without scratch; the others as they are.
fn streaming(contracted: &Contracted, inside: &[Inside]) -> Vec<Inside> {
    let without = |(members, inside): (&Vec<_>, &Inside)| match members.len() {
        1 => *inside,
        _ => Inside { scratch: Bytes::ZERO, ..*inside },
    };
    contracted.members.iter().zip(inside).map(without).collect()
}

/// The meta-operator with the largest scratch, the first of several.
fn largest(contracted: &Contracted, inside: &[Inside]) -> Option<(usize, Bytes)> {
    let all = contracted.members.iter().zip(inside).enumerate().filter(|(_, (members, _))| members.len() > 1);
    let scratch = all.map(|(index, (_, inside))| (index, inside.scratch));
    scratch.max_by_key(|(index, bytes)| (*bytes, std::cmp::Reverse(*index))).filter(|(_, bytes)| *bytes > Bytes::ZERO)
}

impl std::fmt::Display for Fusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = self.meta_operators.iter().map(|u| u.name.len()).max().unwrap_or(0).max("meta-operator".len());
        writeln!(f, "{:<width$}  matches  operators", "meta-operator")?;
        for found in self.meta_operators.iter().filter(|found| found.matches > 0) {
            writeln!(f, "{:<width$}  {:>7}  {:>9}", found.name, found.matches, found.operators)?;
        }
        writeln!(f, "             {:>10} {:>10}   without scratch", "unfused", "fused")?;
        writeln!(f, "operators    {:>10} {:>10}", self.unfused_operators, self.fused_operators)?;
        let all = [&self.unfused, &self.fused, &self.without_scratch];
        let row = |f: &mut std::fmt::Formatter<'_>, name: &str, [a, b, c]: [Bytes; 3]| {
            writeln!(f, "{name:<12} {:>10} {:>10}   {:>15}", a.to_string(), b.to_string(), c.to_string())
        };
        row(f, "peak", all.map(|figures| figures.peak_bytes))?;
        row(f, "arena", all.map(|figures| figures.arena_bytes))?;
        let of = self.largest_scratch_of.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        write!(f, "scratch      {} at most{of}", self.largest_scratch_bytes)
    }
}
