//! The cost of one shard on one device.

use std::collections::HashSet;

use edgecut_agent::{
    DeviceSpec,
    client::{Agent, AgentError},
    protocol::{
        named_tensors::NamedTensors,
        profile::{ProfileEvent, ProfileTask},
    },
};
use edgecut_graph::{
    Granularity, Graph,
    units::{Bytes, Micros},
};
use edgecut_profile::{Cost, MeasurementMode, Sampling};

/// Longest time for the samples of one shard.
const SHARD_BUDGET: Micros = Micros(120_000.0);

/// The cost of `graph`, with generated contents, on `device`, or why the device cannot compute it. Before every sample,
/// `cache_flush` bytes are evicted from the caches: the working set of the model that the shard is a part of.
///
/// # Errors
/// If the agent is lost.
pub async fn measure_shard(
    agent: &Agent,
    device: &DeviceSpec,
    graph: Graph,
    cache_flush: Bytes,
    sampling: Sampling,
) -> Result<Result<Cost, String>, AgentError> {
    let task = ProfileTask {
        device: device.name.device.clone(),
        threads: Some(device.threads),
        engine: device.engine_choice(),
        mode: MeasurementMode::Isolated,
        granularity: Granularity::Fused,
        sampling: Sampling { budget: Micros(SHARD_BUDGET.0.min(sampling.budget.0)), ..sampling },
        wait: None,
        items: false,
        whole: true,
        cache_flush: Some(cache_flush),
        known: HashSet::new(),
        graph,
        streamed: Vec::new(),
    };
    let mut events = agent.profile(task, NamedTensors::new());
    let mut found = Err("the agent returned no measurement".to_string());
    while let Some(event) = events.recv().await {
        match event {
            Ok(ProfileEvent::Whole(cost)) => found = Ok(cost),
            Ok(ProfileEvent::Item(measured)) => found = measured.cost,
            Ok(ProfileEvent::WaitingFor(_)) => {}
            Err(AgentError::Refused { message, .. }) => return Ok(Err(message)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
