//! Commands to an agent during a run and its events: the typed forms of `RunRequest` and `RunEvent`.
//!
//! An embedded agent receives and sends these directly; a remote one as messages of limited size.

use std::{fmt, sync::Arc};

use smol_str::SmolStr;

use super::{
    chunks::{Assembled, Assembler, DocumentBuffer, chunks, document},
    constants::{self, ConstantReader, ConstantTransport, HeldConstants, Messages},
    error::MessageError,
    inference_trace::{DeviceMemory, InferenceTrace},
    phase::Phase,
    received_trace::{received_time, received_trace},
    setup::{Setup, ValueId},
    wire::{self, run_event, run_request},
};
use edgecut_graph::{
    TensorData, TensorType,
    units::{Bytes, Micros},
};

/// A command of the client, in this order: `Setup`, every streamed `Parameter`, every `Input`, `Connect`, then `Start`s.
#[derive(Debug, Clone, PartialEq)]
pub enum RunCommand {
    Setup(Arc<Setup>),
    /// A parameter that the setup announces; sent after the setup is admitted.
    Parameter {
        index: u32,
        data: TensorData,
    },
    /// One of the source's values, by its index among them.
    Input {
        index: u32,
        data: TensorData,
    },
    /// Open the links to the peers; sent when all of them have loaded.
    Connect,
    Start(Start),
}

/// The start of an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Its number, from 0.
    pub inference: u64,
    pub phase: Phase,
    /// Whether it reads the states that the inference before left; otherwise it begins a sequence.
    pub continues: bool,
}

/// An event that the agent reports.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// A device is in use: the run waits for it.
    Queued(Queued),
    /// The setup fits into memory: parameters may be sent.
    Admitted,
    Loaded {
        memory: Vec<DeviceMemory>,
        /// Inferences that must come before those whose time counts.
        warm_up_runs: u64,
    },
    Connected,
    /// The inference started at the source.
    Started {
        inference: u64,
        at: Micros,
    },
    /// All outputs are at the sink. The digest is BLAKE3 of the outputs in order.
    Arrived {
        inference: u64,
        at: Micros,
        digest: [u8; 32],
    },
    /// An output of an inference that has arrived, by its index among the sink's values; of which inferences,
    /// [`Setup::reported`] says.
    Output {
        index: u32,
        data: TensorData,
    },
    /// This server has completed its part of an inference.
    Measured(InferenceTrace),
}

/// A place in the queue for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    pub device: SmolStr,
    /// What uses the device.
    pub user: String,
    /// How many clients wait for it before this one.
    pub ahead: u32,
}

impl fmt::Display for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Queued { device, user, ahead } = self;
        write!(f, "waiting for {device}, which is busy with {user}")?;
        match ahead {
            0 => Ok(()),
            1 => f.write_str("; one client is ahead"),
            more => write!(f, "; {more} clients are ahead"),
        }
    }
}

impl RunCommand {
    /// The messages of the command; those of a setup have the constants of its graphs.
    ///
    /// # Errors
    /// If the setup cannot be written as JSON.
    pub(crate) fn into_wire(
        self,
        transport: ConstantTransport,
    ) -> Result<Messages<wire::RunRequest>, serde_json::Error> {
        use run_request::Request;
        let one = |request| wire::RunRequest { request: Some(request) };
        let constant: fn(wire::TensorChunk) -> wire::RunRequest =
            |piece| wire::RunRequest { request: Some(Request::Constant(piece)) };
        Ok(match self {
            RunCommand::Setup(setup) => {
                let mut setup = Arc::unwrap_or_clone(setup);
                let detached = constants::detach(transport, setup.graphs_mut());
                let announcement = |piece| wire::RunRequest { request: Some(Request::Constants(piece)) };
                let document = document(serde_json::to_vec(&setup)?).map(move |piece| one(Request::Setup(piece)));
                Messages::with_constants(detached, announcement, document, constant, std::iter::empty())?
            }
            RunCommand::Parameter { index, data } => {
                let pieces = tensor_chunks(index, &data).map(move |piece| one(Request::Parameter(piece)));
                Messages::of(pieces, constant)
            }
            RunCommand::Input { index, data } => {
                Messages::of(tensor_chunks(index, &data).map(move |piece| one(Request::Input(piece))), constant)
            }
            RunCommand::Connect => Messages::of(std::iter::once(one(Request::Connect(wire::Connect {}))), constant),
            RunCommand::Start(Start { inference, phase, continues }) => {
                let start = wire::Start { inference, continues, prefill: phase == Phase::Prefill };
                Messages::of(std::iter::once(one(Request::Start(start))), constant)
            }
        })
    }
}

