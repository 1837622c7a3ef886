//! A graph as a sequence of steps, each a compiled program, run on a table of live tensors.

use std::{collections::HashMap, sync::Arc};

use tract_core::internal::*;

use super::{
    context::TractContext,
    program::{TractProgram, has_fixed_shapes},
    tensor::{from_tract, to_tract},
};
use crate::{
    AllocationMeter, EngineError, Executable, ParameterSource, Sample,
    decomposed::load_decomposed,
    room::check_room,
    step_tensors::{NamedTensor, StepTensors, find_last_uses},
};
use edgecut_graph::{
    Graph, Operator, OperatorId, Origin, Part, Parts, TensorData, TensorId,
    units::{Bytes, Micros},
};
use edgecut_ops::composite_kernel;

/// A loaded graph.
pub(super) struct TractSteps {
    context: Arc<TractContext>,
    steps: Vec<TractStep>,
    programs: Vec<TractProgram>,
    /// Number of tensors in the whole graph.
    tensors: usize,
    inputs: Vec<NamedTensor>,
    outputs: Vec<NamedTensor>,
    /// Parameters and constants that are outputs of the graph.
    constant_outputs: Vec<(TensorId, Arc<Tensor>)>,
    parameter_bytes: Bytes,
    loading_bytes: Bytes,
}

/// One group of operators; one operator of it if shapes are unknown.
struct TractStep {
    /// Index of its group; groups whose results are unused have no step.
    index: usize,
    /// Index in [`TractSteps::programs`].
    program: usize,
    tensors: StepTensors,
}

/// The live tensors, by id in the whole graph.
struct TensorTable {
    cells: Vec<Option<TValue>>,
    /// Ids of the non-empty cells: scanning all cells at every step would take longer than small steps.
    live: Vec<TensorId>,
}

impl TensorTable {
    fn put(&mut self, id: TensorId, value: TValue) {
        if self.cells[id.0 as usize].replace(value).is_none() {
            self.live.push(id);
        }
    }

    fn get(&self, id: TensorId) -> Option<&TValue> {
        self.cells[id.0 as usize].as_ref()
    }

    fn take(&mut self, id: TensorId) -> Option<TValue> {
        self.live.retain(|other| *other != id);
        self.cells[id.0 as usize].take()
    }

    fn values(&self) -> impl Iterator<Item = &TValue> {
        self.live.iter().filter_map(|id| self.get(*id))
    }
}

/// The contents of parameters, each requested and converted once.
struct ParameterContents<'a> {
    graph: &'a Graph,
    parameter: &'a ParameterSource<'a>,
    converted: HashMap<TensorId, Arc<Tensor>>,
    meter: &'a AllocationMeter,
    /// Peak of the live bytes including the unconverted content, which the meter does not count.
    peak: i64,
}

impl ParameterContents<'_> {
    fn get(&mut self, id: TensorId) -> Result<Arc<Tensor>, EngineError> {
        if let Some(tensor) = self.converted.get(&id) {
            return Ok(Arc::clone(tensor));
        }
        let tensor = self.graph.tensor(id);
        let data = match &tensor.origin {
            Origin::Constant(data) => data.clone(),
            _ => AllocationMeter::pause(|| (self.parameter)(id))?,
        };
        let content = Arc::new(to_tract(&tensor.name, &data, &tensor.ty)?);
        self.peak = self.peak.max(self.meter.live() + data.bytes().len() as i64);
        // Its allocation was not counted either.
        AllocationMeter::pause(|| drop(data));
        self.converted.insert(id, Arc::clone(&content));
        Ok(content)
    }
}

