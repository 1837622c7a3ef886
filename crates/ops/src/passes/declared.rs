//! The split axes that an operator's family declares.

use edgecut_graph::{Graph, Operator, TensorType};

use crate::{
    def::{Call, Typed},
    registry::lookup,
    split::SplitAxis,
};

/// The axes that `operator` declares, along which it can be split into at least two shards. Empty for an operator that is unknown,
/// declares none, or has unknown dimensions.
pub(super) fn declared_axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    let Some((def, split)) = lookup(&operator.name).and_then(|def| Some((def, def.split?))) else { return Vec::new() };
    let args = graph.arg_types(operator);
    let out = graph.result_type(operator);
    let known = |ty: &TensorType| ty.shape.fixed().is_some();
    if !args.iter().flat_map(|ty| ty.tensors()).chain(out.tensors()).all(known) {
        return Vec::new();
    }
    let call = Call { def, attrs: &operator.attrs, args: &args, values: &[] };
    let mut axes = split(&Typed { call, out: &out }).unwrap_or_default();
    axes.retain(|axis| axis.size > axis.grain);
    axes
}
