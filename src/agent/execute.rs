//! What a device's thread does for a run: loads the stages of its partition, then computes them as they become ready.

use std::{collections::BTreeMap, sync::Arc};

use smol_str::SmolStr;

use super::{
    board::Ran,
    error::HostError,
    measured::StepTime,
    session::Session,
    setup::{Partition, Stage},
};
use crate::{
    engine::{Engine, EngineError, Executable},
    graph::TensorData,
    units::Bytes,
    values::seeded,
};

/// The stages of a partition made ready, in its order.
pub type Loaded = Vec<Box<dyn Executable>>;

/// Contents of parameters that were sent, by name; all others are generated.
pub type Streamed = BTreeMap<SmolStr, TensorData>;

/// Checks before anything is loaded that a partition can fit.
///
/// # Errors
/// With what is missing.
pub fn admit(partition: &Partition, limit: Bytes) -> Result<(), HostError> {
    fits(partition, limit, partition.parameter_bytes())
}

/// `parameters` and what the partition needs while it runs against the limit.
fn fits(partition: &Partition, limit: Bytes, parameters: Bytes) -> Result<(), HostError> {
    let need = parameters + partition.activations.max(partition.least_activations());
    match limit.shortfall(need) {
        Bytes::ZERO => Ok(()),
        shortfall => Err(HostError::Memory { device: partition.device.clone(), need, parameters, limit, shortfall }),
    }
}

/// The stages of a partition, and what that took.
pub struct Ready {
    pub stages: Loaded,
    /// What they hold, which may be more than the parameters are in the model: weights are packed.
    pub held: Bytes,
    /// Most that was taken at one time until then.
    pub loading: Bytes,
}

/// Makes all stages of `partition` ready.
///
/// # Errors
/// If the engine refuses a stage, or what is loaded leaves too little of `limit` to run.
pub fn load(
    engine: &Arc<dyn Engine>,
    partition: &Partition,
    streamed: &Streamed,
    limit: Bytes,
) -> Result<Ready, HostError> {
    let mut stages = Vec::with_capacity(partition.stages.len());
    let (mut held, mut loading) = (Bytes::ZERO, Bytes::ZERO);
    for stage in &partition.stages {
        let executable = load_stage(engine, stage, streamed)
            .map_err(|cause| HostError::Engine { what: format!("stage {}", stage.name), cause })?;
        loading = loading.max(held + executable.loading_bytes());
        held += executable.parameter_bytes();
        fits(partition, limit, held)?;
        stages.push(executable);
    }
    Ok(Ready { stages, held, loading })
}

fn load_stage(
    engine: &Arc<dyn Engine>,
    stage: &Stage,
    streamed: &Streamed,
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

/// Runs the stages of a partition, each as soon as its operands are there, until the session ends.
///
/// # Errors
/// If a stage fails, or more memory than `limit` was taken.
pub fn execute(session: &Session, partition: usize, mut loaded: Loaded, limit: Bytes) -> Result<(), HostError> {
    let part = &session.setup.partitions[partition];
    while let Some(work) = session.wait_for_work(partition) {
        let (stage, executable) = (&part.stages[work.stage], &mut loaded[work.stage]);
        let (mut steps, mut peak) = (Vec::with_capacity(stage.steps.len()), Bytes::ZERO);
        let start = session.clock.now();
        let results = executable.run_in_steps(work.operands, &mut |index, sample| {
            peak = peak.max(sample.peak);
            let group = stage.steps.get(index).map_or(0, |step| step.group);
            let (end, wall) = (session.clock.now(), sample.wall);
            steps.push(StepTime { group, end, wall, cpu: sample.cpu, workspace: sample.workspace });
        });
        let results = results.map_err(|cause| HostError::Engine { what: format!("stage {}", stage.name), cause })?;
        let ran = Ran { results, start, end: session.clock.now(), steps, peak };
        let peak = session.done(partition, (work.inference, work.stage, work.ready), ran)?;
        match limit.shortfall(peak) {
            Bytes::ZERO => {}
            shortfall => {
                return Err(HostError::OverLimit { device: part.device.clone(), peak, limit, shortfall });
            }
        }
    }
    Ok(())
}
