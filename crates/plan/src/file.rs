//! The plan as it is stored: `plan.json`, with everything that is needed to run it and to judge it.
//!
//! Reading and writing are on text; files are the caller's.

use serde::{Deserialize, Serialize};

use super::{
    DeviceId, GroupId, Problem,
    problem::{Objective, Targets},
    rule::Rule,
    schedule::Schedule,
    solve::Solution,
    task_graph::{ReplicaId, ReplicaOrigin, TaskGraph},
};
use edgecut_graph as graph;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_ops::passes::retype::BindDim;

pub use edgecut_graph::Granularity;

/// The version of the format that this program writes, and the only one it reads.
pub const VERSION: u32 = 1;

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
    /// What is split: the operators that `groups` and `transfers` speak of are those of the model's graph with these
    /// made into shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<Split>,
    /// What devices compute in other steps, to need less memory: the operators that `groups` and `transfers` speak of
    /// are those of the graph with these written out.
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
    /// The `.npz` file whose contents selected branches of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
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
    /// The largest [`MemoryPlan::load_bytes`] of any device.
    pub peak_bytes: Bytes,
}

/// What no plan can go below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// In the objective's unit: microseconds, or bytes.
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
    pub memory_limit_bytes: Option<Bytes>,
    /// What it computes, in order.
    pub order: Vec<GroupId>,
    /// The sum of the times of its groups.
    pub busy_us: Micros,
    pub memory: MemoryPlan,
}

impl DevicePlan {
    /// `server/device`, as pins and tables name it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.server, self.device)
    }
}

/// Predicted memory of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// Parameters, and what the engine holds in addition.
    pub parameter_bytes: Bytes,
    /// Most that parameters, live tensors and workspace take together at one instant.
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
    /// What each shard runs on.
    pub devices: Vec<DeviceId>,
}

/// One group and its placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    pub name: String,
    pub operators: Vec<graph::OperatorId>,
    /// The device that it runs on.
    #[serde(rename = "strategy", with = "super::strategy")]
    pub device: DeviceId,
    /// How long it takes, and when it runs when one input is alone in the cluster.
    pub time_us: Micros,
    pub start_us: Micros,
    pub workspace_bytes: Bytes,
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
    pub tensor: graph::TensorId,
    pub name: String,
    pub from: DeviceId,
    pub to: DeviceId,
    pub bytes: Bytes,
    pub start_us: Micros,
    pub time_us: Micros,
}

/// Why a text is not a valid plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    #[error("not a plan, as `edgecut plan` writes them: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not a plan, as `edgecut plan` writes them: it has no `version`")]
    Other,
    #[error(
        "the plan has format version {found}, this program reads {VERSION}: make the plan again with `edgecut plan`"
    )]
    Version { found: u64 },
    #[error("the plan contradicts itself: {0}")]
    Inconsistent(String),
}

impl Plan {
    /// Writes a solution down, with what a person should know of it.
    pub fn new(problem: &Problem, solution: &Solution, model: ModelRef, granularity: Granularity, seed: u64) -> Plan {
        let evaluation = &solution.evaluation;
        let (work, times) = (&evaluation.task_graph, &evaluation.timeline);
        let groups = problem.group_ids().zip(&evaluation.placement.devices).map(|(id, device)| GroupPlan {
            name: problem.group(id).name.clone(),
            operators: problem.group(id).operators.clone(),
            device: *device,
            time_us: Micros::ZERO,
            start_us: Micros::ZERO,
            workspace_bytes: Bytes::ZERO,
            source: Source::Measured,
        });
        let mut groups: Vec<GroupPlan> = groups.collect();
        for (job, start) in work.tasks.iter().zip(&times.starts) {
            let group = &mut groups[job.group.0 as usize];
            (group.start_us, group.time_us, group.workspace_bytes) = (*start, job.cost.time, job.cost.workspace);
        }
        let interval = solution.interval();
        let mut plan = Plan {
            version: VERSION,
            model,
            cluster: None,
            granularity,
            objective: problem.objective,
            targets: problem.targets,
            rules: Vec::new(),
            seed,
            predicted: Predicted {
                latency_us: evaluation.latency(),
                interval_us: interval,
                throughput_per_s: if interval.0 > 0.0 { 1e6 / interval.0 } else { 0.0 },
                peak_bytes: evaluation.peak(),
            },
            bound: Bound { value: solution.bound.value, by: solution.bound.by.to_string() },
            gap: solution.gap(),
            source: problem.source,
            sink: problem.sink,
            devices: devices(problem, solution),
            in_flight: solution.in_flight,
            splits: Vec::new(),
            schedules: Vec::new(),
            groups,
            transfers: transfers(problem, solution),
            notes: Vec::new(),
        };
        plan.notes = plan.left_out(problem);
        plan
    }

