//! Planning on the agents of a cluster: plans are computed, their shards are measured, candidates are run, and the plan
//! is chosen by measured times.
//!
//! [`plan_on_agents`] is the entry point: from a [`PlanRequest`](edgecut_plan::PlanRequest) with the costs of profiles
//! to the chosen [`Candidate`](edgecut_plan::Candidate). It is a layer above the pure planner, which never sees a
//! socket: every step asks that planner for a candidate with updated costs. Searches compute for seconds, so all of
//! this is ordinary blocking code; only network I/O with agents runs on the runtime.
//!
//! | module | what it does |
//! |---|---|
//! | [`agents`] | who measures and runs |
//! | [`planner`] | replanning, pilot runs, and the costs at which the plan is judged |
//! | [`replan`] | alternates planning and measuring shards until nothing is left to measure |
//! | `replanning` | the decisions of that, without agents |
//! | [`runner`] | runs candidates, learns their costs, chooses |
//! | `candidates` | further candidates to run after the planner's first |
//! | `scoring` | how finalists are compared |
//! | [`outcome`] | one candidate run on the agents |
//! | [`in_context`] | what runs show of costs |
//! | `equivalent_groups`, `slowdown` | means over groups that compute the same; times in context relative to those in isolation |
//! | `memory_reserve` | memory limits after agents refused candidates |
//! | `rehearsal` | [`rehearsed`]: a run of a plan that is chosen already |
//! | [`options`] | the tuned constants |
//! | [`progress`] | what is reported meanwhile |
//! | [`error`] | why there is no plan |

mod agents;
mod candidates;
mod equivalent_groups;
mod error;
mod in_context;
mod memory_reserve;
mod options;
pub mod outcome;
mod planner;
mod progress;
mod rehearsal;
mod replan;
mod replanning;
mod runner;
mod scoring;
mod slowdown;

pub use agents::PilotAgents;
pub use error::PlanningError;
pub use options::PilotOptions;
pub use planner::{adopt_on_agents, plan_on_agents};
pub use progress::PlanEvent;
pub use rehearsal::rehearsed;
