//! What a run was against what its plan predicted. Pure functions of the plan, the deployment and the record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    breakdown::{Breakdown, breakdown},
    crossing::{Crossing, Crossings, crossings, planned},
    difference::Difference,
    energy::{ServerEnergy, energy, predicted},
    record::Record,
    server_load::{ServerLoad, loads},
    stage_engines::{StageEngines, stage_engines},
};
use crate::{deployment::Deployment, protocol::inference_trace::InferenceTrace};
use edgecut_engine::statistics::{Statistics, median, percentile};
use edgecut_graph::{
    TensorId,
    units::{Bytes, Joules, Micros},
};
use edgecut_plan::{DeviceId, GroupId, Plan, TransferFormat, part_name::read_part};

/// Predicted against measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub latency: Latencies,
    pub predicted_latency_us: Micros,
    /// Between two results, once the pipeline is full; `None` if inputs were let in one at a time.
    pub interval_us: Option<Micros>,
    pub predicted_interval_us: Micros,
    pub groups: Vec<GroupTime>,
    pub transfers: Vec<TransferCost>,
    pub memory: Vec<MemoryUse>,
    /// Of one inference, all devices of the plan together; `None` where the plan does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_energy_j: Option<Joules>,
    /// Of the servers that tell it.
    #[serde(default)]
    pub energy: Vec<ServerEnergy>,
    /// How busy other workloads kept the machines, for servers that report it.
    #[serde(default)]
    pub load: Vec<ServerLoad>,
    /// The engines of stages, where they were chosen stage by stage or fell back.
    pub engines: Vec<StageEngines>,
    /// How far the outputs are from those of one device; `None` if they were not compared.
    pub outputs: Option<Difference>,
    /// The sizes of unknown dimensions, if the binding was selected from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// Where the latency goes on each device; `None` with several inputs in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakdown: Option<Breakdown>,
    /// How far times of different servers may be off against each other; zero if all were taken from one clock.
    pub clock_uncertainty_us: Micros,
}

/// The distribution of a sample of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    pub n: usize,
    pub median_us: Micros,
    /// Median absolute deviation.
    pub mad_us: Micros,
    pub min_us: Micros,
    pub p95_us: Micros,
    pub p99_us: Micros,
    pub max_us: Micros,
}

/// One group of operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupTime {
    /// Its index in the plan.
    pub group: u32,
    /// Which group of the model it is, or is which part of.
    pub id: Option<u32>,
    #[serde(deserialize_with = "read_part")]
    pub part: String,
    pub name: String,
    pub layer: String,
    pub device: String,
    pub predicted_us: Micros,
    /// Median over the runs.
    pub measured_us: Micros,
    /// When it began, after the first thing that its inference did: median over the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_start_us: Option<Micros>,
    #[serde(flatten)]
    pub scatter: Scatter,
    pub predicted_workspace_bytes: Bytes,
    pub workspace_bytes: Bytes,
    /// Above what the idle device draws meanwhile; `None` where the plan does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_energy_j: Option<Joules>,
}

/// How far the times of several runs are apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    pub n: usize,
    pub mad_us: Micros,
    pub min_us: Micros,
    pub p95_us: Micros,
    pub max_us: Micros,
}

/// One tensor that went from server to server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TransferCost {
    /// Which tensor of the model it is, or is which part of.
    pub id: Option<TensorId>,
    pub part: String,
    pub tensor: String,
    pub from: String,
    pub to: String,
    /// The devices of these servers.
    pub from_device: String,
    pub to_device: String,
    /// Size of the tensor, and of what was sent for it.
    pub bytes: Bytes,
    pub sent_bytes: Bytes,
    pub format: TransferFormat,
    pub predicted_us: Option<Micros>,
    /// From the first byte leaving, with nothing before it on the link, to the last one being there: median over the runs.
    pub measured_us: Micros,
    /// When it had the link to itself, after the first thing that its inference did: median over the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_start_us: Option<Micros>,
    #[serde(flatten)]
    pub scatter: Scatter,
    /// How long it waited for the link: median over the runs.
    pub waited_us: Micros,
}

/// The memory of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    pub device: String,
    pub limit_bytes: Option<Bytes>,
    pub predicted_parameter_bytes: Bytes,
    pub parameter_bytes: Bytes,
    pub predicted_load_bytes: Bytes,
    pub predicted_arena_bytes: Bytes,
    /// The agent's own count: parameters, live tensors and workspace at their peak.
    pub peak_bytes: Bytes,
    /// Most that its stages took while they were made ready, which no limit holds for: weights before and after packing.
    pub loading_bytes: Bytes,
}

