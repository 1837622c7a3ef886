//! Partition planning: which device runs which group of operators, in which order, and the predicted latency, throughput
//! and memory.
//!
//! Pure functions from tables and graphs to a [`Plan`]: no engine, no socket, no file. The same problem, seed and budget
//! give the same plan, whatever the number of threads.
//!
//! | layer | |
//! |---|---|
//! | `problem` | the question as tables: groups, tensors, devices, links, targets, rules |
//! | `judge` | what a placement is worth: simulation, memory, energy, bounds, what it misses |
//! | [`search`] | searches for placements, and from a problem to a solution |
//! | `plan_file` | `plan.json`, `plan.csv`, stages, schedules |
//! | [`check`] | the independent checker of plan files |
//! | [`request`] | what a plan is asked for, and how its groups can be split |
//! | [`candidate`] | a plan while it is being chosen, from which the plan file is made |
//! | [`split`] | placements with groups split over several devices, and the Pareto front |
//! | `fit` | plans within memory limits: schedules, offloading |
//! | `solve` | [`plan`]: from a request to the best candidate |
//! | `what_if` | other plans to compare with: like another, with moved groups, without a server |
//!
//! A layer uses those above it and none below. What other crates need is re-exported here.

pub mod candidate;
pub mod check;
mod fit;
mod judge;
mod plan_file;
pub mod problem;
pub mod request;
pub mod search;
mod solve;
pub mod split;
#[cfg(test)]
mod test_problems;
#[cfg(test)]
mod testing;
mod what_if;

pub use candidate::{Candidate, CostSource};
pub use fit::{constrained, offload};
pub use judge::{
    bound, evaluation,
    no_plan::{self, NoPlan},
    pipeline_depth,
    solution::{self, Solution},
};
pub use plan_file::{
    file::{self, Plan},
    plan_set::PlanSet,
    planned_graph::{self, divided, planned_graph},
    resized::{self, resized},
    schedule, stages, table,
};
pub use problem::{
    DeviceId, GroupId, Problem, TensorIndex, activation, assemble,
    group_names::GroupNames,
    part_name, placement, rule,
    transfer_format::{self, TransferFormat},
};
pub use request::{PlanRequest, goal::Goal, instance::Instance};
pub use search::{deadline, stop::Stop};
pub use solve::planner::{self, plan};
pub use what_if::{adopt, broken_rule, change, like, moved, without};
