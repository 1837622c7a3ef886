//! The messages of a run: commands and events, written in messages of limited size and reassembled.

use std::sync::Arc;

use super::{
    chunks::{self, Assembled, Assembler, DocumentBuffer},
    constants::{self, ConstantHeaders, ConstantReader, HeldConstants, Messages},
    error::MessageError,
    frame::Frame,
    message::{RunReply, RunRequest},
    received::Received,
    run::{RunCommand, RunEvent},
    setup::{Setup, ValueId},
};
use edgecut_graph::{TensorType, units::Bytes};

const CONSTANTS: ConstantHeaders<RunRequest> = ConstantHeaders {
    announcement: |last| RunRequest::Constants { last },
    content: |number| RunRequest::Constant { number },
};

impl RunCommand {
    /// The messages of the command; those of a setup have the constants of its graphs.
    ///
    /// # Errors
    /// If the setup cannot be written as JSON.
    pub(crate) fn into_messages(self) -> Result<Messages<RunRequest>, serde_json::Error> {
        let (mut detached, none) = (Default::default(), std::iter::empty());
        let messages: Box<dyn Iterator<Item = _> + Send> = match self {
            RunCommand::Setup(setup) => {
                let mut setup = Arc::unwrap_or_clone(setup);
                detached = constants::detach(setup.graphs_mut());
                Box::new(chunks::document(serde_json::to_vec(&setup)?, |last| RunRequest::Setup { last }))
            }
            RunCommand::Parameter { index, data } => Box::new(chunks::tensor(RunRequest::Parameter { index }, &data)),
            RunCommand::Input { index, data } => Box::new(chunks::tensor(RunRequest::Input { index }, &data)),
            RunCommand::Connect => Box::new(std::iter::once(RunRequest::Connect.into())),
            RunCommand::Start(start) => Box::new(std::iter::once(RunRequest::Start(start).into())),
        };
        Messages::new(detached, CONSTANTS, messages, none)
    }
}

/// Reassembles commands.
#[derive(Debug)]
pub struct CommandReader {
    document: DocumentBuffer,
    constants: ConstantReader,
    /// Until its constants are complete.
    incomplete: Option<Setup>,
    /// The numbers of the constants to ask for.
    wanted: Option<Vec<u32>>,
    setup: Option<Arc<Setup>>,
    tensors: Assembler<(&'static str, u32)>,
}

impl CommandReader {
    /// For a setup of at most `limit` as JSON, whose constants may be among those `held`.
    pub fn new(limit: Bytes, held: Box<dyn HeldConstants>) -> CommandReader {
        CommandReader {
            document: DocumentBuffer::new(limit),
            constants: ConstantReader::new(limit, held),
            incomplete: None,
            wanted: None,
            setup: None,
            tensors: Assembler::default(),
        }
    }

    /// Bytes of the document so far, which is parsed with its last chunk.
    pub(crate) fn buffered(&self) -> usize {
        self.document.buffered()
    }

    /// The numbers of the constants that the client waits to be asked for, once.
    pub(crate) fn take_wanted(&mut self) -> Option<Vec<u32>> {
        self.wanted.take()
    }

    /// Reads the next message; returns a command with its last one.
    ///
    /// # Errors
    /// If the messages are not a valid command, or the setup is inconsistent.
    pub fn read(&mut self, message: Frame<RunRequest>) -> Result<Option<RunCommand>, MessageError> {
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let Frame { header, payload } = message;
        Ok(match header {
            RunRequest::Constants { last } if self.incomplete.is_none() && self.setup.is_none() => {
                self.constants.announce(&payload, last)?;
                None
            }
            RunRequest::Constants { .. } => return Err(wrong("constants are announced before the setup")),
            RunRequest::Setup { last } => {
                let Some(json) = self.document.push(&payload, last)? else { return Ok(None) };
                let setup: Setup = serde_json::from_slice(&json)
                    .map_err(|e| MessageError::Malformed(format!("invalid setup: {e}")))?;
                setup.check()?;
                let setup = self.incomplete.insert(setup);
                self.wanted = self.constants.request(&mut setup.graphs_mut().collect::<Vec<_>>())?;
                self.complete_setup()
            }
            RunRequest::Constant { number } => {
                let setup = self.incomplete.as_mut().ok_or_else(|| wrong("a constant of no setup"))?;
                self.constants.read(number, &payload, &mut setup.graphs_mut().collect::<Vec<_>>())?;
                self.complete_setup()
            }
            RunRequest::Parameter { index } => {
                let ty = self.setup.as_ref().and_then(|s| Some(&s.streamed.get(index as usize)?.ty));
                let ty = ty.ok_or_else(|| wrong("a parameter that the setup does not announce"))?;
                let data = self.tensors.push(("parameter", index), ty, &payload)?;
                data.complete().map(|data| RunCommand::Parameter { index, data })
            }
            RunRequest::Input { index } => {
                let ty = self.setup.as_ref().and_then(|s| s.source_type(index));
                let ty = ty.ok_or_else(|| wrong("an input that the setup does not announce"))?;
                let data = self.tensors.push(("input", index), ty, &payload)?;
                data.complete().map(|data| RunCommand::Input { index, data })
            }
            RunRequest::Connect => Some(RunCommand::Connect),
            RunRequest::KeepAlive => None,
            RunRequest::Start(start) => Some(RunCommand::Start(start)),
        })
    }

