//! Programs as MAGIS's own model builders make them, and schedules in the same form.
//!
//! `ops` are in schedule order. An output lives from its operator's start to the end of its last user, to the end
//! if it has none. A `store` copies to the host and counts nothing, a `load` copies back; both run on a second
//! stream and start only when both streams have drained. An operator with a `fission` runs the graph in it `iters`
//! times, each time on one part of the batch.
//!
//! | module | what it does |
//! |---|---|
//! | here | the file |
//! | `program` | operators as a [`Program`](edgecut_memory::program::Program), steps as operators |
//! | `split` | which operators can run on parts of the batch, and what a part costs |
//! | [`search`] | schedules of the whole and of parts, and the best of them |
//! | `simulate` | latency and peak of any such file |

pub mod check;
mod program;
pub mod search;
pub(crate) mod simulate;
mod split;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A file of MAGIS's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Export {
    pub name: String,
    pub peak_bytes: u64,
    pub latency_ms: f64,
    pub cost_model: CostModel,
    pub ops: Vec<Op>,
    /// What else the file has.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Json>,
}

/// What the latencies in the file were computed from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CostModel {
    /// Operations a second, and the part of them that is reached.
    pub peak_flops: f64,
    pub eff_f: f64,
    /// Bytes a second, and the part of them that is reached.
    pub peak_bw: f64,
    pub eff_b: f64,
    /// Fixed overhead of every operator.
    pub launch_ms: f64,
    /// Bandwidth to the host in bytes per second, and the fixed overhead of every copy.
    pub pcie: f64,
    pub mem_launch_ms: f64,
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Json>,
}

/// One operator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Op {
    pub id: u64,
    pub tag: String,
    pub args: Vec<u64>,
    pub shape: Vec<u64>,
    pub out_bytes: u64,
    #[serde(default)]
    pub extra_bytes: u64,
    pub latency_ms: f64,
    #[serde(default)]
    pub is_weight: bool,
    #[serde(default)]
    pub is_view: bool,
    #[serde(default)]
    pub is_remat: bool,
    #[serde(default)]
    pub flops: f64,
    /// The operator of the input that this one repeats or copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fission: Option<Box<Fission>>,
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Json>,
}

/// Operators that run on one part of the batch after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fission {
    /// Of the axis that is split.
    pub length: u64,
    /// Of one part.
    pub factor: u64,
    pub iters: u64,
    /// Operators of the inner graph that stand for the arguments, and those that make the output.
    pub inp_ids: Vec<u64>,
    pub out_ids: Vec<u64>,
    pub graph: FissionBody,
}

/// The operators inside a fission.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FissionBody {
    pub ops: Vec<Op>,
}

/// Why a file has no program.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("not a valid MAGIS graph: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the sizes add up to more than 2^60 bytes")]
    Size,
    #[error("operator {op} (`{tag}`): {what}")]
    Op { op: u64, tag: String, what: String },
}

impl Export {
    /// Reads a file and checks that every operator comes after its arguments.
    ///
    /// # Errors
    /// If the text is not JSON, a field is missing, or an argument is not made before it is used.
    pub fn parse(text: &[u8]) -> Result<Export, ExportError> {
        let export: Export = serde_json::from_slice(text)?;
        let bytes = export.ops.iter().map(|op| u128::from(op.out_bytes) + u128::from(op.extra_bytes)).sum::<u128>();
        if bytes > 1 << 60 {
            return Err(ExportError::Size);
        }
        let mut made: HashMap<u64, ()> = HashMap::new();
        for op in &export.ops {
            if let Some(arg) = op.args.iter().find(|arg| !made.contains_key(arg)) {
                return Err(op.error(format!("reads {arg}, which no earlier operator produces")));
            }
            if made.insert(op.id, ()).is_some() {
                return Err(op.error("another operator has the same id".to_string()));
            }
            if !(op.latency_ms >= 0.0 && op.latency_ms.is_finite()) {
                return Err(op.error("expected a latency of 0 ms or more".to_string()));
            }
        }
        Ok(export)
    }

    /// The operators of the file, for a file that is not scheduled yet.
    ///
    /// # Errors
    /// If there are copies or split operators in it.
    pub fn plain(&self) -> Result<&[Op], ExportError> {
        let scheduled = |op: &&Op| op.fission.is_some() || matches!(op.tag.as_str(), "store" | "load");
        match self.ops.iter().find(scheduled) {
            Some(op) => Err(op.error("this is already a schedule: give the original graph".to_string())),
            None => Ok(&self.ops),
        }
    }
}

impl Op {
    fn error(&self, what: String) -> ExportError {
        ExportError::Op { op: self.id, tag: self.tag.clone(), what }
    }

    pub(crate) fn is_placeholder(&self) -> bool {
        self.tag == "placeholder"
    }

    /// A new operator that makes something of the shape and size of this one's output.
    fn like(&self, id: u64, tag: &str, args: Vec<u64>, latency_ms: f64) -> Op {
        Op {
            id,
            tag: tag.to_string(),
            args,
            latency_ms,
            extra_bytes: 0,
            flops: 0.0,
            is_weight: false,
            is_view: false,
            is_remat: false,
            of: Some(self.of.unwrap_or(self.id)),
            fission: None,
            ..self.clone()
        }
    }
}
