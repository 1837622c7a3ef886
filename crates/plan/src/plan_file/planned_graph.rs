//! The graph that a plan places: the model's, with the plan's splits and schedules.

use edgecut_graph::{Graph, StatePair};
use edgecut_ops::passes::{
    shard::SplitError,
    shard_graph::{Sharded, shard_graph},
};

use super::{
    file::{Plan, Split},
    schedule::{ScheduleError, apply_schedules},
};

/// Why a plan's splits and schedules are not those of a model.
#[derive(Debug, thiserror::Error)]
pub enum PlannedGraphError {
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("the states of the plan do not match its splits: make the plan again")]
    States,
}

/// The graph that `plan` places, made from that of its `model`. Its states are [`Plan::states`].
///
/// # Errors
/// If the plan was made for another graph.
pub fn planned_graph(model: &Graph, plan: &Plan) -> Result<Graph, PlannedGraphError> {
    let split = divided(model, &plan.model.states, &plan.splits)?;
    if split.states != plan.states {
        return Err(PlannedGraphError::States);
    }
    Ok(apply_schedules(&split.graph, &plan.schedules)?.graph)
}

/// `graph`, with these `states`, divided as in `splits`.
///
/// # Errors
/// If the splits were made for another graph, or a state is none of the graph.
pub fn divided(graph: &Graph, states: &[StatePair], splits: &[Split]) -> Result<Sharded, SplitError> {
    shard_graph(graph, states, &splits.iter().map(|split| (split.operator, split.placed_sharding())).collect())
}
