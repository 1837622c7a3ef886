//! The plan as it is stored: `plan.json`, with everything that is needed to run it and to judge it.
//!
//! Reading and writing are on text; files are the caller's.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use crate::problem::{
    DeviceId, GroupId, Objective, Targets, part_name::read_part, rule::Rule, transfer_format::TransferFormat,
};
use edgecut_graph as graph;
use edgecut_graph::{
    DeviceName, EngineId, StatePair,
    units::{Bytes, Joules, Micros, Watts},
};
use edgecut_ops::{
    passes::{bindings::Binding, retype::BindDim, shard_graph::Sharding},
    split::PackedAxis,
};

pub use edgecut_graph::Granularity;

/// The version of the format that this program writes, and the only one it reads.
pub const VERSION: u32 = 2;

/// A placement of a model on the devices of a cluster, with what it is predicted to cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    pub model: ModelRef,
    /// The cluster file that it was made for; `None` for this machine alone.
    pub cluster: Option<String>,
    pub granularity: Granularity,
    pub objective: Objective,
    pub targets: Targets,
    /// What was decided of the placement beforehand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    pub seed: u64,
    pub predicted: Predicted,
    pub bound: Bound,
    /// How far the objective's value is above its bound, as a fraction of the value.
    pub gap: f64,
    /// Where inputs start: a device of the first server unless said otherwise.
    pub source: DeviceId,
    /// Where results must arrive.
    pub sink: DeviceId,
    pub devices: Vec<DevicePlan>,
    /// Of a plan for a stream: the number of inputs in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// The format in which activations go from server to server.
    #[serde(default, skip_serializing_if = "TransferFormat::is_exact")]
    pub transfer: TransferFormat,
    /// What is split: the operators that `groups` and `transfers` refer to are those of the model's graph with these
    /// made into shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<Split>,
    /// The states of the graph that is planned: those of the model, with one for each shard of a state that is split. Each
    /// stays on the devices that read it: it is no input and no output of a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StatePair>,
    /// Of a decoder: how it reads a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<PrefillPlan>,
    /// What devices compute in other steps, to need less memory: the operators that `groups` and `transfers` refer to are
    /// those of the graph with these written out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// In program order; a [`GroupId`] is an index into it.
    pub groups: Vec<GroupPlan>,
    /// In the order in which they start.
    pub transfers: Vec<Transfer>,
    /// What a person should know: devices left out and why, times that are estimates.
    pub notes: Vec<String>,
}

/// The model that was planned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRef {
    pub path: String,
    /// BLAKE3 of the file, in hexadecimal: a plan is run only on the model it was made for.
    pub blake3: String,
    /// Sizes that unknown dimensions were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bind_dims: Vec<BindDim>,
    /// Names and patterns of the inputs that are parameters to be generated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seed_parameters: Vec<String>,
    /// The `.npz` file whose contents decided branches and sizes of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// Its states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StatePair>,
}

impl ModelRef {
    /// The sizes of unknown dimensions.
    pub fn binding(&self) -> Binding {
        Binding::from(self.bind_dims.clone())
    }
}

/// What the simulation says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// From the input's start to the result's arrival.
    pub latency_us: Micros,
    /// The time between results when inputs are pipelined: the load of the busiest device or link, and no less than the
    /// latency over the inputs in flight.
    pub interval_us: Micros,
    pub throughput_per_s: f64,
    /// The inputs in flight at which that holds: as many as keep the busiest device or link busy, or as the memory limits
    /// have room for.
    #[serde(default = "one")]
    pub in_flight: u32,
    /// The largest [`MemoryPlan::load_bytes`] of any device.
    pub peak_bytes: Bytes,
    /// Of a plan with a [transfer format](Plan::transfer): what goes from server to server for one input, as tensors and as
    /// it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_bytes: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<Bytes>,
    /// What one run consumes: the idle power of all devices for the latency, and the groups' [energy](GroupPlan::energy_j);
    /// `None` where the power of devices is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<Joules>,
}

fn one() -> u32 {
    1
}

/// How a decoder reads a prompt: in steps of several tokens, with the splits and devices of the plan, which is for steps of one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PrefillPlan {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of a step. What is left is read token by token.
    pub step: u64,
    /// The predicted time of such a step.
    pub step_us: Micros,
    /// The predicted time from the start of the prompt to the first token (TTFT).
    pub time_us: Micros,
    /// The limit on that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_us: Option<Micros>,
    /// What no plan can go below in steps of this length, if this time was the objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_us: Option<Micros>,
}

/// What no plan can go below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// In the objective's unit: microseconds, bytes or joules.
    pub value: f64,
    /// Which argument gives it.
    pub by: String,
}

