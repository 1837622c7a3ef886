//! Where the runs of one setup stand on one server: which values are here, which stage may start next, what
//! that takes of each device's memory.
//!
//! A state machine without clock, thread or socket: whoever computes, sends and receives reports to it, and does
//! what the returned [`Effects`] say. Several inputs may be under way; each partition's stages run in order for
//! each of them, and an earlier input goes first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    measured::{ArrivalTime, DeviceMemory, Measured, StageTime, StepTime, TransferTime},
    setup::{Setup, ValueId},
};
use crate::{
    graph::TensorData,
    units::{Bytes, Micros},
};

/// See the module's head.
#[derive(Debug)]
pub struct Board {
    setup: Arc<Setup>,
    usage: Vec<Usage>,
    /// One a partition, and a last one for what is held in no device's memory.
    tracks: Vec<Track>,
    /// Those that are under way here.
    inferences: BTreeMap<u64, Inference>,
    /// The first inference that is not finished here, and later ones that are.
    floor: u64,
    finished: BTreeSet<u64>,
}

/// What must happen because of what was reported.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    /// To be sent, in this order.
    pub departures: Vec<Departure>,
    /// The outputs of an inference that reached the sink.
    pub arrived: Option<(u64, Vec<TensorData>)>,
    /// An inference for which nothing is left to do here.
    pub finished: Option<Measured>,
}

/// A value that is to be sent to a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Departure {
    pub inference: u64,
    /// Index into [`Setup::sends`].
    pub send: usize,
    pub data: TensorData,
    pub ready: Micros,
}

/// A stage to be run now. What nothing else needs is here only: it is freed as soon as the engine has no use for it.
#[derive(Debug, PartialEq)]
pub struct Work {
    pub inference: u64,
    pub stage: usize,
    pub operands: Vec<TensorData>,
    /// When the last operand was there.
    pub ready: Micros,
}

/// How a stage ran.
#[derive(Debug)]
pub struct Ran {
    pub results: Vec<TensorData>,
    pub start: Micros,
    pub end: Micros,
    pub steps: Vec<StepTime>,
    /// Most memory the engine took beyond parameters at one time: its tensors, results and operands' copies among
    /// them, and workspace.
    pub peak: Bytes,
}

/// What somebody reported cannot be: the setup does not have it, or it is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    #[error("input {inference} is not under way: inputs {from} to {to} are")]
    NotUnderWay { inference: u64, from: u64, to: u64 },
    #[error("value {0} is not expected from another server")]
    Unexpected(u32),
    #[error("value {0} arrived twice for the same input")]
    Twice(u32),
    #[error("value {value} has {found} bytes, {expected} were expected")]
    Size { value: u32, found: usize, expected: u64 },
}

/// How a value is used on this server, the same for every inference.
#[derive(Debug, Clone, Default)]
struct Usage {
    received: bool,
    /// The track of the partition that makes it, holds it for the source, or sends it.
    home: usize,
    sends: Vec<usize>,
    is_output: bool,
    /// For each track the reasons to hold it: stages that read it, sends from there, being an output there.
    claims: Vec<u32>,
}

/// The memory of one partition's device.
#[derive(Debug, Clone, Default)]
struct Track {
    parameters: Bytes,
    /// Most that was taken while that was made ready.
    loading: Bytes,
    live: Bytes,
    /// Most that was live since the running stage began; `None` while none is running.
    most_live: Option<Bytes>,
    peak: Bytes,
}

#[derive(Debug)]
struct Inference {
    started: bool,
    held: BTreeMap<ValueId, Held>,
    next_stage: Vec<usize>,
    sends_left: usize,
    /// Outputs that the sink waits for; `None` once they were handed over, and where the sink is elsewhere.
    outputs_left: Option<usize>,
    stages: Vec<StageTime>,
    transfers: Vec<TransferTime>,
    arrivals: Vec<ArrivalTime>,
}

#[derive(Debug)]
struct Held {
    /// `None` while it is being computed or received.
    data: Option<TensorData>,
    /// When it became complete; before that, when it was begun.
    at: Micros,
    claims: Vec<u32>,
}

