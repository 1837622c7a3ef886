//! What runs measured, as values and as files: read by reports and comparisons, which know nothing of how a run is driven.
//!
//! | module | contents |
//! |---|---|
//! | [`record`] | what the agents reported about a run |
//! | `outcome`, [`crossing`] | measured against predicted, transfers over links |
//! | `breakdown` | where the latency goes on each device |
//! | `energy`, `server_load` | what servers consumed, and how busy other workloads kept their machines |
//! | `stage_engines` | which engines computed the stages |
//! | `difference`, `tolerance` | outputs against those of one device |
//! | [`table`], [`mod@file`] | a run as rows, and as a file that grows |
//!
//! Pure functions of a plan, a [`Deployment`](crate::deployment::Deployment) and a [`Record`](record::Record). They open no
//! files and know no agents.

mod breakdown;
pub mod crossing;
mod difference;
mod energy;
pub mod file;
mod outcome;
pub mod record;
mod server_load;
mod stage_engines;
pub mod table;
mod tolerance;

pub use breakdown::{Activity, ActivityTime, Breakdown};
pub use difference::Difference;
pub use energy::{EnergyOfSource, ServerEnergy};
pub use outcome::{GroupTime, Latencies, MemoryUse, Outcome, Scatter, TransferCost};
pub use server_load::ServerLoad;
pub use stage_engines::StageEngines;
pub use tolerance::Tolerance;
