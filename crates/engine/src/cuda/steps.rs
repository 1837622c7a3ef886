//! A graph of known shapes as a sequence of programs, on tensors that stay on the GPU between steps.

use std::{collections::HashMap, sync::Arc};

use super::{
    context::GpuContext,
    device_memory::DeviceBuffer,
    driver::GpuError,
    program::GpuProgram,
    translate::{TranslateError, translate},
};
use crate::{
    CpuClock, EngineError, Executable, ParameterSource, Sample,
    decomposed::load_decomposed,
    panics::catch_panic,
    step_tensors::{NamedTensor, StepTensors, find_last_uses},
    timed,
    tract::{operator_error, supported, to_tract, wire_graph},
};
use edgecut_graph::{Graph, Operator, OperatorId, Origin, Parts, TensorData, TensorId, units::Bytes};
use edgecut_ops::{Unsupported, passes::decompose_quantisation::decompose_quantisation};

/// A loaded graph.
pub(super) struct GpuSteps {
    context: Arc<GpuContext>,
    steps: Vec<GpuStep>,
    inputs: Vec<NamedTensor>,
    outputs: Vec<NamedTensor>,
    /// Parameters and constants that are outputs of the graph.
    constant_outputs: HashMap<TensorId, TensorData>,
    parameter_bytes: Bytes,
    loading_bytes: Bytes,
}

/// One group of operators.
struct GpuStep {
    /// Index of its group; groups whose results are unused have no step.
    index: usize,
    program: GpuProgram,
    tensors: StepTensors,
}

/// The tensors on the GPU, by id in the whole graph.
type DeviceTensors = HashMap<TensorId, Arc<DeviceBuffer>>;

