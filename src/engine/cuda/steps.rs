//! A graph of known shapes as a sequence of programs on the card, whose tensors stay there from one to the next.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Core,
    card::CardError,
    heap::Region,
    program::Program,
    translate::{Failed, translate},
};
use crate::{
    engine::{
        CpuClock, EngineError, Executable, ParameterSource, Sample,
        contain::contain,
        cpu::{operator_error, supported, to_tract, wired},
        timed,
    },
    graph::{Graph, Operator, OperatorId, Origin, Part, TensorData, TensorId, TensorType},
    ops::Unsupported,
    units::{Bytes, Micros},
};

/// Groups of operators, each a program, computed in order on a table of tensors.
pub(super) struct Steps {
    core: Arc<Core>,
    steps: Vec<Step>,
    inputs: Vec<Named>,
    outputs: Vec<Named>,
    /// Parameters and constants that the graph returns as they are.
    kept: HashMap<TensorId, TensorData>,
    parameter_bytes: Bytes,
    loading_bytes: Bytes,
}

struct Step {
    /// The number of its group; groups that nobody needs have no step.
    index: usize,
    program: Program,
    takes: Vec<TensorId>,
    makes: Vec<TensorId>,
    /// Tensors that nobody reads after this step.
    frees: HashSet<TensorId>,
}

struct Named {
    id: TensorId,
    name: String,
    ty: TensorType,
}

/// The tensors that are on the card, by id in the whole graph.
type Table = HashMap<TensorId, Arc<Region>>;

