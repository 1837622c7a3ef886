//! Composite operators for engines without kernels for them: they are replaced by their decompositions before loading.

use edgecut_graph::{Graph, Operator, OperatorId, TensorId, inline_composites};

use crate::{EngineError, ParameterSource};

/// Calls `load` with `graph`, its `groups` and its parameters, after replacing the composite operators for which `is_replaced`
/// returns true by their decompositions.
///
/// # Errors
/// Those of `load`.
pub(crate) fn load_decomposed<T>(
    graph: &Graph,
    groups: &[Vec<OperatorId>],
    parameter: &ParameterSource<'_>,
    is_replaced: impl Fn(&Operator) -> bool,
    load: impl FnOnce(&Graph, &[Vec<OperatorId>], &ParameterSource<'_>) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let inlined = inline_composites(graph, is_replaced);
    let parameter = |id: TensorId| match inlined.whole_tensor(id) {
        Some(whole) => parameter(whole),
        None => Err(EngineError::Other(format!("tensor {} of a composite operator has no content", id.0))),
    };
    load(&inlined.graph, &inlined.groups(groups), &parameter)
}
