//! What one server must do for a plan: the partitions of its devices, and what goes where.
//!
//! A partition is a list of *stages*; a stage is a graph of its own that waits for nothing once its operands are
//! there. Stages and servers exchange *values*. A value is a tensor of the model here, but nothing else in this
//! format says so: a stage may as well compute a shard, and a value be a slice that another stage needs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    graph::{Graph, OperatorId, Origin, TensorId, TensorType},
    units::Bytes,
};

/// A server's share of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The same on all servers that run the plan together, and on no others.
    pub session: String,
    /// What the plan calls this server.
    pub server: SmolStr,
    /// The servers that this one sends values to.
    pub peers: Vec<Peer>,
    /// All that is exchanged between stages, anywhere; the same list on every server.
    pub values: Vec<Value>,
    pub partitions: Vec<Partition>,
    pub sends: Vec<Outgoing>,
    /// If this is the source: what is let in at the start, and the partition whose memory holds it.
    pub source: Option<Terminal>,
    /// If this is the sink: what must arrive, in the order of the model's outputs.
    pub sink: Option<Terminal>,
    /// Most inputs that are under way at a time.
    pub in_flight: u32,
    /// Parameters whose contents are sent after the setup; all others are generated from their names.
    pub streamed: Vec<Streamed>,
}

/// Where another agent listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub server: SmolStr,
    pub address: String,
    pub tls_name: Option<String>,
}

/// Index into [`Setup::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// Something that one stage makes, or the source gives, and others need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// For messages.
    pub name: SmolStr,
    pub ty: TensorType,
}

/// How shards read their part of a weight (`ops/sharded.rs`).
const SLICE: &str = "strided_slice";

/// What one device does for every input, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The device's name on its server.
    pub device: SmolStr,
    /// The limit of the plan, where it is tighter than the agent's own.
    pub memory: Option<Bytes>,
    /// Threads to compute with, where not the agent's own number.
    pub threads: Option<u32>,
    /// What the plan expects to be taken at the peak beyond the parameters.
    pub activations: Bytes,
    pub stages: Vec<Stage>,
}

/// Operators that run one after the other on one device as soon as the stage's operands are there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// For messages.
    pub name: String,
    pub graph: Graph,
    /// The graph's operators in the order of the plan, group by group; each group is computed as one and timed.
    pub steps: Vec<Step>,
    /// One for each of the graph's inputs, in order.
    pub operands: Vec<ValueId>,
    /// One for each of the graph's outputs, in order.
    pub results: Vec<ValueId>,
}

/// One group of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The plan's number of the group.
    pub group: u32,
    pub operators: Vec<OperatorId>,
}

/// A value that goes to another server as soon as it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    pub value: ValueId,
    /// Index into [`Setup::peers`].
    pub peer: u32,
}

/// One end of the way: the source or the sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    pub values: Vec<ValueId>,
    /// The partition whose memory holds them; `None` where the end is a server without one.
    pub partition: Option<u32>,
}

/// A parameter whose content comes over the network, by its name in the stages' graphs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streamed {
    pub name: SmolStr,
    pub ty: TensorType,
}

/// A setup that contradicts itself, or that this program cannot execute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setup for server {server} contradicts itself: {what}")]
pub struct SetupError {
    server: SmolStr,
    what: String,
}

impl Value {
    /// Its size. Zero where the type is not fixed, which [`Setup::check`] refuses.
    pub fn bytes(&self) -> Bytes {
        self.ty.bytes().unwrap_or_default()
    }
}

impl Partition {
    /// What the parameters and constants of all stages take as they stand in the model, each once. Of those that only
    /// slices are read of, as shards do, the slices alone are kept.
    pub fn parameter_bytes(&self) -> Bytes {
        let mut seen = BTreeSet::new();
        let size = |graph: &Graph, id: TensorId| graph.tensor(id).ty.bytes().unwrap_or_default();
        let mut total = Bytes::ZERO;
        for graph in self.stages.iter().map(|stage| &stage.graph) {
            let readers = graph.consumers();
            for id in graph.parameters() {
                let readers = readers[id.0 as usize].iter().map(|reader| graph.operator(*reader));
                let whole = readers.clone().any(|reader| reader.name != SLICE) || graph.outputs.contains(&id);
                if !whole && readers.len() > 0 {
                    total += readers.flat_map(|slice| &slice.outputs).map(|slice| size(graph, *slice)).sum();
                } else if matches!(graph.tensor(id).origin, Origin::Constant(_)) || seen.insert(&graph.tensor(id).name)
                {
                    total += size(graph, id);
                }
            }
        }
        total
    }

