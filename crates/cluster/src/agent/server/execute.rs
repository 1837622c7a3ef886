//! A device thread's work for a run: loads the stages of a partition, then runs each when it is ready.

use std::sync::Arc;

use super::{
    error::HostError,
    run_state::{StageRun, StageTask},
    session::Session,
};
use crate::agent::protocol::{
    inference_trace::StepTime,
    named_tensors::NamedTensors,
    setup::{Partition, Stage},
};
use edgecut_engine::{Engine, EngineError, Executable};
use edgecut_graph::units::Bytes;
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

/// Checks that a partition can fit before anything is loaded.
///
/// # Errors
/// By how much it exceeds the limit.
pub(super) fn admit(partition: &Partition, limit: Bytes) -> Result<(), HostError> {
    check_limit(partition, limit, partition.parameter_bytes())
}

/// Checks `parameters` and the partition's activations against the limit.
fn check_limit(partition: &Partition, limit: Bytes, parameters: Bytes) -> Result<(), HostError> {
    let need = parameters + partition.activations.max(partition.min_activations());
    match limit.shortfall(need) {
        Bytes::ZERO => Ok(()),
        shortfall => Err(HostError::Memory { device: partition.device.clone(), need, parameters, limit, shortfall }),
    }
}

/// Loads all stages of `partition`; parameters that are not in `streamed` are generated from their names.
///
/// # Errors
/// If the engine refuses a stage, or the loaded stages leave too little of `limit` to run.
pub(super) fn load(
    engine: &Arc<dyn Engine>,
    partition: &Partition,
    streamed: &NamedTensors,
    limit: Bytes,
) -> Result<LoadedPartition, HostError> {
    let mut stages = Vec::with_capacity(partition.stages.len());
    let (mut parameters, mut loading) = (Bytes::ZERO, Bytes::ZERO);
    for stage in &partition.stages {
        let executable = load_stage(engine, stage, streamed)
            .map_err(|cause| HostError::Engine { what: format!("stage {}", stage.name), cause })?;
        loading = loading.max(parameters + executable.loading_bytes());
        parameters += executable.parameter_bytes();
        check_limit(partition, limit, parameters)?;
        stages.push(executable);
    }
    Ok(LoadedPartition { stages, parameters, loading })
}

fn load_stage(
    engine: &Arc<dyn Engine>,
    stage: &Stage,
    streamed: &NamedTensors,
) -> Result<Box<dyn Executable>, EngineError> {
    let groups: Vec<_> = stage.steps.iter().map(|step| step.operators.clone()).collect();
    engine.load_steps(&stage.graph, &groups, &|id| {
        let tensor = stage.graph.tensor(id);
        if let Some(data) = streamed.get(&tensor.name) {
            return Ok(data.clone());
        }
        seeded(&tensor.name, &tensor.ty)
            .map_err(|e| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() })
    })
}

/// Runs the stages of a partition as they become ready, until the session ends.
///
/// # Errors
/// If a stage fails, or the partition's peak memory exceeds `limit`.
pub(super) fn execute(
    session: &Session,
    partition: usize,
    mut stages: Vec<Box<dyn Executable>>,
    limit: Bytes,
) -> Result<(), HostError> {
    let part = &session.setup.partitions[partition];
    while let Some(StageTask { stage: scheduled, operands }) = session.wait_for_stage(partition) {
        let (stage, executable) = (&part.stages[scheduled.index], &mut stages[scheduled.index]);
        let (mut steps, mut peak) = (Vec::with_capacity(stage.steps.len()), Bytes::ZERO);
        let start = session.clock.now();
        let results = executable.run_in_steps(operands, &mut |index, sample| {
            peak = peak.max(sample.peak);
            let group = stage.steps.get(index).map_or(0, |step| step.group);
            let (end, wall) = (session.clock.now(), sample.wall);
            steps.push(StepTime { group, end, wall, cpu: sample.cpu, workspace: sample.workspace });
        });
        let results = results.map_err(|cause| HostError::Engine { what: format!("stage {}", stage.name), cause })?;
        let run = StageRun { results, start, end: session.clock.now(), steps, peak };
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
