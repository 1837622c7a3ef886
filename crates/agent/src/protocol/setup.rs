//! What one server must do for a plan: a partition for each device, and the values that stages and servers exchange.
//!
//! A partition is a list of stages. A stage is a graph that runs without interruption once its operands are available; it
//! may compute operators or shards of them. A value is a tensor, or a slice of one, that stages exchange.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{named_tensors::StreamedTensor, peer::Peer, phase::Phase};
use edgecut_engine::EngineChoice;
use edgecut_graph::{
    Graph, OperatorId, TensorType,
    units::{Bytes, Micros},
};
use edgecut_plan::{TransferFormat, activation::Activation};

/// One server's part of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Identifies the run on all its servers.
    pub session: String,
    /// The server's name in the plan.
    pub server: SmolStr,
    /// The servers that this one sends values to.
    pub peers: Vec<Peer>,
    /// The servers that send values to this one.
    #[serde(default)]
    pub senders: Vec<Peer>,
    /// All values that stages exchange on any server; the same list on every server.
    pub values: Vec<Value>,
    pub partitions: Vec<Partition>,
    pub sends: Vec<Outgoing>,
    /// At the source: the values that inferences start with.
    pub source: Option<Terminal>,
    /// At the sink: the values that must arrive, in the order of the model's outputs.
    pub sink: Option<Terminal>,
    /// What stages of this server read of the inference before, in the same sequence. Each sequence has its own.
    #[serde(default)]
    pub states: Vec<State>,
    /// Maximum number of inferences in flight, and of sequences.
    pub in_flight: u32,
    /// How long to wait for the devices; by default as the agent says.
    #[serde(default)]
    pub wait: Option<Micros>,
    /// Whether other such runs may use the devices at the same time. What it takes then is no measurement.
    #[serde(default)]
    pub is_shared: bool,
    /// Parameters whose contents are sent after the setup; others are generated from their names.
    pub streamed: Vec<StreamedTensor>,
    /// Of which inferences the sink sends the outputs.
    #[serde(default)]
    pub reported: ReportedOutputs,
}

/// Of which inferences the sink sends the outputs to the client. It sends a digest of those of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportedOutputs {
    /// Of the first one: all have the same inputs.
    #[default]
    First,
    All,
}

/// Index into [`Setup::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// A tensor that a stage produces, or the source provides, and others use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// For messages, and to identify a state: it has the same name in both phases.
    pub name: SmolStr,
    pub ty: TensorType,
    /// In which inferences it exists.
    #[serde(default, skip_serializing_if = "Phase::is_decode")]
    pub phase: Phase,
}

/// What one device does for every inference, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The device's name on its server.
    pub device: SmolStr,
    /// The limit of the plan, where it is tighter than the agent's own.
    pub memory: Option<Bytes>,
    /// Which limit ends the run when it is exceeded after loading.
    #[serde(default)]
    pub enforced: EnforcedLimit,
    /// Threads to compute with; by default the agent's own number.
    pub threads: Option<u32>,
    /// The engine to compute with; by default the agent's own.
    #[serde(default)]
    pub engine: Option<EngineChoice>,
    /// Predicted peak of memory beyond the parameters.
    pub activations: Bytes,
    pub stages: Vec<Stage>,
}

/// Which memory limit ends a run. How much a run holds at once depends on when tensors arrive and leave, so a plan that kept to its
/// limit in pilot runs may exceed it later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcedLimit {
    /// The plan's, and the device's.
    #[default]
    Plan,
    /// The plan's and the tensors that the partition exchanges with others, and the device's. The client compares peaks with the
    /// plan's.
    PlanWithTransfers,
}

/// Operators that a device runs without waiting once the stage's operands are available.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// For messages.
    pub name: String,
    pub graph: Graph,
    /// The graph's operators in plan order, by group; each group is computed and timed as a unit.
    pub steps: Vec<Step>,
    /// One for each of the graph's inputs, in order.
    pub operands: Vec<ValueId>,
    /// One for each of the graph's outputs, in order.
    pub results: Vec<ValueId>,
}

/// One group of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The group's number in the plan.
    pub group: u32,
    pub operators: Vec<OperatorId>,
}

/// A value that is sent to another server when it is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    pub value: ValueId,
    /// Index into [`Setup::peers`].
    pub peer: u32,
    /// How it is sent.
    pub format: TransferFormat,
}

/// The source or the sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Of all phases.
    pub values: Vec<ValueId>,
    /// The partition whose memory holds them; `None` if the server has no partition.
    pub partition: Option<u32>,
}

/// A result of an inference that the next one of its sequence reads, such as a key-value cache. The first inference of a
/// sequence reads zeros. With two phases, each has the state, with values of its own: the operands have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub operand: ValueId,
    pub result: ValueId,
}

