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

/// A graph as a program. Views are no operators of it, and neither is what joins in place: they cost nothing.
#[derive(Debug)]
pub struct Lowered {
    pub program: Program,
    /// For each operator of the program the graph's; `None` for those that stand for inputs.
    pub operators: Vec<Option<OperatorId>>,
    /// For each operator of the program how its output may use an operand's bytes; [`Reuse::Join`] if it may take those of
    /// several, which are one tensor together.
    pub reuse: Vec<Reuse>,
}

/// Lowers `graph`. Nobody works in place in the program itself: it depends on the order, see [`Lowered::reuse`].
///
/// Under rules by which operators [join](Reuse::Join) in place, who reads their result reads the operands themselves. That is
/// less than any order needs, whether it copies them or makes them where they will be.
///
/// # Errors
/// If the size of a tensor is not known.
pub fn lower(graph: &Graph, sharing: &Sharing<'_>, time: &dyn Fn(OperatorId) -> Micros) -> Result<Lowered, OrderError> {
    let mut lowered = Lowered { program: Program::default(), operators: Vec::new(), reuse: Vec::new() };
    // For each tensor the values that it is one after the other, and whether it was joined from them.
    let mut values_of: Vec<SmallVec<[ValueIndex; 1]>> = vec![SmallVec::new(); graph.tensors().len()];
    let mut is_joined = vec![false; graph.tensors().len()];
    for input in graph.inputs() {
        let operator = Operator { first: true, ..Operator::default() };
        lowered.push(operator, None, Reuse::Never);
        values_of[input.0 as usize].push(lowered.value(size(graph, input)?));
    }
    for (id, operator) in graph.operators() {
        let reuse = (sharing.reuse)(id);
        if is_shown(reuse) {
            let many = if reuse == Reuse::View { 1 } else { usize::MAX };
            let shown: Vec<TensorId> = operator.operands().take(many).collect();
            let values: SmallVec<[ValueIndex; 1]> =
                shown.iter().flat_map(|t| values_of[t.0 as usize].iter().copied()).collect();
            let joined = reuse == Reuse::Join || shown.iter().any(|t| is_joined[t.0 as usize]);
            for output in &operator.outputs {
                values_of[output.0 as usize].clone_from(&values);
                is_joined[output.0 as usize] = joined;
            }
            continue;
        }
        let mut run = Operator {
            time: time(id).0,
            workspace: (sharing.workspace)(id).0,
            repeatable: true,
            ..Operator::default()
        };
        for &value in operator.operands().flat_map(|operand| &values_of[operand.0 as usize]) {
            if !run.reads.contains(&value) {
                run.reads.push(value);
            }
        }
        let reads_joined = operator.operands().any(|operand| is_joined[operand.0 as usize]);
        lowered.push(run, Some(id), if reuse == Reuse::InPlace && reads_joined { Reuse::Join } else { reuse });
        for &output in &operator.outputs {
            let bytes = size(graph, output)?;
            values_of[output.0 as usize].push(lowered.value(bytes));
        }
    }
    for &output in graph.outputs.iter().flat_map(|output| &values_of[output.0 as usize]) {
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

    /// An order of the program as one of the graph: views and what joins in place follow what they show.
    pub fn order(&self, graph: &Graph, sharing: &Sharing<'_>, order: &[OperatorIndex]) -> Vec<OperatorId> {
        let mut made: Vec<bool> =
            graph.tensors().map(|(_, tensor)| !matches!(tensor.origin, Origin::Operator { .. })).collect();
        let mut views: Vec<OperatorId> =
            graph.operators().map(|(id, _)| id).filter(|&id| is_shown((sharing.reuse)(id))).collect();
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

/// Whether results are no bytes of their own but others'.
fn is_shown(reuse: Reuse) -> bool {
    matches!(reuse, Reuse::View | Reuse::Join)
}

/// Buffers over the steps of a schedule: one for each time that bytes are taken. What is being copied out is still there
/// while other operators run beside the copy.
pub fn buffers(program: &Program, steps: &[Step], align: u64) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut workspaces: Vec<Buffer> = Vec::new();
    // For each value the buffer that holds it, and when it is there after a copy.
    let mut held: Vec<Option<usize>> = vec![None; program.values.len()];
    let mut ready = vec![0.0f64; program.values.len()];
    let (mut computing, mut copying) = (0.0f64, 0.0f64);
    // A buffer that is being copied out, and until when.
    let mut storing: Option<(usize, f64)> = None;
    for (step, run) in (0u64..).zip(steps) {
        let start = match run {
            Step::Run(operator) => {
                let reads = program.operator(*operator).reads.iter();
                reads.map(|&read| ready[read as usize]).fold(computing, f64::max)
            }
            Step::Store(_) | Step::Load(_) => computing.max(copying),
        };
        storing = storing.filter(|(_, until)| start < *until);
        if let Some((buffer, _)) = storing {
            buffers[buffer].upper = buffers[buffer].upper.max(step + 1);
        }
        let operator = match *run {
            Step::Run(operator) => program.operator(operator),
            Step::Store(value) | Step::Load(value) => {
                (computing, copying) = (start, start + program.copy_time(value).unwrap_or(0.0));
                let at = value as usize;
                if let Step::Load(_) = run {
                    buffers.push(Buffer::new(step, step + 1, Bytes(program.value(value).bytes)).align(align));
                    (held[at], ready[at]) = (Some(buffers.len() - 1), copying);
                } else if let Some(buffer) = held[at] {
                    buffers[buffer].upper = buffers[buffer].upper.max(step + 1);
                    storing = Some((buffer, copying));
                }
                continue;
            }
        };
        computing = start + operator.time;
        for &read in &operator.reads {
            if let Some(buffer) = held[read as usize] {
                buffers[buffer].upper = buffers[buffer].upper.max(step + 1);
            }
        }
        for &write in &operator.writes {
            let value = program.value(write);
            let over = value.replaces.and_then(|old| held[old as usize].take());
            let buffer = over.unwrap_or_else(|| {
                buffers.push(Buffer::new(step, step + 1, Bytes(value.bytes)).align(align));
                buffers.len() - 1
            });
            buffers[buffer].upper = buffers[buffer].upper.max(step + 1);
            held[write as usize] = Some(buffer);
            ready[write as usize] = 0.0;
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

fn size(graph: &Graph, tensor: TensorId) -> Result<Bytes, OrderError> {
    let tensor = graph.tensor(tensor);
    tensor.ty.bytes().ok_or_else(|| OrderError::UnknownSize { tensor: tensor.name.to_string() })
}
