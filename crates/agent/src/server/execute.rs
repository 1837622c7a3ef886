//! A device thread's work for a run: loads the stages of a partition, then runs each when it is ready.

use std::sync::Arc;

use super::{
    device::Device,
    error::HostError,
    run_state::{StageRun, StageTask},
    session::Session,
};
use crate::protocol::{
    inference_trace::StepTime,
    named_tensors::NamedTensors,
    phase::Phase,
    setup::{Partition, Setup, Stage},
};
use edgecut_engine::{Engine, EngineError, Executable};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_values::seeded;

/// A loaded partition and the memory that loading took.
pub(super) struct LoadedPartition {
    /// In the order of the partition.
    pub stages: Vec<Box<dyn Executable>>,
    /// What the stages hold. It may exceed the model's parameters, because weights are packed.
    pub parameters: Bytes,
    /// Peak while loading.
    pub loading: Bytes,
}

/// What was measured of a stage in its first inference.
#[derive(Default)]
struct StageSample {
    /// By step: CPU time and workspace.
    steps: Vec<(Micros, Bytes)>,
    peak: Bytes,
}

/// Checks that a partition can fit before anything is loaded. The limit of a plan is one on what a run takes; while it is
/// loaded, a tensor of which only slices are kept may take all that the device has.
///
/// Returns what it needs.
///
/// # Errors
/// By how much it exceeds the limit.
pub(super) fn admit(setup: &Setup, partition: &Partition, limit: Bytes, device: Bytes) -> Result<Bytes, HostError> {
    if let Some((tensor, need)) = partition.largest_loaded()
        && let shortfall @ Bytes(1..) = device.shortfall(need)
    {
        let limit = device;
        return Err(HostError::Loading { device: partition.device.clone(), tensor, need, limit, shortfall });
    }
    let activations = partition.activations.max(partition.min_activations());
    let parameters = setup.parameter_bytes(partition);
    check_limit(partition, limit, parameters, activations)?;
    Ok(parameters + activations)
}

/// Checks `parameters` and `activations` against the limit.
fn check_limit(partition: &Partition, limit: Bytes, parameters: Bytes, activations: Bytes) -> Result<(), HostError> {
    let need = parameters + activations;
    match limit.shortfall(need) {
        Bytes::ZERO => Ok(()),
        shortfall => Err(HostError::Memory { device: partition.device.clone(), need, parameters, limit, shortfall }),
    }
}