impl GpuSteps {
    /// Translates `groups`, which must cover the graph's operators in topological order, and compiles their kernels.
    /// Composite operators, and conversions of quantised models, are replaced by their decompositions.
    pub(super) fn load(
        context: Arc<GpuContext>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<GpuSteps, EngineError> {
        load_decomposed(
            &decompose_quantisation(graph),
            groups,
            parameter,
            |_| true,
            |graph, groups, parameter| GpuSteps::load_plain(context, graph, groups, parameter),
        )
    }

    /// Without composite operators.
    fn load_plain(
        context: Arc<GpuContext>,
        graph: &Graph,
        groups: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<GpuSteps, EngineError> {
        let _exclusive = context.lock();
        let before = context.memory.live();
        context.memory.reset_peak();
        let content = |id: TensorId| match &graph.tensor(id).origin {
            Origin::Constant(data) => Ok(data.clone()),
            _ => parameter(id),
        };
        let is_constant = |id: &TensorId| matches!(graph.tensor(*id).origin, Origin::Parameter | Origin::Constant(_));
        let constant_outputs = graph.outputs.iter().copied().filter(is_constant);
        let constant_outputs = constant_outputs.map(|id| Ok((id, content(id)?))).collect::<Result<_, EngineError>>()?;
        let mut steps = Vec::with_capacity(groups.len());
        let parts = Parts::of(graph);
        for (index, operators) in groups.iter().enumerate() {
            let part = parts.cut(operators);
            if part.graph.outputs.is_empty() {
                continue;
            }
            let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
            let program = compile(&context, &part.graph, &|t| content(whole(t)))?;
            steps.push(GpuStep { index, program, tensors: StepTensors::of(&part) });
        }
        find_last_uses(&graph.outputs, steps.iter_mut().map(|step| &mut step.tensors));
        context.memory.driver().synchronise()?;
        let (parameter_bytes, loading_bytes) = (context.memory.live() - before, context.memory.peak() - before);
        Ok(GpuSteps {
            steps,
            inputs: graph.inputs().map(|id| NamedTensor::new(graph, id)).collect(),
            outputs: graph.outputs.iter().map(|id| NamedTensor::new(graph, *id)).collect(),
            constant_outputs,
            parameter_bytes,
            loading_bytes,
            context: Arc::clone(&context),
        })
    }

    /// Copies the inputs to the GPU.
    fn upload(&self, inputs: &[TensorData]) -> Result<DeviceTensors, EngineError> {
        if inputs.len() != self.inputs.len() {
            let what = format!("the graph has {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(EngineError::Other(what));
        }
        let upload = |(input, data): (&NamedTensor, &TensorData)| {
            let tensor = to_tract(&input.name, data, &input.ty)?;
            Ok((input.id, self.context.memory.upload(tensor.as_bytes())?))
        };
        self.inputs.iter().zip(inputs).map(upload).collect()
    }

    fn results(&self, tensors: &DeviceTensors) -> Result<Vec<TensorData>, EngineError> {
        let one = |output: &NamedTensor| {
            if let Some(data) = self.constant_outputs.get(&output.id) {
                return Ok(data.clone());
            }
            let error = |what: String| EngineError::Tensor { name: output.name.clone(), what };
            let buffer = tensors.get(&output.id).ok_or_else(|| error("no step computes it".to_string()))?;
            let shape = output.ty.shape.fixed().ok_or_else(|| error("its shape is unknown".to_string()))?;
            let bytes = buffer.download()?;
            TensorData::new(output.ty.dtype, shape.to_vec(), bytes).map_err(|e| error(e.to_string()))
        };
        self.outputs.iter().map(one).collect()
    }
}

impl Executable for GpuSteps {
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        let mut tensors = self.upload(&inputs)?;
        let (done, sample) = context
            .measured(&mut tensors, |tensors| self.steps.iter().try_for_each(|step| step.run(&context, tensors)))?;
        done?;
        Ok((self.results(&tensors)?, sample))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        let mut tensors = self.upload(&inputs)?;
        drop(inputs);
        for step in &self.steps {
            let (done, sample) = context.measured(&mut tensors, |tensors| step.run(&context, tensors))?;
            done?;
            each(step.index, sample);
        }
        self.results(&tensors)
    }

    fn parameter_bytes(&self) -> Bytes {
        self.parameter_bytes
    }

    fn loading_bytes(&self) -> Bytes {
        self.loading_bytes
    }
}

impl GpuStep {
    /// Enqueues the step. Tensors without later uses are freed.
    fn run(&self, context: &GpuContext, tensors: &mut DeviceTensors) -> Result<(), EngineError> {
        let operand = |id: &TensorId| {
            let buffer =
                if self.tensors.last_uses.contains(id) { tensors.remove(id) } else { tensors.get(id).cloned() };
            let missing = || format!("tensor {} has not been computed: the steps are not in topological order", id.0);
            buffer.ok_or_else(|| EngineError::Other(missing()))
        };
        let operands = self.tensors.inputs.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
        let results = self.program.run(&context.memory, operands)?;
        let live = self.tensors.outputs.iter().zip(results).filter(|(id, _)| !self.tensors.last_uses.contains(id));
        tensors.extend(live.map(|(id, buffer)| (*id, buffer)));
        Ok(())
    }
}

impl GpuContext {
    /// Runs `work`, waits until the GPU has finished, and measures: wall-clock time including the wait, without the
    /// overhead of an empty measurement; time between the first and the last request by the device's clock; memory as
    /// allocated by the engine.
    fn measured<R>(
        &self,
        tensors: &mut DeviceTensors,
        work: impl FnOnce(&mut DeviceTensors) -> R,
    ) -> Result<(R, Sample), EngineError> {
        let driver = self.memory.driver();
        let given = sizes(tensors);
        driver.synchronise()?;
        self.memory.reset_peak();
        let before = self.memory.live();
        let ((result, events), wall, cpu) = timed(CpuClock::Thread, || {
            let start = driver.record_event();
            let result = work(tensors);
            let events = start.and_then(|start| {
                let end = driver.record_event()?;
                driver.synchronise()?;
                Ok((start, end))
            });
            (result, events)
        });
        let (start, end) = events?;
        let kernels = driver.elapsed(start, end)?;
        let after = sizes(tensors);
        let freed: u64 = given.iter().filter(|(at, _)| !after.contains_key(*at)).map(|(_, bytes)| *bytes as u64).sum();
        let given: u64 = given.values().map(|bytes| *bytes as u64).sum();
        let peak = self.memory.peak().0.saturating_sub(before.0);
        let left = self.memory.live().0 as i64 - before.0 as i64 + freed as i64;
        let (wall, cpu) = self.overhead.subtract(1, wall, cpu);
        let sample = Sample {
            wall,
            cpu,
            kernels: Some(kernels),
            workspace: Bytes((peak as i64 - left).max(0) as u64),
            peak: Bytes(given + peak),
            tensors: Bytes(after.values().map(|bytes| *bytes as u64).sum::<u64>() + freed),
        };
        Ok((result, sample))
    }
}

/// Sizes of distinct buffers by address.
fn sizes(tensors: &DeviceTensors) -> HashMap<u64, usize> {
    tensors.values().map(|buffer| (buffer.address(), buffer.bytes())).collect()
}

/// Translates one group of operators and compiles its kernels.
fn compile(context: &GpuContext, graph: &Graph, content: &ParameterSource<'_>) -> Result<GpuProgram, EngineError> {
    for (_, operator) in graph.operators() {
        supported(operator)?;
        let mut touched = operator.operands().chain(operator.outputs.iter().copied());
        if touched.any(|id| graph.tensor(id).ty.shape.fixed().is_none()) {
            return Err(unsupported(operator, "data-dependent shapes are not supported on a GPU"));
        }
    }
    let mut contents = |id: TensorId| {
        let tensor = graph.tensor(id);
        Ok(Arc::new(to_tract(&tensor.name, &content(id)?, &tensor.ty)?))
    };
    let model = wire_graph(graph, &mut contents)?;
    let translated = catch_panic(|| translate(model, &context.memory)).map_err(EngineError::Other)?;
    let program = translated.map_err(|failed| match failed {
        TranslateError::Gpu(error) => error.into(),
        TranslateError::Other(what) => EngineError::Other(what),
        // The names in a wired model start with the id of their operator.
        TranslateError::Unsupported { name, operator: tract, reason } => {
            let id = name.split(':').next().and_then(|id| id.parse().ok());
            let operator = graph.operators().find(|(other, _)| Some(other.0) == id);
            match operator {
                Some((_, operator)) => unsupported(operator, &format!("{tract}: {reason}")),
                None => Unsupported { op: tract.into(), reason }.into(),
            }
        }
    })?;
    let prepared = catch_panic(|| program.prepare(&context.memory)).map_err(EngineError::Other)?;
    match (prepared, graph.operators().next()) {
        (Err(GpuError::Failed(what)), Some((_, operator))) => Err(operator_error(operator, what)),
        (Err(error), _) => Err(error.into()),
        (Ok(()), _) => Ok(program),
    }
}

fn unsupported(operator: &Operator, reason: &str) -> EngineError {
    Unsupported { op: operator.name.clone(), reason: reason.to_string() }.into()
}
