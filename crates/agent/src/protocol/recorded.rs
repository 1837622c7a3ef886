//! Sequences of messages as bytes, each message after its length: what an agent is sent, for fuzzers to vary.

use bytes::{Buf, BufMut};
use edgecut_plan::TransferFormat;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    constants::NothingHeld, frame::Frame, message::TransferRequest, named_tensors::NamedTensors, profile::ProfileTask,
    profile_messages::TaskReader, run::RunCommand, run_messages::CommandReader, setup::ValueId,
};
use edgecut_graph::units::Bytes;

/// The messages of commands.
///
/// # Errors
/// If a setup cannot be written as JSON.
pub fn commands(commands: impl IntoIterator<Item = RunCommand>) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for command in commands {
        command.into_messages()?.all().for_each(|message| write(message, &mut bytes));
    }
    Ok(bytes)
}

/// The messages of a task.
///
/// # Errors
/// If the task cannot be written as JSON.
pub fn task(task: ProfileTask, contents: NamedTensors) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    task.into_messages(contents)?.all().for_each(|message| write(message, &mut bytes));
    Ok(bytes)
}

/// The message of a value that a peer sends, of one chunk.
pub fn transfer(inference: u64, value: u32, data: &[u8]) -> Vec<u8> {
    let payload = bytes::Bytes::copy_from_slice(data);
    let header = TransferRequest::Value { inference, value: ValueId(value), format: TransferFormat::Exact };
    let mut bytes = Vec::new();
    write(Frame { header, payload }, &mut bytes);
    bytes
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

/// Writes a message after its length.
fn write<H: Serialize>(message: Frame<H>, to: &mut Vec<u8>) {
    let begin = to.len();
    to.put_u32_le(0);
    // Every header can be written: none has a map whose keys are no texts.
    if message.write(to).is_ok() {
        let length = (to.len() - begin - 4) as u32;
        to[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// The messages in `bytes`, until some are none.
pub(crate) fn messages<H: DeserializeOwned>(mut bytes: &[u8]) -> impl Iterator<Item = Frame<H>> {
    std::iter::from_fn(move || {
        let length = bytes.try_get_u32_le().ok()? as usize;
        let (message, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Frame::read(message).ok()
    })
}
