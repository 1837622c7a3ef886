//! A graph as a program, the order of a program as the order of its graph, and the buffers of a schedule.

use smallvec::SmallVec;

use super::{
    Buffer, OrderError, Reuse, Sharing,
    fit::Step,
    program::{Operator, OperatorIndex, Program, Value, ValueIndex},
};
use crate::{
    graph::{Graph, OperatorId, Origin, TensorId},
    units::{Bytes, Micros},
};

/// A graph as a program. Views are no operators of it: they cost nothing.
#[derive(Debug)]
pub struct Lowered {
    pub program: Program,
    /// For each operator of the program the graph's; `None` for those that stand for inputs.
    pub operators: Vec<Option<OperatorId>>,
    /// For each operator of the program how its output may use an operand's bytes.
    pub reuse: Vec<Reuse>,
}

/// Who works in place in a lowered graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwriting {
    /// Operators that may, where nobody else reads the operand, whatever the order.
    Fixed,
    /// Nobody in the program itself: it depends on the order, see [`Lowered::reuse`].
    ByOrder,
}

/// Lowers `graph`.
///
/// # Errors
/// If the size of a tensor is not known.
pub fn lower(
    graph: &Graph,
    sharing: &Sharing<'_>,
    overwriting: Overwriting,
    time: &dyn Fn(OperatorId) -> Micros,
) -> Result<Lowered, OrderError> {
    let mut lowered = Lowered { program: Program::default(), operators: Vec::new(), reuse: Vec::new() };
    let mut value_of: Vec<Option<ValueIndex>> = vec![None; graph.tensors().len()];
    for input in graph.inputs() {
        let operator = Operator { first: true, ..Operator::default() };
        lowered.push(operator, None, Reuse::Never);
        value_of[input.0 as usize] = Some(lowered.value(size(graph, input)?));
    }
    let readers = readers(graph, sharing);
    for (id, operator) in graph.operators() {
        let reuse = (sharing.reuse)(id);
        if reuse == Reuse::View {
            let source = operator.operands().next().and_then(|t| value_of[t.0 as usize]);
            operator.outputs.iter().for_each(|output| value_of[output.0 as usize] = source);
            continue;
        }
        let mut run = Operator {
            time: time(id).0,
            workspace: (sharing.workspace)(id).0,
            repeatable: true,
            ..Operator::default()
        };
        let mut dying: SmallVec<[ValueIndex; 4]> = SmallVec::new();
        for (place, operand) in operator.operands().enumerate() {
            let Some(value) = value_of[operand.0 as usize] else { continue };
            if run.reads.contains(&value) {
                continue;
            }
            run.reads.push(value);
            let may = reuse == Reuse::InPlace || (reuse == Reuse::First && place == 0);
            let root = root(graph, sharing, operand);
            if overwriting == Overwriting::Fixed && may && readers[root.0 as usize].as_slice() == [id] {
                dying.push(value);
            }
        }
        lowered.push(run, Some(id), reuse);
        for &output in &operator.outputs {
            let bytes = size(graph, output)?;
            let over = dying.iter().position(|&v| lowered.program.values[v as usize].bytes == bytes.0);
            let value = lowered.value(bytes);
            if let Some(place) = over {
                let old = dying.swap_remove(place);
                let storage = lowered.program.values[old as usize].storage;
                let new = &mut lowered.program.values[value as usize];
                (new.replaces, new.storage) = (Some(old), storage);
            }
            value_of[output.0 as usize] = Some(value);
        }
    }
    for output in graph.outputs.iter().filter_map(|output| value_of[output.0 as usize]) {
        lowered.program.values[output as usize].result = true;
    }
    Ok(lowered)
}

impl Lowered {
    fn push(&mut self, operator: Operator, id: Option<OperatorId>, reuse: Reuse) {
        self.program.operators.push(operator);
        self.operators.push(id);
        self.reuse.push(reuse);
    }

    /// A value that the last operator makes.
    fn value(&mut self, bytes: Bytes) -> ValueIndex {
        let index = self.program.values.len() as u32;
        let producer = self.program.operators.len() as u32 - 1;
        self.program.operators[producer as usize].writes.push(index);
        let value = Value { bytes: bytes.0, producer: Some(producer), result: false, replaces: None, storage: index };
        self.program.values.push(value);
        index
    }

