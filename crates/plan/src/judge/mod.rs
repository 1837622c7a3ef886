//! What a placement is worth: its simulated times, memory and energy, what it misses, and what no placement goes below.
//!
//! Uses `problem`. Judging changes nothing and searches nothing.
//!
//! | module | |
//! |---|---|
//! | `task_graph` | a placement as tasks, replicas of tensors, transfers |
//! | `event_loop`, `timed_event` | the discrete-event simulation, on any tables of a placement |
//! | `simulate` | the timeline and the loads of a task graph |
//! | `memory_usage` | parameters, live tensors, workspace and arena of every device |
//! | [`energy`] | the energy of one run |
//! | [`evaluation`] | all of these for one placement, and its score |
//! | `stage_cut` | where a device's groups are cut into stages |
//! | [`pipeline_depth`] | the inputs in flight of a stream, and their memory |
//! | [`rank`] | the one rule of what is better |
//! | [`bound`] | lower bounds, one argument a file |
//! | `proof` | what no placement meets, by bounds alone |
//! | [`no_plan`] | why there is no plan, and what the nearest one misses |
//! | [`solution`] | a placement with its evaluation, arenas, bounds and what it misses |

pub mod bound;
pub mod energy;
pub mod evaluation;
pub mod event_loop;
pub mod memory_usage;
pub mod no_plan;
pub mod pipeline_depth;
pub mod proof;
pub mod rank;
pub mod simulate;
pub mod solution;
pub mod stage_cut;
pub mod task_graph;
pub mod timed_event;