impl Latencies {
    /// `None` of no times.
    pub fn of(times: &[Micros]) -> Option<Latencies> {
        let Statistics { n, median, mad, min, p95 } = Statistics::of(times)?;
        let max = times.iter().copied().fold(min, Micros::max);
        let p99 = percentile(times, 0.99);
        let (median_us, mad_us, min_us, p95_us, p99_us, max_us) = (median, mad, min, p95, p99, max);
        Some(Latencies { n: n as usize, median_us, mad_us, min_us, p95_us, p99_us, max_us })
    }
}

impl Scatter {
    /// That of `times`.
    fn of(times: &[Micros]) -> Scatter {
        let all = Latencies::of(times);
        all.map_or_else(Scatter::default, |Latencies { n, mad_us, min_us, p95_us, max_us, .. }| Scatter {
            n,
            mad_us,
            min_us,
            p95_us,
            max_us,
        })
    }
}

impl Outcome {
    /// The devices that took more than the plan allows, each with the excess.
    pub fn over_limit(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let excess =
            |memory: &MemoryUse| memory.limit_bytes.map_or(Bytes::ZERO, |limit| limit.shortfall(memory.peak_bytes));
        self.memory
            .iter()
            .map(move |memory| (memory.device.as_str(), excess(memory)))
            .filter(|(_, excess)| *excess > Bytes::ZERO)
    }

    /// Compares the record with the plan. `None` if no run counted.
    pub fn of(plan: &Plan, deployment: &Deployment, record: &Record) -> Option<Outcome> {
        let (first, last) = (record.arrivals.first()?, record.arrivals.last()?);
        let is_stream = deployment.setups.iter().any(|setup| setup.in_flight > 1);
        let between = record.arrivals.len().saturating_sub(1);
        let crossings = crossings(record);
        let begins = begins(record, &crossings);
        let uncertainty = record.clocks.values().map(|clock| clock.uncertainty).fold(Micros::ZERO, Micros::max);
        Some(Outcome {
            latency: Latencies::of(&record.latencies)?,
            predicted_latency_us: plan.predicted.latency_us,
            interval_us: (between > 0 && is_stream).then(|| Micros((*last - *first).0 / between as f64)),
            predicted_interval_us: plan.predicted.interval_us,
            groups: groups(plan, record, &begins),
            transfers: transfers(plan, deployment, &crossings, &begins),
            memory: memory(plan, record),
            predicted_energy_j: predicted(plan, is_stream, &|_| true),
            energy: energy(plan, is_stream, record),
            load: loads(record),
            engines: stage_engines(record),
            outputs: None,
            binding: None,
            breakdown: if is_stream { None } else { breakdown(plan, deployment, record, &crossings) },
            clock_uncertainty_us: if record.clocks.len() > 1 { uncertainty } else { Micros::ZERO },
        })
    }
}

/// When each inference began, on the client's clock: the first step or transfer.
type Begins = BTreeMap<u64, Micros>;

fn begins(record: &Record, crossings: &Crossings) -> Begins {
    let mut begins = Begins::new();
    let mut began = |inference: u64, at: Micros| {
        let begin = begins.entry(inference).or_insert(at);
        *begin = begin.min(at);
    };
    for (server, run) in runs(record) {
        let steps = run.stages.iter().flat_map(|stage| &stage.steps);
        steps.for_each(|step| began(run.inference, record.to_client(server, step.end) - step.wall));
    }
    for crossing in crossings.values().flatten() {
        began(crossing.inference, crossing.start);
    }
    begins
}

/// What every server did for every inference.
fn runs(record: &Record) -> impl Iterator<Item = (&SmolStr, &InferenceTrace)> {
    record.measured.iter().flat_map(|(server, measured)| measured.iter().map(move |run| (server, run)))
}

/// What is known of a group over all inferences.
#[derive(Default)]
struct Seen {
    times: Vec<Micros>,
    starts: Vec<Micros>,
    workspace: Bytes,
}

fn groups(plan: &Plan, record: &Record, begins: &Begins) -> Vec<GroupTime> {
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    for (server, run) in runs(record) {
        for step in run.stages.iter().flat_map(|stage| &stage.steps) {
            let group = seen.entry(step.group).or_default();
            group.times.push(step.wall);
            let start = record.to_client(server, step.end) - step.wall;
            group.starts.extend(begins.get(&run.inference).map(|begin| start - *begin));
            group.workspace = group.workspace.max(step.workspace);
        }
    }
    let time = |(group, Seen { times, starts, workspace }): (u32, Seen)| {
        let planned = plan.groups.get(group as usize)?;
        Some(GroupTime {
            group: GroupId(group).0,
            id: planned.id,
            part: planned.part.clone(),
            name: planned.name.clone(),
            layer: planned.layer.clone(),
            device: device_name(plan, planned.device.0 as usize),
            predicted_us: planned.time_us,
            measured_us: median(&times),
            measured_start_us: (!starts.is_empty()).then(|| median(&starts)),
            scatter: Scatter::of(&times),
            predicted_energy_j: planned.energy_j,
            predicted_workspace_bytes: planned.workspace_bytes,
            workspace_bytes: workspace,
        })
    };
    seen.into_iter().filter_map(time).collect()
}