impl Board {
    /// `setup` must have passed [`Setup::check`].
    pub fn new(setup: &Arc<Setup>) -> Board {
        let nowhere = setup.partitions.len();
        let mut usage =
            vec![Usage { home: nowhere, claims: vec![0; nowhere + 1], ..Usage::default() }; setup.values.len()];
        for value in setup.received() {
            usage[value.0 as usize].received = true;
        }
        for (index, partition) in setup.partitions.iter().enumerate() {
            for stage in &partition.stages {
                distinct(&stage.operands).into_iter().for_each(|v| usage[v.0 as usize].claims[index] += 1);
                stage.results.iter().for_each(|v| usage[v.0 as usize].home = index);
            }
        }
        if let Some(source) = &setup.source {
            let home = source.partition.map_or(nowhere, |p| p as usize);
            source.values.iter().for_each(|v| usage[v.0 as usize].home = home);
        }
        for (index, outgoing) in setup.sends.iter().enumerate() {
            let value = &mut usage[outgoing.value.0 as usize];
            value.sends.push(index);
            value.claims[value.home] += 1;
        }
        if let Some(sink) = &setup.sink {
            let place = sink.partition.map_or(nowhere, |p| p as usize);
            for value in distinct(&sink.values) {
                let value = &mut usage[value.0 as usize];
                value.claims[place] += 1;
                value.is_output = true;
            }
        }
        let tracks = vec![Track::default(); nowhere + 1];
        Board { setup: setup.clone(), usage, tracks, inferences: BTreeMap::new(), floor: 0, finished: BTreeSet::new() }
    }

    /// What the loaded stages of a partition hold for good, and the most that loading them took.
    pub fn set_parameters(&mut self, partition: usize, bytes: Bytes, loading: Bytes) {
        let track = &mut self.tracks[partition];
        (track.parameters, track.loading) = (bytes, loading);
        track.peak = track.peak.max(track.parameters + track.live);
    }

    /// Most memory that a partition has taken so far.
    pub fn peak(&self, partition: usize) -> Bytes {
        self.tracks[partition].peak
    }

    pub fn memory(&self) -> Vec<DeviceMemory> {
        let of = |(index, track): (usize, &Track)| DeviceMemory {
            device: self.setup.partitions[index].device.clone(),
            parameters: track.parameters,
            peak: track.peak,
            loading: track.loading,
        };
        self.tracks.iter().take(self.setup.partitions.len()).enumerate().map(of).collect()
    }

    /// Inference `number` begins everywhere; at the source its `inputs` are let in, one for each of the source's
    /// values.
    pub fn start(&mut self, number: u64, inputs: &[TensorData], now: Micros) -> Result<Effects, BoardError> {
        self.open(number)?.started = true;
        let values = self.setup.source.as_ref().map(|s| s.values.clone()).unwrap_or_default();
        let mut effects = Effects::default();
        for (value, data) in values.into_iter().zip(inputs) {
            self.begin(number, value, now)?;
            self.put(number, value, data.clone(), now, &mut effects)?;
        }
        self.settle(number, &mut effects);
        Ok(effects)
    }

    /// The first bytes of a value came in from another server.
    pub fn arriving(&mut self, number: u64, value: ValueId, now: Micros) -> Result<(), BoardError> {
        self.open(number)?;
        match self.usage.get(value.0 as usize) {
            Some(usage) if usage.received => self.begin(number, value, now),
            _ => Err(BoardError::Unexpected(value.0)),
        }
    }

    /// A value that was [`Board::arriving`] is here.
    pub fn arrived(
        &mut self,
        number: u64,
        value: ValueId,
        data: TensorData,
        now: Micros,
    ) -> Result<Effects, BoardError> {
        let mut effects = Effects::default();
        self.put(number, value, data, now, &mut effects)?;
        self.settle(number, &mut effects);
        Ok(effects)
    }

    /// Whether some inference has begun here and is not finished.
    pub fn is_under_way(&self) -> bool {
        !self.inferences.is_empty()
    }

