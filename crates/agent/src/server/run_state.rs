//! State machine of one run on one server: which values are present, which stage is next, and the memory of each
//! partition.
//!
//! It has no clock, thread or socket: those who compute, send and receive report events and carry out the returned
//! [`Effects`]. Several inferences may be in flight. Each partition runs its stages in order for each inference; among
//! inferences, the earliest with a ready stage goes first.

mod effects;
mod memory;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;
mod value_usage;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use smol_str::SmolStr;

use crate::protocol::{
    inference_trace::{ArrivalTime, DeviceMemory, InferenceTrace, StageTime, TransferTime},
    phase::Phase,
    run::Start,
    setup::{Setup, State, ValueId},
};
use edgecut_graph::{
    TensorData,
    units::{Bytes, Micros},
};

pub use effects::RunStateError;
pub(super) use effects::{Effects, PendingSend, ScheduledStage, StageRun, StageTask};
pub(super) use memory::MemoryLimit;
use memory::MemoryTracker;
use value_usage::{ValueUsage, distinct};

/// The state of one run; see the module's documentation.
#[derive(Debug)]
pub(super) struct RunState {
    setup: Arc<Setup>,
    usage: Vec<ValueUsage>,
    /// The phase of each stage, by partition.
    phases: Vec<Vec<Phase>>,
    /// One per partition, and a last one for values in no device's memory.
    memory: Vec<MemoryTracker>,
    /// The states that the last inference of each sequence left, by the name of their operands.
    states: BTreeMap<(u32, SmolStr), TensorData>,
    /// Inferences in flight on this server.
    inferences: BTreeMap<u64, Inference>,
    /// The first inference that is not finished, and later ones that are.
    first_unfinished: u64,
    finished: BTreeSet<u64>,
}

#[derive(Debug)]
struct Inference {
    phase: Phase,
    /// Its sequence, once it has started.
    sequence: Option<u32>,
    values: BTreeMap<ValueId, ValueState>,
    /// By partition, the index of its next stage; of those before, some are of another phase.
    next_stage: Vec<usize>,
    sends_left: usize,
    /// Outputs that the sink still waits for; `None` once they are delivered, and on servers without the sink.
    outputs_left: Option<usize>,
    stages: Vec<StageTime>,
    transfers: Vec<TransferTime>,
    arrivals: Vec<ArrivalTime>,
}

#[derive(Debug)]
struct ValueState {
    /// `None` while it is being received, and after its last use.
    data: Option<TensorData>,
    /// When it was complete; while it is being received, when its first bytes arrived.
    at: Micros,
    references: Vec<u32>,
}

impl RunState {
    /// `setup` must have passed [`Setup::check`].
    pub fn new(setup: &Arc<Setup>) -> RunState {
        RunState {
            setup: setup.clone(),
            usage: ValueUsage::of_all(setup),
            phases: setup.partitions.iter().map(|partition| setup.phases_of(partition)).collect(),
            memory: (0..=setup.partitions.len()).map(|_| MemoryTracker::default()).collect(),
            states: BTreeMap::new(),
            inferences: BTreeMap::new(),
            first_unfinished: 0,
            finished: BTreeSet::new(),
        }
    }

    /// Sets what the loaded stages of a partition hold, and the peak while they were loaded.
    pub fn set_parameters(&mut self, partition: usize, parameters: Bytes, loading: Bytes) {
        self.memory[partition].set_parameters(parameters, loading);
    }

    /// Limits the memory of a partition, or, by the number of partitions, of the values in no partition's memory.
    pub fn set_limit(&mut self, holder: usize, limit: MemoryLimit) {
        self.memory[holder].set_limit(limit);
    }

    /// What each partition holds now.
    pub fn held(&self) -> impl Iterator<Item = (&SmolStr, Bytes)> {
        let devices = self.setup.partitions.iter().map(|partition| &partition.device);
        devices.zip(&self.memory).map(|(device, memory)| (device, memory.parameters + memory.live))
    }

    /// Peak memory of a partition so far.
    pub fn peak(&self, partition: usize) -> Bytes {
        self.memory[partition].peak
    }

    /// The memory of all partitions, in order.
    pub fn memory(&self) -> Vec<DeviceMemory> {
        let memory = self.setup.partitions.iter().zip(&self.memory).map(|(partition, tracker)| DeviceMemory {
            device: partition.device.clone(),
            parameters: tracker.parameters,
            peak: tracker.peak,
            loading: tracker.loading,
        });
        memory.collect()
    }

