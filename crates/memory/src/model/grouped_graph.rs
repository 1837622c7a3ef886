//! A graph whose operators run in groups, as a program.

use super::unrolled_graph::{UnrolledGraph, unroll};
use crate::{
    OrderError,
    program::{self, OperatorIndex, Program, Value, ValueIndex},
    remat::ScheduleStep,
};
use edgecut_graph::{
    Alias, Graph, OperatorId, Origin, TensorId,
    units::{Bytes, Micros},
};

/// A graph and the groups in which it is computed.
#[derive(Debug, Clone, Default)]
pub struct GroupedGraph {
    pub graph: Graph,
    /// In a topological order; the operators of each in program order.
    pub groups: Vec<Group>,
}

/// Operators that run as one.
#[derive(Debug, Clone)]
pub struct Group {
    pub operators: Vec<OperatorId>,
    pub time: Micros,
    /// Scratch memory that it needs only while it runs.
    pub workspace: Bytes,
    /// Whether its result may overwrite an operand.
    pub in_place: bool,
}

/// The program of a grouped graph: an operator per group and input, a value per tensor between groups.
#[derive(Debug)]
pub struct LoweredGroups {
    pub program: Program,
    /// The group of each operator of the program; `None` for inputs.
    pub groups: Vec<Option<usize>>,
    /// The tensor of each value of the program.
    pub tensors: Vec<TensorId>,
}

impl GroupedGraph {
    /// The program of the groups. A group that may work in place overwrites an operand of the same size that has no
    /// other reader.
    ///
    /// # Errors
    /// If the size of a tensor is unknown.
    pub fn lower(&self) -> Result<LoweredGroups, OrderError> {
        let graph = &self.graph;
        let group_of = self.group_of();
        // The number of groups that read each tensor, plus one for outputs of the model.
        let mut readers = vec![0u32; graph.tensors().len()];
        graph.outputs.iter().for_each(|t| readers[t.0 as usize] += 1);
        for index in 0..self.groups.len() {
            self.reads(index, &group_of).iter().for_each(|t| readers[t.0 as usize] += 1);
        }
        let mut lowered = LoweredGroups { program: Program::default(), groups: Vec::new(), tensors: Vec::new() };
        let mut value_of: Vec<Option<ValueIndex>> = vec![None; graph.tensors().len()];
        for input in graph.inputs() {
            lowered.program.operators.push(program::Operator { first: true, ..program::Operator::default() });
            lowered.groups.push(None);
            value_of[input.0 as usize] = Some(lowered.add_value(graph, input)?);
        }
        for (index, group) in self.groups.iter().enumerate() {
            let reads = self.reads(index, &group_of);
            lowered.program.operators.push(program::Operator {
                time: group.time,
                workspace: group.workspace,
                reads: reads.iter().filter_map(|t| value_of[t.0 as usize]).collect(),
                repeatable: true,
                ..program::Operator::default()
            });
            lowered.groups.push(Some(index));
            let mut dying: Vec<ValueIndex> = Vec::new();
            if group.in_place {
                let exclusive = reads.iter().filter(|t| readers[t.0 as usize] == 1);
                dying.extend(exclusive.filter_map(|t| value_of[t.0 as usize]));
            }
            let outputs = group.operators.iter().flat_map(|id| &graph.operator(*id).outputs);
            for &output in outputs.filter(|t| readers[t.0 as usize] > 0) {
                let value = lowered.add_value(graph, output)?;
                let values = &mut lowered.program.values;
                let has_same_size = |old: &ValueIndex| values[*old as usize].bytes == values[value as usize].bytes;
                if let Some(at) = dying.iter().position(has_same_size) {
                    let old = dying.swap_remove(at);
                    let storage = values[old as usize].storage;
                    (values[value as usize].replaces, values[value as usize].storage) = (Some(old), storage);
                }
                value_of[output.0 as usize] = Some(value);
            }
        }
        for value in graph.outputs.iter().filter_map(|t| value_of[t.0 as usize]) {
            lowered.program.values[value as usize].result = true;
        }
        Ok(lowered)
    }

    fn group_of(&self) -> Vec<usize> {
        let mut group_of = vec![usize::MAX; self.graph.operators().len()];
        for (index, group) in self.groups.iter().enumerate() {
            group.operators.iter().for_each(|id| group_of[id.0 as usize] = index);
        }
        group_of
    }

    /// The inputs and the results of other groups that a group reads, each once.
    fn reads(&self, index: usize, group_of: &[usize]) -> Vec<TensorId> {
        let mut reads: Vec<TensorId> = Vec::new();
        for tensor in self.groups[index].operators.iter().flat_map(|id| self.graph.operator(*id).operands()) {
            let is_outside = match self.graph.producer(tensor) {
                Some(producer) => group_of[producer.0 as usize] != index,
                None => matches!(self.graph.tensor(tensor).origin, Origin::Input),
            };
            if is_outside && !reads.contains(&tensor) {
                reads.push(tensor);
            }
        }
        reads
    }

    /// The groups in the order of the lowered program's operators.
    pub(super) fn reordered(&self, lowered: &LoweredGroups, order: &[OperatorIndex]) -> GroupedGraph {
        let groups = order.iter().filter_map(|&operator| lowered.groups[operator as usize]);
        GroupedGraph { graph: self.graph.clone(), groups: groups.map(|index| self.groups[index].clone()).collect() }
    }

    /// The groups in their given order, as a schedule.
    ///
    /// # Errors
    /// If the size of a tensor is unknown.
    pub fn in_order(&self) -> Result<UnrolledGraph, OrderError> {
        let lowered = self.lower()?;
        let steps: Vec<ScheduleStep> = (0..lowered.program.operators.len() as u32).map(ScheduleStep::Run).collect();
        Ok(self.unroll(&lowered, &steps))
    }

    /// The graph that a schedule computes: recomputations are operators of their own, copies to the host and back are
    /// operators `copy`.
    pub(super) fn unroll(&self, lowered: &LoweredGroups, schedule: &[ScheduleStep]) -> UnrolledGraph {
        let operators = |operator: OperatorIndex| {
            lowered.groups[operator as usize].map(|group| self.groups[group].operators.as_slice())
        };
        unroll(&self.graph, &operators, &lowered.tensors, schedule)
    }
}

impl LoweredGroups {
    /// Adds a value that the last operator writes.
    fn add_value(&mut self, graph: &Graph, tensor: TensorId) -> Result<ValueIndex, OrderError> {
        let unknown = || OrderError::UnknownSize { tensor: graph.tensor(tensor).name.to_string() };
        let bytes = graph.tensor(tensor).ty.bytes().ok_or_else(unknown)?;
        let index = self.program.values.len() as u32;
        let producer = self.program.operators.len() as u32 - 1;
        self.program.operators[producer as usize].writes.push(index);
        self.program.values.push(Value { bytes, producer: Some(producer), storage: index, ..Value::default() });
        self.tensors.push(tensor);
        Ok(index)
    }

    /// The storage reuse of each operator of the program.
    pub(super) fn alias(&self) -> Vec<Alias> {
        let overwrites = |write: &ValueIndex| self.program.value(*write).replaces.is_some();
        let alias = |o: &program::Operator| if o.writes.iter().any(overwrites) { Alias::InPlace } else { Alias::Never };
        self.program.operators.iter().map(alias).collect()
    }
}
