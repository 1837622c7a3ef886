//! Schedules of a model as graphs that any engine runs: reordered, with rematerialisation, and with tiled segments.
//!
//! | module | contents |
//! |---|---|
//! | [`GroupedGraph`], [`UnrolledGraph`] | a graph in operator groups as a program; a schedule of it as a graph |
//! | [`GroupCosts`] | times of tiles and copies |
//! | `group_sequence`, `segment`, `tiling` | which segments to tile, and into how many tiles |
//! | [`Variant`] | the model unchanged, reordered, or tiled |
//! | [`ScheduleFront`], [`Schedule`] | the Pareto front over all variants |
//! | [`schedule_arena`] | the arena of a schedule |
//! | [`feasible`] | search for the smallest schedule that is feasible when measured |

mod costs;
pub mod feasible;
mod group_sequence;
mod grouped_graph;
pub mod schedule_arena;
mod schedule_front;
mod segment;
mod tiling;
mod unrolled_graph;
mod variant;

use crate::{
    OrderError,
    program::Program,
    remat::{RematOptions, search_variants},
};
use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros},
};

pub use costs::GroupCosts;
pub use grouped_graph::{Group, GroupedGraph, LoweredGroups};
pub use schedule_front::{Schedule, ScheduleFront};
pub use unrolled_graph::{ReplayError, UnrolledGraph, replay};
pub use variant::{GroupShare, Variant};

/// Share of the budget for the untiled model; the rest goes to the other variants.
const WHOLE: f64 = 0.4;

/// A model to schedule.
pub struct Model<'a> {
    /// The groups in a topological order.
    pub grouped: &'a GroupedGraph,
    pub costs: &'a dyn GroupCosts,
    /// The link to the host, if tensors can be copied there.
    pub host: Option<LinkCost>,
}

/// Searches the Pareto front of peak memory (bytes) and time (microseconds) of a model. Deterministic for a given seed
/// and budget.
///
/// # Errors
/// If the size of a tensor is unknown.
pub fn schedule_model(model: &Model<'_>, options: &RematOptions) -> Result<ScheduleFront, OrderError> {
    let whole = Variant::whole(model.grouped, model.host)?;
    let original = whole.original_cost().map_or((Bytes::ZERO, Micros::ZERO), |cost| (cost.peak, cost.time));
    let reordered = whole.reordered()?;
    let tiled = reordered.as_ref().unwrap_or(&whole).tiled(model.costs)?;
    let mut variants = vec![whole];
    variants.extend(tiled);
    variants.extend(reordered);
    let programs: Vec<&Program> = variants.iter().map(|variant| &variant.lowered.program).collect();
    let (fronts, evaluated) = search_variants(&programs, WHOLE, options);
    let peak_bound = programs.iter().map(|program| program.peak_bound()).min().unwrap_or_default();
    variants.iter_mut().zip(fronts).for_each(|(variant, front)| variant.front = front);
    Ok(ScheduleFront { variants, original, peak_bound, evaluated })
}
