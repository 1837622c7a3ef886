//! The placement problem as tables: groups of operators, the tensors between them, devices and links.
//!
//! A problem is self-contained: it does not know where its times come from (a profile, a cost model, a file of another
//! tool) nor what its groups compute.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    activation::Activation,
    transfer_format::{Coding, TransferFormat},
};
use edgecut_graph::{
    self as graph, DeviceName, EngineId, LinkCost, topological_order,
    units::{Bytes, Micros, Watts},
};

/// Groups to place, devices to place them on, and the targets that the placement must meet.
///
/// Invariants, checked by [`Problem::check`]: groups are in topological order, tables have the right sizes, ids are in
/// range, times are finite and not negative.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// In program order: every tensor is produced before it is used.
    pub groups: Vec<Group>,
    pub tensors: Vec<Tensor>,
    /// The sizes of the parameters; one that several groups of a device use is stored once.
    pub parameters: Vec<Bytes>,
    /// Of the parameters, those that are states.
    pub states: Vec<ParameterId>,
    pub devices: Vec<Device>,
    pub links: Vec<Link>,
    /// The link from one device to another, row-major by sender; `None` where transfers are free (the diagonal, devices
    /// with shared memory).
    pub routes: Vec<Option<LinkId>>,
    /// Where inputs start.
    pub source: DeviceId,
    /// Where results must arrive.
    pub sink: DeviceId,
    pub objective: Objective,
    pub targets: Targets,
}

/// The unit of placement: an operator or a fused group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What it computes: in files, and for the patterns of [rules](super::rule). Other groups may have the same.
    pub name: String,
    /// What messages call it, where it is of a model by number and unique name (`#7 nn.conv2d_9[1of2]`).
    pub label: String,
    /// Its operators in the graph, in program order.
    pub operators: Vec<graph::OperatorId>,
    /// The tensors of other groups and the inputs that it reads, each once.
    pub inputs: Vec<TensorIndex>,
    pub outputs: Vec<TensorIndex>,
    pub parameters: Vec<ParameterId>,
    /// By device; `None` where the group cannot or must not run.
    pub costs: Vec<Option<Cost>>,
}

/// The cost of a group on one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    pub time: Micros,
    /// Memory in use while it runs, in addition to operands and outputs.
    pub workspace: Bytes,
    /// Memory of the engine for the whole run, in addition to the parameters (packed weights).
    pub held: Bytes,
    /// What the device draws above its idle power while it computes the group; zero where that is not known.
    pub power: Watts,
}

/// A tensor that crosses group borders.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// Which tensor of the graph it is.
    pub graph: graph::TensorId,
    pub bytes: Bytes,
    /// Its size as an activation, which links may carry in another format; `None` if they may not.
    pub activation: Option<Activation>,
    /// The group that produces it; `None` for an input of the model.
    pub producer: Option<GroupId>,
    /// The operand of its producer whose storage it shares, if the producer is a view.
    pub view_of: Option<TensorIndex>,
    /// Whether the model returns it.
    pub is_output: bool,
}

/// A CPU or GPU of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    pub server: String,
    pub name: String,
    /// Where the server's agent listens; `None` for the embedded one.
    pub address: Option<String>,
    /// The model of its hardware, as in profiles; `None` where it is not known.
    pub hardware: Option<String>,
    /// `None` where it is not known: the agent's own.
    pub engine: Option<EngineId>,
    /// Threads that it computes with; `None` where they are not known: the agent's own number.
    pub threads: Option<u32>,
    /// Limit on parameters, activations and workspace together.
    pub memory: Option<Bytes>,
    /// What transfers to and from other servers take of it while it computes.
    pub handling: Handling,
    /// Its idle power, or its share of that of the devices whose energy is read together; `None` where its energy is not
    /// known.
    pub idle: Option<Watts>,
}

/// Processor time that transfers take of the devices at their ends. A task that runs on the sender when a transfer begins, or
/// on the receiver when one ends, takes that much longer; an idle device loses nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Handling {
    pub sending: HandlingCost,
    pub receiving: HandlingCost,
}

/// Processor time of one transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HandlingCost {
    pub each: Micros,
    /// In microseconds.
    pub per_byte: f64,
}

/// A directed connection, which carries one transfer at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub name: String,
    pub cost: LinkCost,
    /// The part of the cost's latency after the last byte has arrived: the reader's device wakes up, and of devices that
    /// exchange tensors one waits for the slower one.
    pub overhead: Micros,
    /// How it carries activations.
    pub coding: Coding,
}

