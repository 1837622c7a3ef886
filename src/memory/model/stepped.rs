//! A graph whose operators are computed in groups, one a step, as a program, and a schedule of that program as a graph
//! again: what runs twice is there twice, so that an engine needs to know nothing of schedules.

use std::collections::{HashMap, HashSet};

use crate::{
    graph::{Arg, Attrs, Graph, Operator, OperatorId, Origin, TensorId},
    memory::{
        OrderError, Reuse,
        fit::Step,
        program::{self, Program, Value, ValueIndex},
    },
    units::{Bytes, Micros},
};

/// A graph and the groups in which it is computed.
#[derive(Debug, Clone, Default)]
pub struct Stepped {
    pub graph: Graph,
    /// In an order in which they can be computed; each in program order.
    pub groups: Vec<Group>,
}

/// Operators that are computed as one.
#[derive(Debug, Clone)]
pub struct Group {
    pub operators: Vec<OperatorId>,
    pub time: Micros,
    /// What it takes only while it runs.
    pub workspace: Bytes,
    /// Whether its result may lie in an operand's bytes.
    pub in_place: bool,
}

/// The program of a graph in groups.
#[derive(Debug)]
pub struct Lowered {
    pub program: Program,
    /// For each operator of the program the group; `None` for those that stand for inputs.
    pub groups: Vec<Option<usize>>,
    /// For each value of the program the tensor.
    pub tensors: Vec<TensorId>,
}

/// A schedule as a graph: its operators in the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled {
    pub graph: Graph,
    /// What is computed as one, in order.
    pub steps: Vec<Vec<OperatorId>>,
    /// Copies that lie on the host.
    pub on_host: Vec<TensorId>,
}

impl Stepped {
    /// The tensors that groups exchange as values, the groups as operators. A group that may work in place takes over
    /// the bytes of an operand that nobody else reads.
    ///
    /// # Errors
    /// If the size of a tensor is not known.
    pub fn lower(&self) -> Result<Lowered, OrderError> {
        let graph = &self.graph;
        let group_of = self.group_of();
        // How many groups read each tensor; whoever takes the results counts too.
        let mut readers = vec![0u32; graph.tensors().len()];
        graph.outputs.iter().for_each(|t| readers[t.0 as usize] += 1);
        for index in 0..self.groups.len() {
            self.reads(index, &group_of).iter().for_each(|t| readers[t.0 as usize] += 1);
        }
        let mut made = Lowered { program: Program::default(), groups: Vec::new(), tensors: Vec::new() };
        let mut value_of: Vec<Option<ValueIndex>> = vec![None; graph.tensors().len()];
        for input in graph.inputs() {
            made.program.operators.push(program::Operator { first: true, ..program::Operator::default() });
            made.groups.push(None);
            value_of[input.0 as usize] = Some(made.value(graph, input)?);
        }
        for (index, group) in self.groups.iter().enumerate() {
            let reads = self.reads(index, &group_of);
            made.program.operators.push(program::Operator {
                time: group.time.0,
                workspace: group.workspace.0,
                reads: reads.iter().filter_map(|t| value_of[t.0 as usize]).collect(),
                repeatable: true,
                ..program::Operator::default()
            });
            made.groups.push(Some(index));
            let mut dying: Vec<ValueIndex> = Vec::new();
            if group.in_place {
                let alone = reads.iter().filter(|t| readers[t.0 as usize] == 1);
                dying.extend(alone.filter_map(|t| value_of[t.0 as usize]));
            }
            let outputs = group.operators.iter().flat_map(|id| &graph.operator(*id).outputs);
            for &output in outputs.filter(|t| readers[t.0 as usize] > 0) {
                let value = made.value(graph, output)?;
                let values = &mut made.program.values;
                let same = |old: &ValueIndex| values[*old as usize].bytes == values[value as usize].bytes;
                if let Some(place) = dying.iter().position(same) {
                    let old = dying.swap_remove(place);
                    let storage = values[old as usize].storage;
                    (values[value as usize].replaces, values[value as usize].storage) = (Some(old), storage);
                }
                value_of[output.0 as usize] = Some(value);
            }
        }
        for value in graph.outputs.iter().filter_map(|t| value_of[t.0 as usize]) {
            made.program.values[value as usize].result = true;
        }
        Ok(made)
    }

    fn group_of(&self) -> Vec<usize> {
        let mut group_of = vec![usize::MAX; self.graph.operators().len()];
        for (index, group) in self.groups.iter().enumerate() {
            group.operators.iter().for_each(|id| group_of[id.0 as usize] = index);
        }
        group_of
    }

    /// What a group reads of others and of the inputs, each tensor once.
    fn reads(&self, index: usize, group_of: &[usize]) -> Vec<TensorId> {
        let mut reads: Vec<TensorId> = Vec::new();
        for tensor in self.groups[index].operators.iter().flat_map(|id| self.graph.operator(*id).operands()) {
            let outside = match self.graph.producer(tensor) {
                Some(producer) => group_of[producer.0 as usize] != index,
                None => matches!(self.graph.tensor(tensor).origin, Origin::Input),
            };
            if outside && !reads.contains(&tensor) {
                reads.push(tensor);
            }
        }
        reads
    }

    /// The groups in another order, by the operators of the lowered program.
    pub fn reordered(&self, lowered: &Lowered, order: &[u32]) -> Stepped {
        let groups = order.iter().filter_map(|&operator| lowered.groups[operator as usize]);
        Stepped { graph: self.graph.clone(), groups: groups.map(|index| self.groups[index].clone()).collect() }
    }

