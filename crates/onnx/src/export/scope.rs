//! One operator being written: its operands, types and attributes.

use edgecut_graph::{Attr, Dim, Shape, TensorData, TensorType};
use edgecut_ops::{TypeError, Typed};

use super::builder::{ModelBuilder, OnnxValue};
use crate::error::Result;

/// The operator that a family's function expresses.
pub(super) struct Scope<'s> {
    pub builder: &'s mut ModelBuilder,
    pub call: Typed<'s>,
    /// By argument: its tensors.
    pub args: Vec<Vec<OnnxValue>>,
    /// What is added along the channels of the result, of rank 1: see the module `bias`.
    pub bias: Option<OnnxValue>,
    /// By argument: whether an operator of the part computes it.
    pub is_computed: Vec<bool>,
    /// By result: whether anything reads it.
    pub is_read: Vec<bool>,
}

/// The message of a type error without the operator's name, which the caller adds.
fn message(error: TypeError) -> String {
    error.what
}

/// Sizes as ONNX has them.
///
/// # Errors
/// If one is not known.
pub(super) fn known(shape: &Shape) -> Result<Vec<i64>> {
    let size = |dim: &Dim| dim.get().and_then(|n| i64::try_from(n).ok());
    let sizes: Option<Vec<i64>> = shape.iter().map(size).collect();
    sizes.ok_or_else(|| format!("the shape {shape} is not known before it runs"))
}

impl<'s> Scope<'s> {
    /// Argument `index`, a tensor.
    pub fn x(&self, index: usize) -> Result<OnnxValue> {
        match self.args.get(index).map(Vec::as_slice) {
            Some([value]) => Ok(value.clone()),
            Some(_) => Err(format!("operand {index} is a tuple")),
            None => Err(format!("operand {index} is missing")),
        }
    }

    /// The tensors of argument `index`.
    pub fn tuple(&self, index: usize) -> Result<Vec<OnnxValue>> {
        self.args.get(index).cloned().ok_or_else(|| format!("operand {index} is missing"))
    }

    /// The type of argument `index`.
    pub fn ty(&self, index: usize) -> Result<&'s TensorType> {
        self.call.tensor(index).map_err(message)
    }

    pub fn rank(&self, index: usize) -> Result<usize> {
        Ok(self.ty(index)?.shape.rank())
    }

    /// The shape of argument `index`, which must be known.
    pub fn dims(&self, index: usize) -> Result<Vec<i64>> {
        known(&self.ty(index)?.shape)
    }

    /// The types of the results.
    pub fn results(&self) -> Vec<&'s TensorType> {
        self.call.out.tensors()
    }

    /// The type of the first result.
    pub fn out(&self) -> Result<&'s TensorType> {
        self.results().first().copied().ok_or_else(|| "it has no result".to_string())
    }

    /// The shape of the first result, which must be known.
    pub fn out_dims(&self) -> Result<Vec<i64>> {
        known(&self.out()?.shape)
    }

    /// The content of argument `index`, which must be known when the model is written.
    pub fn content(&self, index: usize, what: &str) -> Result<TensorData> {
        self.x(index)?.content.ok_or_else(|| format!("{what} must be a constant"))
    }

    /// The integers of argument `index`, which must be known when the model is written.
    pub fn content_ints(&self, index: usize, what: &str) -> Result<Vec<i64>> {
        self.content(index, what)?.to_i64s().ok_or_else(|| format!("{what} has an unsupported type"))
    }

    /// The numbers of argument `index`, which must be known when the model is written.
    pub fn content_numbers(&self, index: usize, what: &str) -> Result<Vec<f64>> {
        self.content(index, what)?.to_f64s().ok_or_else(|| format!("{what} has an unsupported type"))
    }

    pub fn attr(&self, key: &str) -> Option<&'s Attr> {
        self.call.attr(key)
    }

    pub fn int(&self, key: &str, default: i64) -> Result<i64> {
        self.call.int(key, default).map_err(message)
    }

    pub fn float(&self, key: &str, default: f64) -> Result<f64> {
        self.call.float(key, default).map_err(message)
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        self.call.flag(key, default).map_err(message)
    }

    pub fn text(&self, key: &str, default: &'static str) -> Result<&'s str> {
        self.call.text(key, default).map_err(message)
    }

    pub fn ints(&self, key: &str) -> Result<Option<Vec<i64>>> {
        self.call.ints(key).map_err(message)
    }

    /// The attribute `key` as an axis of a tensor of rank `rank`.
    pub fn axis(&self, key: &str, default: i64, rank: usize) -> Result<usize> {
        axis(self.int(key, default)?, rank)
    }

    /// The attribute `key` as a list of axes; `None` if it is absent.
    pub fn axes(&self, key: &str, rank: usize) -> Result<Option<Vec<usize>>> {
        let list = self.ints(key)?;
        list.map(|list| list.into_iter().map(|at| axis(at, rank)).collect()).transpose()
    }

    /// What a fallible accessor of the call returns.
    pub fn checked<T>(&self, found: std::result::Result<T, TypeError>) -> Result<T> {
        found.map_err(message)
    }
}

/// Upper limit on the entries of a table that is written into a model.
const MAX_TABLE: i64 = 1 << 23;

/// The entries of a table of these sizes, before it exists.
///
/// # Errors
/// If they are too many to be written into a model.
pub(super) fn table_entries(sizes: &[i64]) -> Result<i64> {
    let entries = sizes.iter().try_fold(1i64, |all, size| all.checked_mul(*size));
    entries
        .filter(|entries| (0..=MAX_TABLE).contains(entries))
        .ok_or_else(|| format!("a table of sizes {sizes:?} is too large for a model"))
}

/// A possibly negative axis of a tensor of rank `rank`.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(counted).ok().filter(|at| *at < rank);
    found.ok_or_else(|| format!("axis {axis} of a tensor of rank {rank}"))
}