    /// An inference begins; at the source with its `inputs`, one for each of the source's values in its phase.
    pub fn start(&mut self, start: Start, inputs: &[TensorData], now: Micros) -> Result<Effects, RunStateError> {
        let number = start.inference;
        self.check_sequence(&start)?;
        self.inference(number, start.phase)?.sequence = Some(start.sequence);
        let setup = self.setup.clone();
        let mut effects = Effects::default();
        let values = setup.source.iter().flat_map(|source| setup.values_in(source, start.phase));
        for ((_, value), data) in values.zip(inputs) {
            self.begin_value(number, value, now)?;
            self.complete_value(number, value, data.clone(), now, &mut effects)?;
        }
        for State { operand, .. } in setup.states_in(start.phase) {
            let left = self.take_state(start.sequence, *operand);
            self.begin_value(number, *operand, now)?;
            let data = if start.continues { left } else { TensorData::zeros(&setup.values[operand.0 as usize].ty) };
            let data = data.ok_or(RunStateError::NoState(operand.0))?;
            self.complete_value(number, *operand, data, now, &mut effects)?;
        }
        self.finish_if_complete(number, &mut effects);
        Ok(effects)
    }

    /// The first bytes of a value from another server arrived.
    pub fn begin_receive(&mut self, number: u64, value: ValueId, now: Micros) -> Result<(), RunStateError> {
        let phase = self.setup.value(value).map(|value| value.phase).unwrap_or_default();
        self.inference(number, phase)?;
        match self.usage.get(value.0 as usize) {
            Some(usage) if usage.received => self.begin_value(number, value, now),
            _ => Err(RunStateError::UnexpectedValue(value.0)),
        }
    }

    /// A value for which [`RunState::begin_receive`] was called is complete.
    pub fn finish_receive(
        &mut self,
        number: u64,
        value: ValueId,
        data: TensorData,
        now: Micros,
    ) -> Result<Effects, RunStateError> {
        let mut effects = Effects::default();
        self.complete_value(number, value, data, now, &mut effects)?;
        self.finish_if_complete(number, &mut effects);
        Ok(effects)
    }

    /// The stage that `partition` must run now, if one is ready. Its operands are released.
    pub fn next_stage(&mut self, partition: usize) -> Option<StageTask> {
        let (stages, phases) = (&self.setup.partitions[partition].stages, &self.phases[partition]);
        let is_ready = |number: &u64| {
            let inference = &self.inferences[number];
            let mut later = inference.next_stage[partition]..stages.len();
            let index = later.find(|index| phases[*index] == inference.phase)?;
            let stage = &stages[index];
            let is_complete = |operand| inference.values.get(operand).is_some_and(|value| value.data.is_some());
            // A stage without operands depends on the start only.
            let is_ready =
                stage.operands.iter().all(is_complete) && (inference.sequence.is_some() || !stage.operands.is_empty());
            is_ready.then_some((*number, index))
        };
        let (number, index) = self.inferences.keys().find_map(is_ready)?;
        let inference = self.inferences.get_mut(&number)?;
        inference.next_stage[partition] = index + 1;
        let ids = stages[index].operands.clone();
        let values = ids.iter().filter_map(|id| inference.values.get(id));
        let (operands, times): (Vec<_>, Vec<_>) = values.map(|value| (value.data.clone(), value.at)).unzip();
        for id in distinct(&ids) {
            self.release(number, id, partition);
        }
        self.memory[partition].begin_stage();
        let ready = times.into_iter().fold(Micros::ZERO, Micros::max);
        let stage = ScheduledStage { inference: number, index, ready };
        Some(StageTask { stage, operands: operands.into_iter().flatten().collect() })
    }

    /// A stage that [`RunState::next_stage`] returned for `partition` has run.
    pub fn finish_stage(
        &mut self,
        partition: usize,
        stage: ScheduledStage,
        mut run: StageRun,
    ) -> Result<Effects, RunStateError> {
        self.memory[partition].finish_stage(run.peak);
        let part = &self.setup.partitions[partition];
        let (device, results) = (part.device.clone(), part.stages[stage.index].results.clone());
        let mut effects = Effects::default();
        for (value, data) in results.into_iter().zip(std::mem::take(&mut run.results)) {
            self.begin_value(stage.inference, value, run.end)?;
            self.complete_value(stage.inference, value, data, run.end, &mut effects)?;
        }
        let (index, ready) = (stage.index as u32, stage.ready);
        let StageRun { start, end, steps, engine, fallbacks, .. } = run;
        let time = StageTime { device, stage: index, ready, start, end, steps, engine, fallbacks };
        if let Some(inference) = self.inferences.get_mut(&stage.inference) {
            inference.stages.push(time);
        }
        self.finish_if_complete(stage.inference, &mut effects);
        Ok(effects)
    }

