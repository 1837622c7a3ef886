//! Commands to an agent during a run, and its events.
//!
//! An embedded agent receives and sends these directly; a remote one as messages (`run_messages`).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    inference_trace::{DeviceMemory, InferenceTrace},
    phase::Phase,
    setup::Setup,
};
use edgecut_graph::{TensorData, units::Micros};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its number, from 0.
    pub inference: u64,
    pub phase: Phase,
    /// Its sequence, of as many as inferences may be in flight. No two inferences of one sequence are in flight where states are.
    #[serde(default)]
    pub sequence: u32,
    /// Whether it reads the states that the inference before it left in its sequence; otherwise it begins one, in the place of the
    /// one that had its number.
    pub continues: bool,
}

/// An event that the agent reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// [`Setup::reported`] says. Its messages are [`RunReply::Output`](super::message::RunReply).
    #[serde(skip)]
    Output {
        index: u32,
        data: TensorData,
    },
    /// This server has completed its part of an inference.
    Measured(InferenceTrace),
}

/// A place in the queue for a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