impl Steps {
    /// Makes programs of `groups`, which must cover the graph's operators in an order that can be computed, and
    /// compiles all of their kernels.
    pub(super) fn load(
        core: Arc<Core>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Steps, EngineError> {
        let _turn = core.turn();
        let before = core.heap.live();
        core.heap.reset_peak();
        let content = |id: TensorId| match &graph.tensor(id).origin {
            Origin::Constant(data) => Ok(data.clone()),
            _ => parameter(id),
        };
        let returned = graph.outputs.iter().copied();
        let returned =
            returned.filter(|id| matches!(graph.tensor(*id).origin, Origin::Parameter | Origin::Constant(_)));
        let kept = returned.map(|id| Ok((id, content(id)?))).collect::<Result<_, EngineError>>()?;
        let mut steps = Vec::with_capacity(groups.len());
        for (index, operators) in groups.iter().enumerate() {
            let part = Part::cut(graph, operators);
            if part.graph.outputs.is_empty() {
                continue;
            }
            let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
            let program = program(&core, &part.graph, &|t| content(whole(t)))?;
            steps.push(Step {
                index,
                program,
                takes: part.graph.inputs().map(whole).collect(),
                makes: part.graph.outputs.iter().map(|t| whole(*t)).collect(),
                frees: HashSet::new(),
            });
        }
        mark_last_uses(graph, &mut steps);
        core.heap.card().synchronise().map_err(card_error)?;
        let named = |id: TensorId| {
            let tensor = graph.tensor(id);
            Named { id, name: tensor.name.to_string(), ty: tensor.ty.clone() }
        };
        let (parameter_bytes, loading_bytes) = (core.heap.live() - before, core.heap.peak() - before);
        Ok(Steps {
            steps,
            inputs: graph.inputs().map(named).collect(),
            outputs: graph.outputs.iter().map(|id| named(*id)).collect(),
            kept,
            parameter_bytes,
            loading_bytes,
            core: Arc::clone(&core),
        })
    }

    /// The inputs on the card.
    fn table(&self, inputs: &[TensorData]) -> Result<Table, EngineError> {
        if inputs.len() != self.inputs.len() {
            let what = format!("the graph has {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(EngineError::Other(what));
        }
        let upload = |(input, data): (&Named, &TensorData)| {
            let tensor = to_tract(&input.name, data, &input.ty)?;
            Ok((input.id, self.core.heap.upload(tensor.as_bytes()).map_err(card_error)?))
        };
        self.inputs.iter().zip(inputs).map(upload).collect()
    }

    fn results(&self, table: &Table) -> Result<Vec<TensorData>, EngineError> {
        let one = |output: &Named| {
            if let Some(data) = self.kept.get(&output.id) {
                return Ok(data.clone());
            }
            let error = |what: String| EngineError::Tensor { name: output.name.clone(), what };
            let region = table.get(&output.id).ok_or_else(|| error("no step computes it".to_string()))?;
            let shape = output.ty.shape.fixed().ok_or_else(|| error("its shape is not known".to_string()))?;
            let bytes = region.download().map_err(card_error)?;
            TensorData::new(output.ty.dtype, shape.to_vec(), bytes).map_err(|e| error(e.to_string()))
        };
        self.outputs.iter().map(one).collect()
    }
}

impl Executable for Steps {
    fn run_measured(&mut self, inputs: &[TensorData]) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let core = Arc::clone(&self.core);
        let _turn = core.turn();
        let mut table = self.table(inputs)?;
        let (done, sample) =
            core.measured(&mut table, |table| self.steps.iter().try_for_each(|step| step.run(&core, table)))?;
        done?;
        Ok((self.results(&table)?, sample))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let core = Arc::clone(&self.core);
        let _turn = core.turn();
        let mut table = self.table(&inputs)?;
        drop(inputs);
        for step in &self.steps {
            let (done, sample) = core.measured(&mut table, |table| step.run(&core, table))?;
            done?;
            each(step.index, sample);
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

impl Step {
    /// Asks the card for this step's tensors; those that nobody reads any more are given back.
    fn run(&self, core: &Core, table: &mut Table) -> Result<(), EngineError> {
        let operand = |id: &TensorId| {
            let region = if self.frees.contains(id) { table.remove(id) } else { table.get(id).cloned() };
            let missing = || format!("tensor {} has not been computed: the steps are out of order", id.0);
            region.ok_or_else(|| EngineError::Other(missing()))
        };
        let operands = self.takes.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
        let made = self.program.run(&core.heap, operands).map_err(card_error)?;
        let kept = self.makes.iter().zip(made).filter(|(id, _)| !self.frees.contains(id));
        table.extend(kept.map(|(id, region)| (*id, region)));
        Ok(())
    }
}

impl Core {
    /// Runs `work` on the card, waits for it, and measures: wall clock with waiting, less what an empty measurement
    /// takes; the card's own time between the first and the last request; memory as the engine took it.
    fn measured<R>(&self, table: &mut Table, work: impl FnOnce(&mut Table) -> R) -> Result<(R, Sample), EngineError> {
        let card = self.heap.card();
        let bytes = |regions: &HashMap<TensorId, Arc<Region>>| distinct(regions.values());
        let given = bytes(table);
        card.synchronise().map_err(card_error)?;
        self.heap.reset_peak();
        let before = self.heap.live();
        let ((result, marks), wall, cpu) = timed(CpuClock::Thread, || {
            let start = card.mark();
            let result = work(table);
            let marks = start.and_then(|start| {
                let end = card.mark()?;
                card.synchronise()?;
                Ok((start, end))
            });
            (result, marks)
        });
        let (start, end) = marks.map_err(card_error)?;
        let kernels = card.between(start, end).map_err(card_error)?;
        let alive = bytes(table);
        let freed: u64 = given.iter().filter(|(at, _)| !alive.contains_key(*at)).map(|(_, bytes)| *bytes as u64).sum();
        let given: u64 = given.values().map(|bytes| *bytes as u64).sum();
        let most = self.heap.peak().0.saturating_sub(before.0);
        let left = self.heap.live().0 as i64 - before.0 as i64 + freed as i64;
        let without = |time: Micros, overhead: Micros| Micros((time.0 - overhead.0).max(0.0));
        let sample = Sample {
            wall: without(wall, self.overhead.wall),
            cpu: without(cpu, self.overhead.cpu),
            kernels: Some(kernels),
            workspace: Bytes((most as i64 - left).max(0) as u64),
            peak: Bytes(given + most),
            tensors: Bytes(alive.values().map(|bytes| *bytes as u64).sum::<u64>() + freed),
        };
        Ok((result, sample))
    }
}

/// Distinct regions by address, with their sizes.
fn distinct<'a>(regions: impl Iterator<Item = &'a Arc<Region>>) -> HashMap<u64, usize> {
    regions.map(|region| (region.address(), region.bytes())).collect()
}

/// The program of one group of operators.
fn program(core: &Core, graph: &Graph, content: &ParameterSource<'_>) -> Result<Program, EngineError> {
    for (_, operator) in graph.operators() {
        supported(operator)?;
        let mut touched = operator.operands().chain(operator.outputs.iter().copied());
        if touched.any(|id| graph.tensor(id).ty.shape.fixed().is_none()) {
            return Err(refused(operator, "shapes that depend on values are computed on a CPU"));
        }
    }
    let mut contents = |id: TensorId| {
        let tensor = graph.tensor(id);
        Ok(Arc::new(to_tract(&tensor.name, &content(id)?, &tensor.ty)?))
    };
    let model = wired(graph, &mut contents)?;
    let translated = contain(|| translate(model, &core.heap)).map_err(EngineError::Other)?;
    let program = translated.map_err(|failed| match failed {
        Failed::Other(what) => EngineError::Other(what),
        // What an operator's kernel wires is named after the operator's number.
        Failed::Unsupported { name, operator: tract, reason } => {
            let number = name.split(':').next().and_then(|number| number.parse().ok());
            let operator = graph.operators().find(|(id, _)| Some(id.0) == number);
            match operator {
                Some((_, operator)) => refused(operator, &format!("{tract}: {reason}")),
                None => Unsupported { op: tract.into(), reason }.into(),
            }
        }
    })?;
    let prepared = contain(|| program.prepare(&core.heap)).map_err(EngineError::Other)?;
    match (prepared, graph.operators().next()) {
        (Err(error), Some((_, operator))) => Err(operator_error(operator, error.0)),
        (Err(error), None) => Err(card_error(error)),
        (Ok(()), _) => Ok(program),
    }
}

fn refused(operator: &Operator, reason: &str) -> EngineError {
    Unsupported { op: operator.name.clone(), reason: reason.to_string() }.into()
}

pub(super) fn card_error(error: CardError) -> EngineError {
    EngineError::Other(format!("on the GPU: {error}"))
}

/// Fills in [`Step::frees`]: what a step reads or makes and no later step reads, unless the graph returns it.
fn mark_last_uses(graph: &Graph, steps: &mut [Step]) {
    let mut needed: HashSet<TensorId> = graph.outputs.iter().copied().collect();
    for step in steps.iter_mut().rev() {
        step.frees = step.takes.iter().chain(&step.makes).filter(|id| !needed.contains(id)).copied().collect();
        needed.extend(&step.takes);
    }
}
