//! Sequences of messages as bytes, each message after its length: what an agent is sent, for fuzzers to vary.

use bytes::Buf;
use prost::Message;

use super::{
    constants::{ConstantTransport, NothingHeld},
    named_tensors::NamedTensors,
    profile::{ProfileTask, TaskReader},
    run::{CommandReader, RunCommand},
    wire,
};
use edgecut_graph::units::Bytes;

/// The messages of commands.
///
/// # Errors
/// If a setup cannot be written as JSON.
pub fn commands(commands: impl IntoIterator<Item = RunCommand>) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for command in commands {
        command
            .into_wire(ConstantTransport::Streamed)?
            .all()
            .for_each(|message| bytes.extend(message.encode_length_delimited_to_vec()));
    }
    Ok(bytes)
}

/// The messages of a task.
///
/// # Errors
/// If the task cannot be written as JSON.
pub fn task(task: ProfileTask, contents: NamedTensors) -> Result<Vec<u8>, serde_json::Error> {
    Ok(task
        .into_wire(contents, ConstantTransport::Streamed)?
        .all()
        .flat_map(|message| message.encode_length_delimited_to_vec())
        .collect())
}

/// The message of a value that a peer sends, of one chunk.
pub fn transfer(inference: u64, value: u32, data: &[u8]) -> Vec<u8> {
    let data = bytes::Bytes::copy_from_slice(data);
    let chunk = wire::TransferChunk { head: None, inference, value, data, encoding: wire::Encoding::Exact as i32 };
    chunk.encode_length_delimited_to_vec()
}

/// Reads commands until one is refused or the bytes end; returns how many were complete.
pub fn read_commands(bytes: &[u8], limit: Bytes) -> usize {
    let mut reader = CommandReader::new(limit, Box::new(NothingHeld));
    messages(bytes).map_while(|message| reader.read(message).ok()).flatten().count()
}

/// Reads profile tasks until one is refused or the bytes end; returns how many were complete.
pub fn read_tasks(bytes: &[u8], limit: Bytes) -> usize {
    let mut reader = TaskReader::new(limit, Box::new(NothingHeld));
    messages(bytes).map_while(|message| reader.read(message).ok()).flatten().count()
}

/// The messages in `bytes`, until some are none.
pub(crate) fn messages<M: Message + Default>(mut bytes: &[u8]) -> impl Iterator<Item = M> {
    std::iter::from_fn(move || {
        if !bytes.has_remaining() {
            return None;
        }
        M::decode_length_delimited(&mut bytes).ok()
    })
}