    /// What any run needs at least beyond the parameters: the largest tensor that comes in or goes out.
    pub fn least_activations(&self) -> Bytes {
        let graphs = self.stages.iter().map(|stage| &stage.graph);
        let sizes = graphs.flat_map(|g| g.inputs().chain(g.outputs.iter().copied()).map(|id| g.tensor(id).ty.bytes()));
        sizes.flatten().max().unwrap_or_default()
    }
}

impl Setup {
    /// Forgets the stages' graphs, whose constants take memory, once they are loaded.
    pub fn without_graphs(mut self) -> Setup {
        for stage in self.partitions.iter_mut().flat_map(|p| &mut p.stages) {
            stage.graph = Graph::new();
        }
        self
    }

    pub fn value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// The type of the source's value number `index`.
    pub fn source_type(&self, index: u32) -> Option<&TensorType> {
        let value = self.source.as_ref()?.values.get(index as usize)?;
        Some(&self.value(*value)?.ty)
    }

    /// Values that come from other servers: used here, but neither made here nor let in here.
    pub fn received(&self) -> BTreeSet<ValueId> {
        let stages = || self.partitions.iter().flat_map(|p| &p.stages);
        let made: BTreeSet<ValueId> = stages()
            .flat_map(|s| &s.results)
            .chain(self.source.iter().flat_map(|source| &source.values))
            .copied()
            .collect();
        let used = stages().flat_map(|s| &s.operands).chain(self.sink.iter().flat_map(|sink| &sink.values));
        used.copied().filter(|value| !made.contains(value)).collect()
    }

    /// Checks that all indices are in range and the stages' graphs fit their values, so that what follows may rely
    /// on it. A setup comes over the network: nothing in it is believed before.
    ///
    /// # Errors
    /// Names the first contradiction.
    pub fn check(&self) -> Result<(), SetupError> {
        let fail = |what: String| Err(SetupError { server: self.server.clone(), what });
        if let Some(value) = self.values.iter().find(|v| v.ty.bytes().is_none()) {
            return fail(format!("value {} has no fixed size: {}", value.name, value.ty));
        }
        if self.in_flight == 0 {
            return fail("no input may be under way".into());
        }
        let known = |id: &ValueId| self.value(*id).is_some();
        let mut made: BTreeSet<ValueId> = BTreeSet::new();
        for partition in &self.partitions {
            for stage in &partition.stages {
                let mut listed: Vec<OperatorId> = stage.steps.iter().flat_map(|s| &s.operators).copied().collect();
                listed.sort_unstable();
                if !listed.into_iter().eq(stage.graph.operators().map(|(id, _)| id)) {
                    return fail(format!("stage {}: its steps do not hold each operator once", stage.name));
                }
                let inputs: Vec<_> = stage.graph.inputs().collect();
                for (role, tensors, values) in
                    [("operand", inputs, &stage.operands), ("result", stage.graph.outputs.clone(), &stage.results)]
                {
                    if tensors.len() != values.len() || !values.iter().all(known) {
                        return fail(format!("stage {}: its {role}s do not fit its graph", stage.name));
                    }
                    for (tensor, id) in tensors.iter().zip(values) {
                        let (want, found) = (&stage.graph.tensor(*tensor).ty, self.value(*id).map(|v| &v.ty));
                        if want.bytes() != found.and_then(|ty| ty.bytes()) {
                            return fail(format!("stage {}: {role} {} is of another type", stage.name, id.0));
                        }
                    }
                }
                if let Some(twice) = stage.results.iter().find(|value| !made.insert(**value)) {
                    return fail(format!("value {} is made twice", twice.0));
                }
            }
        }
        for terminal in self.source.iter().chain(&self.sink) {
            if !terminal.values.iter().all(known)
                || terminal.partition.is_some_and(|p| p as usize >= self.partitions.len())
            {
                return fail("the source or the sink names what is not there".into());
            }
        }
        let received = self.received();
        for outgoing in &self.sends {
            if !known(&outgoing.value) || outgoing.peer as usize >= self.peers.len() {
                return fail("a transfer names what is not there".into());
            }
            if received.contains(&outgoing.value) {
                return fail(format!("value {} is passed on to a third server", outgoing.value.0));
            }
        }
        Ok(())
    }
}
