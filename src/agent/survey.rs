//! The profile of one model on every device of a cluster: [`survey`]. Each device's own agent measures; rows are
//! stored here as they come, so that an agent that is lost takes nothing with it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    client::Agent,
    error::AgentError,
    fleet::Fleet,
    fractions::measure_fractions,
    setup::Streamed,
    task::{Contents, ProfileEvent, ProfileTask},
};
use crate::{
    cluster::{Cluster, DeviceName, DeviceSpec, Inventory, Place as Address},
    engine::EngineId,
    graph::{Granularity, Graph},
    profile::{Item, Key, Mode, Place, Row, Sampling, Store, StoreError, Whole, items},
    units::Micros,
};

/// What is to be measured everywhere.
#[derive(Debug, Clone)]
pub struct Survey<'a> {
    pub graph: &'a Graph,
    /// The model's name and the hash of its file, by which profiles are kept.
    pub model: &'a str,
    pub model_hash: &'a str,
    pub mode: Mode,
    pub granularity: Granularity,
    pub sampling: Sampling,
    /// Whether the model as a whole is measured too.
    pub whole: bool,
    /// Time to spend, on each device, on parts of the items; `None` to measure none.
    pub fractions: Option<Micros>,
    /// Whether what was measured before is measured anew.
    pub again: bool,
    pub lacking: Lacking,
    /// Where profiles are kept.
    pub folder: &'a Path,
    /// Inputs and parameters that are not generated from their names.
    pub contents: Contents,
}

/// What becomes of items that a profile does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lacking {
    #[default]
    Measured,
    /// They stay without rows.
    Left,
}

/// The profile of one device.
#[derive(Debug, Clone)]
pub struct Surveyed {
    pub device: DeviceSpec,
    /// The profile's file.
    pub path: PathBuf,
    /// One an item, in the order of the model; fewer only where what is lacking was to be left.
    pub rows: Vec<Row>,
    /// One a part of an item that was ever measured.
    pub shares: Vec<Row>,
    /// How many of the parts that were asked for are not measured yet.
    pub left: usize,
    /// By what the file is found again.
    pub key: Key,
    /// What the model takes as a whole, if that was asked for and the device can compute all of it.
    pub whole: Option<Whole>,
    /// Whether any row was added.
    pub measured: bool,
}

/// How far a device has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    pub device: &'a DeviceName,
    pub measured: usize,
    pub items: usize,
    /// What was measured last; empty at the beginning.
    pub item: &'a str,
}

