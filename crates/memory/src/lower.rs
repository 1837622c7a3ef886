//! Lowering of a graph to a program, and of orders of the program to orders of the graph.

use smallvec::SmallVec;

use crate::{
    OrderError, StorageRules,
    program::{Operator, OperatorIndex, Program, Value, ValueIndex},
};
use edgecut_graph::{
    Alias, Graph, OperatorId, Origin, TensorId,
    units::{Bytes, Micros},
};

/// A graph as a program. Views and elided concatenations are not operators of it: they cost nothing.
#[derive(Debug)]
pub(crate) struct LoweredGraph {
    pub program: Program,
    /// The graph's operator of each operator of the program; `None` for inputs.
    operators: Vec<Option<OperatorId>>,
    /// The storage reuse of each operator of the program; [`Alias::Concat`] if its result may overwrite several operands
    /// that are one tensor together.
    pub alias: Vec<Alias>,
}

/// Lowers `graph`. Which operator overwrites which operand depends on the order, so the program itself has no replaced
/// values: see [`LoweredGraph::alias`].
///
/// Readers of an elided concatenation ([`Alias::Concat`]) read its operands. This is a lower bound on what any order
/// needs, whether it copies the operands or produces them in place.
///
/// # Errors
/// If the size of a tensor is unknown.
pub(crate) fn lower(
    graph: &Graph,
    rules: &StorageRules<'_>,
    time: &dyn Fn(OperatorId) -> Micros,
) -> Result<LoweredGraph, OrderError> {
    let mut lowered = LoweredGraph { program: Program::default(), operators: Vec::new(), alias: Vec::new() };
    // For each tensor the values that make it up, and whether it is a concatenation of them.
    let mut values_of: Vec<SmallVec<[ValueIndex; 1]>> = vec![SmallVec::new(); graph.tensors().len()];
    let mut is_concat = vec![false; graph.tensors().len()];
    for input in graph.inputs() {
        let operator = Operator { first: true, ..Operator::default() };
        lowered.add_operator(operator, None, Alias::Never);
        values_of[input.0 as usize].push(lowered.add_value(size(graph, input)?));
    }
    for (id, operator) in graph.operators() {
        let alias = (rules.alias)(id);
        if is_elided(alias) {
            let count = if alias == Alias::View { 1 } else { usize::MAX };
            let sources: Vec<TensorId> = operator.operands().take(count).collect();
            let values: SmallVec<[ValueIndex; 1]> =
                sources.iter().flat_map(|t| values_of[t.0 as usize].iter().copied()).collect();
            let concat = alias == Alias::Concat || sources.iter().any(|t| is_concat[t.0 as usize]);
            for output in &operator.outputs {
                values_of[output.0 as usize].clone_from(&values);
                is_concat[output.0 as usize] = concat;
            }
            continue;
        }
        let mut run =
            Operator { time: time(id), workspace: (rules.workspace)(id), repeatable: true, ..Operator::default() };
        for &value in operator.operands().flat_map(|operand| &values_of[operand.0 as usize]) {
            if !run.reads.contains(&value) {
                run.reads.push(value);
            }
        }
        let reads_concat = operator.operands().any(|operand| is_concat[operand.0 as usize]);
        let overwrites_parts = alias == Alias::InPlace && reads_concat;
        lowered.add_operator(run, Some(id), if overwrites_parts { Alias::Concat } else { alias });
        for &output in &operator.outputs {
            let bytes = size(graph, output)?;
            values_of[output.0 as usize].push(lowered.add_value(bytes));
        }
    }
    for &output in graph.outputs.iter().flat_map(|output| &values_of[output.0 as usize]) {
        lowered.program.values[output as usize].result = true;
    }
    Ok(lowered)
}

impl LoweredGraph {
    fn add_operator(&mut self, operator: Operator, id: Option<OperatorId>, alias: Alias) {
        self.program.operators.push(operator);
        self.operators.push(id);
        self.alias.push(alias);
    }

    /// Adds a value that the last operator writes.
    fn add_value(&mut self, bytes: Bytes) -> ValueIndex {
        let index = self.program.values.len() as u32;
        let producer = self.program.operators.len() as u32 - 1;
        self.program.operators[producer as usize].writes.push(index);
        self.program.values.push(Value { bytes, producer: Some(producer), storage: index, ..Value::default() });
        index
    }

    /// An order of the program as an order of the graph: views and elided concatenations run as early as possible.
    pub fn order(&self, graph: &Graph, rules: &StorageRules<'_>, order: &[OperatorIndex]) -> Vec<OperatorId> {
        let mut produced: Vec<bool> =
            graph.tensors().map(|(_, tensor)| !matches!(tensor.origin, Origin::Operator { .. })).collect();
        let mut elided: Vec<OperatorId> =
            graph.operators().map(|(id, _)| id).filter(|&id| is_elided((rules.alias)(id))).collect();
        let mut full = Vec::with_capacity(graph.operators().len());
        let mut add_elided = |produced: &mut Vec<bool>, full: &mut Vec<OperatorId>| {
            // In program order, so that one pass also adds views of views.
            elided.retain(|&id| {
                let is_ready = graph.operator(id).operands().all(|t| produced[t.0 as usize]);
                if is_ready {
                    full.push(id);
                    graph.operator(id).outputs.iter().for_each(|t| produced[t.0 as usize] = true);
                }
                !is_ready
            });
        };
        add_elided(&mut produced, &mut full);
        for id in order.iter().filter_map(|&operator| self.operators[operator as usize]) {
            full.push(id);
            graph.operator(id).outputs.iter().for_each(|t| produced[t.0 as usize] = true);
            add_elided(&mut produced, &mut full);
        }
        full
    }
}

/// Whether an operator's result consists of its operands' bytes.
fn is_elided(alias: Alias) -> bool {
    matches!(alias, Alias::View | Alias::Concat)
}

fn size(graph: &Graph, tensor: TensorId) -> Result<Bytes, OrderError> {
    let tensor = graph.tensor(tensor);
    tensor.ty.bytes().ok_or_else(|| OrderError::UnknownSize { tensor: tensor.name.to_string() })
}
