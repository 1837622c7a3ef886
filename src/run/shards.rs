//! Shards measured on the devices that a plan gives them to: a split is planned with estimates first, then with what its
//! shards really take.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    agent::{
        AgentError,
        fleet::Fleet,
        setup::Streamed,
        task::{Contents, ProfileEvent, ProfileTask},
    },
    cluster::Inventory,
    graph::{Granularity, Graph, Part},
    plan::{
        DeviceId,
        problem::Cost,
        split::{Expanded, Sampled},
    },
    profile::{Mode, Sampling, Signature},
    units::Bytes,
};

/// What shards cost on the devices they were measured on, by the signature of all that they compute.
pub type Known = HashMap<(DeviceId, Signature), Cost>;

/// Measures the shards of `expanded` that are not `known`, each on its device, and adds all of them to `sampled`.
/// Returns how many had to be measured.
///
/// # Errors
/// If an agent refuses or is lost. A shard that a device cannot compute is left as it was estimated.
pub async fn measure(
    fleet: &Fleet,
    inventory: &Inventory,
    expanded: &Expanded,
    contents: &Contents,
    sampling: &Sampling,
    known: &mut Known,
    sampled: &mut Sampled,
) -> Result<usize, AgentError> {
    let mut measured = 0;
    for (id, shard) in &expanded.shards {
        let group = expanded.problem.group(*id);
        let Some(device) = expanded.problem.device_ids().find(|d| expanded.problem.cost(*id, *d).is_some()) else {
            continue;
        };
        let key = (device, Signature::of(&expanded.graph, &group.operators));
        let cost = match known.get(&key) {
            Some(cost) => *cost,
            None => {
                let part = Part::cut(&expanded.graph, &group.operators).graph;
                let Some(cost) = alone(fleet, inventory, device, part, contents, sampling).await? else { continue };
                measured += 1;
                *known.entry(key).or_insert(cost)
            }
        };
        sampled.add(&expanded.graph, device, shard, cost);
    }
    Ok(measured)
}

/// The cost of `graph` on a device; `None` where the device cannot compute it.
async fn alone(
    fleet: &Fleet,
    inventory: &Inventory,
    device: DeviceId,
    graph: Graph,
    contents: &Contents,
    sampling: &Sampling,
) -> Result<Option<Cost>, AgentError> {
    let Some(spec) = inventory.devices.get(device.0 as usize) else { return Ok(None) };
    let Some(agent) = fleet.agent(&spec.name.server) else { return Ok(None) };
    let named: BTreeSet<_> = graph.inputs().chain(graph.parameters()).map(|id| graph.tensor(id).name.clone()).collect();
    let mut given = contents.clone();
    given.retain(|name, _| named.contains(name));
    let tensors = graph.inputs().chain(graph.parameters()).map(|id| graph.tensor(id));
    let streamed = tensors.filter(|tensor| given.contains_key(&tensor.name));
    let parameters: Bytes = graph.parameters().filter_map(|id| graph.tensor(id).ty.bytes()).sum();
    let task = ProfileTask {
        device: spec.name.device.clone(),
        threads: Some(spec.threads),
        mode: Mode::Isolated,
        granularity: Granularity::Fused,
        sampling: *sampling,
        items: false,
        whole: true,
        known: HashSet::new(),
        streamed: streamed.map(|t| Streamed { name: t.name.clone(), ty: t.ty.clone() }).collect(),
        graph,
    };
    let mut events = agent?.profile(task, given);
    let mut found = None;
    while let Some(event) = events.recv().await {
        match event {
            Ok(ProfileEvent::Whole(cost)) => {
                let held = cost.held - parameters;
                found = Some(Cost { time: cost.time.median, workspace: cost.workspace, held });
            }
            Ok(ProfileEvent::Item(_)) => {}
            Err(AgentError::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
