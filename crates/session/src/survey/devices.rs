//! Profiles of one model on the devices of a cluster. Each device's agent measures; rows are stored as they arrive, so that
//! none is lost with an agent.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tokio::sync::mpsc;

use super::{
    request::{MissingPolicy, SurveyError, SurveyProgress, SurveyRequest},
    shard_costs::measure_shards,
};
use edgecut_agent::{
    Cluster, DeviceSpec, Endpoint, Inventory,
    client::{Agent, AgentError, Fleet},
    protocol::{
        named_tensors::StreamedTensor,
        profile::{ProfileEvent, ProfileTask},
    },
};
use edgecut_profile::{Item, ModelTime, ProfileError, ProfileKey, ProfileRow, ProfileStore, ProfiledDevice, items};

/// The profile of one device.
#[derive(Debug, Clone)]
pub struct DeviceProfile {
    pub device: DeviceSpec,
    /// The profile's file.
    pub path: PathBuf,
    /// One per item, in the order of the model; fewer under [`MissingPolicy::Skip`].
    pub rows: Vec<ProfileRow>,
    /// One per shard of an item that was ever measured.
    pub shards: Vec<ProfileRow>,
    /// Number of requested shards that are not measured yet.
    pub unmeasured_shards: usize,
    /// Identifies the profile's file.
    pub key: ProfileKey,
    /// The time of the model as a whole, if it was requested and the device can compute all of it.
    pub whole: Option<ModelTime>,
    /// Whether rows were added.
    pub changed: bool,
    /// Why rows are not in the file, if some are not.
    pub unwritten: Option<Arc<ProfileError>>,
}

