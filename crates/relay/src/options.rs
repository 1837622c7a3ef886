//! Options of an import.

use edgecut_graph::{Graph, TensorData};
use edgecut_ops::passes::retype::BindDim;

use crate::{Params, ParseMode};

/// Computes the only output of a graph; the error names an unknown input.
pub type Evaluate<'a> = dyn Fn(&Graph) -> Result<TensorData, String> + 'a;

/// Options of [`import`](crate::import()).
#[derive(Clone, Default)]
pub struct ImportOptions<'a> {
    pub mode: ParseMode,
    /// Contents of parameters: named tensors are parameters and must match their types.
    pub params: Option<&'a Params>,
    /// Whether the argument of this name is a parameter whose content is generated; others are parameters by their names
    /// and uses.
    pub is_parameter: Option<&'a dyn Fn(&str) -> bool>,
    /// Sizes for unknown dimensions.
    pub bind_dims: Vec<BindDim>,
    pub external: ExternalCalls,
    /// Computes conditions of `if`s that depend on inputs; without it they are errors.
    pub evaluate: Option<&'a Evaluate<'a>>,
}

/// How to treat calls of functions for external compilers (`Compiler="…"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExternalCalls {
    /// Inline the body.
    #[default]
    Inline,
    /// Keep the call as one opaque operator, as in TVM's tables.
    Keep,
}