/// One device and what the plan asks of it. Unused devices are listed with an empty order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DevicePlan {
    pub server: String,
    pub device: String,
    /// Where the server's agent listens; `None` for the embedded one.
    pub address: Option<String>,
    /// Threads it computes with; `None` for the agent's own number.
    pub threads: Option<u32>,
    /// `None` for the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineId>,
    /// What it was planned for, as in profiles; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    pub memory_limit_bytes: Option<Bytes>,
    /// What it computes, in order.
    pub order: Vec<GroupId>,
    /// The sum of the times of its groups.
    pub busy_us: Micros,
    /// Its idle power, or its share of that of the devices whose energy is read together; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_w: Option<Watts>,
    pub memory: MemoryPlan,
}

impl Plan {
    /// The name of one of its devices; `None` if it has no device of this number.
    pub fn device_name(&self, device: DeviceId) -> Option<DeviceName> {
        self.devices.get(device.0 as usize).map(DevicePlan::device_name)
    }

    /// The devices that compute anything.
    pub fn used_devices(&self) -> impl Iterator<Item = &DevicePlan> {
        self.devices.iter().filter(|device| !device.order.is_empty())
    }
}

impl DevicePlan {
    /// Its name in pins and tables.
    pub fn device_name(&self) -> DeviceName {
        DeviceName::new(self.server.as_str(), self.device.as_str())
    }
}

/// Predicted memory of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Parameters, what the engine holds in addition, and states.
    pub parameter_bytes: Bytes,
    /// Of these, states, each twice: its content, and the next one.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub state_bytes: Bytes,
    /// Peak of parameters, live tensors and workspace together.
    pub load_bytes: Bytes,
    /// What is reserved for tensors and workspace, gaps included, with what all inputs in flight hold.
    pub arena_bytes: Bytes,
    /// The largest workspace of any of its groups.
    pub workspace_bytes: Bytes,
}

/// An operator of the model that is split into shards, each an operator of its own in the graph that is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// In the model's graph.
    pub operator: graph::OperatorId,
    /// Number of the axis among those that the operator can be split along.
    pub axis: usize,
    /// Where the axis is cut: one position more than there are shards.
    pub cuts: Vec<u64>,
    /// What each shard computes, where that is more than lies between its cuts: halos that it does not receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiles: Vec<Range<u64>>,
    /// For a packed axis: the number of positions of each tensor per unit. Cuts are then in interleaved order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedAxis>,
    /// What each shard runs on.
    pub devices: Vec<DeviceId>,
}

impl Split {
    /// `operator`, split as `sharding` over `devices`.
    pub fn new(operator: graph::OperatorId, sharding: Sharding, devices: Vec<DeviceId>) -> Split {
        let Sharding { axis, cuts, tiles, packed, homes: _ } = sharding;
        Split { operator, axis, cuts, tiles, packed, devices }
    }

    /// The split without its devices.
    pub fn sharding(&self) -> Sharding {
        let Split { axis, cuts, tiles, packed, .. } = self.clone();
        Sharding { tiles, packed, ..Sharding::disjoint(axis, cuts) }
    }

    /// The split with its devices as the homes of shards.
    pub fn placed_sharding(&self) -> Sharding {
        Sharding { homes: self.devices.iter().map(|device| device.0).collect(), ..self.sharding() }
    }
}

/// One group and its placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// The number of the group in the model that it is, or is a part of; `None` for slices of inputs and joins of results.
    #[serde(default)]
    pub id: Option<u32>,
    /// Which part of that group it is: a shard (`1of2`), a step of a schedule; empty for all of it.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "read_part")]
    pub part: String,
    pub name: String,
    /// The layers of its operators, where the model has names of layers, joined by `+`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub layer: String,
    pub operators: Vec<graph::OperatorId>,
    /// The device that it runs on.
    #[serde(rename = "strategy", with = "super::placed_on")]
    pub device: DeviceId,
    /// How long it takes, and when it runs when one input is alone in the cluster.
    pub time_us: Micros,
    pub start_us: Micros,
    pub workspace_bytes: Bytes,
    /// What it consumes above what the idle device draws meanwhile; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<Joules>,
    /// Where `time_us` comes from; measured, where a file does not say.
    #[serde(default)]
    pub source: Source,
}

/// Where a predicted time comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This very group was measured on its device.
    #[default]
    Measured,
    /// Others were.
    Estimated,
}

