//! A plan executed on the agents of a cluster: what each server must do ([`deploy`]), doing it ([`execute`]), and what
//! came of it against what was predicted ([`outcome`]).

pub mod deploy;
pub mod execute;
pub mod outcome;

pub use deploy::{DeployError, DeployOptions, Deployment, deploy};
pub use execute::{RunError, RunOptions, execute};
pub use outcome::{GroupTime, Latencies, MemoryUse, Outcome, TransferCost};
