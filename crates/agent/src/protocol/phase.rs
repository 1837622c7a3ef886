//! The phases of a decoder: it reads its prompt in steps of several tokens, and generates token by token.

use serde::{Deserialize, Serialize};

/// Which step of a decoder an inference computes. Models that are no decoders have one phase, [`Phase::Decode`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// One token.
    #[default]
    Decode,
    /// Several tokens of the prompt.
    Prefill,
}

impl Phase {
    /// Whether it is the default, which is not serialized.
    pub fn is_decode(&self) -> bool {
        *self == Phase::Decode
    }
}