    /// The stage that `partition` should run now, if one can start.
    pub fn next(&mut self, partition: usize) -> Option<Work> {
        let stages = &self.setup.partitions[partition].stages;
        let is_ready = |number: &u64| {
            let inference = &self.inferences[number];
            let stage = stages.get(inference.next_stage[partition])?;
            let here = |operand| inference.held.get(operand).is_some_and(|held| held.data.is_some());
            // A stage without operands waits for nothing but the start.
            (stage.operands.iter().all(here) && (inference.started || !stage.operands.is_empty())).then_some(*number)
        };
        let number = self.inferences.keys().find_map(is_ready)?;
        let inference = self.inferences.get_mut(&number)?;
        let index = inference.next_stage[partition];
        inference.next_stage[partition] += 1;
        let values = stages[index].operands.clone();
        let held = values.iter().filter_map(|value| inference.held.get(value));
        let (operands, times): (Vec<_>, Vec<_>) = held.map(|held| (held.data.clone(), held.at)).unzip();
        for value in distinct(&values) {
            self.release(number, value, partition);
        }
        let track = &mut self.tracks[partition];
        track.most_live = Some(track.live);
        Some(Work {
            inference: number,
            stage: index,
            operands: operands.into_iter().flatten().collect(),
            ready: times.into_iter().fold(Micros::ZERO, Micros::max),
        })
    }

    /// The stage of `number` that `partition` was given ran.
    pub fn done(
        &mut self,
        partition: usize,
        (number, stage, ready): (u64, usize, Micros),
        ran: Ran,
    ) -> Result<Effects, BoardError> {
        let track = &mut self.tracks[partition];
        let most = track.most_live.take().unwrap_or(track.live);
        track.peak = track.peak.max(track.parameters + most + ran.peak);
        let part = &self.setup.partitions[partition];
        let (device, made) = (part.device.clone(), part.stages[stage].results.clone());
        let mut effects = Effects::default();
        for (value, data) in made.into_iter().zip(ran.results) {
            self.begin(number, value, ran.end)?;
            self.put(number, value, data, ran.end, &mut effects)?;
        }
        let time = StageTime { device, stage: stage as u32, ready, start: ran.start, end: ran.end, steps: ran.steps };
        if let Some(inference) = self.inferences.get_mut(&number) {
            inference.stages.push(time);
        }
        self.settle(number, &mut effects);
        Ok(effects)
    }

    /// A departure left completely.
    pub fn sent(&mut self, number: u64, send: usize, time: TransferTime) -> Effects {
        let mut effects = Effects::default();
        let value = self.setup.sends[send].value;
        self.release(number, value, self.usage[value.0 as usize].home);
        if let Some(inference) = self.inferences.get_mut(&number) {
            inference.sends_left -= 1;
            inference.transfers.push(time);
        }
        self.settle(number, &mut effects);
        effects
    }

    /// The state of inference `number`, which begins here if this is the first that is heard of it.
    fn open(&mut self, number: u64) -> Result<&mut Inference, BoardError> {
        let past = self.floor + u64::from(self.setup.in_flight);
        if number < self.floor || number >= past || self.finished.contains(&number) {
            return Err(BoardError::NotUnderWay { inference: number, from: self.floor, to: past - 1 });
        }
        let outputs = self.setup.sink.as_ref().map(|_| self.usage.iter().filter(|u| u.is_output).count());
        let (partitions, sends_left) = (self.setup.partitions.len(), self.setup.sends.len());
        Ok(self.inferences.entry(number).or_insert_with(|| Inference {
            started: false,
            held: BTreeMap::new(),
            next_stage: vec![0; partitions],
            sends_left,
            outputs_left: outputs,
            stages: Vec::new(),
            transfers: Vec::new(),
            arrivals: Vec::new(),
        }))
    }

    /// Memory for `value` is taken from now on: where it is made, or where it is used if it comes from elsewhere.
    /// (A running stage's results are the engine's until they are handed over.)
    fn begin(&mut self, number: u64, value: ValueId, now: Micros) -> Result<(), BoardError> {
        let Some(inference) = self.inferences.get_mut(&number) else { return Ok(()) };
        if inference.held.contains_key(&value) {
            return Err(BoardError::Twice(value.0));
        }
        let (usage, size) = (&self.usage[value.0 as usize], self.setup.values[value.0 as usize].bytes());
        for (index, (track, claims)) in self.tracks.iter_mut().zip(&usage.claims).enumerate() {
            if if usage.received { *claims > 0 } else { index == usage.home } {
                track.hold(size);
            }
        }
        inference.held.insert(value, Held { data: None, at: now, claims: usage.claims.clone() });
        Ok(())
    }

