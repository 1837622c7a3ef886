//! Opaque and composite operators: the nodes that they were in the file they come from.

use edgecut_graph::{Graph, Operator};

use super::{
    builder::{ModelBuilder, OnnxValue},
    exported::OPSET,
};
use crate::{
    error::Result,
    opaque::{OpaqueNode, node},
    proto::{AttributeProto, attribute_proto::AttributeType},
};

/// The last operator set, up to [`OPSET`], in which an operator came to mean something else or to take something else: a
/// node of an earlier one cannot be written as it is. Later sets only added types, attributes whose default is what the
/// earlier ones did, or optional operands. Operators that are not listed last changed in [`OLDEST`].
const CHANGED: &[(&str, i64)] = &[
    ("BatchNormalization", 14),
    ("Clip", 11),
    ("Dropout", 12),
    ("Hardmax", 13),
    ("LogSoftmax", 13),
    ("Pad", 11),
    ("ReduceL1", 18),
    ("ReduceL2", 18),
    ("ReduceLogSum", 18),
    ("ReduceLogSumExp", 18),
    ("ReduceMax", 18),
    ("ReduceMean", 18),
    ("ReduceMin", 18),
    ("ReduceProd", 18),
    ("ReduceSum", 13),
    ("ReduceSumSquare", 18),
    ("Resize", 11),
    ("Scan", 9),
    ("Slice", 10),
    ("Softmax", 13),
    ("Split", 18),
    ("Squeeze", 13),
    ("TopK", 10),
    ("Unsqueeze", 13),
    ("Upsample", OPSET + 1),
];

/// See [`CHANGED`]: operators broadcast since this set.
const OLDEST: i64 = 7;

/// What came with an operator set after [`OPSET`], or means something else since: the kinds and the set. Nodes of others mean the
/// same in [`OPSET`], for which runtimes have more kernels. Random numbers depend on the kernel.
const LATER: &[(&str, i64)] = &[
    ("AffineGrid", 20),
    ("Attention", 23),
    ("AveragePool", 19),
    ("Bernoulli", 22),
    ("Cast", 19),
    ("CastLike", 19),
    ("DFT", 20),
    ("DeformConv", 19),
    ("DequantizeLinear", 19),
    ("Gelu", 20),
    ("GridSample", 20),
    ("GroupNormalization", 21),
    ("ImageDecoder", 20),
    ("Pad", 19),
    ("QLinearMatMul", 21),
    ("QuantizeLinear", 19),
    ("RMSNormalization", 23),
    ("RandomNormal", 22),
    ("RandomNormalLike", 22),
    ("RandomUniform", 22),
    ("RandomUniformLike", 22),
    ("ReduceMax", 20),
    ("ReduceMin", 20),
    ("RegexFullMatch", 20),
    ("Resize", 19),
    ("RotaryEmbedding", 23),
    ("StringConcat", 20),
    ("StringSplit", 20),
    ("Swish", 24),
    ("TensorScatter", 24),
];

/// An attribute that a later operator set has, whose default is not what nodes of earlier ones mean: the kind, the set, the
/// attribute and the value that they have.
const IMPLIED: &[(&str, i64, &str, &str)] = &[("RoiAlign", 16, "coordinate_transformation_mode", "output_half_pixel")];

/// Whether a composite operator can be written as the node that it was. Its decomposition can be written too.
pub(super) fn is_writable(operator: &Operator) -> bool {
    node(operator).is_some_and(|node| unchanged(&node).is_ok())
}

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
    unchanged(&opaque)?;
    let OpaqueNode { mut node, version, inputs, outputs } = opaque;
    let kind = node.op_type.clone().unwrap_or_default();
    let domain = node.domain.clone().unwrap_or_default();
    for (name, set, attribute, value) in IMPLIED {
        let is_stated = || node.attribute.iter().any(|stated| stated.name.as_deref() == Some(attribute));
        if domain.is_empty() && *name == kind && version < *set && !is_stated() {
            node.attribute.push(AttributeProto {
                name: Some((*attribute).to_string()),
                s: Some(value.as_bytes().to_vec().into()),
                r#type: Some(AttributeType::String.into()),
                ..Default::default()
            });
        }
    }
    let mut given = args.iter().flatten();
    let operands: Vec<OnnxValue> = inputs
        .into_iter()
        .map(|is_present| if is_present { given.next().cloned() } else { Some(builder.absent()) })
        .collect::<Option<_>>()
        .ok_or("an operand is missing")?;
    let is_later = LATER.iter().any(|(name, set)| *name == kind && version >= *set);
    builder.require(&domain, if domain.is_empty() && !is_later { OPSET } else { version });
    let names = builder.push(&kind, domain, &operands, node.attribute, &outputs)?;
    let results = names.into_iter().zip(&outputs).filter(|(_, is_present)| **is_present).map(|(name, _)| name);
    let types = operator.outputs.iter().map(|output| graph.tensor(*output).ty.dtype);
    Ok(results.zip(types).map(|(name, dtype)| OnnxValue { name, dtype, content: None }).collect())
}

/// Checks that a node of its operator set means the same in [`OPSET`].
fn unchanged(opaque: &OpaqueNode) -> Result<()> {
    let OpaqueNode { node, version, inputs, .. } = opaque;
    let kind = node.op_type.as_deref().unwrap_or_default();
    let changed = match kind {
        // Set 18 only changed the number of parts where no sizes are given.
        "Split" if inputs.get(1) == Some(&true) => 13,
        _ => CHANGED.iter().find(|(name, _)| *name == kind).map_or(OLDEST, |(_, set)| *set),
    };
    match node.domain.as_deref().unwrap_or_default().is_empty() && *version < changed {
        true => Err(format!("the meaning of {kind} has changed between operator set {version} and {OPSET}")),
        false => Ok(()),
    }
}
