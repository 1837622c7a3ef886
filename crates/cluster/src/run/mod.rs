//! Plans made and executed on the agents of a cluster.
//!
//! | module | what it does |
//! |---|---|
//! | [`request`] | from a model, devices and profiles to the planner's request |
//! | [`recorded`] | devices and profiles that were read from files |
//! | [`costs`], [`network`], [`shards`] | tables of that request: groups, links, shards measured as plans ask for them |
//! | `idle_power`, `unknown_energy` | the idle power of devices in that request, and its refusal without energy |
//! | [`pilot`] | a plan made on agents: replanning, pilot runs, the choice among candidates |
//! | [`deploy`] | what each server must do |
//! | [`failover`] | a plan for the servers that are left |
//! | [`execute`], [`perform`], [`progress`], `error` | executing it, alone and from the deployment to the last result; progress events |
//! | [`loaded`], `participants` | a deployment that stays loaded and computes inputs as they come; the agents of a run |
//! | [`record`] | what the agents reported about it |
//! | [`outcome`], [`crossing`] | measured against predicted, transfers over links |
//! | [`energy`], [`server_load`] | what servers consumed, and how busy other workloads kept their machines |
//! | [`stage_engines`] | which engines computed the stages |
//! | [`table`], [`results`] | a run as rows, and as a file that grows |
//! | [`outputs`] | the model's outputs of a run |
//! | [`schedule_bench`], [`offload`] | memory schedules of a model run here, and on agents with tensors on a neighbour |
//! | [`compare`] | outputs against those of one device |

pub mod compare;
pub mod costs;
pub mod crossing;
pub mod deploy;
pub mod energy;
mod error;
pub mod execute;
pub mod failover;
mod idle_power;
pub mod loaded;
pub mod network;
pub mod offload;
pub mod outcome;
pub mod outputs;
mod participants;
pub mod perform;
pub mod pilot;
pub mod progress;
pub mod record;
pub mod recorded;
pub mod request;
pub mod results;
pub mod schedule_bench;
pub mod server_load;
pub mod shards;
pub mod stage_engines;
pub mod table;
pub mod tolerance;
mod unknown_energy;

pub use compare::Difference;
pub use deploy::{DeployError, DeployOptions, Deployment, deploy};
pub use energy::{EnergyOfSource, ServerEnergy};
pub use error::RunError;
pub use execute::{RunOptions, agents_of, execute};
pub use network::{NetworkError, network};
pub use outcome::{GroupTime, Latencies, MemoryUse, Outcome, Scatter, TransferCost};
pub use progress::RunProgress;
pub use server_load::ServerLoad;
pub use stage_engines::StageEngines;
pub use tolerance::Tolerance;
pub use unknown_energy::UnknownEnergy;