/// A setup that is inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("inconsistent setup for server {server}: {what}")]
pub struct SetupError {
    server: SmolStr,
    what: String,
}

impl Value {
    /// Size of the content; zero if the type has no fixed size, which [`Setup::check`] refuses.
    pub fn bytes(&self) -> Bytes {
        self.ty.bytes().unwrap_or_default()
    }
}

impl Setup {
    /// The graphs of all stages, in order.
    pub(super) fn graphs_mut(&mut self) -> impl Iterator<Item = &mut Graph> {
        self.partitions.iter_mut().flat_map(|partition| &mut partition.stages).map(|stage| &mut stage.graph)
    }

    /// Drops the stages' graphs, whose constants take memory, once they are loaded.
    pub(crate) fn without_graphs(mut self) -> Setup {
        self.graphs_mut().for_each(|graph| *graph = Graph::new());
        self
    }

    /// Size of the parameters and constants of `partition`, as of [`Partition::parameter_bytes`]: of the phase with more, as both have
    /// the same weights. An engine that holds them for each phase is found to when they are loaded.
    pub(crate) fn parameter_bytes(&self, partition: &Partition) -> Bytes {
        let of = |phase: Phase| {
            let stages = partition.stages.iter().zip(self.phases_of(partition));
            let stages: Vec<&Stage> = stages.filter(|(_, of)| *of == phase).map(|(stage, _)| stage).collect();
            partition.parameter_bytes_of(&stages)
        };
        of(Phase::Decode).max(of(Phase::Prefill))
    }

    /// The size of the tensors that `partition` gets from elsewhere, or gives to others, in the phase with more.
    pub(crate) fn exchanged(&self, partition: &Partition) -> Bytes {
        let operands =
            |of: &Partition| of.stages.iter().flat_map(|stage| stage.operands.clone()).collect::<BTreeSet<_>>();
        let results: BTreeSet<ValueId> = partition.stages.iter().flat_map(|stage| stage.results.clone()).collect();
        let others = self.partitions.iter().filter(|other| other.device != partition.device);
        let read_elsewhere: BTreeSet<ValueId> =
            others.flat_map(operands).chain(self.sends.iter().map(|send| send.value)).collect();
        let own = operands(partition);
        let exchanged = own.difference(&results).chain(results.intersection(&read_elsewhere));
        let mut sums: BTreeMap<Phase, Bytes> = BTreeMap::new();
        for value in exchanged.filter_map(|id| self.value(*id)) {
            *sums.entry(value.phase).or_default() += value.bytes();
        }
        sums.into_values().max().unwrap_or_default()
    }

    pub fn value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// The phase of a stage's values; none if it has no values.
    fn phase_of(&self, stage: &Stage) -> Option<Phase> {
        let mut values = stage.results.iter().chain(&stage.operands);
        Some(self.value(*values.next()?)?.phase)
    }

    /// Whether it has steps of several tokens.
    pub(crate) fn has_prefill(&self) -> bool {
        self.values.iter().any(|value| value.phase == Phase::Prefill)
    }

    /// The phases of a partition's stages, in order.
    pub(crate) fn phases_of(&self, partition: &Partition) -> Vec<Phase> {
        partition.stages.iter().map(|stage| self.phase_of(stage).unwrap_or_default()).collect()
    }

    /// Whether `value` exists in inferences of `phase`.
    pub(crate) fn is_in(&self, value: ValueId, phase: Phase) -> bool {
        self.value(value).is_some_and(|value| value.phase == phase)
    }

    /// The values of `terminal` in `phase`, with their indices among all of its values.
    pub fn values_in(&self, terminal: &Terminal, phase: Phase) -> Vec<(u32, ValueId)> {
        let values = (0u32..).zip(terminal.values.iter().copied());
        values.filter(|(_, value)| self.is_in(*value, phase)).collect()
    }

    /// How far apart the numbers of unfinished inferences may be. With several in flight it is more than their number: a long step of
    /// one sequence does not hold up the steps of the others.
    pub fn window(&self) -> u64 {
        const SPREAD: u64 = 64;
        match u64::from(self.in_flight) {
            1 => 1,
            several => several.saturating_mul(SPREAD),
        }
    }

    /// The states in `phase`.
    pub(crate) fn states_in(&self, phase: Phase) -> impl Iterator<Item = &State> {
        self.states.iter().filter(move |state| self.is_in(state.operand, phase))
    }

    /// The type of the source's value `index`.
    pub(crate) fn source_type(&self, index: u32) -> Option<&TensorType> {
        let value = self.source.as_ref()?.values.get(index as usize)?;
        Some(&self.value(*value)?.ty)
    }