impl TractSteps {
    /// Compiles `groups`, which must cover the graph's operators in topological order.
    /// Composite operators without a kernel are replaced by their decompositions.
    pub(super) fn load(
        context: Arc<TractContext>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<TractSteps, EngineError> {
        let is_replaced = |operator: &Operator| composite_kernel(graph, operator).is_none();
        load_decomposed(graph, groups, parameter, is_replaced, |graph, groups, parameter| {
            TractSteps::load_plain(context, graph, groups, parameter)
        })
    }

    /// Every composite operator of `graph` must have a kernel.
    fn load_plain(
        context: Arc<TractContext>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<TractSteps, EngineError> {
        check_room(graph)?;
        let exclusive = context.lock();
        let counted = context.meter.join();
        context.meter.reset();
        let mut contents =
            ParameterContents { graph, parameter, converted: HashMap::new(), meter: &context.meter, peak: 0 };
        let mut constant_outputs = Vec::new();
        for output in &graph.outputs {
            if matches!(graph.tensor(*output).origin, Origin::Parameter | Origin::Constant(_)) {
                constant_outputs.push((*output, contents.get(*output)?));
            }
        }
        let mut readers_left: HashMap<TensorId, usize> = HashMap::new();
        for operand in groups.iter().flatten().flat_map(|id| graph.operator(*id).operands()) {
            *readers_left.entry(operand).or_default() += 1;
        }
        let mut steps = Vec::with_capacity(groups.len());
        let (mut programs, parts) = (ProgramCache::default(), Parts::of(graph));
        for (index, operators) in groups.iter().enumerate() {
            for operand in operators.iter().flat_map(|id| graph.operator(*id).operands()) {
                readers_left.entry(operand).and_modify(|left| *left -= 1);
            }
            let part = parts.cut(operators);
            if has_fixed_shapes(&part.graph) {
                steps.extend(TractStep::new(&context, index, &part, &mut contents, &mut programs)?);
            } else {
                for operator in part.whole_operator {
                    let alone = parts.cut(&[operator]);
                    steps.extend(TractStep::new(&context, index, &alone, &mut contents, &mut programs)?);
                }
            }
            // Contents are dropped after their last use, so that weights are not kept both packed and unpacked.
            contents.converted.retain(|id, _| readers_left.get(id).is_some_and(|left| *left > 0));
        }
        find_last_uses(&graph.outputs, steps.iter_mut().map(|step| &mut step.tensors));
        let programs = programs.programs;
        let loading = context.meter.peak().max(contents.peak);
        drop(contents);
        let held = context.meter.live();
        drop((counted, exclusive));
        let named = |id: TensorId| NamedTensor::new(graph, id);
        Ok(TractSteps {
            context,
            steps,
            programs,
            tensors: graph.tensors().len(),
            inputs: graph.inputs().map(named).collect(),
            outputs: graph.outputs.iter().map(|id| named(*id)).collect(),
            constant_outputs,
            parameter_bytes: Bytes(held.max(0) as u64),
            loading_bytes: Bytes(loading.max(0) as u64),
        })
    }

    /// A table with the inputs, which steps may overwrite, and the constant outputs.
    fn table(&self, inputs: Vec<TensorData>) -> Result<TensorTable, EngineError> {
        if inputs.len() != self.inputs.len() {
            let what = format!("the graph has {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(EngineError::Other(what));
        }
        let mut table = TensorTable { cells: vec![None; self.tensors], live: Vec::new() };
        for (id, content) in &self.constant_outputs {
            table.put(*id, Arc::clone(content).into_tvalue());
        }
        for (input, data) in self.inputs.iter().zip(inputs) {
            table.put(input.id, to_tract(&input.name, &data, &input.ty)?.into_tvalue());
        }
        Ok(table)
    }

    fn results(&self, table: &TensorTable) -> Result<Vec<TensorData>, EngineError> {
        let one = |output: &NamedTensor| {
            let missing = || EngineError::Tensor { name: output.name.clone(), what: "no step computes it".to_string() };
            let value = table.get(output.id).ok_or_else(missing)?;
            from_tract(&output.name, value, &output.ty)
        };
        self.outputs.iter().map(one).collect()
    }
}

impl Executable for TractSteps {
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let mut table = self.table(inputs)?;
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        let _counted = context.meter.join();
        let before = buffers(table.values());
        context.meter.reset();
        let (done, wall, cpu) = context.timed(self.steps.len(), || {
            self.steps.iter().try_for_each(|step| {
                let operands = step.operands(&mut table)?;
                let results = self.programs[step.program].run(&context, operands)?;
                step.store(&mut table, results);
                Ok::<(), EngineError>(())
            })
        });
        let memory = context.memory_use(&before, table.values());
        let sample = memory.sample(wall, cpu);
        done?;
        Ok((self.results(&table)?, sample))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let mut table = self.table(inputs)?;
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        let _counted = context.meter.join();
        let mut group: Option<Sample> = None;
        let next_indices: Vec<Option<usize>> = self.steps.iter().skip(1).map(|s| Some(s.index)).chain([None]).collect();
        for (step, next) in self.steps.iter().zip(next_indices) {
            let operands = step.operands(&mut table)?;
            let before = buffers(operands.iter().chain(table.values()));
            context.meter.reset();
            let (results, wall, cpu) = context.timed(1, || self.programs[step.program].run(&context, operands));
            let results = results?;
            let memory = context.memory_use(&before, results.iter().chain(table.values()));
            step.store(&mut table, results);
            let sample = memory.sample(wall, cpu);
            let so_far = group.map_or(sample, |before| before.then(sample));
            group = (next == Some(step.index)).then_some(so_far);
            if group.is_none() {
                each(step.index, so_far);
            }
        }
        self.results(&table)
    }

    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        let mut table = self.table(inputs)?;
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        for (position, step) in self.steps.iter().enumerate() {
            let operands = step.operands(&mut table)?;
            let results = self.programs[step.program].run(&context, operands)?;
            step.store(&mut table, results);
            if self.steps.get(position + 1).is_none_or(|next| next.index != step.index) {
                each(step.index);
            }
        }
        self.results(&table)
    }

    fn parameter_bytes(&self) -> Bytes {
        self.parameter_bytes
    }

    fn loading_bytes(&self) -> Bytes {
        self.loading_bytes
    }
}

/// Compiled programs. Steps that compute the same from the same parameters (tiles of a segment, rematerialised
/// operators) share one, so that packed weights are held once.
#[derive(Default)]
struct ProgramCache {
    programs: Vec<TractProgram>,
    index: HashMap<String, usize>,
}

impl ProgramCache {
    /// Index of the program that computes `part`.
    fn get(
        &mut self,
        context: &TractContext,
        part: &Part,
        contents: &mut ParameterContents<'_>,
    ) -> Result<usize, EngineError> {
        let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
        let key = key(part);
        if let Some(index) = self.index.get(&key) {
            return Ok(*index);
        }
        self.programs.push(TractProgram::new(context, &part.graph, &mut |t| contents.get(whole(t)))?);
        self.index.insert(key, self.programs.len() - 1);
        Ok(self.programs.len() - 1)
    }
}

/// Equal for parts that compute the same from the same parameters: everything but the names of tensors.
fn key(part: &Part) -> String {
    let mut key = String::new();
    for (id, tensor) in part.graph.tensors() {
        let from = match tensor.origin {
            Origin::Parameter | Origin::Constant(_) => format!("{}", part.whole_tensor[id.0 as usize].0),
            Origin::Input => "input".to_string(),
            Origin::Operator { operator, index } => format!("{}.{index}", operator.0),
        };
        key += &format!("{from}: {}\n", tensor.ty);
    }
    for (_, operator) in part.graph.operators() {
        key += &format!("{} {:?} {:?}\n", operator.name, operator.args, operator.attrs);
    }
    key + &format!("{:?}", part.graph.outputs)
}

impl TractStep {
    /// The step that computes `part`; `None` if its results are unused.
    fn new(
        context: &TractContext,
        index: usize,
        part: &Part,
        contents: &mut ParameterContents<'_>,
        programs: &mut ProgramCache,
    ) -> Result<Option<TractStep>, EngineError> {
        if part.graph.outputs.is_empty() {
            return Ok(None);
        }
        Ok(Some(TractStep { index, program: programs.get(context, part, contents)?, tensors: StepTensors::of(part) }))
    }

