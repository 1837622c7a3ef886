//! Progress events of a run.

use smol_str::SmolStr;

use edgecut_agent::protocol::run::Queued;

/// What a run is doing.
#[derive(Debug, Clone, Copy)]
pub enum RunProgress<'a> {
    /// A device of the server is in use: the run waits for it.
    Queued { server: &'a SmolStr, queued: &'a Queued },
    /// Agents load their parts; the devices `left` of `of` are not ready.
    Loading { left: &'a [String], of: usize },
    /// Inferences that are not measured.
    WarmingUp,
    /// Measured inferences.
    Finished { done: u64, of: u64 },
}
