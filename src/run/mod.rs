//! A plan executed on the agents of a cluster: what each server must do ([`deploy`]), doing it ([`execute`]), and what
//! came of it against what was predicted ([`outcome`], [`trace`], of links by [`crossing`]) and against one device ([`compare`]). [`shards`] measures
//! what a split plan asks devices to compute, [`estimates`] says what of a plan nobody measured. [`network`] is a cluster
//! as the planner sees it. [`perform`] runs a plan from end to end, [`rehearsal`] before it is given out, and [`in_place`] is what that shows of costs.

pub mod compare;
pub mod costs;
pub mod crossing;
pub mod deploy;
pub mod estimates;
pub mod execute;
pub mod in_place;
pub mod network;
pub mod outcome;
pub mod perform;
pub mod rehearsal;
pub mod shards;
pub mod trace;

pub use compare::Difference;
pub use deploy::{DeployError, DeployOptions, Deployment, deploy};
pub use execute::{RunError, RunOptions, agents_of, execute};
pub use network::{NetworkError, network};
pub use outcome::{GroupTime, Latencies, MemoryUse, Outcome, TransferCost};
