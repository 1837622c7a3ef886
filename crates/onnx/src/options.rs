//! What the caller of an import provides: sizes, contents, and a way to compute.

use std::path::Path;

use edgecut_graph::{Graph, TensorData, TensorType};
use edgecut_ops::passes::retype::BindDim;

/// Gives the content of an input or parameter by its name.
pub type Content<'a> = dyn Fn(&str) -> Option<TensorData> + 'a;

/// Computes the outputs of a graph; inputs without a given content have their generated ones. Shape arithmetic is folded
/// with it, and what depends on data is decided.
pub type Evaluate<'a> = dyn Fn(&Graph, &Content<'_>) -> Result<Vec<TensorData>, String> + 'a;

/// Infers the types of the outputs of a model, the bytes of a file, by an engine's own rules: in order, `None` for what
/// the graph has no tensor type for. Sizes that depend on contents stay unknown.
pub type InferTypes<'a> = dyn Fn(&[u8]) -> Result<Vec<Option<TensorType>>, String> + 'a;

/// Options of [`import`](fn@crate::import).
#[derive(Clone, Copy)]
pub struct ImportOptions<'a> {
    /// Computes operators on constants, and conditions.
    pub evaluate: &'a Evaluate<'a>,
    /// Infers result types that the file does not state, for operators without an equivalent in the graph.
    pub infer_types: &'a InferTypes<'a>,
    /// Sizes of unknown dimensions.
    pub bind_dims: &'a [BindDim],
    /// Whether to guess the remaining unknown dimensions of inputs without given contents.
    pub guess_dims: bool,
    /// Contents of inputs, where they are given. An input stays one: its content decides only what a graph cannot leave to
    /// its runs, such as shapes and branches. An initializer of the same name is replaced.
    pub inputs: &'a Content<'a>,
    /// Types of the contents of inputs, which are checked before the contents are asked for.
    pub input_type: &'a dyn Fn(&str) -> Option<TensorType>,
    /// Contents of parameters, where a file gives them: their names are those of parameters.
    pub parameters: &'a Content<'a>,
    /// Whether the input of this name is a parameter, in addition to those that the file says.
    pub is_parameter: &'a dyn Fn(&str) -> bool,
    /// What an input with an initializer is, where no content is given for it.
    pub defaults: Defaults,
    /// The model's file: external data lies in its folder.
    pub file: Option<&'a Path>,
    /// Most bytes of external data that are read.
    pub max_external_bytes: u64,
}

/// What an input with an initializer, its default, is in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// A constant: all runs use the default.
    Constant,
    /// An input, so that a model that is written again has it.
    Input,
}

impl<'a> ImportOptions<'a> {
    /// Options without contents and sizes, for a model that is not a file.
    pub fn new(evaluate: &'a Evaluate<'a>) -> ImportOptions<'a> {
        ImportOptions {
            evaluate,
            infer_types: &|_| Err("no engine infers them".to_string()),
            bind_dims: &[],
            guess_dims: false,
            inputs: &|_| None,
            input_type: &|_| None,
            parameters: &|_| None,
            is_parameter: &|_| false,
            defaults: Defaults::Constant,
            file: None,
            max_external_bytes: u64::MAX,
        }
    }
}