    /// A [`PendingSend`] was handed to the network completely.
    pub fn finish_send(&mut self, number: u64, send: usize, time: TransferTime) -> Effects {
        let mut effects = Effects::default();
        let value = self.setup.sends[send].value;
        self.release(number, value, self.usage[value.0 as usize].home);
        if let Some(inference) = self.inferences.get_mut(&number) {
            inference.sends_left -= 1;
            inference.transfers.push(time);
        }
        self.finish_if_complete(number, &mut effects);
        effects
    }

    /// Checks that the sequence of an inference exists and, where there are states, that no other in flight changes them.
    fn check_sequence(&self, start: &Start) -> Result<(), RunStateError> {
        let Start { inference, sequence, .. } = *start;
        let sequences = self.setup.in_flight;
        if sequence >= sequences {
            return Err(RunStateError::NoSequence { inference, sequence, sequences });
        }
        let is_in_flight = |other: &Inference| other.sequence == Some(sequence);
        match !self.setup.states.is_empty() && self.inferences.values().any(is_in_flight) {
            true => Err(RunStateError::SequenceInFlight { inference, sequence }),
            false => Ok(()),
        }
    }

    /// The state of an inference, created by its first event.
    fn inference(&mut self, number: u64, phase: Phase) -> Result<&mut Inference, RunStateError> {
        let setup = &self.setup;
        let end = self.first_unfinished.saturating_add(setup.window());
        if number < self.first_unfinished || number >= end || self.finished.contains(&number) {
            return Err(RunStateError::NotInFlight { inference: number, from: self.first_unfinished, to: end - 1 });
        }
        if self.inferences.len() >= setup.in_flight as usize && !self.inferences.contains_key(&number) {
            return Err(RunStateError::TooMany { inference: number, most: setup.in_flight });
        }
        let made = || Inference {
            phase,
            sequence: None,
            values: BTreeMap::new(),
            next_stage: vec![0; setup.partitions.len()],
            sends_left: setup.sends.iter().filter(|send| setup.is_in(send.value, phase)).count(),
            outputs_left: setup.sink.as_ref().map(|_| {
                let outputs = (0u32..).map(ValueId).zip(&self.usage).filter(|(_, usage)| usage.is_output);
                outputs.filter(|(value, _)| setup.is_in(*value, phase)).count()
            }),
            stages: Vec::new(),
            transfers: Vec::new(),
            arrivals: Vec::new(),
        };
        let inference = self.inferences.entry(number).or_insert_with(made);
        if inference.phase != phase {
            return Err(RunStateError::OtherPhase(number));
        }
        Ok(inference)
    }

    /// Allocates a value: at its home, or, if it is received, wherever it is used. (The results of a running stage are
    /// the engine's until the stage ends.)
    fn begin_value(&mut self, number: u64, value: ValueId, now: Micros) -> Result<(), RunStateError> {
        let Some(inference) = self.inferences.get_mut(&number) else { return Ok(()) };
        if inference.values.contains_key(&value) {
            return Err(RunStateError::DuplicateValue(value.0));
        }
        let (usage, size) = (&self.usage[value.0 as usize], self.setup.values[value.0 as usize].bytes());
        let is_held = |holder: usize| match usage.received {
            true => usage.references[holder] > 0,
            false => holder == usage.home,
        };
        for (holder, memory) in self.memory.iter_mut().enumerate().filter(|(holder, _)| is_held(*holder)) {
            let shortfall = memory.shortfall(size);
            if shortfall > Bytes::ZERO {
                let device = self.setup.partitions.get(holder).map(|partition| partition.device.clone());
                return Err(RunStateError::Memory { device, size, shortfall });
            }
            memory.allocate(size);
        }
        inference.values.insert(value, ValueState { data: None, at: now, references: usage.references.clone() });
        Ok(())
    }

    /// Completes a value that was begun: schedules its sends and moves it to the partitions that use it.
    fn complete_value(
        &mut self,
        number: u64,
        value: ValueId,
        data: TensorData,
        now: Micros,
        effects: &mut Effects,
    ) -> Result<(), RunStateError> {
        let size = self.setup.values[value.0 as usize].bytes();
        let found = Bytes(data.bytes().len() as u64);
        if size != found {
            return Err(RunStateError::SizeMismatch { value: value.0, found, expected: size });
        }
        let usage = &self.usage[value.0 as usize];
        let Some(inference) = self.inferences.get_mut(&number) else { return Ok(()) };
        if usage.is_output {
            inference.outputs_left = inference.outputs_left.map(|left| left - 1);
        }
        let send = |&send: &usize| PendingSend { inference: number, send, data: data.clone(), ready: now };
        effects.sends.extend(usage.sends.iter().map(send));
        if !usage.received {
            for (holder, (memory, references)) in self.memory.iter_mut().zip(&usage.references).enumerate() {
                match (holder == usage.home, *references > 0) {
                    (true, false) => memory.free(size),
                    (false, true) if memory.shortfall(size) > Bytes::ZERO => {
                        let device = self.setup.partitions.get(holder).map(|partition| partition.device.clone());
                        return Err(RunStateError::Memory { device, size, shortfall: memory.shortfall(size) });
                    }
                    (false, true) => memory.allocate(size),
                    _ => {}
                }
            }
        }
        if let Some(state) = inference.values.get_mut(&value) {
            if usage.received {
                inference.arrivals.push(ArrivalTime { value, start: state.at, end: now });
            }
            state.at = now;
            state.data = usage.references.iter().any(|references| *references > 0).then_some(data);
        }
        Ok(())
    }

