//! Partition planning: which device runs which group of operators, in which order, and the predicted latency, throughput
//! and memory.
//!
//! Pure functions from tables and graphs to a [`Plan`]: no engine, no socket, no file. The same problem, seed and budget
//! give the same plan, whatever the number of threads.
//!
//! | input | |
//! |---|---|
//! | [`problem`] | groups, tensors, devices, links, targets |
//! | [`assemble`] | a problem from a graph and the costs of its groups |
//! | [`group_names`] | what groups are called: numbers, unique names of operators, layers |
//! | [`rule`] | pins and bans |
//! | [`transfer_format`] | formats in which activations cross links between servers |
//! | [`activation`] | which tensors are activations |
//! | [`request`] | a model, devices, costs, targets, rules and options: what a plan is asked for |
//! | [`like`] | the splits of another plan, over the devices of this one |
//! | [`moved`] | another plan as it is, with some groups on other devices |
//! | [`broken_rule`] | moves that contradict the rules of that plan |
//!
//! | model | |
//! |---|---|
//! | [`placement`] | the device of every group, and an order |
//! | `task_graph` | a placement as tasks, replicas of tensors, transfers |
//! | `event_loop` | the discrete-event simulation, on any tables of a placement |
//! | `simulate` | the timeline and the loads of a task graph |
//! | `memory_usage` | parameters, live tensors, workspace and arena of every device |
//! | [`pipeline_depth`] | the inputs in flight of a stream, and their memory |
//! | [`energy`] | the energy of one run |
//! | [`evaluation`] | all of these for one placement, and its score |
//!
//! | optimisation | |
//! |---|---|
//! | [`planner`] | [`plan`]: from a request to the best candidate |
//! | [`candidate`] | a plan while it is being chosen, from which the plan file is made |
//! | [`bound`] | lower bounds |
//! | [`search`] | searches for placements |
//! | [`deadline`] | the progress of a search, by work and by time |
//! | [`stop`] | a request to give out the best plan so far |
//! | [`solve`] | bounds and searches combined |
//! | [`no_plan`] | why there is no plan, and what the nearest one misses |
//! | [`split`] | placements with groups split over several devices |
//! | [`constrained`] | plans within memory limits, with memory-saving schedules |
//! | [`schedule`] | such schedules as graph transformations |
//! | [`offload`] | a schedule that keeps tensors on another device, as a plan of both |
//!
//! | output | |
//! |---|---|
//! | [`file`], `from_solution` | `plan.json`, and how it is made from a solution |
//! | [`plan_set`] | the plans in a file: one, or several for different bindings of the model |
//! | [`table`] | `plan.csv` |
//! | [`change`] | what moved groups change, figure by figure |
//! | [`part_name`](mod@part_name) | what the parts of a group are called |
//! | `identity` | which group and which tensor of the model the rows of a plan are, or are parts of |
//! | `strategy` | how the plan file writes where a group runs |
//! | `estimates` | which times of a plan were not measured |
//! | [`stages`] | the stages of a plan, for execution, export and the account of inputs in flight |
//! | [`check`] | the independent checker |

pub mod activation;
pub mod assemble;
pub mod bound;
pub mod broken_rule;
pub mod candidate;
pub mod change;
pub mod check;
pub mod constrained;
pub mod deadline;
pub mod energy;
mod estimates;
pub mod evaluation;
mod event_loop;
pub mod file;
mod from_solution;
pub mod group_names;
mod identity;
pub mod like;
mod memory_usage;
pub mod moved;
pub mod no_plan;
pub mod offload;
pub mod part_name;
pub mod pipeline_depth;
pub mod placement;
pub mod plan_set;
pub mod planner;
pub mod problem;
pub mod request;
pub mod rule;
pub mod schedule;
pub mod search;
mod simulate;
pub mod solve;
pub mod split;
pub mod stages;
pub mod stop;
mod strategy;
pub mod table;
mod task_graph;
#[cfg(test)]
mod test_problems;
#[cfg(test)]
mod testing;
mod timed_event;
pub mod transfer_format;

pub use candidate::{Candidate, CostSource};
pub use file::Plan;
pub use group_names::GroupNames;
pub use no_plan::NoPlan;
pub use plan_set::PlanSet;
pub use planner::plan;
pub use problem::{DeviceId, GroupId, Problem, TensorIndex};
pub use request::PlanRequest;
pub use stop::Stop;
pub use transfer_format::TransferFormat;
