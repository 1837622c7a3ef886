//! A loaded graph: its programs, run one after the other on a table of live tensors, and how the time divides among steps.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use edgecut_graph::{
    Graph, OperatorId, Origin, Parts, TensorData, TensorId,
    units::{Bytes, Micros},
};
use edgecut_onnx as onnx;
use tempfile::TempDir;

use super::{
    context::OrtContext,
    profile::{OperatorTimes, operator_times},
    program::{Computed, Program, prepare},
    value::OrtTensor,
};
use crate::{
    EngineError, Executable, Fallback, ParameterSource, Sample,
    generated::generated_inputs,
    heap::release_freed,
    room::check_room,
    step_tensors::{NamedTensor, StepTensors, find_last_uses},
    timed,
};

/// After each of the first runs, freed pages of the heap are returned to the system: sessions allocate what they keep, and
/// plan the memory of later runs, in these.
const SETTLING_RUNS: u32 = 2;

/// Runs before the first that counts for the division of time among steps.
const WARM_UP: usize = 2;

/// Runs that count: at least this many, and as many as fit in [`PROFILE_TIME`].
const PROFILE_RUNS: usize = 3;

const PROFILE_TIME: Duration = Duration::from_millis(60);

/// Upper limit on the runs that count, as the profile of every one is kept.
const MAX_PROFILE_RUNS: usize = 60;

/// A loaded graph.
pub(super) struct OrtSteps {
    context: Arc<OrtContext>,
    programs: Vec<Program>,
    tensors: usize,
    inputs: Vec<NamedTensor>,
    outputs: Vec<NamedTensor>,
    /// By tensor of the graph: its name and type, for what the embedded engine exchanges.
    constant_outputs: Vec<(TensorId, Arc<OrtTensor>)>,
    /// By kernel: the inputs whose storage it may overwrite, all or none, with the outputs.
    in_place: Vec<Vec<(TensorId, TensorId)>>,
    /// All of them by number.
    numbers_in_place: Vec<(usize, usize)>,
    /// By input of `in_place`: that output of the last run, which is ONNX Runtime's own tensor and can be overwritten.
    left: HashMap<TensorId, Weak<OrtTensor>>,
    fallbacks: Vec<Fallback>,
    parameter_bytes: Bytes,
    loading_bytes: Bytes,
    steps: Vec<StepMemory>,
    groups: Vec<Vec<OperatorId>>,
    /// Where sessions write their profiles until they have been read.
    profiles: Option<TempDir>,
    /// By step: its share in the time of a run.
    shares: OnceLock<Vec<f64>>,
    /// Runs so far, up to [`SETTLING_RUNS`].
    runs: u32,
}

/// The tensors that are live while a step runs, by the graph's own account.
struct StepMemory {
    /// Index of its group; groups whose results are unused have no step.
    index: usize,
    tensors: Bytes,
}

/// The live tensors, by id in the whole graph.
type TensorTable = Vec<Option<Arc<OrtTensor>>>;

impl OrtSteps {
    /// Prepares `graph`. With `groups`, the time of a run will be divided among them.
    pub(super) fn load(
        context: Arc<OrtContext>,
        graph: &Graph,
        groups: Option<&[Vec<OperatorId>]>,
        parameter: &ParameterSource<'_>,
    ) -> Result<OrtSteps, EngineError> {
        check_room(graph)?;
        let profiles = groups.filter(|groups| groups.len() > 1).map(|_| TempDir::new()).transpose();
        let profiles = profiles.map_err(|error| EngineError::Other(format!("no temporary folder: {error}")))?;
        let exclusive = context.lock();
        let counted = context.meter.join();
        context.meter.reset();
        let constant_outputs = constant_outputs(graph, parameter)?;
        let (mut programs, fallbacks) = prepare(&context, graph, parameter, profiles.as_ref().map(TempDir::path))?;
        find_last_uses(&graph.outputs, programs.iter_mut().map(|program| &mut program.tensors));
        let loading = context.meter.peak().max(0) as u64;
        drop((counted, exclusive));
        release_freed();
        let whole = [graph.operators().map(|(id, _)| id).collect::<Vec<_>>()];
        let groups = groups.unwrap_or(&whole);
        let named = |id: TensorId| NamedTensor::new(graph, id);
        let held = programs.iter().map(|program| program.computed.held()).sum();
        let in_place = inputs_in_place(graph);
        let mut loaded = OrtSteps {
            context,
            programs,
            tensors: graph.tensors().len(),
            inputs: graph.inputs().map(named).collect(),
            outputs: graph.outputs.iter().map(|id| named(*id)).collect(),
            constant_outputs,
            numbers_in_place: numbered(graph, &in_place),
            in_place,
            left: HashMap::new(),
            fallbacks,
            parameter_bytes: held,
            loading_bytes: held.max(Bytes(loading)),
            steps: step_memory(graph, groups),
            groups: groups.to_vec(),
            profiles,
            shares: OnceLock::new(),
            runs: 0,
        };
        loaded.divide_on_generated_inputs(graph);
        Ok(loaded)
    }

