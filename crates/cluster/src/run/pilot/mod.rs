//! Planning on the agents of a cluster: plans are made, what they ask for is measured, candidates are run, and the plan is
//! chosen by what they took.
//!
//! [`plan_on_agents`] is the whole of it: a [`PlanRequest`](edgecut_plan::PlanRequest) at the costs of profiles in, the
//! [`Candidate`](edgecut_plan::Candidate) to be given out. It is a second layer above the pure planner, which never sees a
//! socket: every step asks that planner for a candidate at other costs. Searches compute for seconds, so all of this is
//! ordinary blocking code; only network I/O with agents runs on the runtime.
//!
//! | module | what it does |
//! |---|---|
//! | [`agents`] | who measures and runs |
//! | [`planner`] | replanning, pilot runs, and the costs at which the plan is judged |
//! | [`replan`] | plans and measurements of shards in turns, until nothing is left to measure |
//! | `replanning` | the decisions of that, without agents |
//! | [`runner`] | runs candidates, learns their costs, chooses |
//! | `candidates` | further candidates to run after the planner's first |
//! | `scoring` | how finalists are compared |
//! | [`outcome`] | one candidate run on the agents |
//! | [`in_context`] | what runs show of costs |
//! | [`options`] | the tuned constants |
//! | [`progress`] | what is reported meanwhile |
//! | [`error`] | why there is no plan |

pub mod agents;
mod candidates;
pub mod error;
pub mod in_context;
pub mod options;
pub mod outcome;
pub mod planner;
pub mod progress;
pub mod replan;
mod replanning;
pub mod runner;
mod scoring;

pub use agents::PilotAgents;
pub use error::PlanningError;
pub use in_context::InContextCosts;
pub use options::PilotOptions;
pub use outcome::PilotOutcome;
pub use planner::{Planned, plan_on_agents};
pub use progress::PlanEvent;
pub use replan::Replanner;
pub use runner::PilotRunner;
