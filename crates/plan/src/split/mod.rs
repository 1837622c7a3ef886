//! Planning with splits: groups whose shards run on several devices at once.
//!
//! Uses `problem`, `judge`, `search`, `plan_file`, `request` and `candidate`.
//!
//! | module | what it does |
//! |---|---|
//! | [`solve`](mod@solve) | the best placement, with splits where they gain |
//! | `strategy` | whole groups, split groups, groups split as another plan splits them |
//! | `placed` | candidates of groups that are already split |
//! | [`uniform_layers`](mod@uniform_layers) | all layers split as one of them |
//! | `layout_search` | a first plan, by dynamic programming over the layouts of tensors |
//! | `search` | which groups to split, over which devices, in which ratio |
//! | `moves` | how the search changes a plan |
//! | `segments` | the groups that a move changes, and the layers of a model |
//! | [`front`] | several plans: the Pareto front, and the best of it within memory limits |
//! | [`bound`] | what no plan can go below, however it splits |
//!
//! A split is a change of the graph ([`edgecut_ops::passes::shard_graph`]); the problem that comes out is an ordinary one, so the
//! simulator, the memory account and the checker judge it as they judge any other. Options, choices and costs of splits
//! are part of the request and re-exported here.

pub mod bound;
pub mod front;
mod layout_search;
mod moves;
mod placed;
mod search;
mod segments;
pub mod solve;
pub(crate) mod strategy;
pub mod uniform_layers;

pub use self::{
    solve::{met, nearest, reevaluate, solve},
    uniform_layers::uniform_layers,
};
pub use crate::request::{
    choice::{self, Choice, Choices, Halo},
    costs::{self, Proportional, Shard, ShardCosts},
    expand::{self, Expanded},
    options::{self, SplitOptions},
    ratios::{self, Ratios, speeds},
    shard_graphs, split_option,
};