    /// The setup, once it has all constants.
    fn complete_setup(&mut self) -> Option<RunCommand> {
        let setup = Arc::new(self.incomplete.take_if(|_| self.constants.is_complete())?);
        self.setup = Some(setup.clone());
        Some(RunCommand::Setup(setup))
    }
}

impl RunEvent {
    /// The messages of the event.
    pub(crate) fn into_messages(self) -> Box<dyn Iterator<Item = Frame<RunReply>> + Send> {
        match self {
            RunEvent::Output { index, data } => Box::new(chunks::tensor(RunReply::Output { index }, &data)),
            event => Box::new(std::iter::once(RunReply::Event(event).into())),
        }
    }
}

/// Reassembles events.
#[derive(Debug)]
pub struct EventReader {
    /// Types of the sink's values.
    outputs: Vec<TensorType>,
    tensors: Assembler<u32>,
}

impl EventReader {
    /// For the events of a run of `setup`.
    pub fn new(setup: &Setup) -> EventReader {
        let values = setup.sink.iter().flat_map(|sink| &sink.values);
        let outputs = values.filter_map(|id: &ValueId| Some(setup.value(*id)?.ty.clone())).collect();
        EventReader { outputs, tensors: Assembler::default() }
    }

    /// Reads the next message; returns an event with its last one.
    ///
    /// # Errors
    /// If an output has too many bytes, or a time is no time.
    pub fn read(&mut self, message: Frame<RunReply>) -> Result<Option<RunEvent>, MessageError> {
        let Frame { header, payload } = message;
        match header {
            // For what sends the setup.
            RunReply::Wanted(_) => Ok(None),
            RunReply::Event(event) => event.checked().map(Some),
            RunReply::Output { index } => {
                let Some(ty) = self.outputs.get(index as usize) else { return Ok(None) };
                Ok(match self.tensors.push(index, ty, &payload)? {
                    Assembled::Incomplete => None,
                    Assembled::Complete(data) => Some(RunEvent::Output { index, data }),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        constants::NothingHeld,
        inference_trace::{
            ArrivalTime, DeviceMemory, InferenceTrace, MachineUse, SourceEnergy, StageTime, StepTime, TransferTime,
        },
        named_tensors::StreamedTensor,
        phase::Phase,
        run::{Queued, Start},
        setup::{Terminal, Value},
    };
    use edgecut_graph::{
        DType, TensorData,
        units::{Joules, Micros},
    };
    use edgecut_profile::BusyProcessors;

    fn tensor() -> TensorData {
        TensorData::new(DType::U8, [3 << 20], vec![7; 3 << 20]).unwrap()
    }

    /// A server that is source and sink of one value, and announces one parameter.
    fn setup() -> Setup {
        let ty = TensorType::of(DType::U8, &[3 << 20]);
        let terminal = Some(Terminal { values: vec![ValueId(0)], partition: None });
        Setup {
            session: "session".to_string(),
            server: "server".into(),
            peers: vec![],
            senders: vec![],
            values: vec![Value { name: "x".into(), ty: ty.clone(), phase: Phase::default() }],
            partitions: vec![],
            sends: vec![],
            source: terminal.clone(),
            sink: terminal,
            states: vec![],
            in_flight: 1,
            wait: None,
            is_shared: false,
            streamed: vec![StreamedTensor { name: "w".into(), ty }],
            reported: Default::default(),
        }
    }

    #[test]
    fn commands_survive_a_round_trip() {
        let mut reader = CommandReader::new(Bytes(1 << 20), Box::new(NothingHeld));
        for command in [
            RunCommand::Setup(Arc::new(setup())),
            RunCommand::Parameter { index: 0, data: tensor() },
            RunCommand::Input { index: 0, data: tensor() },
            RunCommand::Connect,
            RunCommand::Start(Start { inference: 7, phase: Phase::Prefill, sequence: 3, continues: true }),
        ] {
            let messages: Vec<_> = command.clone().into_messages().unwrap().all().collect();
            let (last, before) = messages.split_last().unwrap();
            for message in before {
                assert_eq!(reader.read(message.clone()).unwrap(), None);
            }
            assert_eq!(reader.read(last.clone()).unwrap(), Some(command));
        }
    }

    #[test]
    fn tensors_that_no_setup_announces_are_refused() {
        let mut reader = CommandReader::new(Bytes(1 << 20), Box::new(NothingHeld));
        for request in [RunRequest::Parameter { index: 0 }, RunRequest::Input { index: 0 }] {
            assert!(reader.read(request.into()).is_err());
        }
        for message in RunCommand::Setup(Arc::new(setup())).into_messages().unwrap().all() {
            reader.read(message).unwrap();
        }
        for request in [RunRequest::Parameter { index: 1 }, RunRequest::Input { index: 1 }] {
            assert!(reader.read(request.into()).is_err());
        }
    }

    #[test]
    fn events_survive_a_round_trip() {
        let memory = DeviceMemory { device: "cpu".into(), parameters: Bytes(1), peak: Bytes(2), loading: Bytes(3) };
        let (value, at) = (ValueId(4), Micros(5.0));
        let step = StepTime { group: 6, end: at, wall: Micros(7.0), cpu: Micros(8.0), workspace: Bytes(9) };
        let trace = InferenceTrace {
            inference: 10,
            stages: vec![StageTime {
                device: "cpu".into(),
                stage: 1,
                ready: at,
                start: Micros(6.0),
                end: Micros(7.0),
                steps: vec![step],
                engine: "tract 1".into(),
                fallbacks: 2,
            }],
            transfers: vec![TransferTime {
                value,
                to: "b".into(),
                ready: at,
                start: Micros(6.0),
                end: Micros(7.0),
                bytes: Bytes(8),
            }],
            arrivals: vec![ArrivalTime { value, start: at, end: Micros(6.0) }],
            memory: vec![memory.clone()],
            energy: vec![SourceEnergy { source: "powercap: package-0".to_string(), total: Joules(11.5) }],
            machine: Some(MachineUse { id: "boot".into(), busy: BusyProcessors { own: 12.5, others: 13.5 } }),
        };
        let mut reader = EventReader::new(&setup());
        for event in [
            RunEvent::Queued(Queued { device: "cpu".into(), user: "a run".to_string(), ahead: 2 }),
            RunEvent::Admitted,
            RunEvent::Loaded { memory: vec![memory], warm_up_runs: 4 },
            RunEvent::Connected,
            RunEvent::Started { inference: 1, at },
            RunEvent::Arrived { inference: 1, at, digest: [3; 32] },
            RunEvent::Output { index: 0, data: tensor() },
            RunEvent::Measured(trace),
        ] {
            let sent = event.clone().into_messages();
            let found: Vec<_> = sent.filter_map(|message| reader.read(on_the_wire(message)).unwrap()).collect();
            assert_eq!(found, [event]);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for us in [f64::NAN, f64::INFINITY, -1.0] {
            for event in [
                RunEvent::Started { inference: 0, at: Micros(us) },
                RunEvent::Arrived { inference: 0, at: Micros(us), digest: [0; 32] },
            ] {
                let message = on_the_wire(RunReply::Event(event).into());
                let read = EventReader::new(&setup()).read(message);
                assert!(read.unwrap_err().to_string().contains("expected a finite number from 0"));
            }
        }
    }

    /// The message as it arrives.
    fn on_the_wire(message: Frame<RunReply>) -> Frame<RunReply> {
        let mut bytes = Vec::new();
        message.write(&mut bytes).unwrap();
        Frame::read(&bytes[..]).unwrap()
    }
}
