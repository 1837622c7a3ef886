//! Limits on the lists and numbers of a setup.

use super::error::HostError;
use crate::{limits::Limits, protocol::setup::Setup};

/// Checks a setup before anything is reserved for it.
///
/// # Errors
/// If it asks for more than a limit allows, with the limit's name.
pub(super) fn within_limits(setup: &Setup, limits: &Limits) -> Result<(), HostError> {
    let stages = setup.partitions.iter().map(|partition| partition.stages.len()).sum();
    let servers = setup.peers.len().max(setup.senders.len());
    let asked = [
        (setup.in_flight as usize, "inputs in flight", limits.in_flight as usize, "in-flight"),
        (servers, "servers to exchange values with", limits.peers, "peers"),
        (setup.values.len(), "values", limits.values, "values"),
        (setup.sends.len(), "values to send", limits.values, "values"),
        (setup.streamed.len(), "parameters", limits.values, "values"),
        (setup.partitions.len(), "partitions", limits.stages, "stages"),
        (stages, "stages", limits.stages, "stages"),
    ];
    match asked.into_iter().find(|(count, _, limit, _)| count > limit) {
        None => Ok(()),
        Some((count, what, limit, name)) => {
            let refused = format!("{count} {what}, at most {limit} are allowed (the agent's limit `{name}`)");
            Err(HostError::Request(refused))
        }
    }
}
