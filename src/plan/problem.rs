//! What is to be planned: groups of operators, the tensors between them, devices and links, as tables.
//!
//! A problem is self-contained: it knows neither where its times come from (a profile, a cost model, a file
//! of somebody else's) nor what its groups compute.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    graph,
    units::{Bytes, Micros},
};

/// Groups to place, devices to place them on, and the targets that the placement must meet.
///
/// Invariants, checked by [`Problem::check`]: groups are in a topological order, every table has a row a
/// group and a column a device, ids are in range, times are not negative.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// In program order: every tensor is made before it is used.
    pub groups: Vec<Group>,
    pub tensors: Vec<Tensor>,
    /// Parameters by size; a parameter used by several groups of one device is held once.
    pub parameters: Vec<Bytes>,
    pub devices: Vec<Device>,
    pub links: Vec<Link>,
    /// The link from one device to another, row-major by sender; `None` where tensors move for free
    /// (the diagonal, devices that share their memory).
    pub routes: Vec<Option<LinkId>>,
    /// Where inputs start.
    pub source: DeviceId,
    /// Where results must arrive.
    pub sink: DeviceId,
    pub objective: Objective,
    pub targets: Targets,
}

/// What is placed as a whole: an operator, or a fused group of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// For messages and the patterns of [rules](super::rule).
    pub name: String,
    /// The operators of the graph that it stands for, in program order.
    pub operators: Vec<graph::OperatorId>,
    /// What it reads of other groups and of the inputs, each tensor once.
    pub inputs: Vec<TensorIndex>,
    pub outputs: Vec<TensorIndex>,
    pub parameters: Vec<ParameterId>,
    /// One a device; `None` where the device cannot or must not compute the group.
    pub costs: Vec<Option<Cost>>,
}

/// What a group costs on one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    pub time: Micros,
    /// Needed while it runs, beyond its operands and outputs.
    pub workspace: Bytes,
    /// Held for good beyond the parameters themselves (copies in another layout).
    pub held: Bytes,
}

/// A tensor that crosses group borders.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// Which tensor of the graph it is.
    pub graph: graph::TensorId,
    pub bytes: Bytes,
    /// The group that makes it; `None` for an input of the model.
    pub producer: Option<GroupId>,
    /// The operand of its producer whose bytes it shares, if the producer only gives them another shape.
    pub view_of: Option<TensorIndex>,
    /// Whether the model returns it.
    pub is_output: bool,
}

/// A CPU or GPU of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub server: String,
    pub name: String,
    /// Where the server's agent listens; `None` for the embedded one.
    pub address: Option<String>,
    /// What parameters, activations and workspace may take together.
    pub memory: Option<Bytes>,
}

/// A directed connection; it takes `latency + bytes · per_byte` and carries one transfer at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub name: String,
    pub latency: Micros,
    /// Microseconds a byte.
    pub per_byte: f64,
}

/// What the plan must achieve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    #[serde(rename = "latency_us")]
    pub latency: Option<Micros>,
    /// Smallest number of results a second.
    #[serde(rename = "throughput_per_s")]
    pub throughput: Option<f64>,
}

/// What the plan is best at, among those that meet the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The shortest time from one input to its result.
    #[default]
    Latency,
    /// The smallest load of the busiest device or link.
    Throughput,
    /// The smallest peak memory of the fullest device.
    Memory,
}

/// Index of a group in its problem, which is also its place in program order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

/// Index of a device in its problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub u32);

/// Index of a tensor in its problem, not in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorIndex(pub u32);

/// Index of a link in its problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkId(pub u32);

/// Index of a parameter in its problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParameterId(pub u32);

/// What is wrong with a problem's tables.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ProblemError {
    pub what: String,
}