    /// Finds the shares of steps before the first run, whose time they would distort. Where the inputs' types do not allow
    /// it, or generated contents are refused, the first run in steps finds them.
    fn divide_on_generated_inputs(&mut self, graph: &Graph) {
        if let Ok(inputs) = generated_inputs(graph) {
            let _ = self.find_shares(&inputs);
        }
    }

    /// Runs until the profiles of all sessions say how long operators take, and divides the time among the steps.
    fn find_shares(&mut self, inputs: &[TensorData]) -> Result<(), EngineError> {
        if self.shares.get().is_some() {
            return Ok(());
        }
        if self.groups.len() <= 1 {
            let _ = self.shares.set(vec![1.0; self.groups.len()]);
            return Ok(());
        }
        let context = Arc::clone(&self.context);
        let exclusive = context.lock();
        let table = self.table(inputs.to_vec())?;
        let mut embedded: HashMap<OperatorId, f64> = HashMap::new();
        let mut left: HashMap<TensorId, Arc<OrtTensor>> = HashMap::new();
        let (mut runs, mut begin) = (0, Instant::now());
        while runs < WARM_UP + PROFILE_RUNS || (begin.elapsed() < PROFILE_TIME && runs < WARM_UP + MAX_PROFILE_RUNS) {
            if runs == WARM_UP {
                embedded.clear();
                begin = Instant::now();
            }
            let mut tensors = table.clone();
            for (input, left) in left.drain() {
                tensors[input.0 as usize] = Some(left);
            }
            self.run_programs(&mut tensors, Some(&mut embedded))?;
            let pairs = self.in_place.iter().flatten();
            let results = pairs.filter_map(|(input, output)| Some((*input, tensors[output.0 as usize].take()?)));
            left.extend(results);
            runs += 1;
        }
        drop(exclusive);
        let mut times = OperatorTimes::default();
        for program in &mut self.programs {
            let Computed::Session(session) = &mut program.computed else { continue };
            let Some(text) = session.end_profile() else { continue };
            let found = text.and_then(|text| operator_times(&text, &session.operators, WARM_UP));
            let found = found.map_err(EngineError::Other)?;
            times.by_operator.extend(found.by_operator);
            times.unattributed += found.unattributed;
        }
        times.by_operator.extend(embedded.into_iter().map(|(id, sum)| (id, sum / (runs - WARM_UP) as f64)));
        self.profiles = None;
        let _ = self.shares.set(shares(&self.groups, &times.by_operator));
        Ok(())
    }

    /// A table with the inputs and the constant outputs. An input that the last run left is that tensor, not a view of it.
    fn table(&mut self, inputs: Vec<TensorData>) -> Result<TensorTable, EngineError> {
        if inputs.len() != self.inputs.len() {
            let what = format!("the graph has {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(EngineError::Other(what));
        }
        // No other reference may remain to what a kernel overwrites, not even a weak one.
        let left = std::mem::take(&mut self.left);
        let mut table = vec![None; self.tensors];
        for (id, content) in &self.constant_outputs {
            table[id.0 as usize] = Some(Arc::clone(content));
        }
        for (input, data) in self.inputs.iter().zip(inputs) {
            let left = left.get(&input.id).and_then(Weak::upgrade);
            let left = left.filter(|left| left.is_content_of(&data) && data.is_of(&input.ty));
            let tensor = match left {
                Some(left) => left,
                None => Arc::new(OrtTensor::of(&input.name, &data, &input.ty)?),
            };
            table[input.id.0 as usize] = Some(tensor);
        }
        Ok(table)
    }

    /// Runs all programs; `embedded` gets the microseconds of the operators that the embedded engine computes.
    fn run_programs(
        &mut self,
        table: &mut TensorTable,
        mut embedded: Option<&mut HashMap<OperatorId, f64>>,
    ) -> Result<(), EngineError> {
        for program in &mut self.programs {
            let StepTensors { inputs, outputs, last_uses } = &program.tensors;
            let operands = inputs.iter().map(|id| {
                let missing = || EngineError::Other(format!("tensor {} has not been computed", id.0));
                table[id.0 as usize].clone().ok_or_else(missing)
            });
            let mut operands = operands.collect::<Result<Vec<_>, _>>()?;
            for id in last_uses {
                table[id.0 as usize] = None;
            }
            let in_place = in_place(&self.in_place, inputs, outputs, &mut operands);
            let results = program.computed.run(operands, &in_place, embedded.as_deref_mut())?;
            for (id, result) in outputs.iter().zip(results).filter(|(id, _)| !last_uses.contains(id)) {
                table[id.0 as usize] = Some(result);
            }
        }
        Ok(())
    }

    /// Runs once; returns the outputs and the sample of the whole.
    fn run_once(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let given: i64 = inputs.iter().map(|input| input.bytes().len() as i64).sum();
        let mut table = self.table(inputs)?;
        let context = Arc::clone(&self.context);
        let _exclusive = context.lock();
        let _counted = context.meter.join();
        context.meter.reset();
        let (done, wall, cpu) = timed(context.clock(), || self.run_programs(&mut table, None));
        let (live, peak) = (context.meter.live(), context.meter.peak());
        done?;
        if self.runs < SETTLING_RUNS {
            self.runs += 1;
            release_freed();
        }
        let sample = Sample {
            wall,
            cpu,
            kernels: None,
            workspace: Bytes((peak - live).max(0) as u64),
            peak: Bytes((given + peak).max(0) as u64),
            tensors: Bytes((given + live).max(0) as u64),
        };
        let pairs = self.in_place.iter().flatten();
        let left =
            pairs.filter_map(|(input, output)| Some((*input, Arc::downgrade(table[output.0 as usize].as_ref()?))));
        self.left = left.collect();
        let outputs = self.outputs.iter().map(|output| {
            let missing = || EngineError::Tensor { name: output.name.clone(), what: "no step computes it".to_string() };
            table[output.id.0 as usize].as_ref().ok_or_else(missing)?.to_data(&output.name, &output.ty)
        });
        Ok((outputs.collect::<Result<_, _>>()?, sample))
    }
}

impl Computed {
    /// Memory that it holds while it is loaded.
    fn held(&self) -> Bytes {
        match self {
            Computed::Session(session) => Bytes(session.held),
            Computed::Embedded { executable, .. } => executable.parameter_bytes(),
        }
    }

