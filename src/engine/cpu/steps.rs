//! A graph of known shapes as a sequence of compiled steps.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tract_core::internal::*;

use super::{
    Core,
    program::{Program, is_fixed},
    tensor::{from_tract, to_tract},
};
use crate::{
    engine::{EngineError, Executable, Meter, ParameterSource, Sample},
    graph::{Graph, OperatorId, Origin, Part, TensorData, TensorId, TensorType},
    units::Bytes,
};

/// Groups of operators, each compiled to one tract plan, computed in order on a table of tensors.
pub(super) struct Steps {
    core: Arc<Core>,
    steps: Vec<Step>,
    programs: Vec<Program>,
    /// Number of tensors in the whole graph.
    tensors: usize,
    inputs: Vec<Named>,
    outputs: Vec<Named>,
    /// Parameters and constants that the graph returns as they are.
    kept: Vec<(TensorId, Arc<Tensor>)>,
    parameter_bytes: Bytes,
    loading_bytes: Bytes,
}

/// One group; one operator of it where shapes are not known beforehand.
struct Step {
    /// The number of its group; groups that nobody needs have no step.
    index: usize,
    /// Its number in [`Steps::programs`].
    program: usize,
    takes: Vec<TensorId>,
    makes: Vec<TensorId>,
    /// Tensors that nobody reads after this step.
    frees: HashSet<TensorId>,
}

/// A tensor of the whole graph that comes in or goes out.
struct Named {
    id: TensorId,
    name: String,
    ty: TensorType,
}

/// The tensors that are alive, by id in the whole graph.
struct Table {
    cells: Vec<Option<TValue>>,
    /// The ids of those that are there: looking through all cells at every step would take longer than small steps.
    alive: Vec<TensorId>,
}

impl Table {
    fn put(&mut self, id: TensorId, value: TValue) {
        if self.cells[id.0 as usize].replace(value).is_none() {
            self.alive.push(id);
        }
    }

    fn get(&self, id: TensorId) -> Option<&TValue> {
        self.cells[id.0 as usize].as_ref()
    }

    fn take(&mut self, id: TensorId) -> Option<TValue> {
        self.alive.retain(|other| *other != id);
        self.cells[id.0 as usize].take()
    }

    fn values(&self) -> impl Iterator<Item = &TValue> {
        self.alive.iter().filter_map(|id| self.get(*id))
    }
}

/// The contents of parameters, each asked for and converted once.
struct Contents<'a> {
    graph: &'a Graph,
    parameter: &'a ParameterSource<'a>,
    seen: HashMap<TensorId, Arc<Tensor>>,
    meter: &'a Meter,
    /// Most bytes that were there at one time with a content that the meter did not count.
    most: i64,
}

impl Contents<'_> {
    fn get(&mut self, id: TensorId) -> Result<Arc<Tensor>, EngineError> {
        if let Some(tensor) = self.seen.get(&id) {
            return Ok(Arc::clone(tensor));
        }
        let tensor = self.graph.tensor(id);
        let data = match &tensor.origin {
            Origin::Constant(data) => data.clone(),
            _ => Meter::pause(|| (self.parameter)(id))?,
        };
        let content = Arc::new(to_tract(&tensor.name, &data, &tensor.ty)?);
        self.most = self.most.max(self.meter.live() + data.bytes().len() as i64);
        // Its memory was not counted when it was taken.
        Meter::pause(|| drop(data));
        self.seen.insert(id, Arc::clone(&content));
        Ok(content)
    }
}