    /// Values that come from other servers: used here, but neither produced nor provided here.
    pub fn received(&self) -> BTreeSet<ValueId> {
        let stages = || self.partitions.iter().flat_map(|p| &p.stages);
        let produced: BTreeSet<ValueId> = stages()
            .flat_map(|s| &s.results)
            .chain(self.source.iter().flat_map(|source| &source.values))
            .chain(self.states.iter().map(|state| &state.operand))
            .copied()
            .collect();
        let used = stages().flat_map(|s| &s.operands).chain(self.sink.iter().flat_map(|sink| &sink.values));
        let used = used.chain(self.states.iter().map(|state| &state.result));
        used.copied().filter(|value| !produced.contains(value)).collect()
    }

    /// Checks that all indices are in range and the stages' graphs match their values. A setup that comes over the
    /// network is not used before.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), SetupError> {
        let fail = |what: String| Err(SetupError { server: self.server.clone(), what });
        if let Some(value) = self.values.iter().find(|v| v.ty.bytes().is_none()) {
            return fail(format!("value {} has no fixed size: {}", value.name, value.ty));
        }
        if self.in_flight == 0 {
            return fail("no inference may be in flight".into());
        }
        let known = |id: &ValueId| self.value(*id).is_some();
        let mut produced: BTreeSet<ValueId> = BTreeSet::new();
        for partition in &self.partitions {
            for stage in &partition.stages {
                let mut listed: Vec<OperatorId> = stage.steps.iter().flat_map(|s| &s.operators).copied().collect();
                listed.sort_unstable();
                if !listed.into_iter().eq(stage.graph.operators().map(|(id, _)| id)) {
                    return fail(format!("stage {}: its steps must contain each operator once", stage.name));
                }
                let inputs: Vec<_> = stage.graph.inputs().collect();
                for (role, tensors, values) in
                    [("operand", inputs, &stage.operands), ("result", stage.graph.outputs.clone(), &stage.results)]
                {
                    if tensors.len() != values.len() || !values.iter().all(known) {
                        return fail(format!("stage {}: its {role}s do not match its graph", stage.name));
                    }
                    for (tensor, id) in tensors.iter().zip(values) {
                        let (want, found) = (&stage.graph.tensor(*tensor).ty, self.value(*id).map(|v| &v.ty));
                        if want.bytes() != found.and_then(|ty| ty.bytes()) {
                            return fail(format!(
                                "stage {}: {role} {} has another size than in the graph",
                                stage.name, id.0
                            ));
                        }
                    }
                }
                let phase = self.phase_of(stage);
                let mut values = stage.operands.iter().chain(&stage.results);
                if !values.all(|id| self.value(*id).map(|value| value.phase) == phase) {
                    return fail(format!("stage {}: its values are of different phases", stage.name));
                }
                if let Some(twice) = stage.results.iter().find(|value| !produced.insert(**value)) {
                    return fail(format!("value {} is produced twice", twice.0));
                }
            }
        }
        for terminal in self.source.iter().chain(&self.sink) {
            if !terminal.values.iter().all(known)
                || terminal.partition.is_some_and(|p| p as usize >= self.partitions.len())
            {
                return fail("the source or the sink refers to an unknown value or partition".into());
            }
        }
        self.check_states(&produced)?;
        let received = self.received();
        for outgoing in &self.sends {
            if !known(&outgoing.value) || outgoing.peer as usize >= self.peers.len() {
                return fail("a transfer refers to an unknown value or peer".into());
            }
            let activation = self.value(outgoing.value).and_then(|value| Activation::of(&value.ty));
            if !outgoing.format.is_exact() && activation.is_none() {
                let (value, format) = (outgoing.value.0, outgoing.format);
                return fail(format!("value {value} is sent as {format}, which takes a float32 tensor"));
            }
            if received.contains(&outgoing.value) {
                return fail(format!("value {} is received and sent on", outgoing.value.0));
            }
        }
        Ok(())
    }

    /// Checks that states are values of one type, and that nothing else provides what they do; `produced` are results of
    /// stages here.
    pub(crate) fn check_states(&self, produced: &BTreeSet<ValueId>) -> Result<(), SetupError> {
        let fail = |what: String| Err(SetupError { server: self.server.clone(), what });
        let mut provided: BTreeSet<ValueId> = produced.clone();
        provided.extend(self.source.iter().flat_map(|source| &source.values));
        let mut results: BTreeSet<ValueId> = BTreeSet::new();
        let mut named: BTreeMap<&SmolStr, (&TensorType, BTreeSet<Phase>)> = BTreeMap::new();
        for State { operand, result } in &self.states {
            if !results.insert(*result) {
                return fail(format!("value {} becomes two states", result.0));
            }
            match (self.value(*operand), self.value(*result)) {
                (Some(from), Some(to)) if from.ty == to.ty && from.phase == to.phase => {
                    let (ty, phases) = named.entry(&from.name).or_insert_with(|| (&from.ty, BTreeSet::new()));
                    if **ty != from.ty {
                        return fail(format!("state {}: it has another type in another phase", operand.0));
                    }
                    if !phases.insert(from.phase) {
                        return fail(format!("state {}: another has the same name", operand.0));
                    }
                }
                _ => return fail(format!("state {}: its result is not a value of the same type and phase", operand.0)),
            }
            if !provided.insert(*operand) {
                return fail(format!("state {} is provided twice", operand.0));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, Origin};

    /// One stage of two operators on one device: value 0 is received, value 1 is sent.
    pub fn setup() -> Setup {
        let ty = TensorType::of(DType::F32, &[8]);
        let mut graph = Graph::new();
        let input = graph.add_tensor("x", ty.clone(), Origin::Input);
        let first = graph.add_operator(Operator::new("nn.relu", [input]), std::slice::from_ref(&ty));
        let hidden = graph.operator(first).outputs[0];
        let second = graph.add_operator(Operator::new("tanh", [hidden]), std::slice::from_ref(&ty));
        graph.outputs = graph.operator(second).outputs.to_vec();
        let step = |group, operator| Step { group, operators: vec![operator] };
        let stage = Stage {
            name: "relu".to_string(),
            graph,
            steps: vec![step(3, first), step(4, second)],
            operands: vec![ValueId(0)],
            results: vec![ValueId(1)],
        };
        let partition = Partition {
            device: "cpu".into(),
            memory: None,
            enforced: EnforcedLimit::default(),
            threads: None,
            engine: None,
            activations: Bytes::ZERO,
            stages: vec![stage],
        };
        Setup {
            session: "session".to_string(),
            server: "server".into(),
            senders: Vec::new(),
            peers: vec![Peer { server: "peer".into(), address: "peer:1".to_string(), tls_name: None }],
            values: ["x", "y"]
                .map(|name| Value { name: name.into(), ty: ty.clone(), phase: Phase::default() })
                .to_vec(),
            partitions: vec![partition],
            sends: vec![Outgoing { value: ValueId(1), peer: 0, format: TransferFormat::F16 }],
            source: None,
            sink: None,
            states: Vec::new(),
            in_flight: 1,
            wait: None,
            is_shared: false,
            streamed: vec![],
            reported: ReportedOutputs::First,
        }
    }

    #[test]
    fn inconsistent_setups_are_refused() {
        assert_eq!(setup().check(), Ok(()));
        assert_eq!(setup().received(), BTreeSet::from([ValueId(0)]));
        type Change = fn(&mut Setup);
        const X: State = State { operand: ValueId(0), result: ValueId(1) };
        let changes: [(&str, Change); 16] = [
            ("in flight", |s| s.in_flight = 0),
            ("each operator once", |s| s.partitions[0].stages[0].steps.truncate(1)),
            ("each operator once", |s| s.partitions[0].stages[0].steps[1].operators = vec![OperatorId(0)]),
            ("operands do not match", |s| s.partitions[0].stages[0].operands.clear()),
            ("operands do not match", |s| s.partitions[0].stages[0].operands[0] = ValueId(2)),
            ("another size", |s| s.values[1].ty = TensorType::of(DType::F32, &[9])),
            ("produced twice", |s| {
                let stage = s.partitions[0].stages[0].clone();
                s.partitions[0].stages.push(stage);
            }),
            ("unknown value or partition", |s| s.sink = Some(Terminal { values: vec![], partition: Some(1) })),
            ("unknown value or partition", |s| s.source = Some(Terminal { values: vec![ValueId(2)], partition: None })),
            ("unknown value or peer", |s| s.sends[0].peer = 1),
            ("value 1 is sent as f16", |s| {
                s.partitions.clear();
                s.values[1].ty = TensorType::of(DType::I32, &[8]);
            }),
            ("received and sent on", |s| s.sends[0].value = ValueId(0)),
            ("not a value of the same type", |s| s.states = vec![State { result: ValueId(2), ..X }]),
            ("not a value of the same type", |s| {
                s.values.push(Value {
                    name: "z".into(),
                    ty: TensorType::of(DType::F32, &[9]),
                    phase: Phase::default(),
                });
                s.states = vec![State { operand: ValueId(2), ..X }];
            }),
            ("provided twice", |s| s.states = vec![State { operand: ValueId(1), ..X }]),
            ("becomes two states", |s| s.states = vec![X, X]),
        ];
        for (message, change) in changes {
            let mut setup = setup();
            change(&mut setup);
            let error = setup.check().expect_err(message).to_string();
            assert!(error.contains(message), "{error}: expected {message}");
        }
    }
}
