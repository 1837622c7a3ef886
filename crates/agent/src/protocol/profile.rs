//! Profiling on an agent: the request ([`ProfileTask`]), its results ([`ProfileEvent`]), and their messages.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use time::OffsetDateTime;

use super::{
    chunks::{Assembler, DocumentBuffer, chunks, document},
    constants::{self, ConstantReader, ConstantTransport, HeldConstants, Messages},
    error::MessageError,
    named_tensors::{NamedTensors, StreamedTensor},
    wire::{self, item_cost::Outcome, profile_event, profile_request},
};
use edgecut_engine::{EngineChoice, energy::EnergySource, statistics::Statistics};
use edgecut_graph::{
    Granularity, Graph,
    units::{Bytes, Joules, Micros, Watts},
};
use edgecut_profile::{Conditions, Cost, Energy, Governor, Measurement, MeasurementMode, Sampling, Signature};

/// What to measure on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileTask {
    /// The device's name on its server.
    pub device: SmolStr,
    /// Threads to compute with; by default the agent's own number.
    pub threads: Option<u32>,
    /// The engine to compute with; by default the agent's own.
    #[serde(default)]
    pub engine: Option<EngineChoice>,
    pub mode: MeasurementMode,
    pub granularity: Granularity,
    pub sampling: Sampling,
    /// How long to wait for the device; by default as the agent says.
    #[serde(default)]
    pub wait: Option<Micros>,
    /// Whether to measure every item that is not in `known`.
    pub items: bool,
    /// Whether to measure the model as a whole, after the items.
    pub whole: bool,
    /// Bytes to evict from the caches before every sample of the whole: the working set of the model that the graph is
    /// a part of.
    #[serde(default, rename = "displaces")]
    pub cache_flush: Option<Bytes>,
    /// Signatures that are measured already. Used by [`MeasurementMode::Isolated`] only.
    pub known: HashSet<Signature>,
    pub graph: Graph,
    /// Inputs and parameters whose contents follow; others are generated from their names.
    pub streamed: Vec<StreamedTensor>,
}

/// One result.
#[derive(Debug, Clone, PartialEq)]
pub enum ProfileEvent {
    Item(Measurement),
    Whole(Cost),
    /// Who is measuring on the agent's machine, so that this client has to wait.
    WaitingFor(String),
}

impl ProfileTask {
    /// The messages of the task, of its constants and of the contents that it announces.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub(crate) fn into_wire(
        mut self,
        mut contents: NamedTensors,
        transport: ConstantTransport,
    ) -> Result<Messages<wire::ProfileRequest>, serde_json::Error> {
        use profile_request::Request;
        let one = |request| wire::ProfileRequest { request: Some(request) };
        let detached = constants::detach(transport, std::iter::once(&mut self.graph));
        let json = serde_json::to_vec(&self)?;
        let announced =
            (0u32..).zip(self.streamed).filter_map(move |(index, s)| Some((index, contents.remove(&s.name)?)));
        let tensors = announced.flat_map(move |(tensor, data)| {
            let pieces = chunks(data.bytes());
            pieces.map(move |data| one(Request::Content(wire::TensorChunk { tensor, data })))
        });
        let announcement = |piece| wire::ProfileRequest { request: Some(Request::Constants(piece)) };
        let constant = |piece| wire::ProfileRequest { request: Some(Request::Constant(piece)) };
        let document = document(json).map(move |piece| one(Request::Task(piece)));
        Messages::with_constants(detached, announcement, document, constant, tensors)
    }
}

/// Reassembles a task and its contents.
#[derive(Debug)]
pub struct TaskReader {
    document: DocumentBuffer,
    constants: ConstantReader,
    task: Option<ProfileTask>,
    /// The numbers of the constants to ask for.
    wanted: Option<Vec<u32>>,
    tensors: Assembler<u32>,
    contents: NamedTensors,
}

impl TaskReader {
    /// For a task of at most `limit` as JSON, whose constants may be among those `held`.
    pub fn new(limit: Bytes, held: Box<dyn HeldConstants>) -> TaskReader {
        let (tensors, contents) = Default::default();
        let (document, constants) = (DocumentBuffer::new(limit), ConstantReader::new(limit, held));
        TaskReader { document, constants, task: None, wanted: None, tensors, contents }
    }

    /// The numbers of the constants that the client waits to be asked for, once.
    pub(crate) fn take_wanted(&mut self) -> Option<Vec<u32>> {
        self.wanted.take()
    }

    /// Bytes of the document so far, which is parsed with its last chunk.
    pub(crate) fn buffered(&self) -> usize {
        self.document.buffered()
    }

