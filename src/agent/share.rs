//! One part of an item measured on one device, as often as a plan or a profile asks for one.

use std::collections::HashSet;

use super::{
    client::Agent,
    error::AgentError,
    task::{Contents, ProfileEvent, ProfileTask},
};
use crate::{
    cluster::DeviceSpec,
    graph::{Granularity, Graph},
    profile::{Mode, Sampling, measure::Cost},
    units::{Bytes, Micros},
};

/// Time to spend on measuring one part.
pub const SHARE_BUDGET: Micros = Micros(120_000.0);

/// The cost of `graph` on `device`, of generated contents, or why it cannot be computed there. Before every sample as
/// many bytes are displaced from the caches as the model touches that `graph` is of.
///
/// # Errors
/// If the agent is lost.
pub async fn measure_share(
    agent: &Agent,
    device: &DeviceSpec,
    graph: Graph,
    displaces: Bytes,
    sampling: Sampling,
) -> Result<Result<Cost, String>, AgentError> {
    let task = ProfileTask {
        device: device.name.device.clone(),
        threads: Some(device.threads),
        mode: Mode::Isolated,
        granularity: Granularity::Fused,
        sampling: Sampling { budget: Micros(SHARE_BUDGET.0.min(sampling.budget.0)), ..sampling },
        items: false,
        whole: true,
        displaces: Some(displaces),
        known: HashSet::new(),
        graph,
        streamed: Vec::new(),
    };
    let mut events = agent.profile(task, Contents::new());
    let mut found = Err("the agent said nothing".to_string());
    while let Some(event) = events.recv().await {
        match event {
            Ok(ProfileEvent::Whole(cost)) => found = Ok(cost),
            Ok(ProfileEvent::Item(measured)) => found = measured.cost,
            Err(AgentError::Refused { message, .. }) => return Ok(Err(message)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