    /// The operands, moved out of the table at their last use, so that they may be overwritten.
    fn operands(&self, table: &mut TensorTable) -> Result<TVec<TValue>, EngineError> {
        let operand = |id: &TensorId| {
            let value = if self.tensors.last_uses.contains(id) { table.take(*id) } else { table.get(*id).cloned() };
            let missing = || format!("tensor {} has not been computed: the steps are not in topological order", id.0);
            value.ok_or_else(|| EngineError::Other(missing()))
        };
        self.tensors.inputs.iter().map(operand).collect()
    }

    fn store(&self, table: &mut TensorTable, results: TVec<TValue>) {
        for (id, result) in self.tensors.outputs.iter().zip(results) {
            if !self.tensors.last_uses.contains(id) {
                table.put(*id, result);
            }
        }
    }
}

impl TractContext {
    /// Memory of a computation since the meter was reset, from the buffers live `before` it and the values live `after`
    /// it. Buffers that the computation freed are not workspace.
    fn memory_use<'a>(&self, before: &Buffers, after: impl Iterator<Item = &'a TValue>) -> MemoryUse {
        let sum = |buffers: &mut dyn Iterator<Item = &(*const u8, usize)>| buffers.map(|(_, size)| size).sum::<usize>();
        let after = buffers(after);
        let freed = sum(&mut before.iter().filter(|buffer| after.binary_search(buffer).is_err()));
        let left = self.meter.live() + freed as i64;
        let peak = self.meter.peak();
        MemoryUse {
            workspace: Bytes((peak - left).max(0) as u64),
            peak: Bytes((sum(&mut before.iter()) as i64 + peak.max(0)) as u64),
            tensors: Bytes((sum(&mut after.iter()) + freed) as u64),
        }
    }
}

/// The memory figures of a [`Sample`].
struct MemoryUse {
    workspace: Bytes,
    peak: Bytes,
    tensors: Bytes,
}

impl MemoryUse {
    fn sample(&self, wall: Micros, cpu: Micros) -> Sample {
        let MemoryUse { workspace, peak, tensors } = *self;
        Sample { wall, cpu, kernels: None, workspace, peak, tensors }
    }
}

/// Distinct buffers with their sizes, sorted.
type Buffers = Vec<(*const u8, usize)>;

/// The distinct buffers of `values`.
fn buffers<'a>(values: impl Iterator<Item = &'a TValue>) -> Buffers {
    let plain = values.filter(|value| value.is_plain_ram());
    let mut buffers: Buffers = plain.map(|value| (value.as_bytes().as_ptr(), value.as_bytes().len())).collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers
}