fn tensor_chunks(tensor: u32, data: &TensorData) -> impl Iterator<Item = wire::TensorChunk> + Send + use<> {
    chunks(data.bytes()).map(move |data| wire::TensorChunk { tensor, data })
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
    pub fn read(&mut self, message: wire::RunRequest) -> Result<Option<RunCommand>, MessageError> {
        use run_request::Request;
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let request = message.request.ok_or_else(|| wrong("an empty request"))?;
        Ok(match request {
            Request::Constants(piece) if self.incomplete.is_none() && self.setup.is_none() => {
                self.constants.announce(&piece)?;
                None
            }
            Request::Constants(_) => return Err(wrong("constants are announced before the setup")),
            Request::Setup(piece) => {
                let Some(json) = self.document.push(&piece)? else { return Ok(None) };
                let setup: Setup = serde_json::from_slice(&json)
                    .map_err(|e| MessageError::Malformed(format!("invalid setup: {e}")))?;
                setup.check()?;
                let setup = self.incomplete.insert(setup);
                self.wanted = self.constants.request(&mut setup.graphs_mut().collect::<Vec<_>>())?;
                self.complete_setup()
            }
            Request::Constant(piece) => {
                let setup = self.incomplete.as_mut().ok_or_else(|| wrong("a constant of no setup"))?;
                self.constants.read(&piece, &mut setup.graphs_mut().collect::<Vec<_>>())?;
                self.complete_setup()
            }
            Request::Parameter(piece) => {
                let ty = self.setup.as_ref().and_then(|s| Some(&s.streamed.get(piece.tensor as usize)?.ty));
                let ty = ty.ok_or_else(|| wrong("a parameter that the setup does not announce"))?;
                let data = self.tensors.push(("parameter", piece.tensor), ty, &piece.data)?;
                data.complete().map(|data| RunCommand::Parameter { index: piece.tensor, data })
            }
            Request::Input(piece) => {
                let ty = self.setup.as_ref().and_then(|s| s.source_type(piece.tensor));
                let ty = ty.ok_or_else(|| wrong("an input that the setup does not announce"))?;
                let data = self.tensors.push(("input", piece.tensor), ty, &piece.data)?;
                data.complete().map(|data| RunCommand::Input { index: piece.tensor, data })
            }
            Request::Connect(_) => Some(RunCommand::Connect),
            Request::KeepAlive(_) => None,
            Request::Start(wire::Start { inference, continues, prefill }) => {
                let phase = if prefill { Phase::Prefill } else { Phase::Decode };
                Some(RunCommand::Start(Start { inference, phase, continues }))
            }
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
    pub(crate) fn into_wire(self) -> Box<dyn Iterator<Item = wire::RunEvent> + Send> {
        let event = match self {
            RunEvent::Queued(Queued { device, user, ahead }) => {
                run_event::Event::Queued(wire::Queued { device: device.to_string(), user, ahead })
            }
            RunEvent::Admitted => run_event::Event::Admitted(wire::Admitted {}),
            RunEvent::Loaded { memory, warm_up_runs } => {
                let memory = memory.into_iter().map(Into::into).collect();
                run_event::Event::Loaded(wire::Loaded { memory, warm_up_runs })
            }
            RunEvent::Connected => run_event::Event::Connected(wire::Connected {}),
            RunEvent::Started { inference, at } => run_event::Event::Started(wire::Started { inference, at_us: at.0 }),
            RunEvent::Arrived { inference, at, digest } => {
                let digest = bytes::Bytes::copy_from_slice(&digest);
                run_event::Event::Arrived(wire::Arrived { inference, at_us: at.0, digest })
            }
            RunEvent::Measured(measured) => run_event::Event::Measured(measured.into()),
            RunEvent::Output { index, data } => {
                let chunk = |piece| wire::RunEvent { event: Some(run_event::Event::Output(piece)) };
                return Box::new(tensor_chunks(index, &data).map(chunk));
            }
        };
        Box::new(std::iter::once(wire::RunEvent { event: Some(event) }))
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
    pub fn read(&mut self, message: wire::RunEvent) -> Result<Option<RunEvent>, MessageError> {
        Ok(Some(match message.event {
            None => return Ok(None),
            Some(run_event::Event::Queued(wire::Queued { device, user, ahead })) => {
                RunEvent::Queued(Queued { device: wire::text(device).into(), user: wire::text(user), ahead })
            }
            Some(run_event::Event::Admitted(_)) => RunEvent::Admitted,
            Some(run_event::Event::Loaded(loaded)) => RunEvent::Loaded {
                memory: loaded.memory.into_iter().map(Into::into).collect(),
                warm_up_runs: loaded.warm_up_runs,
            },
            Some(run_event::Event::Connected(_)) => RunEvent::Connected,
            Some(run_event::Event::Started(started)) => {
                RunEvent::Started { inference: started.inference, at: received_time(started.at_us)? }
            }
            Some(run_event::Event::Arrived(arrived)) => {
                let mut digest = [0; 32];
                digest.iter_mut().zip(&arrived.digest).for_each(|(to, from)| *to = *from);
                RunEvent::Arrived { inference: arrived.inference, at: received_time(arrived.at_us)?, digest }
            }
            Some(run_event::Event::Measured(measured)) => RunEvent::Measured(received_trace(measured)?),
            // For what sends the setup.
            Some(run_event::Event::Wanted(_)) => return Ok(None),
            Some(run_event::Event::Output(piece)) => {
                let Some(ty) = self.outputs.get(piece.tensor as usize) else { return Ok(None) };
                match self.tensors.push(piece.tensor, ty, &piece.data)? {
                    Assembled::Incomplete => return Ok(None),
                    Assembled::Complete(data) => RunEvent::Output { index: piece.tensor, data },
                }
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        constants::NothingHeld,
        inference_trace::{ArrivalTime, MachineUse, SourceEnergy, StageTime, StepTime, TransferTime},
        named_tensors::StreamedTensor,
        setup::{Terminal, Value},
    };
    use edgecut_graph::{
        DType,
        units::{Bytes, Joules},
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
            RunCommand::Start(Start { inference: 7, phase: Phase::Prefill, continues: true }),
        ] {
            let messages: Vec<_> = command.clone().into_wire(ConstantTransport::Streamed).unwrap().all().collect();
            let (last, before) = messages.split_last().unwrap();
            for message in before {
                assert_eq!(reader.read(message.clone()).unwrap(), None);
            }
            assert_eq!(reader.read(last.clone()).unwrap(), Some(command));
        }
    }

    #[test]
    fn tensors_that_no_setup_announces_are_refused() {
        use run_request::Request;
        let chunk = |tensor| wire::TensorChunk { tensor, data: bytes::Bytes::new() };
        let mut reader = CommandReader::new(Bytes(1 << 20), Box::new(NothingHeld));
        for request in [None, Some(Request::Parameter(chunk(0))), Some(Request::Input(chunk(0)))] {
            assert!(reader.read(wire::RunRequest { request }).is_err());
        }
        for message in RunCommand::Setup(Arc::new(setup())).into_wire(ConstantTransport::Streamed).unwrap().all() {
            reader.read(message).unwrap();
        }
        for request in [Request::Parameter(chunk(1)), Request::Input(chunk(1))] {
            assert!(reader.read(wire::RunRequest { request: Some(request) }).is_err());
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
            let found: Vec<_> = event.clone().into_wire().filter_map(|message| reader.read(message).unwrap()).collect();
            assert_eq!(found, [event]);
        }
        assert_eq!(reader.read(wire::RunEvent { event: None }).unwrap(), None);
    }

    #[test]
    fn what_is_no_energy_is_left_out() {
        let energy = [f64::NAN, -1.0, f64::INFINITY, 2.0].map(|j| wire::SourceEnergy { source: "a".to_string(), j });
        let trace = wire::InferenceTrace { energy: energy.to_vec(), ..wire::InferenceTrace::default() };
        let kept = received_trace(trace).unwrap().energy;
        assert_eq!(kept, [SourceEnergy { source: "a".to_string(), total: Joules(2.0) }]);
    }

    #[test]
    fn what_is_no_load_is_left_out() {
        for (own, others) in [(f64::NAN, 0.0), (0.0, -1.0), (f64::INFINITY, 0.0)] {
            let machine = wire::MachineUse { id: "boot".to_string(), own, others };
            let trace = wire::InferenceTrace { machine: Some(machine), ..wire::InferenceTrace::default() };
            assert_eq!(received_trace(trace).unwrap().machine, None);
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        use run_event::Event;
        let stage = |us| wire::StageTime { end_us: us, ..wire::StageTime::default() };
        for us in [f64::NAN, f64::INFINITY, -1.0] {
            let trace = wire::InferenceTrace { stages: vec![stage(us)], ..wire::InferenceTrace::default() };
            for event in [
                Event::Started(wire::Started { inference: 0, at_us: us }),
                Event::Arrived(wire::Arrived { inference: 0, at_us: us, digest: bytes::Bytes::new() }),
                Event::Measured(trace),
            ] {
                let read = EventReader::new(&setup()).read(wire::RunEvent { event: Some(event) });
                assert!(read.unwrap_err().to_string().contains("expected a finite number from 0"));
            }
        }
    }
}