    /// An order of the program as one of the graph: views follow what they show.
    pub fn order(&self, graph: &Graph, sharing: &Sharing<'_>, order: &[OperatorIndex]) -> Vec<OperatorId> {
        let mut made: Vec<bool> =
            graph.tensors().map(|(_, tensor)| !matches!(tensor.origin, Origin::Operator { .. })).collect();
        let mut views: Vec<OperatorId> =
            graph.operators().map(|(id, _)| id).filter(|&id| (sharing.reuse)(id) == Reuse::View).collect();
        let mut full = Vec::with_capacity(graph.operators().len());
        let mut show = |made: &mut Vec<bool>, full: &mut Vec<OperatorId>| {
            // Views stand in program order, so one pass shows views of views too.
            views.retain(|&id| {
                let ready = graph.operator(id).operands().all(|t| made[t.0 as usize]);
                if ready {
                    full.push(id);
                    graph.operator(id).outputs.iter().for_each(|t| made[t.0 as usize] = true);
                }
                !ready
            });
        };
        show(&mut made, &mut full);
        for id in order.iter().filter_map(|&operator| self.operators[operator as usize]) {
            full.push(id);
            graph.operator(id).outputs.iter().for_each(|t| made[t.0 as usize] = true);
            show(&mut made, &mut full);
        }
        full
    }
}

/// Buffers over the steps of a schedule without copies to the host: one for each time that bytes are taken.
pub fn buffers(program: &Program, steps: &[Step], align: u64) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut workspaces: Vec<Buffer> = Vec::new();
    // For each value the buffer that holds it.
    let mut held: Vec<Option<usize>> = vec![None; program.values.len()];
    for (step, run) in (0u64..).zip(steps) {
        let Step::Run(operator) = run else { continue };
        let operator = program.operator(*operator);
        for &read in &operator.reads {
            if let Some(buffer) = held[read as usize] {
                buffers[buffer].upper = step + 1;
            }
        }
        for &write in &operator.writes {
            let value = program.value(write);
            let over = value.replaces.and_then(|old| held[old as usize].take());
            let buffer = over.unwrap_or_else(|| {
                buffers.push(Buffer::new(step, step + 1, Bytes(value.bytes)).align(align));
                buffers.len() - 1
            });
            buffers[buffer].upper = step + 1;
            held[write as usize] = Some(buffer);
        }
        if operator.workspace > 0 {
            workspaces.push(Buffer::new(step, step + 1, Bytes(operator.workspace)).align(align));
        }
    }
    for (value, held) in program.values.iter().zip(&held) {
        if let (true, Some(buffer)) = (value.result, held) {
            buffers[*buffer].upper = steps.len() as u64 + 1;
        }
    }
    buffers.extend(workspaces);
    buffers
}

/// For each tensor that is no view, the operators that read it or a view of it.
fn readers(graph: &Graph, sharing: &Sharing<'_>) -> Vec<SmallVec<[OperatorId; 4]>> {
    let mut readers: Vec<SmallVec<[OperatorId; 4]>> = vec![SmallVec::new(); graph.tensors().len()];
    for (id, operator) in graph.operators().filter(|(id, _)| (sharing.reuse)(*id) != Reuse::View) {
        for operand in operator.operands() {
            let list = &mut readers[root(graph, sharing, operand).0 as usize];
            if !list.contains(&id) {
                list.push(id);
            }
        }
    }
    // Whoever takes the results reads them too.
    for &output in &graph.outputs {
        readers[root(graph, sharing, output).0 as usize].push(OperatorId(u32::MAX));
    }
    readers
}

/// What a tensor is a view of, through views of views.
fn root(graph: &Graph, sharing: &Sharing<'_>, tensor: TensorId) -> TensorId {
    let mut tensor = tensor;
    while let Some(producer) = graph.producer(tensor)
        && (sharing.reuse)(producer) == Reuse::View
        && let Some(source) = graph.operator(producer).operands().next()
    {
        tensor = source;
    }
    tensor
}

fn size(graph: &Graph, tensor: TensorId) -> Result<Bytes, OrderError> {
    let tensor = graph.tensor(tensor);
    tensor.ty.bytes().ok_or_else(|| OrderError::UnknownSize { tensor: tensor.name.to_string() })
}