    /// Reads the next message; returns the task when its contents are complete.
    ///
    /// # Errors
    /// If the messages are not a valid task.
    pub fn read(&mut self, message: wire::ProfileRequest) -> Result<Option<(ProfileTask, NamedTensors)>, MessageError> {
        use profile_request::Request;
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        match (message.request, &mut self.task) {
            (Some(Request::Constants(piece)), None) => self.constants.announce(&piece)?,
            (Some(Request::Constant(piece)), Some(task)) => self.constants.read(&piece, &mut [&mut task.graph])?,
            (Some(Request::Task(piece)), None) => {
                let Some(json) = self.document.push(&piece)? else { return Ok(None) };
                let task: ProfileTask = serde_json::from_slice(&json)
                    .map_err(|e| MessageError::Malformed(format!("invalid profile task: {e}")))?;
                let task = self.task.insert(task);
                self.wanted = self.constants.request(&mut [&mut task.graph])?;
            }
            (Some(Request::Content(piece)), Some(task)) => {
                let announced = task.streamed.get(piece.tensor as usize);
                let announced = announced.ok_or_else(|| wrong("a tensor that the task does not announce"))?;
                if let Some(data) = self.tensors.push(piece.tensor, &announced.ty, &piece.data)?.complete() {
                    self.contents.insert(announced.name.clone(), data);
                }
            }
            _ => return Err(wrong("a profile must begin with its task, followed by its contents")),
        }
        let has_contents = self.task.as_ref().is_some_and(|task| task.streamed.len() == self.contents.len());
        let complete = has_contents && self.constants.is_complete();
        let task = if complete { self.task.take() } else { None };
        Ok(task.map(|task| (task, std::mem::take(&mut self.contents))))
    }
}

impl From<ProfileEvent> for wire::ProfileEvent {
    fn from(from: ProfileEvent) -> wire::ProfileEvent {
        let event = match from {
            ProfileEvent::Whole(cost) => profile_event::Event::Whole(cost.into()),
            ProfileEvent::WaitingFor(who) => profile_event::Event::WaitingFor(who),
            ProfileEvent::Item(Measurement { item, cost }) => profile_event::Event::Item(wire::ItemCost {
                item: item as u32,
                outcome: Some(match cost {
                    Ok(cost) => Outcome::Cost(cost.into()),
                    Err(failure) => Outcome::Failure(failure),
                }),
            }),
        };
        wire::ProfileEvent { event: Some(event) }
    }
}

impl ProfileEvent {
    /// `None` for a message that this version does not know.
    ///
    /// # Errors
    /// If a cost has a number that is negative or not finite.
    pub(crate) fn from_wire(from: wire::ProfileEvent) -> Result<Option<ProfileEvent>, MessageError> {
        let Some(event) = from.event else { return Ok(None) };
        Ok(Some(match event {
            profile_event::Event::Whole(cost) => ProfileEvent::Whole(cost.try_into()?),
            profile_event::Event::WaitingFor(who) => ProfileEvent::WaitingFor(wire::text(who)),
            // For what sends the task.
            profile_event::Event::Wanted(_) => return Ok(None),
            profile_event::Event::Item(wire::ItemCost { item, outcome }) => {
                let Some(outcome) = outcome else { return Ok(None) };
                let cost = match outcome {
                    Outcome::Cost(cost) => Ok(cost.try_into()?),
                    Outcome::Failure(failure) => Err(wire::text(failure)),
                };
                ProfileEvent::Item(Measurement { item: item as usize, cost })
            }
        }))
    }
}

impl From<Cost> for wire::Cost {
    fn from(from: Cost) -> wire::Cost {
        wire::Cost {
            n: from.time.n,
            median_us: from.time.median.0,
            mad_us: from.time.mad.0,
            min_us: from.time.min.0,
            p95_us: from.time.p95.0,
            cpu_median_us: from.cpu.0,
            kernels_median_us: from.kernels.map(|time| time.0),
            workspace_bytes: from.workspace.0,
            held_bytes: from.held.0,
            disturbed: from.disturbed,
            measured_at: from.conditions.measured_at.map(OffsetDateTime::unix_timestamp),
            governor: from.conditions.governor.map(|governor| governor.to_string()),
            load: from.conditions.load,
            energy: from.energy.map(|energy| wire::Energy {
                run_j: energy.run.0,
                idle_w: energy.idle.0,
                source: energy.source.to_string(),
            }),
        }
    }
}

impl TryFrom<wire::Cost> for Cost {
    type Error = MessageError;