impl Problem {
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub fn tensor(&self, id: TensorIndex) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    pub fn device(&self, id: DeviceId) -> &Device {
        &self.devices[id.0 as usize]
    }

    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    pub fn group_ids(&self) -> impl DoubleEndedIterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u32).map(GroupId)
    }

    pub fn device_ids(&self) -> impl DoubleEndedIterator<Item = DeviceId> + use<> {
        (0..self.devices.len() as u32).map(DeviceId)
    }

    pub fn tensor_ids(&self) -> impl DoubleEndedIterator<Item = TensorIndex> + use<> {
        (0..self.tensors.len() as u32).map(TensorIndex)
    }

    /// What `group` costs on `device`; `None` where it cannot run.
    pub fn cost(&self, group: GroupId, device: DeviceId) -> Option<Cost> {
        self.groups[group.0 as usize].costs[device.0 as usize]
    }

    /// The link that a transfer takes; `None` where it is free.
    pub fn route(&self, from: DeviceId, to: DeviceId) -> Option<LinkId> {
        self.routes[from.0 as usize * self.devices.len() + to.0 as usize]
    }

    /// For every tensor the groups that read it, in program order.
    pub fn consumers(&self) -> Vec<Vec<GroupId>> {
        let mut readers = vec![Vec::new(); self.tensors.len()];
        for id in self.group_ids() {
            for input in &self.group(id).inputs {
                readers[input.0 as usize].push(id);
            }
        }
        readers
    }

    /// Checks the tables against each other, so that everything else may index without asking.
    ///
    /// # Errors
    /// Names the first row that is wrong.
    pub fn check(&self) -> Result<(), ProblemError> {
        let fail = |what: String| Err(ProblemError { what });
        let devices = self.devices.len();
        if devices == 0 {
            return fail("a plan needs at least one device".into());
        }
        if self.source.0 as usize >= devices || self.sink.0 as usize >= devices {
            return fail("the source or the sink is no device of the cluster".into());
        }
        if self.routes.len() != devices * devices
            || self.routes.iter().flatten().any(|l| l.0 as usize >= self.links.len())
        {
            return fail("the table of routes does not fit the devices and links".into());
        }
        for link in &self.links {
            if !(link.latency.0 >= 0.0
                && link.latency.0.is_finite()
                && link.per_byte >= 0.0
                && link.per_byte.is_finite())
            {
                return fail(format!("link {}: latency and time a byte must be finite and not negative", link.name));
            }
        }
        for (id, group) in self.group_ids().zip(&self.groups) {
            if group.costs.len() != devices {
                return fail(format!("group {}: {} costs for {devices} devices", group.name, group.costs.len()));
            }
            if group.costs.iter().flatten().any(|c| !(c.time.0 >= 0.0 && c.time.0.is_finite())) {
                return fail(format!("group {}: times must be finite and not negative", group.name));
            }
            if group.parameters.iter().any(|p| p.0 as usize >= self.parameters.len()) {
                return fail(format!("group {}: unknown parameter", group.name));
            }
            for input in &group.inputs {
                let producer = self.tensors.get(input.0 as usize).map(|t| t.producer);
                if producer.is_none_or(|p| p.is_some_and(|p| p >= id)) {
                    return fail(format!("group {}: operand {} is not made before it", group.name, input.0));
                }
            }
            for output in &group.outputs {
                if self.tensors.get(output.0 as usize).and_then(|t| t.producer) != Some(id) {
                    return fail(format!("group {}: output {} names another producer", group.name, output.0));
                }
            }
        }
        for tensor in &self.tensors {
            let producer = tensor.producer.and_then(|p| self.groups.get(p.0 as usize));
            if tensor.producer.is_some() && producer.is_none() {
                return fail(format!("tensor {}: unknown producer", tensor.name));
            }
            if tensor.view_of.is_some_and(|v| !producer.is_some_and(|p| p.inputs.contains(&v))) {
                return fail(format!("tensor {}: is a view of what its producer does not read", tensor.name));
            }
        }
        Ok(())
    }
}

impl Device {
    /// `server/device`, as pins and tables name it.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }
}

impl Link {
    /// How long `bytes` occupy the link.
    pub fn time(&self, bytes: Bytes) -> Micros {
        Micros(self.latency.0 + bytes.0 as f64 * self.per_byte)
    }
}

impl FromStr for Objective {
    type Err = ProblemError;
    fn from_str(text: &str) -> Result<Objective, ProblemError> {
        match text {
            "latency" => Ok(Objective::Latency),
            "throughput" => Ok(Objective::Throughput),
            "memory" => Ok(Objective::Memory),
            _ => {
                Err(ProblemError { what: format!("`{text}` is no objective: expected latency, throughput or memory") })
            }
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Objective::Latency => "latency",
            Objective::Throughput => "throughput",
            Objective::Memory => "memory",
        })
    }
}
