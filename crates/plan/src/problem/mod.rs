//! The question as tables: groups, tensors, devices, links and targets, and what groups and their parts are called.
//!
//! Uses no other layer.
//!
//! | module | |
//! |---|---|
//! | `tables` | groups, tensors, devices, links, targets |
//! | [`assemble`] | a problem from a graph and the costs of its groups |
//! | [`placement`] | the device of every group, and an order |
//! | [`activation`] | which tensors are activations |
//! | [`transfer_format`] | formats in which activations cross links between servers |
//! | [`group_names`] | what groups are called: numbers, unique names of operators, layers |
//! | [`part_name`](mod@part_name) | what the parts of a group are called |
//! | [`rule`] | pins and bans |

pub mod activation;
pub mod assemble;
pub mod group_names;
pub mod part_name;
pub mod placement;
pub mod rule;
mod tables;
pub mod transfer_format;

pub use tables::{
    Cost, Device, DeviceId, Group, GroupId, Handling, HandlingCost, Link, LinkId, Objective, ParameterId, Problem,
    ProblemError, Targets, Tensor, TensorIndex,
};
