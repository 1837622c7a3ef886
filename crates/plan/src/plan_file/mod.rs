//! The plan as a file, and what is derived from one: its table, its stages, the graphs of its schedules.
//!
//! Uses `problem` and `judge`. A plan file knows no request and no search.
//!
//! | module | |
//! |---|---|
//! | [`file`], `from_solution` | `plan.json`, and how it is made from a solution |
//! | [`plan_set`] | the plans in a file: one, or several for different bindings of the model |
//! | [`table`] | `plan.csv` |
//! | `placed_on` | how the plan file writes where a group runs |
//! | [`schedule`] | memory-saving schedules as graph transformations |
//! | [`planned_graph`](mod@planned_graph) | the model's graph with splits and schedules applied |
//! | [`resized`](mod@resized) | the plan for the same model with steps of another size |
//! | [`stages`] | the stages of a plan, for execution and export |

pub mod file;
mod from_solution;
pub mod placed_on;
pub mod plan_set;
pub mod planned_graph;
pub mod resized;
pub mod schedule;
pub mod stages;
pub mod table;