/// Why a survey did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("{cause}; {kept} of {items} rows of {device} are kept in {}: the same command goes on from there", path.display())]
    Agent { cause: AgentError, device: DeviceName, kept: usize, items: usize, path: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Profiles the model on all devices of `inventory`, one after the other on each machine and all machines at the same
/// time. Profiles come back in the order of the devices.
///
/// # Errors
/// The first that went wrong, after all other devices are done.
pub async fn survey(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    survey: &Survey<'_>,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Vec<Surveyed>, SurveyError> {
    let items = &items(survey.graph, survey.granularity)[..];
    let mut machines: BTreeMap<String, Vec<(usize, &DeviceSpec, &Agent)>> = BTreeMap::new();
    for (index, device) in inventory.devices.iter().enumerate() {
        let agent = fleet.present().find(|(server, ..)| **server == device.name.server);
        let Some((server, agent, _)) = agent else { continue };
        let place = cluster.server(server).map_or(&Address::Embedded, |server| &server.place);
        machines.entry(machine(place)).or_default().push((index, device, agent));
    }
    let surveying = machines.into_values().map(|devices| async move {
        let mut done = Vec::with_capacity(devices.len());
        for (index, device, agent) in devices {
            done.push((index, one(agent, device, survey, items, progress).await));
        }
        done
    });
    let mut done: Vec<_> = futures::future::join_all(surveying).await.into_iter().flatten().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// What tells machines apart: the host of the address. All loopback addresses are this machine.
fn machine(place: &Address) -> String {
    let Address::Remote { address, .. } = place else { return String::new() };
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if loopback { String::new() } else { host.to_string() }
}

/// The profile of one device: what is stored already, and the rest measured now.
async fn one(
    agent: &Agent,
    device: &DeviceSpec,
    survey: &Survey<'_>,
    items: &[Item],
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Surveyed, SurveyError> {
    let key = Key {
        model: survey.model.to_string(),
        model_hash: survey.model_hash.to_string(),
        place: place(device),
        mode: survey.mode,
        granularity: survey.granularity,
    };
    let mut store = Store::open(survey.folder, &key)?;
    if survey.again {
        store.clear()?;
    }
    store.keep(items)?;
    store.complete(items)?;
    let is_missing = survey.lacking == Lacking::Measured && store.rows().len() < items.len();
    let mut whole = if is_missing || !survey.whole { None } else { Whole::read(store.path()) };
    let wants_whole = survey.whole && whole.is_none();
    let task = ProfileTask {
        device: device.name.device.clone(),
        threads: Some(device.threads),
        mode: survey.mode,
        granularity: survey.granularity,
        sampling: survey.sampling,
        items: is_missing,
        whole: wants_whole,
        displaces: None,
        known: store.known(),
        graph: survey.graph.clone(),
        streamed: streamed(survey),
    };
    if is_missing || wants_whole {
        let told = |store: &Store, item: &str| {
            progress(Progress { device: &device.name, measured: store.rows().len(), items: items.len(), item });
        };
        told(&store, "");
        let mut events = agent.profile(task, survey.contents.clone());
        let mut lost = None;
        while let Some(event) = events.recv().await {
            match event {
                Ok(ProfileEvent::Item(measured)) => {
                    store.record(items, &measured)?;
                    told(&store, items.get(measured.item).map_or("", |item| &item.name));
                }
                Ok(ProfileEvent::Whole(cost)) => whole = Some(Whole::from(&cost)),
                Err(error) => lost = Some(error),
            }
        }
        if lost.is_none() && store.rows().len() < items.len() {
            let (doing, cause) = ("profiling".to_string(), "it ended early".to_string());
            lost = Some(AgentError::Lost { agent: agent.name().clone(), doing, cause });
        }
        if let Some(cause) = lost {
            let (kept, path) = (store.rows().len(), store.path().to_path_buf());
            return Err(SurveyError::Agent { cause, device: device.name.clone(), kept, items: items.len(), path });
        }
    }
    let before = store.shares().len();
    let left = match survey.fractions {
        Some(budget) => measure_fractions(agent, device, survey, items, budget, &mut store, progress).await?,
        None => 0,
    };
    let measured = is_missing || store.shares().len() > before;
    store.finish()?;
    Ok(Surveyed {
        device: device.clone(),
        path: store.path().to_path_buf(),
        rows: store.rows().to_vec(),
        shares: store.shares().to_vec(),
        left,
        key,
        whole,
        measured,
    })
}

/// The device as profiles name it.
fn place(device: &DeviceSpec) -> Place {
    // `tract 0.23.9`: an engine's name has no space.
    let (name, version) = device.engine.split_once(' ').unwrap_or((&device.engine, ""));
    Place {
        server: device.name.server.to_string(),
        device: device.name.device.to_string(),
        hardware: device.hardware.clone(),
        engine: EngineId { name: name.to_string(), version: version.to_string() },
        threads: device.threads as usize,
    }
}

/// The given contents with the types that the model has for them.
fn streamed(survey: &Survey<'_>) -> Vec<Streamed> {
    let graph = survey.graph;
    let tensors = graph.inputs().chain(graph.parameters()).map(|id| graph.tensor(id));
    let given = tensors.filter(|tensor| survey.contents.contains_key(&tensor.name));
    given.map(|tensor| Streamed { name: tensor.name.clone(), ty: tensor.ty.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine() {
        let at = |address: &str| machine(&Address::Remote { address: address.to_string(), tls_name: None });
        for address in ["127.0.0.1:7600", "localhost:7601", "[::1]:7", "127.0.0.2:1"] {
            assert_eq!(at(address), machine(&Address::Embedded), "{address}");
        }
        assert_eq!(at("10.0.0.2:1"), at("10.0.0.2:2"));
        assert_ne!(at("10.0.0.2:1"), at("10.0.0.3:1"));
    }
}