/// Targets of the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    #[serde(rename = "latency_us")]
    pub latency: Option<Micros>,
    /// Minimum results per second.
    #[serde(rename = "throughput_per_s")]
    pub throughput: Option<f64>,
}

/// What is minimised among the plans that meet the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The time from an input to its result.
    #[default]
    Latency,
    /// The load of the busiest device or link.
    Throughput,
    /// The largest memory load of any device.
    Memory,
    /// The energy of one run, as `judge::energy` defines it.
    Energy,
}

/// Index of a group in its problem: its position in program order.
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

impl From<GroupId> for usize {
    fn from(group: GroupId) -> usize {
        group.0 as usize
    }
}

impl Problem {
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    /// The bytes that the states of `groups` take while a step computes, which reads one content of each and writes another.
    pub fn states_of(&self, groups: impl Iterator<Item = GroupId>) -> Bytes {
        let held: BTreeSet<ParameterId> = groups.flat_map(|id| self.group(id).parameters.iter().copied()).collect();
        let states = self.states.iter().filter(|state| held.contains(state));
        states.map(|state| self.parameters[state.0 as usize]).sum()
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

    pub(crate) fn tensor_ids(&self) -> impl DoubleEndedIterator<Item = TensorIndex> + use<> {
        (0..self.tensors.len() as u32).map(TensorIndex)
    }

    /// The cost of `group` on `device`; `None` where it cannot run.
    pub fn cost(&self, group: GroupId, device: DeviceId) -> Option<Cost> {
        self.groups[group.0 as usize].costs[device.0 as usize]
    }

    /// The format in which links between servers carry activations.
    pub(crate) fn transfer_format(&self) -> TransferFormat {
        let mut formats = self.links.iter().map(|link| link.coding.format);
        formats.find(|format| !format.is_exact()).unwrap_or_default()
    }

    /// The link of a transfer; `None` where it is free.
    pub fn route(&self, from: DeviceId, to: DeviceId) -> Option<LinkId> {
        self.routes[from.0 as usize * self.devices.len() + to.0 as usize]
    }

    /// What a transfer takes of a device that computes, where it goes to or comes from `other`: nothing on one server,
    /// whose devices copy through its memory.
    pub fn handling(&self, device: DeviceId, other: DeviceId) -> Handling {
        let (end, other) = (self.device(device), self.device(other));
        match end.handling == Handling::default() || end.server == other.server {
            true => Handling::default(),
            false => end.handling,
        }
    }

    /// By tensor: the groups that read it, in program order.
    pub fn consumers(&self) -> Vec<Vec<GroupId>> {
        let mut readers = vec![Vec::new(); self.tensors.len()];
        for id in self.group_ids() {
            for input in &self.group(id).inputs {
                readers[input.0 as usize].push(id);
            }
        }
        readers
    }

    /// The topological order that always takes the ready group of the least key, and of equal ones the first.
    pub(crate) fn topological_order<K: Ord>(&self, key: impl Fn(GroupId) -> K) -> Vec<GroupId> {
        let consumers = self.consumers();
        let readers = |group: usize| {
            let outputs = self.groups[group].outputs.iter();
            outputs.flat_map(|output| &consumers[output.0 as usize]).map(|reader| reader.0 as usize)
        };
        // Groups read what groups before them write, so there is no cycle.
        let order = topological_order(self.groups.len(), readers, |group| key(GroupId(group as u32)));
        order.unwrap_or_default().into_iter().map(|group| GroupId(group as u32)).collect()
    }

    /// Checks the invariants, on which everything else relies for indexing.
    ///
    /// # Errors
    /// The first invalid row.
    pub fn check(&self) -> Result<(), ProblemError> {
        let fail = |what: String| Err(ProblemError { what });
        let devices = self.devices.len();
        if devices == 0 {
            return fail("a plan needs at least one device".into());
        }
        if self.source.0 as usize >= devices || self.sink.0 as usize >= devices {
            return fail("the source or the sink is not a device of the cluster".into());
        }
        if self.routes.len() != devices * devices
            || self.routes.iter().flatten().any(|l| l.0 as usize >= self.links.len())
        {
            return fail("the table of routes does not match the devices and links".into());
        }
        for link in &self.links {
            if !link.cost.is_valid() {
                return fail(format!("link {}: latency and time a byte must be finite and not negative", link.name));
            }
        }
        for device in &self.devices {
            if !device.handling.is_valid() {
                return fail(format!(
                    "device {}: the work of transfers must be finite and not negative",
                    device.device_name()
                ));
            }
            if device.idle.is_some_and(|idle| !is_power(idle)) {
                return fail(format!(
                    "device {}: its idle power must be finite and not negative",
                    device.device_name()
                ));
            }
        }
        for (id, group) in self.group_ids().zip(&self.groups) {
            if group.costs.len() != devices {
                return fail(format!("group {}: {} costs for {devices} devices", group.label, group.costs.len()));
            }
            if group.costs.iter().flatten().any(|c| !(c.time.0 >= 0.0 && c.time.0.is_finite())) {
                return fail(format!("group {}: times must be finite and not negative", group.label));
            }
            if group.costs.iter().flatten().any(|c| !is_power(c.power)) {
                return fail(format!("group {}: power must be finite and not negative", group.label));
            }
            if group.parameters.iter().any(|p| p.0 as usize >= self.parameters.len()) {
                return fail(format!("group {}: unknown parameter", group.label));
            }
            for input in &group.inputs {
                let producer = self.tensors.get(input.0 as usize).map(|t| t.producer);
                if producer.is_none_or(|p| p.is_some_and(|p| p >= id)) {
                    return fail(format!("group {}: operand {} is not produced before it", group.label, input.0));
                }
            }
            for output in &group.outputs {
                if self.tensors.get(output.0 as usize).and_then(|t| t.producer) != Some(id) {
                    return fail(format!("group {}: output {} names another producer", group.label, output.0));
                }
            }
        }
        for tensor in &self.tensors {
            if tensor.activation.is_some() && (tensor.producer.is_none() || tensor.is_output) {
                return fail(format!("tensor {}: inputs and outputs of the model are no activations", tensor.name));
            }
            let producer = tensor.producer.and_then(|p| self.groups.get(p.0 as usize));
            if tensor.producer.is_some() && producer.is_none() {
                return fail(format!("tensor {}: unknown producer", tensor.name));
            }
            if tensor.view_of.is_some_and(|v| !producer.is_some_and(|p| p.inputs.contains(&v))) {
                return fail(format!("tensor {}: is a view of a tensor that its producer does not read", tensor.name));
            }
        }
        Ok(())
    }
}

/// Whether a device can draw it.
fn is_power(power: Watts) -> bool {
    power.0 >= 0.0 && power.0.is_finite()
}

impl Device {
    /// Its name in pins and tables.
    pub fn device_name(&self) -> DeviceName {
        DeviceName::new(self.server.as_str(), self.name.as_str())
    }
}

impl HandlingCost {
    pub fn time(&self, bytes: Bytes) -> Micros {
        Micros(self.each.0 + bytes.0 as f64 * self.per_byte)
    }

