//! What the caller of an import provides: sizes, contents, and a way to compute.

use std::path::Path;

use edgecut_graph::{Graph, TensorData};
use edgecut_ops::passes::retype::BindDim;

/// Gives the content of an input or parameter by its name.
pub type Content<'a> = dyn Fn(&str) -> Option<TensorData> + 'a;

/// Computes the outputs of a graph; inputs without a given content have their generated ones. Shape arithmetic is folded
/// with it, and what depends on data is decided.
pub type Evaluate<'a> = dyn Fn(&Graph, &Content<'_>) -> Result<Vec<TensorData>, String> + 'a;

/// Options of [`import`](fn@crate::import).
pub struct ImportOptions<'a> {
    /// Computes operators on constants, and conditions.
    pub evaluate: &'a Evaluate<'a>,
    /// Sizes of unknown dimensions.
    pub bind_dims: &'a [BindDim],
    /// The content of an input, where it is given: an input whose values determine shapes is a constant.
    pub given: &'a Content<'a>,
    /// The folder of the model, for external data.
    pub folder: Option<&'a Path>,
}