    /// Computes the program's outputs.
    fn run(
        &mut self,
        operands: Vec<Arc<OrtTensor>>,
        in_place: &[(usize, usize)],
        times: Option<&mut HashMap<OperatorId, f64>>,
    ) -> Result<Vec<Arc<OrtTensor>>, EngineError> {
        match self {
            Computed::Session(session) => session.run(operands, in_place).map_err(EngineError::Other),
            Computed::Embedded { executable, operators, graph } => {
                let given = graph.inputs().zip(&operands).map(|(id, operand)| {
                    let tensor = graph.tensor(id);
                    operand.to_data(&tensor.name, &tensor.ty)
                });
                let given = given.collect::<Result<Vec<_>, _>>()?;
                let results = match times {
                    Some(times) => executable.run_in_steps(given, &mut |step, sample| {
                        if let Some(operator) = operators.get(step) {
                            *times.entry(*operator).or_default() += sample.wall.0;
                        }
                    })?,
                    None => executable.run(&given)?,
                };
                let taken = graph.outputs.iter().zip(&results).map(|(id, data)| {
                    let tensor = graph.tensor(*id);
                    Ok(Arc::new(OrtTensor::of(&tensor.name, data, &tensor.ty)?))
                });
                taken.collect()
            }
        }
    }
}

impl Executable for OrtSteps {
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        self.run_once(inputs)
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        self.find_shares(&inputs)?;
        let (outputs, sample) = self.run_once(inputs)?;
        let shares = self.shares.get().map(Vec::as_slice).unwrap_or_default();
        // The step with the most tensors gets what the whole took beyond them: no step alone can be observed.
        let largest = self.steps.iter().max_by_key(|step| step.tensors).map(|step| step.index);
        for step in &self.steps {
            let share = shares.get(step.index).copied().unwrap_or_default();
            let workspace = match largest == Some(step.index) {
                true => Bytes(sample.peak.0.saturating_sub(step.tensors.0)),
                false => Bytes::ZERO,
            };
            let part = Sample {
                wall: Micros(sample.wall.0 * share),
                cpu: Micros(sample.cpu.0 * share),
                kernels: None,
                workspace,
                peak: step.tensors + workspace,
                tensors: step.tensors,
            };
            each(step.index, part);
        }
        Ok(outputs)
    }

    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        let (outputs, _) = self.run_once(inputs)?;
        self.steps.iter().for_each(|step| each(step.index));
        Ok(outputs)
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.numbers_in_place
    }

    fn step_shares(&self) -> Option<&[f64]> {
        self.shares.get().map(Vec::as_slice)
    }

    fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    fn parameter_bytes(&self) -> Bytes {
        self.parameter_bytes
    }

    fn loading_bytes(&self) -> Bytes {
        self.loading_bytes
    }
}