fn transfers(plan: &Plan, deployment: &Deployment, crossings: &Crossings, begins: &Begins) -> Vec<TransferCost> {
    let mut costs = Vec::new();
    for setup in &deployment.setups {
        for outgoing in &setup.sends {
            let (Some(value), Some(peer)) = (setup.value(outgoing.value), setup.peers.get(outgoing.peer as usize))
            else {
                continue;
            };
            let tensor = deployment.tensors.get(outgoing.value.0 as usize).copied();
            let of_link = crossings.get(&(setup.server.clone(), peer.server.clone()));
            let seen = || of_link.into_iter().flatten().filter(|crossing| crossing.value == outgoing.value);
            let planned = tensor.and_then(|tensor| planned(plan, tensor, &setup.server, &peer.server));
            let device = |of: Option<DeviceId>| of.and_then(|id| plan.devices.get(id.0 as usize));
            let device = |of: Option<DeviceId>| device(of).map_or(String::new(), |device| device.device.clone());
            let times: Vec<Micros> = seen().map(Crossing::time).collect();
            let start = |crossing: &Crossing| Some(crossing.start - *begins.get(&crossing.inference)?);
            let starts: Vec<Micros> = seen().filter_map(start).collect();
            costs.push(TransferCost {
                id: planned.and_then(|transfer| transfer.id),
                part: planned.map(|transfer| transfer.part.clone()).unwrap_or_default(),
                tensor: value.name.to_string(),
                from: setup.server.to_string(),
                to: peer.server.to_string(),
                from_device: device(planned.map(|transfer| transfer.from)),
                to_device: device(planned.map(|transfer| transfer.to)),
                bytes: value.bytes(),
                sent_bytes: seen().map(|crossing| crossing.bytes).max().unwrap_or_default(),
                format: outgoing.format,
                predicted_us: planned.map(|transfer| (transfer.time_us - transfer.overhead_us).max(Micros::ZERO)),
                measured_us: median(&times),
                measured_start_us: (!starts.is_empty()).then(|| median(&starts)),
                scatter: Scatter::of(&times),
                waited_us: median(&seen().map(Crossing::wait).collect::<Vec<_>>()),
            });
        }
    }
    costs
}

fn memory(plan: &Plan, record: &Record) -> Vec<MemoryUse> {
    let mut found = Vec::new();
    for (index, device) in plan.devices.iter().enumerate() {
        let last = record.measured.get(device.server.as_str()).and_then(|measured| measured.last());
        let Some(measured) = last.and_then(|m| m.memory.iter().find(|memory| memory.device == device.device)) else {
            continue;
        };
        found.push(MemoryUse {
            device: device_name(plan, index),
            limit_bytes: device.memory_limit_bytes,
            predicted_parameter_bytes: device.memory.parameter_bytes - device.memory.state_bytes,
            parameter_bytes: measured.parameters,
            predicted_load_bytes: device.memory.load_bytes,
            predicted_arena_bytes: device.memory.arena_bytes,
            peak_bytes: measured.peak,
            loading_bytes: measured.loading,
        });
    }
    found
}

fn device_name(plan: &Plan, device: usize) -> String {
    plan.device_name(DeviceId(device as u32)).map_or(String::new(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_told_by_order_statistics() {
        let times: Vec<Micros> = (1..=100).rev().map(|n| Micros(f64::from(n))).collect();
        let found = Latencies::of(&times).unwrap();
        assert_eq!(
            (found.n, found.median_us, found.min_us, found.max_us),
            (100, Micros(50.5), Micros(1.0), Micros(100.0))
        );
        assert!((found.p95_us.0 - 95.05).abs() < 1e-9 && found.mad_us == Micros(25.0), "{found:?}");
        assert!((found.p99_us.0 - 99.01).abs() < 1e-9, "{found:?}");
        assert_eq!(Latencies::of(&times[..1]).unwrap().p95_us, Micros(100.0));
        assert_eq!(Latencies::of(&[]), None);
    }
}
