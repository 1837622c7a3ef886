//! Formats in which float32 activations cross links between servers: as they are, or rounded to fewer bits.
//!
//! Sizes and times only. Which tensors are [activations](super::activation) is decided there; agents encode and decode.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::activation::Activation;
use edgecut_graph::units::{Bytes, Micros};

/// How float32 activations are written on links between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransferFormat {
    /// As they are.
    #[default]
    Exact,
    /// IEEE half precision: 11 bits of significand.
    F16,
    /// Integers of 8 bits, with one float32 scale for each [block](super::activation::block_length) of elements.
    Int8,
}

/// Not a transfer format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a transfer format: expected exact, f16 or int8")]
pub struct TransferFormatError(String);

/// What a link does to activations: their format, and the time that encoding and decoding takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Coding {
    pub format: TransferFormat,
    /// Microseconds that encoding and decoding one element take together.
    pub per_element: f64,
}

impl TransferFormat {
    pub fn is_exact(&self) -> bool {
        *self == TransferFormat::Exact
    }

    /// The size of an activation in this format.
    pub fn bytes(self, activation: Activation) -> Bytes {
        let Activation { elements, blocks } = activation;
        Bytes(match self {
            TransferFormat::Exact => 4 * elements,
            TransferFormat::F16 => 2 * elements,
            TransferFormat::Int8 => elements + 4 * blocks,
        })
    }
}

impl Coding {
    /// The times are those of one core of a server's processor (see docs/cluster.md). Of pilot runs, whatever a slower
    /// one takes longer counts as time of its links.
    pub fn of(format: TransferFormat) -> Coding {
        let per_element = match format {
            TransferFormat::Exact => 0.0,
            TransferFormat::F16 => 1e-3,
            TransferFormat::Int8 => 1e-3,
        };
        Coding { format, per_element }
    }

    /// The time to encode and decode an activation.
    pub fn time(&self, activation: Activation) -> Micros {
        Micros(self.per_element * activation.elements as f64)
    }

    /// A coding that takes `factor` times as long.
    pub fn slower(&self, factor: f64) -> Coding {
        Coding { per_element: factor * self.per_element, ..*self }
    }
}

impl FromStr for TransferFormat {
    type Err = TransferFormatError;
    fn from_str(text: &str) -> Result<TransferFormat, TransferFormatError> {
        match text {
            "exact" => Ok(TransferFormat::Exact),
            "f16" => Ok(TransferFormat::F16),
            "int8" => Ok(TransferFormat::Int8),
            _ => Err(TransferFormatError(text.to_string())),
        }
    }
}

impl fmt::Display for TransferFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TransferFormat::Exact => "exact",
            TransferFormat::F16 => "f16",
            TransferFormat::Int8 => "int8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_names_and_sizes() {
        let activation = Activation { elements: 6400, blocks: 100 };
        for (format, name, bytes) in [
            (TransferFormat::Exact, "exact", 25600),
            (TransferFormat::F16, "f16", 12800),
            (TransferFormat::Int8, "int8", 6800),
        ] {
            assert_eq!((format.to_string().as_str(), name.parse()), (name, Ok(format)));
            assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{name}\""));
            assert_eq!(format.bytes(activation), Bytes(bytes), "{format}");
            assert_eq!(Coding::of(format).time(activation) == Micros::ZERO, format.is_exact());
        }
        let error = "f64".parse::<TransferFormat>().unwrap_err().to_string();
        assert!(error.contains("exact, f16 or int8"), "{error}");
    }
}