    /// The groups one after the other as they stand, as a schedule.
    ///
    /// # Errors
    /// If the size of a tensor is not known.
    pub fn in_order(&self) -> Result<Scheduled, OrderError> {
        let lowered = self.lower()?;
        let steps: Vec<Step> = (0..lowered.program.operators.len() as u32).map(Step::Run).collect();
        Ok(self.scheduled(&lowered, &steps))
    }

    /// A schedule as a graph that computes the same: groups that run again with operators of their own, copies to the
    /// host and back as `copy`.
    pub fn scheduled(&self, lowered: &Lowered, schedule: &[Step]) -> Scheduled {
        let mut made = Scheduled { graph: Graph::new(), steps: Vec::new(), on_host: Vec::new() };
        // For each tensor the one that holds it now, and the one that holds it on the host.
        let mut now = made.graph.copy_outside(&self.graph);
        let mut stored: HashMap<TensorId, TensorId> = HashMap::new();
        for step in schedule {
            let copied = match *step {
                Step::Run(operator) => {
                    if let Some(group) = lowered.groups[operator as usize] {
                        made.run(&self.graph, &self.groups[group].operators, &mut now);
                    }
                    continue;
                }
                Step::Store(value) | Step::Load(value) => lowered.tensors[value as usize],
            };
            let (from, to) = match step {
                Step::Store(_) => (&now, &mut stored),
                _ => (&stored, &mut now),
            };
            let Some(&from) = from.get(&copied) else { continue };
            let copy = made.copy(from);
            to.insert(copied, copy);
            if matches!(step, Step::Store(_)) {
                made.on_host.push(copy);
            }
        }
        made.graph.outputs = self.graph.outputs.iter().filter_map(|t| now.get(t).copied()).collect();
        made
    }
}

impl Lowered {
    /// A value that the last operator makes.
    fn value(&mut self, graph: &Graph, tensor: TensorId) -> Result<ValueIndex, OrderError> {
        let unknown = || OrderError::UnknownSize { tensor: graph.tensor(tensor).name.to_string() };
        let bytes = graph.tensor(tensor).ty.bytes().ok_or_else(unknown)?;
        let index = self.program.values.len() as u32;
        let producer = self.program.operators.len() as u32 - 1;
        self.program.operators[producer as usize].writes.push(index);
        let value = Value { bytes: bytes.0, producer: Some(producer), result: false, replaces: None, storage: index };
        self.program.values.push(value);
        self.tensors.push(tensor);
        Ok(index)
    }

    /// Which operators' results may take over operands' bytes.
    pub fn reuse(&self) -> Vec<Reuse> {
        let over = |write: &ValueIndex| self.program.value(*write).replaces.is_some();
        let reuse = |o: &program::Operator| if o.writes.iter().any(over) { Reuse::InPlace } else { Reuse::Never };
        self.program.operators.iter().map(reuse).collect()
    }
}

/// A step that reads what no step before it makes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {step} of a schedule reads or names what is not there: {what}")]
pub struct Unmade {
    step: usize,
    what: String,
}

/// `graph` computed in `steps`, each by its operators: what stands in several steps is computed again, and read where it
/// was computed last.
///
/// # Errors
/// If a step names or reads what is not there, or a result is never made.
pub fn replayed(graph: &Graph, steps: &[Vec<OperatorId>]) -> Result<Scheduled, Unmade> {
    let mut made = Scheduled { graph: Graph::new(), steps: Vec::new(), on_host: Vec::new() };
    let mut now = made.graph.copy_outside(graph);
    for (step, operators) in steps.iter().enumerate() {
        let mut inside: HashSet<TensorId> = HashSet::new();
        for id in operators {
            if id.0 as usize >= graph.operators().len() {
                return Err(Unmade { step, what: format!("operator {}", id.0) });
            }
            let operator = graph.operator(*id);
            if let Some(lost) = operator.operands().find(|t| !now.contains_key(t) && !inside.contains(t)) {
                return Err(Unmade { step, what: format!("tensor {}", graph.tensor(lost).name) });
            }
            inside.extend(&operator.outputs);
        }
        made.run(graph, operators, &mut now);
    }
    match graph.outputs.iter().find(|t| !now.contains_key(t)) {
        Some(lost) => Err(Unmade { step: steps.len(), what: format!("result {}", graph.tensor(*lost).name) }),
        None => {
            made.graph.outputs = graph.outputs.iter().filter_map(|t| now.get(t).copied()).collect();
            Ok(made)
        }
    }
}

impl Scheduled {
    /// Adds a group of `whole`; its results are where the tensors are from now on.
    fn run(&mut self, whole: &Graph, operators: &[OperatorId], now: &mut HashMap<TensorId, TensorId>) {
        let mut step = Vec::with_capacity(operators.len());
        for id in operators {
            let new = self.graph.copy_operator(whole, *id, |t| now.get(&t).copied().unwrap_or(t));
            now.extend(whole.operator(*id).outputs.iter().copied().zip(self.graph.operator(new).outputs.clone()));
            step.push(new);
        }
        self.steps.push(step);
    }

    fn copy(&mut self, tensor: TensorId) -> TensorId {
        let (name, ty) = (self.graph.tensor(tensor).name.clone(), self.graph.tensor(tensor).ty.clone());
        let copy = Operator {
            name: "copy".into(),
            attrs: Attrs::new(),
            args: vec![Arg::Tensor(tensor)],
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            place: None,
        };
        let id = self.graph.add_operator(copy, &[ty]);
        let made = self.graph.operator(id).outputs[0];
        self.graph.tensor_mut(made).name = name;
        self.steps.push(vec![id]);
        made
    }
}
