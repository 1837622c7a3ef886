//! The shardings of a model's file, checked against its tensors.

use std::collections::HashMap;

use edgecut_graph::TensorType;
use edgecut_onnx::ShardedModel;

use crate::{Error, Model};

/// Limit on the errors that an error lists.
const LISTED: usize = 10;

/// The multi-device annotations of the file of `model`; `None` if it has none, as all but ONNX files.
///
/// # Errors
/// If its shardings do not fit its tensors or the order of its operators; with the places.
pub fn sharded_model(model: &Model) -> Result<Option<&ShardedModel>, Error> {
    let Some(sharded) = model.sharded.as_ref().map_err(Error::bad_input)? else { return Ok(None) };
    let graph = model.graph();
    let sizes = |ty: &TensorType| ty.shape.iter().map(|dim| dim.get()).collect::<Option<Vec<u64>>>();
    let shapes: HashMap<&str, Vec<u64>> =
        graph.tensors().filter_map(|(_, tensor)| Some((tensor.name.as_str(), sizes(&tensor.ty)?))).collect();
    let errors = sharded.errors(&|name| shapes.get(name).cloned());
    if errors.is_empty() {
        return Ok(Some(sharded));
    }
    let mut lines: Vec<String> =
        errors.iter().take(LISTED).map(|error| format!("{}: {error}", model.import.name)).collect();
    if let Some(more) = errors.len().checked_sub(LISTED).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    Err(Error::BadInput(lines.join("\n").into()))
}
