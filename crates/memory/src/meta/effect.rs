//! What fusing to meta-operators changes: the peak and the arena before and after.

use edgecut_graph::{ContractedGraph, units::Bytes};
use serde::Serialize;

use super::{
    fuse::{FuseError, PatternMatches, fuse},
    library::Library,
    scratch::{FusedFootprint, fused_footprint},
};
use crate::{
    PackOptions,
    place::{PlaceError, PlacementResult, best_placement},
    problem::MemoryProblem,
};

/// A problem whose operators are fused to meta-operators, placed, with what that changed.
pub struct Fusion {
    pub problem: MemoryProblem,
    pub placements: PlacementResult,
    pub effect: FusionEffect,
}

/// What fusing changed.
#[derive(Debug, Serialize)]
pub struct FusionEffect {
    pub meta_operators: Vec<PatternMatches>,
    pub unfused_operators: usize,
    pub fused_operators: usize,
    pub unfused: ArenaFigures,
    pub fused: ArenaFigures,
    /// If no meta-operator needed memory for inner tensors: a bound for kernels that stream their elements.
    pub without_scratch: ArenaFigures,
    /// The largest scratch of a meta-operator, and that operator's name.
    pub largest_scratch_bytes: Bytes,
    pub largest_scratch_of: Option<String>,
}

/// Of the best order found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ArenaFigures {
    pub peak_bytes: Bytes,
    pub arena_bytes: Bytes,
}

/// Why a problem cannot be fused and placed.
#[derive(Debug, thiserror::Error)]
pub enum FusionError {
    #[error(transparent)]
    Fuse(#[from] FuseError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Fuses the operators of `problem` by the patterns of `library`, and places the result and the original.
///
/// # Errors
/// If a pattern leaves too many choices, or a size is not known.
pub fn fuse_and_place(
    problem: &MemoryProblem,
    library: &Library,
    align: u64,
    options: &PackOptions,
) -> Result<Fusion, FusionError> {
    let fused = fuse(&problem.graph, library)?;
    let contracted = &fused.contracted;
    let inside = problem.storage_rules(align, |rules| {
        let all = contracted.members.iter().map(|members| fused_footprint(&problem.graph, members, rules));
        all.collect::<Result<Vec<FusedFootprint>, _>>()
    })?;
    let place =
        |problem: &MemoryProblem| problem.storage_rules(align, |rules| best_placement(&problem.graph, rules, options));
    let whole = problem.contracted(contracted, &inside);
    let streaming = problem.contracted(contracted, &streaming(contracted, &inside));
    let placements = place(&whole)?;
    let largest = largest(contracted, &inside);
    let effect = FusionEffect {
        unfused_operators: problem.graph.operators().len(),
        fused_operators: contracted.graph.operators().len(),
        unfused: figures(&place(problem)?),
        fused: figures(&placements),
        without_scratch: figures(&place(&streaming)?),
        largest_scratch_bytes: largest.map_or(Bytes::ZERO, |(_, bytes)| bytes),
        largest_scratch_of: largest.map(|(index, _)| whole.names[index].clone()),
        meta_operators: fused.uses,
    };
    Ok(Fusion { problem: whole, placements, effect })
}

fn figures(placements: &PlacementResult) -> ArenaFigures {
    let best = &placements.best;
    ArenaFigures { peak_bytes: best.lifetimes.peak(), arena_bytes: best.packing.height }
}

/// Meta-operators without scratch; single operators as they are.
fn streaming(contracted: &ContractedGraph, inside: &[FusedFootprint]) -> Vec<FusedFootprint> {
    let without = |(members, inside): (&Vec<_>, &FusedFootprint)| match members.len() {
        1 => *inside,
        _ => FusedFootprint { scratch: Bytes::ZERO, ..*inside },
    };
    contracted.members.iter().zip(inside).map(without).collect()
}

/// The first of the meta-operators with the largest scratch, if any has one.
fn largest(contracted: &ContractedGraph, inside: &[FusedFootprint]) -> Option<(usize, Bytes)> {
    let all = contracted.members.iter().zip(inside).enumerate().filter(|(_, (members, _))| members.len() > 1);
    let scratch = all.map(|(index, (_, inside))| (index, inside.scratch));
    scratch.max_by_key(|(index, bytes)| (*bytes, std::cmp::Reverse(*index))).filter(|(_, bytes)| *bytes > Bytes::ZERO)
}