impl Steps {
    /// Compiles `groups`, which must cover the graph's operators in an order that can be computed.
    pub(super) fn load(
        core: Arc<Core>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Steps, EngineError> {
        let turn = core.turn();
        let counted = core.meter.join();
        core.meter.reset();
        let mut contents = Contents { graph, parameter, seen: HashMap::new(), meter: &core.meter, most: 0 };
        let mut kept = Vec::new();
        for output in &graph.outputs {
            if matches!(graph.tensor(*output).origin, Origin::Parameter | Origin::Constant(_)) {
                kept.push((*output, contents.get(*output)?));
            }
        }
        let mut readers_left: HashMap<TensorId, usize> = HashMap::new();
        for operand in groups.iter().flatten().flat_map(|id| graph.operator(*id).operands()) {
            *readers_left.entry(operand).or_default() += 1;
        }
        let mut steps = Vec::with_capacity(groups.len());
        let mut programs = Programs { made: Vec::new(), number: HashMap::new() };
        for (index, operators) in groups.iter().enumerate() {
            for operand in operators.iter().flat_map(|id| graph.operator(*id).operands()) {
                readers_left.entry(operand).and_modify(|left| *left -= 1);
            }
            let part = Part::cut(graph, operators);
            if is_fixed(&part.graph) {
                steps.extend(Step::new(&core, index, &part, &mut contents, &mut programs)?);
            } else {
                for operator in part.whole_operator {
                    let alone = Part::cut(graph, &[operator]);
                    steps.extend(Step::new(&core, index, &alone, &mut contents, &mut programs)?);
                }
            }
            // Loading takes no more memory than it must: what was packed is not kept unpacked too.
            contents.seen.retain(|id, _| readers_left.get(id).is_some_and(|left| *left > 0));
        }
        mark_last_uses(graph, &mut steps);
        let programs = programs.made;
        let loading = core.meter.peak().max(contents.most);
        drop(contents);
        let held = core.meter.live();
        drop((counted, turn));
        let named = |id: TensorId| {
            let tensor = graph.tensor(id);
            Named { id, name: tensor.name.to_string(), ty: tensor.ty.clone() }
        };
        Ok(Steps {
            core,
            steps,
            programs,
            tensors: graph.tensors().len(),
            inputs: graph.inputs().map(named).collect(),
            outputs: graph.outputs.iter().map(|id| named(*id)).collect(),
            kept,
            parameter_bytes: Bytes(held.max(0) as u64),
            loading_bytes: Bytes(loading.max(0) as u64),
        })
    }

    /// A table with the given inputs, which the steps may overwrite, and the constants that are returned.
    fn table<'a>(&self, inputs: impl ExactSizeIterator<Item = Cow<'a, TensorData>>) -> Result<Table, EngineError> {
        if inputs.len() != self.inputs.len() {
            let what = format!("the graph has {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(EngineError::Other(what));
        }
        let mut table = Table { cells: vec![None; self.tensors], alive: Vec::new() };
        for (id, content) in &self.kept {
            table.put(*id, Arc::clone(content).into_tvalue());
        }
        for (input, data) in self.inputs.iter().zip(inputs) {
            table.put(input.id, to_tract(&input.name, &data, &input.ty)?.into_tvalue());
        }
        Ok(table)
    }

    fn results(&self, table: &Table) -> Result<Vec<TensorData>, EngineError> {
        let one = |output: &Named| {
            let missing = || EngineError::Tensor { name: output.name.clone(), what: "no step computes it".to_string() };
            let value = table.get(output.id).ok_or_else(missing)?;
            from_tract(&output.name, value, &output.ty)
        };
        self.outputs.iter().map(one).collect()
    }
}

impl Executable for Steps {
    fn run_measured(&mut self, inputs: &[TensorData]) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let mut table = self.table(inputs.iter().map(Cow::Borrowed))?;
        let core = Arc::clone(&self.core);
        let _turn = core.turn();
        let _counted = core.meter.join();
        let given = buffers(table.values());
        core.meter.reset();
        let (done, wall, cpu) = core.timed(self.steps.len(), || {
            self.steps.iter().try_for_each(|step| {
                let operands = step.operands(&mut table)?;
                let results = self.programs[step.program].run(&core, operands)?;
                step.store(&mut table, results);
                Ok::<(), EngineError>(())
            })
        });
        let memory = core.memory(&given, table.values());
        let sample = Sample {
            wall,
            cpu,
            kernels: None,
            workspace: memory.workspace,
            peak: memory.peak,
            tensors: memory.tensors,
        };
        done?;
        Ok((self.results(&table)?, sample))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let mut table = self.table(inputs.into_iter().map(Cow::Owned))?;
        let core = Arc::clone(&self.core);
        let _turn = core.turn();
        let _counted = core.meter.join();
        let mut group: Option<Sample> = None;
        let following: Vec<Option<usize>> = self.steps.iter().skip(1).map(|s| Some(s.index)).chain([None]).collect();
        for (step, next) in self.steps.iter().zip(following) {
            let operands = step.operands(&mut table)?;
            let given = buffers(operands.iter().chain(table.values()));
            core.meter.reset();
            let (results, wall, cpu) = core.timed(1, || self.programs[step.program].run(&core, operands));
            let results = results?;
            let memory = core.memory(&given, results.iter().chain(table.values()));
            step.store(&mut table, results);
            let sample = Sample {
                wall,
                cpu,
                kernels: None,
                workspace: memory.workspace,
                peak: memory.peak,
                tensors: memory.tensors,
            };
            let sofar = group.map_or(sample, |before| before.then(sample));
            group = (next == Some(step.index)).then_some(sofar);
            if group.is_none() {
                each(step.index, sofar);
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

/// What steps run. Those that compute the same from the same parameters (the parts of a stretch, what runs again) have
/// one program, so that packed weights are held once.
struct Programs {
    made: Vec<Program>,
    number: HashMap<String, usize>,
}

impl Programs {
    fn of(&mut self, core: &Core, part: &Part, contents: &mut Contents<'_>) -> Result<usize, EngineError> {
        let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
        let key = key(part);
        if let Some(number) = self.number.get(&key) {
            return Ok(*number);
        }
        self.made.push(Program::new(core, &part.graph, &mut |t| contents.get(whole(t)))?);
        self.number.insert(key, self.made.len() - 1);
        Ok(self.made.len() - 1)
    }
}

/// The same for parts that compute the same from the same parameters: all but the names of tensors.
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

impl Step {
    /// The step that computes `part`; `None` if nobody needs what it makes.
    fn new(
        core: &Core,
        index: usize,
        part: &Part,
        contents: &mut Contents<'_>,
        programs: &mut Programs,
    ) -> Result<Option<Step>, EngineError> {
        if part.graph.outputs.is_empty() {
            return Ok(None);
        }
        let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
        Ok(Some(Step {
            index,
            program: programs.of(core, part, contents)?,
            takes: part.graph.inputs().map(whole).collect(),
            makes: part.graph.outputs.iter().map(|t| whole(*t)).collect(),
            frees: HashSet::new(),
        }))
    }

    /// The operands, taken out of the table where this is their last use, so that they may be overwritten.
    fn operands(&self, table: &mut Table) -> Result<TVec<TValue>, EngineError> {
        let operand = |id: &TensorId| {
            let value = if self.frees.contains(id) { table.take(*id) } else { table.get(*id).cloned() };
            let missing = || format!("tensor {} has not been computed: the steps are out of order", id.0);
            value.ok_or_else(|| EngineError::Other(missing()))
        };
        self.takes.iter().map(operand).collect()
    }

    fn store(&self, table: &mut Table, results: TVec<TValue>) {
        for (id, result) in self.makes.iter().zip(results) {
            if !self.frees.contains(id) {
                table.put(*id, result);
            }
        }
    }
}

impl Core {
    /// What a computation took since the meter was reset: the most that was allocated at one time, beyond what is still
    /// `alive` and with all that was `given`.
    /// What was given and is alive no more was freed by the computation; that is not workspace either.
    fn memory<'a>(&self, given: &Buffers, alive: impl Iterator<Item = &'a TValue>) -> Memory {
        let sum = |buffers: &mut dyn Iterator<Item = &(*const u8, usize)>| buffers.map(|(_, size)| size).sum::<usize>();
        let alive = buffers(alive);
        let freed = sum(&mut given.iter().filter(|buffer| alive.binary_search(buffer).is_err()));
        let left = self.meter.live() + freed as i64;
        let most = self.meter.peak();
        Memory {
            workspace: Bytes((most - left).max(0) as u64),
            peak: Bytes((sum(&mut given.iter()) as i64 + most.max(0)) as u64),
            tensors: Bytes((sum(&mut alive.iter()) + freed) as u64),
        }
    }
}

/// The figures of a [`Sample`] that are no times.
struct Memory {
    workspace: Bytes,
    peak: Bytes,
    tensors: Bytes,
}

/// Distinct buffers with their sizes, sorted.
type Buffers = Vec<(*const u8, usize)>;

/// The distinct buffers of some values.
fn buffers<'a>(values: impl Iterator<Item = &'a TValue>) -> Buffers {
    let plain = values.filter(|value| value.is_plain_ram());
    let mut buffers: Buffers = plain.map(|value| (value.as_bytes().as_ptr(), value.as_bytes().len())).collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers
}

/// Fills in [`Step::frees`]: what a step reads or makes and no later step reads, unless the graph returns it.
fn mark_last_uses(graph: &Graph, steps: &mut [Step]) {
    let mut needed: HashSet<TensorId> = graph.outputs.iter().copied().collect();
    for step in steps.iter_mut().rev() {
        step.frees = step.takes.iter().chain(&step.makes).filter(|id| !needed.contains(id)).copied().collect();
        needed.extend(&step.takes);
    }
}
