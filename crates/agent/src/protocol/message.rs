//! The calls of an agent's service, and the headers of their messages. Times are on the sending agent's own monotonic clock,
//! unless they say otherwise.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    peer::Peer,
    profile::ProfileEvent,
    run::{RunEvent, Start},
    setup::ValueId,
};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::TransferFormat;

// The client and the server, of the service that `build.rs` lists.
tonic::include_proto!("edgecut.v2.Agent");

/// The protocol version. Incremented with every change of a header, or of a document in a payload, which those of one version
/// before must still understand: so agents are upgraded one after the other.
pub const PROTOCOL: u32 = 13;

/// The first version of the service `edgecut.v2`.
const OLDEST: u32 = 12;

/// Whether a client of this version and an agent of version `found` understand each other: at most one step apart.
pub fn is_compatible(found: u32) -> bool {
    found >= OLDEST && found.abs_diff(PROTOCOL) <= 1
}

/// Asks for the server and its devices.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct DescribeRequest {}

/// The payload is the [`Description`](crate::Description), JSON: it is read once the version is known to be compatible.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct DescribeReply {
    pub protocol: u32,
}

/// Asks for the time, to estimate the offset between clocks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ClockRequest {}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ClockReply {
    pub now: Micros,
    /// On the calendar clock.
    pub since_1970: Micros,
}

/// Times transfers from this agent to another one; the reply is a stream of samples.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProbeRequest {
    pub peer: Peer,
    /// Empty transfers and sizes from 32 KiB to this are timed, growing fourfold.
    pub largest: Bytes,
    /// Larger sizes are skipped once this time is spent.
    pub budget: Micros,
}

/// Agent to agent: the remote side of a probe. The payload is a chunk of the transfer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AbsorbRequest {
    /// Size of the transfer.
    pub bytes: Bytes,
}

/// A transfer is complete.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AbsorbReply {}

/// Measures the operators of a graph on a device. Ends when the task is done, or when the client ends the stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum ProfileRequest {
    /// A chunk of the announcement of constants, JSON; comes before the task.
    Constants { last: bool },
    /// A chunk of the [`ProfileTask`](super::profile::ProfileTask), JSON.
    Task { last: bool },
    /// A chunk of an announced constant.
    Constant { number: u32 },
    /// A chunk of an input or parameter that the task announces.
    Content { index: u32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ProfileReply {
    /// After a task whose constants have hashes: the numbers of those that the agent does not hold.
    Wanted(Vec<u32>),
    Event(ProfileEvent),
}

/// Loads partitions, runs inferences, and unloads the partitions when either side ends the stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum RunRequest {
    /// A chunk of the announcement of constants, JSON; comes before the setup.
    Constants {
        last: bool,
    },
    /// A chunk of the [`Setup`](super::setup::Setup), JSON.
    Setup {
        last: bool,
    },
    /// A chunk of an announced constant.
    Constant {
        number: u32,
    },
    /// A chunk of a parameter that the setup announces.
    Parameter {
        index: u32,
    },
    /// A chunk of one of the source's values, used for every inference.
    Input {
        index: u32,
    },
    /// Opens the links to other agents; sent when all agents have loaded.
    Connect,
    Start(Start),
    /// The client still wants its devices; sent when it has nothing else to say.
    KeepAlive,
}

impl RunRequest {
    /// Whether a payload follows the header.
    pub fn has_payload(self) -> bool {
        !matches!(self, RunRequest::Connect | RunRequest::Start(_) | RunRequest::KeepAlive)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RunReply {
    /// After a setup whose constants have hashes: the numbers of those that the agent does not hold.
    Wanted(Vec<u32>),
    Event(RunEvent),
    /// A chunk of an output, one of the sink's values.
    Output {
        index: u32,
    },
}

/// Agent to agent: tensors that one server sends to another during a run. One stream per link and session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TransferRequest {
    /// Comes first.
    Session { session: String, from: SmolStr },
    /// A chunk of a value in this format, which is the same in all of its chunks.
    Value { inference: u64, value: ValueId, format: TransferFormat },
}

/// The session has ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TransferReply {}
