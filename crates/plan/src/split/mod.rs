//! Planning with splits: groups whose shards run on several devices at once.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | along which axes a group can be split, all its operators alike |
//! | [`choice`] | which option a group takes, in which ratio |
//! | [`costs`] | what a shard costs, given what the whole costs |
//! | [`shard_graphs`] | shards cut out, to be measured |
//! | [`expand`] | a problem in which the shards are groups, with what they exchange |
//! | [`solve`] | the best placement, with splits where they gain |
//! | `layout_search` | a first plan, by dynamic programming over the layouts of tensors |
//! | `search` | which groups to split, over which devices, in which ratio |
//! | `moves` | how the search changes a plan |
//! | `pieces` | shares of devices in several shards, the borders first |
//! | [`ratios`] | ratios by rules that are common elsewhere, to compare with |
//! | [`front`] | several plans: the front, and what each server is worth |
//! | [`bound`] | what no plan can go below, however it splits |
//!
//! A split is a change of the graph ([`edgecut_ops::passes::shard_graph`]); the problem that comes out is an ordinary one, so the
//! simulator, the memory account and the checker judge it as they judge any other.

pub mod bound;
pub mod choice;
pub mod costs;
pub mod expand;
pub mod front;
mod layout_search;
mod moves;
pub mod options;
mod pieces;
pub mod ratios;
mod search;
pub mod shard_graphs;
pub mod solve;

pub use choice::{Choice, Choices, Halo};
pub use costs::{Proportional, Shard, ShardCosts};
pub use expand::Expanded;
pub use options::SplitOptions;
pub use ratios::{Ratios, speeds};
pub use solve::{divided, met, nearest, reevaluate, solve};