    /// The content of a value that was begun is here.
    fn put(
        &mut self,
        number: u64,
        value: ValueId,
        data: TensorData,
        now: Micros,
        effects: &mut Effects,
    ) -> Result<(), BoardError> {
        let size = self.setup.values[value.0 as usize].bytes();
        if size.0 != data.bytes().len() as u64 {
            return Err(BoardError::Size { value: value.0, found: data.bytes().len(), expected: size.0 });
        }
        let usage = &self.usage[value.0 as usize];
        let Some(inference) = self.inferences.get_mut(&number) else { return Ok(()) };
        if usage.is_output {
            inference.outputs_left = inference.outputs_left.map(|left| left - 1);
        }
        effects.departures.extend(usage.sends.iter().map(|&send| Departure {
            inference: number,
            send,
            data: data.clone(),
            ready: now,
        }));
        if !usage.received {
            for (index, (track, claims)) in self.tracks.iter_mut().zip(&usage.claims).enumerate() {
                match (index == usage.home, *claims > 0) {
                    (true, false) => track.live = track.live - size,
                    (false, true) => track.hold(size),
                    _ => {}
                }
            }
        }
        if let Some(held) = inference.held.get_mut(&value) {
            if usage.received {
                inference.arrivals.push(ArrivalTime { value, start: held.at, end: now });
            }
            held.at = now;
            held.data = usage.claims.iter().any(|claims| *claims > 0).then_some(data);
        }
        Ok(())
    }

    /// One reason less to hold `value` in the memory of `track`. An entry without content stays behind, by which
    /// a second arrival is noticed.
    fn release(&mut self, number: u64, value: ValueId, track: usize) {
        let size = self.setup.values[value.0 as usize].bytes();
        let held = self.inferences.get_mut(&number).and_then(|inference| inference.held.get_mut(&value));
        let Some(held) = held.filter(|held| held.claims[track] > 0) else { return };
        held.claims[track] -= 1;
        if held.claims[track] == 0 {
            let track = &mut self.tracks[track];
            track.live = track.live - size;
        }
        if held.claims.iter().all(|claims| *claims == 0) {
            held.data = None;
        }
    }

    /// Hands over the outputs if all are here, and ends the inference if nothing is left to do for it.
    fn settle(&mut self, number: u64, effects: &mut Effects) {
        let Some(inference) = self.inferences.get_mut(&number) else { return };
        if let (Some(0), Some(sink)) = (inference.outputs_left, &self.setup.sink) {
            let data = |value: &ValueId| inference.held.get(value).and_then(|held| held.data.clone());
            effects.arrived = sink.values.iter().map(data).collect::<Option<_>>().map(|outputs| (number, outputs));
            inference.outputs_left = None;
            let place = sink.partition.map_or(self.setup.partitions.len(), |p| p as usize);
            distinct(&sink.values).into_iter().for_each(|value| self.release(number, value, place));
        }
        let stages: usize = self.setup.partitions.iter().map(|p| p.stages.len()).sum();
        let Some(inference) = self.inferences.get(&number) else { return };
        let is_over = inference.started
            && inference.stages.len() == stages
            && inference.sends_left == 0
            && inference.outputs_left.is_none();
        if is_over && let Some(inference) = self.inferences.remove(&number) {
            self.finished.insert(number);
            while self.finished.remove(&self.floor) {
                self.floor += 1;
            }
            let Inference { stages, transfers, arrivals, .. } = inference;
            let memory = self.memory();
            effects.finished = Some(Measured { inference: number, stages, transfers, arrivals, memory });
        }
    }
}

impl Track {
    fn hold(&mut self, size: Bytes) {
        self.live += size;
        self.most_live = self.most_live.map(|most| most.max(self.live));
        self.peak = self.peak.max(self.parameters + self.live);
    }
}

fn distinct(values: &[ValueId]) -> BTreeSet<ValueId> {
    values.iter().copied().collect()
}