    /// Drops one of a holder's references to a value, and the value with the last one. The entry stays, so that a
    /// duplicate is detected.
    fn release(&mut self, number: u64, value: ValueId, holder: usize) {
        let size = self.setup.values[value.0 as usize].bytes();
        let state = self.inferences.get_mut(&number).and_then(|inference| inference.values.get_mut(&value));
        let Some(state) = state.filter(|state| state.references[holder] > 0) else { return };
        state.references[holder] -= 1;
        if state.references[holder] == 0 {
            self.memory[holder].free(size);
        }
        if state.references.iter().all(|references| *references == 0) {
            state.data = None;
        }
    }

    /// The state that the last inference of `sequence` left for `operand`, which its home no longer holds.
    fn take_state(&mut self, sequence: u32, operand: ValueId) -> Option<TensorData> {
        let left = self.states.remove(&(sequence, self.setup.value(operand)?.name.clone()))?;
        self.memory[self.usage[operand.0 as usize].home].free(Bytes(left.bytes().len() as u64));
        Some(left)
    }

    /// Keeps the states that an inference leaves, whose results are complete.
    fn keep_states(&mut self, number: u64) {
        let setup = self.setup.clone();
        let Some(Inference { phase, sequence: Some(sequence), .. }) = self.inferences.get(&number) else { return };
        let (phase, sequence) = (*phase, *sequence);
        for State { operand, result } in setup.states_in(phase) {
            let left = self.inferences.get(&number).and_then(|inference| inference.values.get(result)?.data.clone());
            let home = self.usage[operand.0 as usize].home;
            if let Some(data) = left {
                self.release(number, *result, home);
                self.memory[home].allocate(Bytes(data.bytes().len() as u64));
                self.states.insert((sequence, setup.values[operand.0 as usize].name.clone()), data);
            }
        }
    }

    /// Delivers the outputs if all are present, and ends the inference if nothing is left to do for it.
    fn finish_if_complete(&mut self, number: u64, effects: &mut Effects) {
        let Some(inference) = self.inferences.get_mut(&number) else { return };
        if let (Some(0), Some(sink)) = (inference.outputs_left, &self.setup.sink) {
            let values = self.setup.values_in(sink, inference.phase);
            let data = |(index, value): &(u32, ValueId)| {
                Some((*index, inference.values.get(value).and_then(|value| value.data.clone())?))
            };
            effects.outputs = values.iter().map(data).collect::<Option<_>>().map(|outputs| (number, outputs));
            inference.outputs_left = None;
            let holder = sink.partition.map_or(self.setup.partitions.len(), |p| p as usize);
            let values: Vec<ValueId> = values.into_iter().map(|(_, value)| value).collect();
            distinct(&values).into_iter().for_each(|value| self.release(number, value, holder));
        }
        let Some(inference) = self.inferences.get(&number) else { return };
        let stages = self.phases.iter().flatten().filter(|phase| **phase == inference.phase).count();
        let is_left = |state: &State| inference.values.get(&state.result).is_some_and(|value| value.data.is_some());
        let is_complete = inference.sequence.is_some()
            && inference.stages.len() == stages
            && inference.sends_left == 0
            && inference.outputs_left.is_none()
            && self.setup.states_in(inference.phase).all(is_left);
        if is_complete {
            self.keep_states(number);
        }
        if is_complete && let Some(inference) = self.inferences.remove(&number) {
            self.finished.insert(number);
            while self.finished.remove(&self.first_unfinished) {
                self.first_unfinished += 1;
            }
            let Inference { stages, transfers, arrivals, .. } = inference;
            let memory = self.memory();
            effects.finished = Some(InferenceTrace {
                inference: number,
                stages,
                transfers,
                arrivals,
                memory,
                ..InferenceTrace::default()
            });
        }
    }
}
