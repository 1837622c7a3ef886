//! What an agent has measured of an inference, as its client reads it: a time that is no time is refused, as in profiles.

use super::{
    error::MessageError,
    inference_trace::{ArrivalTime, InferenceTrace, MachineUse, SourceEnergy, StageTime, StepTime, TransferTime},
    setup::ValueId,
    wire,
};
use edgecut_graph::units::{Bytes, Joules, Micros};
use edgecut_profile::BusyProcessors;

/// The trace in a message.
///
/// # Errors
/// If a time is no time.
pub fn received_trace(from: wire::InferenceTrace) -> Result<InferenceTrace, MessageError> {
    let step = |step: wire::StepTime| {
        Ok(StepTime {
            group: step.group,
            end: received_time(step.end_us)?,
            wall: received_time(step.wall_us)?,
            cpu: received_time(step.cpu_us)?,
            workspace: Bytes(step.workspace_bytes),
        })
    };
    let stage = |stage: wire::StageTime| {
        Ok(StageTime {
            device: wire::text(stage.device).into(),
            stage: stage.stage,
            ready: received_time(stage.ready_us)?,
            start: received_time(stage.start_us)?,
            end: received_time(stage.end_us)?,
            steps: stage.steps.into_iter().map(step).collect::<Result<_, MessageError>>()?,
            engine: wire::text(stage.engine).into(),
            fallbacks: stage.fallbacks,
        })
    };
    let transfer = |transfer: wire::TransferTime| {
        Ok(TransferTime {
            value: ValueId(transfer.value),
            to: wire::text(transfer.to).into(),
            ready: received_time(transfer.ready_us)?,
            start: received_time(transfer.start_us)?,
            end: received_time(transfer.end_us)?,
            bytes: Bytes(transfer.bytes),
        })
    };
    let arrival = |arrival: wire::ArrivalTime| {
        let (start, end) = (received_time(arrival.start_us)?, received_time(arrival.end_us)?);
        Ok(ArrivalTime { value: ValueId(arrival.value), start, end })
    };
    // What is no energy or no load is left out: nothing else of a run depends on it.
    let energy = |energy: wire::SourceEnergy| {
        let total = Some(energy.j).filter(|j| j.is_finite() && *j >= 0.0)?;
        Some(SourceEnergy { source: wire::text(energy.source), total: Joules(total) })
    };
    let machine = |from: wire::MachineUse| {
        let is_load = |processors: f64| processors.is_finite() && processors >= 0.0;
        let busy = BusyProcessors { own: from.own, others: from.others };
        (is_load(busy.own) && is_load(busy.others)).then(|| MachineUse { id: wire::text(from.id).into(), busy })
    };
    Ok(InferenceTrace {
        inference: from.inference,
        stages: from.stages.into_iter().map(stage).collect::<Result<_, MessageError>>()?,
        transfers: from.transfers.into_iter().map(transfer).collect::<Result<_, MessageError>>()?,
        arrivals: from.arrivals.into_iter().map(arrival).collect::<Result<_, MessageError>>()?,
        memory: from.memory.into_iter().map(Into::into).collect(),
        energy: from.energy.into_iter().filter_map(energy).collect(),
        machine: from.machine.and_then(machine),
    })
}

/// A time of another program, in microseconds.
///
/// # Errors
/// If it is no time.
pub fn received_time(us: f64) -> Result<Micros, MessageError> {
    match us.is_finite() && us >= 0.0 {
        true => Ok(Micros(us)),
        false => Err(MessageError::Malformed(format!("a time of {us} us: expected a finite number from 0"))),
    }
}