    /// Costs are stored, and plans are made from them: numbers that are no times are refused.
    fn try_from(from: wire::Cost) -> Result<Cost, MessageError> {
        let times = [from.median_us, from.mad_us, from.min_us, from.p95_us, from.cpu_median_us];
        let energy = from.energy.iter().flat_map(|energy| [energy.run_j, energy.idle_w]);
        let others = [from.disturbed].into_iter().chain(from.kernels_median_us).chain(from.load).chain(energy);
        if let Some(wrong) = times.into_iter().chain(others).find(|number| !number.is_finite() || *number < 0.0) {
            return Err(MessageError::Malformed(format!("a cost with {wrong}: expected finite numbers from 0")));
        }
        Ok(Cost {
            time: Statistics {
                n: from.n,
                median: Micros(from.median_us),
                mad: Micros(from.mad_us),
                min: Micros(from.min_us),
                p95: Micros(from.p95_us),
            },
            cpu: Micros(from.cpu_median_us),
            kernels: from.kernels_median_us.map(Micros),
            workspace: Bytes(from.workspace_bytes),
            held: Bytes(from.held_bytes),
            disturbed: from.disturbed,
            // Energy from an unknown source is dropped.
            energy: from.energy.and_then(|energy| {
                let source = EnergySource::named(&energy.source)?;
                Some(Energy { run: Joules(energy.run_j), idle: Watts(energy.idle_w), source })
            }),
            conditions: Conditions {
                measured_at: from.measured_at.and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok()),
                governor: from.governor.as_deref().and_then(Governor::named),
                load: from.load,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::constants::NothingHeld;
    use edgecut_graph::{DType, Origin, TensorData, TensorType};

    #[test]
    fn a_task_and_its_contents_are_reassembled() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::U8, &[3 << 20]);
        graph.add_tensor("x", ty.clone(), Origin::Input);
        let data = TensorData::new(DType::U8, [3 << 20], vec![7; 3 << 20]).unwrap();
        graph.add_tensor("w", ty.clone(), Origin::Constant(data.clone()));
        for streamed in [vec![], vec![StreamedTensor { name: "x".into(), ty }]] {
            let contents: NamedTensors = streamed.iter().map(|s| (s.name.clone(), data.clone())).collect();
            let task = ProfileTask {
                device: "cpu".into(),
                threads: Some(2),
                engine: Some(EngineChoice::Auto),
                mode: MeasurementMode::InSitu,
                granularity: Granularity::Op,
                sampling: Sampling::default(),
                wait: Some(Micros(3.0)),
                items: true,
                whole: false,
                cache_flush: Some(Bytes(9)),
                known: HashSet::new(),
                graph: graph.clone(),
                streamed,
            };
            let mut reader = TaskReader::new(Bytes(8 << 20), Box::new(NothingHeld));
            let messages = task.clone().into_wire(contents.clone(), ConstantTransport::Streamed).unwrap();
            let messages: Vec<_> = messages.all().collect();
            let (last, before) = messages.split_last().unwrap();
            for message in before {
                assert_eq!(reader.read(message.clone()).unwrap(), None);
            }
            assert_eq!(reader.read(last.clone()).unwrap(), Some((task, contents)));
            assert!(reader.read(wire::ProfileRequest { request: None }).is_err());
        }
    }

    #[test]
    fn results_survive_a_round_trip() {
        let time = Statistics { n: 5, median: Micros(1.0), mad: Micros(0.5), min: Micros(0.25), p95: Micros(3.0) };
        let cost = Cost {
            time,
            cpu: Micros(2.0),
            kernels: Some(Micros(0.75)),
            workspace: Bytes(3),
            held: Bytes(4),
            disturbed: 0.5,
            energy: Some(Energy { run: Joules(0.25), idle: Watts(7.5), source: EnergySource::Hwmon }),
            conditions: Conditions {
                measured_at: OffsetDateTime::from_unix_timestamp(1_800_000_000).ok(),
                governor: Some(Governor::Schedutil),
                load: Some(0.5),
            },
        };
        let failed = Measurement { item: 8, cost: Err("no kernel".to_string()) };
        for event in [
            ProfileEvent::Whole(cost),
            ProfileEvent::Item(Measurement { item: 7, cost: Ok(cost) }),
            ProfileEvent::Item(failed),
            ProfileEvent::WaitingFor("process 7".to_string()),
        ] {
            assert_eq!(ProfileEvent::from_wire(event.clone().into()).unwrap(), Some(event));
        }
        assert_eq!(ProfileEvent::from_wire(wire::ProfileEvent { event: None }).unwrap(), None);
        for wrong in [f64::NAN, f64::INFINITY, -1.0] {
            let cost = wire::Cost { p95_us: wrong, ..cost.into() };
            let energy = wire::Energy { run_j: 1.0, idle_w: wrong, source: "nvml".to_string() };
            for cost in [cost.clone(), wire::Cost { energy: Some(energy), p95_us: 1.0, ..cost }] {
                let event = wire::ProfileEvent { event: Some(profile_event::Event::Whole(cost)) };
                assert!(ProfileEvent::from_wire(event).unwrap_err().to_string().contains("a cost with"));
            }
        }
        let energy = wire::Energy { run_j: 1.0, idle_w: 1.0, source: "a newer one".to_string() };
        let told = Cost::try_from(wire::Cost { energy: Some(energy), ..cost.into() }).unwrap();
        assert_eq!(told, Cost { energy: None, ..cost });
    }
}