    /// Notes on devices that the plan does not use, and why using them would not help.
    fn left_out(&self, problem: &Problem) -> Vec<String> {
        let idle = self.devices.iter().filter(|d| d.order.is_empty() && problem.devices.len() > 1);
        idle.map(|d| format!("{}/{} is left out: no placement that uses it was found better", d.server, d.device))
            .collect()
    }

    /// Reads `plan.json` and checks that its parts fit together.
    ///
    /// # Errors
    /// If it is not JSON, of another version, or names groups or devices that it does not have.
    pub fn from_json(text: &[u8]) -> Result<Plan, PlanFileError> {
        let value: serde_json::Value = serde_json::from_slice(text)?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).ok_or(PlanFileError::Other)?;
        if found != u64::from(VERSION) {
            return Err(PlanFileError::Version { found });
        }
        let plan: Plan = serde_json::from_value(value)?;
        plan.check_ids().map_err(PlanFileError::Inconsistent)?;
        Ok(plan)
    }

    pub fn to_json(&self) -> Result<String, PlanFileError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
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
                        format!("{}/{} runs group {}, which is not there", device.server, device.device, group.0)
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
            Some(transfer) => Err(format!("the transfer of {} names a device that is not there", transfer.name)),
            None => Ok(()),
        }
    }
}

fn devices(problem: &Problem, solution: &Solution) -> Vec<DevicePlan> {
    let evaluation = &solution.evaluation;
    let figures = evaluation
        .memory
        .iter()
        .zip(&solution.arenas)
        .zip(evaluation.loads.devices.iter().zip(&evaluation.task_graph.sequences));
    let devices =
        problem.devices.iter().zip(figures).map(|(device, ((account, arena), (busy, sequence)))| DevicePlan {
            server: device.server.clone(),
            device: device.name.clone(),
            address: device.address.clone(),
            threads: None,
            memory_limit_bytes: device.memory,
            order: sequence.iter().map(|job| evaluation.task_graph.task(*job).group).collect(),
            busy_us: *busy,
            memory: MemoryPlan {
                parameter_bytes: account.parameters,
                load_bytes: account.load,
                arena_bytes: *arena,
                workspace_bytes: account.workspace,
            },
        });
    devices.collect()
}

fn transfers(problem: &Problem, solution: &Solution) -> Vec<Transfer> {
    let (work, times) = (&solution.evaluation.task_graph, &solution.evaluation.timeline);
    let sender = |work: &TaskGraph, from: ReplicaId| work.replica(from).device;
    let sent =
        work.replicas.iter().zip(times.births.iter().zip(&times.arrivals)).filter_map(|(piece, (start, end))| {
            let ReplicaOrigin::Transfer { from, link } = piece.origin else { return None };
            let tensor = problem.tensor(piece.tensor);
            Some(Transfer {
                tensor: tensor.graph,
                name: tensor.name.clone(),
                from: sender(work, from),
                to: piece.device,
                bytes: piece.bytes,
                start_us: *start,
                time_us: link.map_or(*end - *start, |link| problem.link(link).time(piece.bytes)),
            })
        });
    let mut transfers: Vec<Transfer> = sent.collect();
    transfers.sort_by(|a, b| a.start_us.0.total_cmp(&b.start_us.0).then((a.tensor, a.to).cmp(&(b.tensor, b.to))));
    transfers
}