/// By kernel: the inputs of `graph` that it may overwrite with outputs. No other operator reads them.
fn inputs_in_place(graph: &Graph) -> Vec<Vec<(TensorId, TensorId)>> {
    let (inputs, readers): (HashSet<TensorId>, _) = (graph.inputs().collect(), graph.consumers());
    let is_free = |(input, output): &(TensorId, TensorId)| {
        let is_alone = inputs.contains(input) && readers[input.0 as usize].len() == 1;
        is_alone && graph.outputs.contains(output) && !graph.outputs.contains(input)
    };
    let pairs = graph.operators().map(|(id, _)| onnx::in_place(graph, id));
    pairs.filter(|pairs| !pairs.is_empty() && pairs.iter().all(is_free)).collect()
}

/// The numbers of the inputs and outputs of `pairs`.
fn numbered(graph: &Graph, pairs: &[Vec<(TensorId, TensorId)>]) -> Vec<(usize, usize)> {
    let number = |(input, output): &(TensorId, TensorId)| {
        Some((graph.inputs().position(|id| id == *input)?, graph.outputs.iter().position(|id| id == output)?))
    };
    pairs.iter().flatten().filter_map(number).collect()
}

/// The numbers of the inputs and outputs of a program that its run can compute in place: of a kernel whose `pairs` are all
/// ONNX Runtime's own tensors, and `operands` has the only references to them.
fn in_place(
    pairs: &[Vec<(TensorId, TensorId)>],
    inputs: &[TensorId],
    outputs: &[TensorId],
    operands: &mut [Arc<OrtTensor>],
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for pairs in pairs {
        let number = |(input, output): &(TensorId, TensorId)| {
            let at = inputs.iter().position(|id| id == input)?;
            let is_own = Arc::get_mut(&mut operands[at]).is_some_and(|operand| !operand.is_view());
            Some((at, outputs.iter().position(|id| id == output).filter(|_| is_own)?))
        };
        found.extend(pairs.iter().map(number).collect::<Option<Vec<_>>>().into_iter().flatten());
    }
    found
}

/// Parameters and constants that are outputs of the graph.
fn constant_outputs(
    graph: &Graph,
    parameter: &ParameterSource<'_>,
) -> Result<Vec<(TensorId, Arc<OrtTensor>)>, EngineError> {
    let mut found = Vec::new();
    for id in &graph.outputs {
        let tensor = graph.tensor(*id);
        let data = match &tensor.origin {
            Origin::Constant(data) => data.clone(),
            Origin::Parameter => parameter(*id)?,
            _ => continue,
        };
        found.push((*id, Arc::new(OrtTensor::of(&tensor.name, &data, &tensor.ty)?)));
    }
    Ok(found)
}

/// By group: its share in the time of all.
fn shares(groups: &[Vec<OperatorId>], times: &HashMap<OperatorId, f64>) -> Vec<f64> {
    let time = |group: &Vec<OperatorId>| group.iter().filter_map(|id| times.get(id)).sum::<f64>();
    let sum: f64 = groups.iter().map(time).sum();
    match sum > 0.0 {
        true => groups.iter().map(|group| time(group) / sum).collect(),
        false => vec![1.0 / groups.len().max(1) as f64; groups.len()],
    }
}

/// The steps of `groups`, with the bytes of the tensors that are live while each runs.
fn step_memory(graph: &Graph, groups: &[Vec<OperatorId>]) -> Vec<StepMemory> {
    let parts = Parts::of(graph);
    let mut steps: Vec<(usize, StepTensors)> = groups
        .iter()
        .enumerate()
        .map(|(index, group)| (index, StepTensors::of(&parts.cut(group))))
        .filter(|(_, tensors)| !tensors.outputs.is_empty())
        .collect();
    find_last_uses(&graph.outputs, steps.iter_mut().map(|(_, tensors)| tensors));
    let size = |id: &TensorId| graph.tensor(*id).ty.bytes().unwrap_or_default().0;
    let mut live: u64 = graph.inputs().map(|id| size(&id)).sum();
    let mut found = Vec::with_capacity(steps.len());
    for (index, tensors) in &steps {
        live += tensors.outputs.iter().map(size).sum::<u64>();
        found.push(StepMemory { index: *index, tensors: Bytes(live) });
        let dead: u64 = tensors.last_uses.iter().map(size).sum();
        live = live.saturating_sub(dead);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_divides_as_measured_and_equally_where_nothing_was() {
        let groups = [vec![OperatorId(0), OperatorId(1)], vec![OperatorId(2)]];
        let times = HashMap::from([(OperatorId(0), 2.0), (OperatorId(1), 1.0), (OperatorId(2), 1.0)]);
        assert_eq!(shares(&groups, &times), [0.75, 0.25]);
        assert_eq!(shares(&groups, &HashMap::new()), [0.5, 0.5]);
    }
}
