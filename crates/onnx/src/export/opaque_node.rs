//! Opaque operators: the nodes that they were in the file they come from.

use edgecut_graph::{Graph, Operator};

use super::{
    builder::{ModelBuilder, OnnxValue},
    exported::OPSET,
};
use crate::{
    error::Result,
    opaque::{OpaqueNode, node},
};

/// The oldest operator set whose operators mean the same in [`OPSET`]: later ones take `axes` and similar as operands.
const OLDEST: i64 = 13;

/// Kinds whose meaning changed between the operator sets 13 and 18.
const CHANGED: &[&str] = &["RoiAlign", "Resize", "Pad", "Split", "BatchNormalization"];

/// Writes the node that `operator` was on `args`; `None` if it was none.
pub(super) fn write_opaque(
    builder: &mut ModelBuilder,
    graph: &Graph,
    operator: &Operator,
    args: &[Vec<OnnxValue>],
) -> Option<Result<Vec<OnnxValue>>> {
    Some(write(builder, graph, operator, args, node(operator)?))
}

fn write(
    builder: &mut ModelBuilder,
    graph: &Graph,
    operator: &Operator,
    args: &[Vec<OnnxValue>],
    opaque: OpaqueNode,
) -> Result<Vec<OnnxValue>> {
    let OpaqueNode { node, version, inputs, outputs } = opaque;
    let kind = node.op_type.clone().unwrap_or_default();
    let domain = node.domain.clone().unwrap_or_default();
    if domain.is_empty() && version < OPSET && (version < OLDEST || CHANGED.contains(&kind.as_str())) {
        return Err(format!("it means {kind} of operator set {version}, which differs from that of {OPSET}"));
    }
    let mut given = args.iter().flatten();
    let operands: Vec<OnnxValue> = inputs
        .into_iter()
        .map(|is_present| if is_present { given.next().cloned() } else { Some(builder.absent()) })
        .collect::<Option<_>>()
        .ok_or("an operand is missing")?;
    builder.require(&domain, version);
    let names = builder.push(&kind, domain, &operands, node.attribute, &outputs)?;
    let results = names.into_iter().zip(&outputs).filter(|(_, is_present)| **is_present).map(|(name, _)| name);
    let types = operator.outputs.iter().map(|output| graph.tensor(*output).ty.dtype);
    Ok(results.zip(types).map(|(name, dtype)| OnnxValue { name, dtype, content: None }).collect())
}