/// A tensor that goes from one device to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// The tensor in the model that it is, or is a part of.
    #[serde(default)]
    pub id: Option<graph::TensorId>,
    /// Which part of that tensor it is: the range of a shard (`0..28`), an axis and its range (`1:0..28`); empty for all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// In the graph with splits and schedules.
    pub tensor: graph::TensorId,
    pub name: String,
    pub from: DeviceId,
    pub to: DeviceId,
    /// Size of the tensor.
    pub bytes: Bytes,
    /// How it is sent, and what that takes where it is not sent as it is.
    #[serde(default, skip_serializing_if = "TransferFormat::is_exact")]
    pub format: TransferFormat,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<Bytes>,
    pub start_us: Micros,
    pub time_us: Micros,
    /// The part of it after the last byte has arrived: the reader's device wakes up, and of devices that exchange tensors one
    /// waits for the slower one. Known from pilot runs.
    #[serde(default)]
    pub overhead_us: Micros,
}

impl Transfer {
    /// What is sent for it.
    pub fn sent(&self) -> Bytes {
        self.sent_bytes.unwrap_or(self.bytes)
    }
}

/// Why a text is not a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    #[error("not a plan, as `edgecut plan` writes them: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not a plan, as `edgecut plan` writes them: it has no `version` or no `groups`")]
    Other,
    #[error(
        "the plan has format version {found}, this program reads {VERSION}: make the plan again with `edgecut plan`"
    )]
    Version { found: u64 },
    /// A file of several plans, where one is expected.
    #[error("it has plans for {count} bindings of its model: {bindings}")]
    Several { count: usize, bindings: String },
    #[error("it has no plan for this binding, only for {bindings}")]
    NotChosen { bindings: String },
    #[error("the plan contradicts itself: {0}")]
    Inconsistent(String),
}

impl Plan {
    /// Reads `plan.json` and checks that its parts fit together.
    ///
    /// # Errors
    /// If it is not JSON, of another version, has several plans, or names groups or devices that it does not have.
    pub fn from_json(text: &[u8]) -> Result<Plan, PlanFileError> {
        let value: serde_json::Value = serde_json::from_slice(text)?;
        // Other files have versions too.
        let plans = value.get("plans").and_then(serde_json::Value::as_array);
        let version = value.get("version").filter(|_| plans.is_some() || value.get("groups").is_some());
        let found = version.and_then(serde_json::Value::as_u64).ok_or(PlanFileError::Other)?;
        if found != u64::from(VERSION) {
            return Err(PlanFileError::Version { found });
        }
        if let Some(plans) = plans {
            let model = |plan: &serde_json::Value| serde_json::from_value::<ModelRef>(plan.get("model")?.clone()).ok();
            let bindings = Binding::list(plans.iter().filter_map(model).map(|model| model.binding()));
            return Err(PlanFileError::Several { count: plans.len(), bindings });
        }
        let plan: Plan = serde_json::from_value(value)?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks that the parts of the plan fit together.
    pub(crate) fn check(&self) -> Result<(), PlanFileError> {
        self.check_ids().map_err(PlanFileError::Inconsistent)
    }

    pub fn to_json(&self) -> Result<String, PlanFileError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Whether a transfer goes from one server to another.
    pub fn is_between_servers(&self, transfer: &Transfer) -> bool {
        self.devices[transfer.from.0 as usize].server != self.devices[transfer.to.0 as usize].server
    }

    fn check_ids(&self) -> Result<(), String> {
        let known = |device: DeviceId| (device.0 as usize) < self.devices.len();
        if !known(self.source) || !known(self.sink) {
            return Err("the source or the sink is not a device of the plan".into());
        }
        let mut places: Vec<Vec<DeviceId>> = vec![Vec::new(); self.groups.len()];
        for (index, device) in self.devices.iter().enumerate() {
            for group in &device.order {
                places
                    .get_mut(group.0 as usize)
                    .ok_or_else(|| {
                        format!("{}/{} runs group {}, which does not exist", device.server, device.device, group.0)
                    })?
                    .push(DeviceId(index as u32));
            }
        }
        for (group, at) in self.groups.iter().zip(&places) {
            if *at != [group.device] {
                return Err(format!("group {} is not in the order of the devices it is placed on", group.name));
            }
        }
        match self.transfers.iter().find(|t| !known(t.from) || !known(t.to)) {
            Some(transfer) => Err(format!("the transfer of {} names a device that does not exist", transfer.name)),
            None => self.check_formats(),
        }
    }

    /// Only what goes from server to server is converted, and to the format of the plan.
    fn check_formats(&self) -> Result<(), String> {
        let mut converted = self.transfers.iter().filter(|transfer| !transfer.format.is_exact());
        let is_wrong =
            |t: &&Transfer| t.format != self.transfer || t.sent_bytes.is_none() || !self.is_between_servers(t);
        match converted.find(is_wrong) {
            Some(Transfer { name, format, .. }) => {
                Err(format!("the transfer of {name} is in {format}, which is not how the plan sends it"))
            }
            None => Ok(()),
        }
    }
}
