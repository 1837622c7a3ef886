//! The protocol between a client and agents, and between agents: messages, their typed forms, connections.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the calls of the service, and the headers of their messages |
//! | [`frame`] | a message on the wire: a header in MessagePack, and bytes |
//! | [`received`] | what is checked when it is received |
//! | [`run`], [`run_messages`] | commands and events of a run, and their messages |
//! | [`setup`] | what each server must do for a run |
//! | [`phase`] | which step of a decoder an inference computes |
//! | `partition_size` | what a partition of a setup takes at least |
//! | [`inference_trace`] | what a server measures during an inference |
//! | [`profile`], [`profile_messages`], [`probe`] | measurements of operators, with their messages, and of links |
//! | [`chunks`], [`named_tensors`], [`constants`] | tensors and documents in messages of limited size |
//! | [`encoding`] | float32 tensors in fewer bits |
//! | [`peer`], [`connect`], [`security`] | addresses, HTTP/2 channels, mutual TLS |
//! | [`role`], [`holder`] | what a certificate allows, and who holds it |
//! | [`recorded`] | sequences of messages as bytes |
//! | [`error`] | invalid requests, and how a refusal differs from a lost connection |

pub(crate) mod chunks;
pub(crate) mod connect;
pub(crate) mod constants;
pub mod encoding;
pub(crate) mod error;
pub(crate) mod frame;
mod holder;
pub mod inference_trace;
pub(crate) mod message;
pub mod named_tensors;
mod partition_size;
pub mod peer;
pub mod phase;
pub(crate) mod probe;
pub mod profile;
pub(crate) mod profile_messages;
pub(crate) mod received;
pub mod recorded;
pub mod role;
pub mod run;
pub(crate) mod run_messages;
mod security;
pub mod setup;

pub use error::MemoryShortfall;
pub use holder::Holder;
pub use security::{Identity, SecurityError, check_address};