/// Loads all stages of `partition`; parameters that are not in `streamed` are generated from their names. Asks between stages
/// and before each parameter whether the run is cancelled.
///
/// # Errors
/// If it is cancelled, the engine refuses a stage, or the loaded stages leave too little of `limit` to run.
pub(super) fn load(
    engine: &Arc<dyn Engine>,
    setup: &Setup,
    partition: &Partition,
    streamed: &NamedTensors,
    limit: Bytes,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<LoadedPartition, HostError> {
    let mut stages = Vec::with_capacity(partition.stages.len());
    let (mut parameters, mut loading, least) = (Bytes::ZERO, Bytes::ZERO, partition.min_activations());
    for stage in &partition.stages {
        if is_cancelled() {
            return Err(HostError::ClientGone);
        }
        let executable = load_stage(engine, stage, streamed, is_cancelled).map_err(|cause| match is_cancelled() {
            true => HostError::ClientGone,
            false => HostError::Engine { what: format!("stage {}", stage.name), cause },
        })?;
        loading = loading.max(parameters + executable.loading_bytes());
        parameters += executable.parameter_bytes();
        // What the engine holds is known now, what a run takes beyond it is still predicted, and the run itself keeps
        // to the limit: a plan that fits when it is run is not refused for its prediction.
        check_limit(partition, limit, parameters, least)?;
        stages.push(executable);
    }
    let phases = setup.phases_of(partition);
    for phase in [Phase::Decode, Phase::Prefill] {
        while learn_once(&mut stages, &phases, phase) {
            if is_cancelled() {
                return Err(HostError::ClientGone);
            }
        }
    }
    Ok(LoadedPartition { stages, parameters, loading })
}

/// One more run of each stage of `phase` that needs step times, in the order of a run; returns whether any needs another.
fn learn_once(stages: &mut [Box<dyn Executable>], phases: &[Phase], phase: Phase) -> bool {
    let mut is_needed = false;
    for (stage, of) in stages.iter_mut().zip(phases) {
        if *of == phase {
            is_needed |= stage.learn();
        }
    }
    is_needed
}

fn load_stage(
    engine: &Arc<dyn Engine>,
    stage: &Stage,
    streamed: &NamedTensors,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Box<dyn Executable>, EngineError> {
    let groups: Vec<_> = stage.steps.iter().map(|step| step.operators.clone()).collect();
    engine.load_steps(&stage.graph, &groups, &|id| {
        let tensor = stage.graph.tensor(id);
        if is_cancelled() {
            return Err(EngineError::Other("the client is gone".to_string()));
        }
        if let Some(data) = streamed.get(&tensor.name) {
            return Ok(data.clone());
        }
        seeded(&tensor.name, &tensor.ty)
            .map_err(|e| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() })
    })
}

/// Runs the stages of a partition on `device` as they become ready, until the session ends. Other runs that share the device
/// compute between stages.
///
/// # Errors
/// If a stage fails, or the partition's peak memory exceeds `limit`.
pub(super) fn execute(
    session: &Session,
    device: &Device,
    partition: usize,
    mut stages: Vec<Box<dyn Executable>>,
    limit: Bytes,
) -> Result<(), HostError> {
    let part = &session.setup.partitions[partition];
    // Inferences of a run take the same memory, or less where states are written in place, so that it is measured once:
    // measuring takes as long as a small step.
    let mut measured: Vec<Option<StageSample>> = stages.iter().map(|_| None).collect();
    while let Some(StageTask { stage: scheduled, operands }) = session.wait_for_stage(partition) {
        let (stage, executable) = (&part.stages[scheduled.index], &mut stages[scheduled.index]);
        let mut steps = Vec::with_capacity(stage.steps.len());
        let mut indices = Vec::with_capacity(stage.steps.len());
        let turn = device.turn();
        let start = session.clock.now();
        // A step takes all time since the one before, with what the engine needs to call it.
        let mut before = start;
        let mut step = |index: usize, cpu: Micros, workspace: Bytes| {
            let group = stage.steps.get(index).map_or(0, |step| step.group);
            let end = session.clock.now();
            let wall = end - std::mem::replace(&mut before, end);
            indices.push(index);
            steps.push(StepTime { group, end, wall, cpu, workspace });
        };
        let sample = &mut measured[scheduled.index];
        let results = match sample {
            Some(sample) => {
                let mut known = sample.steps.iter();
                executable.run_stepwise(operands, &mut |index| {
                    let (cpu, workspace) = known.next().copied().unwrap_or_default();
                    step(index, cpu, workspace);
                })
            }
            None => {
                let first = sample.insert(StageSample::default());
                executable.run_in_steps(operands, &mut |index, sample| {
                    first.peak = first.peak.max(sample.peak);
                    first.steps.push((sample.cpu, sample.workspace));
                    step(index, sample.cpu, sample.workspace);
                })
            }
        };
        drop(turn);
        if let Some(shares) = executable.step_shares() {
            let shares: Vec<f64> =
                indices.iter().map(|index| shares.get(*index).copied().unwrap_or_default()).collect();
            divide(&mut steps, &shares, start, session.clock.now());
        }
        let results = results.map_err(|cause| HostError::Engine { what: format!("stage {}", stage.name), cause })?;
        let peak = sample.as_ref().map(|sample| sample.peak).unwrap_or_default();
        let engine = executable.engine().map(|engine| engine.to_string().into()).unwrap_or_default();
        let fallbacks = executable.fallbacks().len() as u32;
        let run = StageRun { results, start, end: session.clock.now(), steps, peak, engine, fallbacks };
        let peak = session.finish_stage(partition, scheduled, run)?;
        match limit.shortfall(peak) {
            Bytes::ZERO => {}
            shortfall => {
                return Err(HostError::OverLimit { device: part.device.clone(), peak, limit, shortfall });
            }
        }
    }
    Ok(())
}

/// Divides the time of steps that ran as one, from `start` to `end`, by their shares.
fn divide(steps: &mut [StepTime], shares: &[f64], start: Micros, end: Micros) {
    let sum: f64 = shares.iter().sum();
    let mut before = start;
    for (step, share) in steps.iter_mut().zip(shares) {
        step.wall = Micros((end.0 - start.0) * share / sum.max(f64::MIN_POSITIVE));
        step.end = before + step.wall;
        before = step.end;
    }
}
