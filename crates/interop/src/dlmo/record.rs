//! Records and tensors of DLMO's format.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// One record of the program: an operator, a view, or a deallocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    #[serde(default)]
    pub attr: Json,
    pub ins: Vec<u64>,
    pub outs: Vec<u64>,
    /// Scratch bytes needed only while it runs.
    #[serde(default)]
    pub workspace: u64,
    /// Microseconds.
    #[serde(default)]
    pub time: f64,
}

/// A tensor and its size in bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Datum {
    pub id: u64,
    pub size: u64,
    #[serde(flatten)]
    pub(super) rest: serde_json::Map<String, Json>,
}

/// Name of records that free tensors.
pub(super) const FREE: &str = ".dealloc";
/// Name of records that make views.
pub(super) const VIEW: &str = ".share";