/// Profiles the model on all devices of `inventory`: machines concurrently, the devices of a machine one at a time.
/// Profiles are in the order of the devices.
///
/// # Errors
/// The first error, after all devices have finished.
pub async fn survey(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    survey: &SurveyRequest<'_>,
    progress: &(dyn Fn(SurveyProgress<'_>) + Sync),
) -> Result<Vec<DeviceProfile>, SurveyError> {
    let items = &items(survey.graph, survey.granularity)[..];
    let mut machines: BTreeMap<String, Vec<(usize, &DeviceSpec, &Agent)>> = BTreeMap::new();
    for (index, device) in inventory.devices.iter().enumerate() {
        let agent = fleet.connected().find(|(server, ..)| **server == device.name.server);
        let Some((server, agent, _)) = agent else { continue };
        let endpoint = cluster.server(server).map_or(&Endpoint::Embedded, |server| &server.endpoint);
        machines.entry(machine(endpoint)).or_default().push((index, device, agent));
    }
    let surveying = machines.into_values().map(|devices| async move {
        let mut done = Vec::with_capacity(devices.len());
        for (index, device, agent) in devices {
            done.push((index, profile_device(agent, device, survey, items, progress).await));
        }
        done
    });
    let mut done: Vec<_> = futures::future::join_all(surveying).await.into_iter().flatten().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// What is measured after all items.
const WHOLE: &str = "the model as a whole";

/// Identifies a machine: the host of the address, or empty for this machine, which has all loopback addresses.
fn machine(endpoint: &Endpoint) -> String {
    let Endpoint::Remote { address, .. } = endpoint else { return String::new() };
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if loopback { String::new() } else { host.to_string() }
}

/// Profiles one device: reads the stored rows and measures the others.
async fn profile_device(
    agent: &Agent,
    device: &DeviceSpec,
    survey: &SurveyRequest<'_>,
    items: &[Item],
    progress: &(dyn Fn(SurveyProgress<'_>) + Sync),
) -> Result<DeviceProfile, SurveyError> {
    let key = ProfileKey {
        model: survey.model.to_string(),
        model_hash: survey.model_hash.to_string(),
        device: profiled_device(device),
        mode: survey.mode,
        granularity: survey.granularity,
        binding: survey.binding.clone(),
    };
    let mut store = ProfileStore::open(survey.folder, &key)?;
    if survey.remeasure {
        store.clear()?;
    }
    store.retain_items(items)?;
    store.complete(items)?;
    let is_missing = survey.missing == MissingPolicy::Measure && store.rows().len() < items.len();
    let mut whole = if is_missing || !survey.whole { None } else { ModelTime::read(store.path()) };
    let wants_whole = survey.whole && whole.is_none();
    if is_missing || wants_whole {
        let task = ProfileTask {
            device: device.name.device.clone(),
            threads: Some(device.threads),
            engine: device.engine_choice(),
            mode: survey.mode,
            granularity: survey.granularity,
            sampling: survey.sampling,
            wait: None,
            items: is_missing,
            whole: wants_whole,
            cache_flush: None,
            known: store.known(),
            graph: survey.graph.clone(),
            streamed: streamed(survey),
        };
        let events = agent.profile(task, survey.contents.clone());
        whole = record(agent, device, items, wants_whole, events, &mut store, progress).await?.or(whole);
    }
    let before = store.shards().len();
    let unmeasured_shards = match survey.shard_budget {
        Some(budget) => measure_shards(agent, device, survey, items, budget, &mut store, progress).await?,
        None => 0,
    };
    let changed = is_missing || store.shards().len() > before;
    let unwritten = store.finish().err().map(Arc::new);
    Ok(DeviceProfile {
        device: device.clone(),
        path: store.path().to_path_buf(),
        rows: store.rows().to_vec(),
        shards: store.shards().to_vec(),
        unmeasured_shards,
        key,
        whole,
        changed,
        unwritten,
    })
}

/// Stores measurements as they arrive; returns the time of the model as a whole, if it was measured.
async fn record(
    agent: &Agent,
    device: &DeviceSpec,
    items: &[Item],
    wants_whole: bool,
    mut events: mpsc::Receiver<Result<ProfileEvent, AgentError>>,
    store: &mut ProfileStore,
    progress: &(dyn Fn(SurveyProgress<'_>) + Sync),
) -> Result<Option<ModelTime>, SurveyError> {
    let tell = |store: &ProfileStore, item: &str, waiting_for: Option<&str>| {
        let (device, measured) = (&device.name, store.rows().len());
        let item = if wants_whole && measured == items.len() { WHOLE } else { item };
        progress(SurveyProgress { device, measured, items: items.len(), item, waiting_for });
    };
    tell(store, "", None);
    let (mut whole, mut lost) = (None, None);
    while let Some(event) = events.recv().await {
        match event {
            Ok(ProfileEvent::Item(measured)) => {
                store.record(items, &measured)?;
                tell(store, items.get(measured.item).map_or("", |item| &item.name), None);
            }
            Ok(ProfileEvent::Whole(cost)) => whole = Some(ModelTime::from(&cost)),
            Ok(ProfileEvent::WaitingFor(who)) => tell(store, "", Some(&who)),
            Err(error) => lost = Some(error),
        }
    }
    if lost.is_none() && store.rows().len() < items.len() {
        let (doing, cause) = ("profiling".to_string(), "the stream ended early".to_string());
        lost = Some(AgentError::Disconnected { agent: agent.name().clone(), doing, cause });
    }
    let Some(cause) = lost else { return Ok(whole) };
    let (kept, path) = (store.rows().len(), store.path().to_path_buf());
    Err(SurveyError::Agent { cause, device: device.name.clone(), kept, items: items.len(), path })
}

/// The device as profiles identify it.
pub(crate) fn profiled_device(device: &DeviceSpec) -> ProfiledDevice {
    ProfiledDevice {
        server: device.name.server.to_string(),
        device: device.name.device.to_string(),
        hardware: device.hardware.clone(),
        engine: device.engine.clone(),
        threads: device.threads as usize,
    }
}

/// The given contents with their types in the model.
fn streamed(survey: &SurveyRequest<'_>) -> Vec<StreamedTensor> {
    let graph = survey.graph;
    let tensors = graph.inputs().chain(graph.parameters()).map(|id| graph.tensor(id));
    let given = tensors.filter(|tensor| survey.contents.contains_key(&tensor.name));
    given.map(|tensor| StreamedTensor { name: tensor.name.clone(), ty: tensor.ty.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine() {
        let at = |address: &str| machine(&Endpoint::Remote { address: address.to_string(), tls_name: None });
        for address in ["127.0.0.1:7600", "localhost:7601", "[::1]:7", "127.0.0.2:1"] {
            assert_eq!(at(address), machine(&Endpoint::Embedded), "{address}");
        }
        assert_eq!(at("10.0.0.2:1"), at("10.0.0.2:2"));
        assert_ne!(at("10.0.0.2:1"), at("10.0.0.3:1"));
    }
}
