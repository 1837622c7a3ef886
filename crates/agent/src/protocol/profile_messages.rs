//! The messages of a profile: the task, its constants and contents, written in messages of limited size and reassembled.

use super::{
    chunks::{self, Assembler, DocumentBuffer},
    constants::{self, ConstantHeaders, ConstantReader, HeldConstants, Messages},
    error::MessageError,
    frame::Frame,
    message::ProfileRequest,
    named_tensors::NamedTensors,
    profile::ProfileTask,
};
use edgecut_graph::units::Bytes;

impl ProfileTask {
    /// The messages of the task, of its constants and of the contents that it announces.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub(crate) fn into_messages(
        mut self,
        mut contents: NamedTensors,
    ) -> Result<Messages<ProfileRequest>, serde_json::Error> {
        let headers = ConstantHeaders {
            announcement: |last| ProfileRequest::Constants { last },
            content: |number| ProfileRequest::Constant { number },
        };
        let detached = constants::detach(std::iter::once(&mut self.graph));
        let document = chunks::document(serde_json::to_vec(&self)?, |last| ProfileRequest::Task { last });
        let announced =
            (0u32..).zip(self.streamed).filter_map(move |(index, s)| Some((index, contents.remove(&s.name)?)));
        let tensors = announced.flat_map(|(index, data)| chunks::tensor(ProfileRequest::Content { index }, &data));
        Messages::new(detached, headers, document, tensors)
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
    pub fn read(
        &mut self,
        message: Frame<ProfileRequest>,
    ) -> Result<Option<(ProfileTask, NamedTensors)>, MessageError> {
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let Frame { header, payload } = message;
        match (header, &mut self.task) {
            (ProfileRequest::Constants { last }, None) => self.constants.announce(&payload, last)?,
            (ProfileRequest::Constant { number }, Some(task)) => {
                self.constants.read(number, &payload, &mut [&mut task.graph])?;
            }
            (ProfileRequest::Task { last }, None) => {
                let Some(json) = self.document.push(&payload, last)? else { return Ok(None) };
                let task: ProfileTask = serde_json::from_slice(&json)
                    .map_err(|e| MessageError::Malformed(format!("invalid profile task: {e}")))?;
                let task = self.task.insert(task);
                self.wanted = self.constants.request(&mut [&mut task.graph])?;
            }
            (ProfileRequest::Content { index }, Some(task)) => {
                let announced = task.streamed.get(index as usize);
                let announced = announced.ok_or_else(|| wrong("a tensor that the task does not announce"))?;
                if let Some(data) = self.tensors.push(index, &announced.ty, &payload)?.complete() {
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

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use time::OffsetDateTime;

    use super::*;
    use crate::protocol::{
        constants::NothingHeld, named_tensors::StreamedTensor, profile::ProfileEvent, received::Received,
    };
    use edgecut_engine::{EngineChoice, energy::EnergySource, statistics::Statistics};
    use edgecut_graph::{
        DType, Granularity, Graph, Origin, TensorData, TensorType,
        units::{Joules, Micros, Watts},
    };
    use edgecut_profile::{Conditions, Cost, Energy, Governor, Measurement, MeasurementMode, Sampling};

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
            let messages = task.clone().into_messages(contents.clone()).unwrap();
            let messages: Vec<_> = messages.all().collect();
            let (last, before) = messages.split_last().unwrap();
            for message in before {
                assert_eq!(reader.read(message.clone()).unwrap(), None);
            }
            assert_eq!(reader.read(last.clone()).unwrap(), Some((task, contents)));
            assert!(reader.read(ProfileRequest::Content { index: 0 }.into()).is_err());
        }
    }

    pub(in crate::protocol) fn cost() -> Cost {
        Cost {
            time: Statistics { n: 5, median: Micros(1.0), mad: Micros(0.5), min: Micros(0.25), p95: Micros(3.0) },
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
        }
    }

    #[test]
    fn results_survive_a_round_trip() {
        let failed = Measurement { item: 8, cost: Err("no kernel".to_string()) };
        for event in [
            ProfileEvent::Whole(cost()),
            ProfileEvent::Item(Measurement { item: 7, cost: Ok(cost()) }),
            ProfileEvent::Item(failed),
            ProfileEvent::WaitingFor("process 7".to_string()),
        ] {
            let mut bytes = Vec::new();
            Frame::from(event.clone()).write(&mut bytes).unwrap();
            let read = Frame::<ProfileEvent>::read(&bytes[..]).unwrap();
            assert_eq!(read.header.checked().unwrap(), event);
        }
        let mut newer = serde_json::to_value(cost()).unwrap();
        newer["energy"]["source"] = "a newer one".into();
        newer["conditions"]["governor"] = "another".into();
        let known: Cost = rmp_serde::from_slice(&rmp_serde::to_vec(&newer).unwrap()).unwrap();
        let conditions = Conditions { governor: None, ..cost().conditions };
        assert_eq!(known, Cost { energy: None, conditions, ..cost() });
    }
}