    fn is_valid(&self) -> bool {
        let is_time = |value: f64| value >= 0.0 && value.is_finite();
        is_time(self.each.0) && is_time(self.per_byte)
    }
}

impl Handling {
    fn is_valid(&self) -> bool {
        self.sending.is_valid() && self.receiving.is_valid()
    }
}

impl Link {
    /// The number of bytes that it carries for `tensor`.
    pub(crate) fn carried_bytes(&self, tensor: &Tensor) -> Bytes {
        tensor.activation.map_or(tensor.bytes, |activation| self.coding.format.bytes(activation))
    }

    /// How long `tensor` occupies the link, from the start of encoding to the end of decoding.
    pub fn time(&self, tensor: &Tensor) -> Micros {
        let coding = tensor.activation.map_or(Micros::ZERO, |activation| self.coding.time(activation));
        self.cost.time(self.carried_bytes(tensor)) + coding
    }

    /// A link on which everything takes `factor` times as long, but for its overhead.
    pub fn slower(self, factor: f64) -> Link {
        Link { cost: self.cost.slower(factor), coding: self.coding.slower(factor), ..self }
    }
}

impl FromStr for Objective {
    type Err = ProblemError;
    fn from_str(text: &str) -> Result<Objective, ProblemError> {
        match text {
            "latency" => Ok(Objective::Latency),
            "throughput" => Ok(Objective::Throughput),
            "memory" => Ok(Objective::Memory),
            "energy" => Ok(Objective::Energy),
            _ => Err(ProblemError {
                what: format!("`{text}` is not an objective: expected latency, throughput, memory or energy"),
            }),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Objective::Latency => "latency",
            Objective::Throughput => "throughput",
            Objective::Memory => "memory",
            Objective::Energy => "energy",
        })
    }
}
