//! What a client says to an agent during a run, and what it hears: the typed forms of `RunRequest` and `RunEvent`.
//!
//! An embedded agent is spoken to in these directly; for another process they are cut into chunks and put
//! together again on the other side.

use std::sync::Arc;

use super::{
    chunks::{Assembled, Assembler, ChunkError, DocumentBuffer, chunks, document},
    error::HostError,
    measured::{DeviceMemory, Measured},
    setup::{Setup, ValueId},
    wire::{self, run_event, run_request},
};
use crate::{
    graph::{TensorData, TensorType},
    units::Micros,
};

/// What the client says, in this order: `Setup`, every streamed `Parameter`, every `Input`, `Connect`, then `Start`s.
#[derive(Debug, Clone)]
pub enum Command {
    Setup(Arc<Setup>),
    /// The content of a parameter that the setup announces; sent once the setup was admitted.
    Parameter {
        index: u32,
        data: TensorData,
    },
    /// The content of one of the source's values, by its place among them.
    Input {
        index: u32,
        data: TensorData,
    },
    /// Open the links to the peers; all of them have loaded.
    Connect,
    /// Begin inference `0`, `1`, …
    Start(u64),
}

/// What the client hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The setup fits into memory.
    Admitted,
    Loaded(Vec<DeviceMemory>),
    Connected,
    /// The source let an input in.
    Started {
        inference: u64,
        at: Micros,
    },
    /// The sink has all outputs.
    Arrived {
        inference: u64,
        at: Micros,
        digest: [u8; 32],
    },
    /// An output of the first inference, by its place among the sink's values.
    Output {
        index: u32,
        data: TensorData,
    },
    Measured(Measured),
}

impl Command {
    /// The messages that carry the command.
    pub fn into_wire(self) -> Result<Box<dyn Iterator<Item = wire::RunRequest> + Send>, serde_json::Error> {
        use run_request::Request;
        let one = |request| wire::RunRequest { request: Some(request) };
        Ok(match self {
            Command::Setup(setup) => {
                let json = serde_json::to_vec(&*setup)?;
                Box::new(document(json).map(move |piece| one(Request::Setup(piece))))
            }
            Command::Parameter { index, data } => {
                Box::new(tensor_chunks(index, &data).map(move |piece| one(Request::Parameter(piece))))
            }
            Command::Input { index, data } => {
                Box::new(tensor_chunks(index, &data).map(move |piece| one(Request::Input(piece))))
            }
            Command::Connect => Box::new(std::iter::once(one(Request::Connect(wire::Connect {})))),
            Command::Start(inference) => Box::new(std::iter::once(one(Request::Start(wire::Start { inference })))),
        })
    }
}

fn tensor_chunks(tensor: u32, data: &TensorData) -> impl Iterator<Item = wire::TensorChunk> + Send + use<> {
    chunks(data.bytes()).map(move |data| wire::TensorChunk { tensor, data })
}

/// Puts commands together from their messages.
#[derive(Debug, Default)]
pub struct CommandReader {
    document: DocumentBuffer,
    setup: Option<Arc<Setup>>,
    tensors: Assembler<(&'static str, u32)>,
}

impl CommandReader {
    /// Reads the next message; gives a command with its last one.
    pub fn read(&mut self, message: wire::RunRequest) -> Result<Option<Command>, HostError> {
        use run_request::Request;
        let wrong = |what: &str| HostError::Request(what.to_string());
        let request = message.request.ok_or_else(|| wrong("an empty message in a run"))?;
        Ok(match request {
            Request::Setup(piece) => {
                let Some(json) = self.document.push(&piece)? else { return Ok(None) };
                let setup: Setup =
                    serde_json::from_slice(&json).map_err(|e| HostError::Request(format!("not a setup: {e}")))?;
                setup.check()?;
                let setup = Arc::new(setup);
                self.setup = Some(setup.clone());
                Some(Command::Setup(setup))
            }
            Request::Parameter(piece) => {
                let ty = self.setup.as_ref().and_then(|s| Some(&s.streamed.get(piece.tensor as usize)?.ty));
                let ty = ty.ok_or_else(|| wrong("a parameter that the setup does not announce"))?;
                let data = self.tensors.push(("parameter", piece.tensor), ty, &piece.data)?;
                data.whole().map(|data| Command::Parameter { index: piece.tensor, data })
            }
            Request::Input(piece) => {
                let ty = self.setup.as_ref().and_then(|s| s.source_type(piece.tensor));
                let ty = ty.ok_or_else(|| wrong("an input that the setup does not announce"))?;
                let data = self.tensors.push(("input", piece.tensor), ty, &piece.data)?;
                data.whole().map(|data| Command::Input { index: piece.tensor, data })
            }
            Request::Connect(_) => Some(Command::Connect),
            Request::Start(start) => Some(Command::Start(start.inference)),
        })
    }
}

impl Event {
    /// The messages that carry the event.
    pub fn into_wire(self) -> Box<dyn Iterator<Item = wire::RunEvent> + Send> {
        let event = match self {
            Event::Admitted => run_event::Event::Admitted(wire::Admitted {}),
            Event::Loaded(memory) => {
                run_event::Event::Loaded(wire::Loaded { memory: memory.into_iter().map(Into::into).collect() })
            }
            Event::Connected => run_event::Event::Connected(wire::Connected {}),
            Event::Started { inference, at } => run_event::Event::Started(wire::Started { inference, at_us: at.0 }),
            Event::Arrived { inference, at, digest } => {
                let digest = bytes::Bytes::copy_from_slice(&digest);
                run_event::Event::Arrived(wire::Arrived { inference, at_us: at.0, digest })
            }
            Event::Measured(measured) => run_event::Event::Measured(measured.into()),
            Event::Output { index, data } => {
                let chunk = |piece| wire::RunEvent { event: Some(run_event::Event::Output(piece)) };
                return Box::new(tensor_chunks(index, &data).map(chunk));
            }
        };
        Box::new(std::iter::once(wire::RunEvent { event: Some(event) }))
    }
}

/// Puts events together from their messages.
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

    /// Reads the next message; gives an event with its last one.
    pub fn read(&mut self, message: wire::RunEvent) -> Result<Option<Event>, ChunkError> {
        Ok(Some(match message.event {
            None => return Ok(None),
            Some(run_event::Event::Admitted(_)) => Event::Admitted,
            Some(run_event::Event::Loaded(loaded)) => {
                Event::Loaded(loaded.memory.into_iter().map(Into::into).collect())
            }
            Some(run_event::Event::Connected(_)) => Event::Connected,
            Some(run_event::Event::Started(started)) => {
                Event::Started { inference: started.inference, at: Micros(started.at_us) }
            }
            Some(run_event::Event::Arrived(arrived)) => {
                let mut digest = [0; 32];
                digest.iter_mut().zip(&arrived.digest).for_each(|(to, from)| *to = *from);
                Event::Arrived { inference: arrived.inference, at: Micros(arrived.at_us), digest }
            }
            Some(run_event::Event::Measured(measured)) => Event::Measured(measured.into()),
            Some(run_event::Event::Output(piece)) => {
                let Some(ty) = self.outputs.get(piece.tensor as usize) else { return Ok(None) };
                match self.tensors.push(piece.tensor, ty, &piece.data)? {
                    Assembled::Part => return Ok(None),
                    Assembled::Whole(data) => Event::Output { index: piece.tensor, data },
                }
            }
        }))
    }
}
