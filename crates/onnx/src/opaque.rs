//! Opaque operators: nodes that no operators of the graph express, kept as they are for engines that read ONNX.
//!
//! The operator is called `onnx.Kind`, or `domain.Kind` in another domain than the default one. Its attributes are the
//! node's, and three more: the version of the operator set, which optional inputs are omitted, and why it is opaque.

use edgecut_graph::{Arg, Attr, Operator, TensorId};
use smol_str::{SmolStr, format_smolstr};

use crate::{
    proto::{AttributeProto, NodeProto, attribute_proto::AttributeType},
    tensor,
};

/// The domain of names for the default one, which ONNX leaves empty.
const DEFAULT_DOMAIN: &str = "onnx";
/// Attributes that are not the node's.
const VERSION: &str = "onnx.opset";
const OMITTED: &str = "onnx.omitted";

/// The operator for `node`, whose present inputs are `Some`; `attribute` resolves references to those of functions.
/// `None` if an attribute is a graph or a tensor that cannot be represented.
pub(crate) fn operator<'m>(
    node: &'m NodeProto,
    version: i64,
    inputs: &[Option<TensorId>],
    attribute: impl Fn(&'m AttributeProto) -> Option<&'m AttributeProto>,
    reason: &str,
) -> Option<Operator> {
    let domain = match node.domain.as_deref() {
        None | Some("" | "ai.onnx") => DEFAULT_DOMAIN,
        Some(domain) => domain,
    };
    let mut attrs: Vec<(SmolStr, Attr)> = Vec::new();
    for stated in &node.attribute {
        if let Some(found) = attribute(stated) {
            attrs.push((SmolStr::new(stated.name.as_deref()?), value(found)?));
        }
    }
    let omitted: Box<[Attr]> =
        (0..).zip(inputs).filter(|(_, input)| input.is_none()).map(|(at, _)| Attr::Int(at)).collect();
    attrs.push((VERSION.into(), Attr::Int(version)));
    attrs.push((OMITTED.into(), Attr::List(omitted)));
    let args: Vec<Arg> = inputs.iter().flatten().map(|tensor| Arg::Tensor(*tensor)).collect();
    let name = format_smolstr!("{domain}.{}", node.op_type.as_deref()?);
    Some(Operator::new(name, args).with_attrs(attrs.into_iter().collect()).with_opaque_reason(reason))
}

fn value(attribute: &AttributeProto) -> Option<Attr> {
    let text = |bytes: &bytes::Bytes| Some(Attr::Str(std::str::from_utf8(bytes).ok()?.into()));
    Some(match attribute.r#type() {
        AttributeType::Float => Attr::Float(f64::from(attribute.f())),
        AttributeType::Int => Attr::Int(attribute.i()),
        AttributeType::String => text(attribute.s.as_ref()?)?,
        AttributeType::Floats => Attr::List(attribute.floats.iter().map(|x| Attr::Float(f64::from(*x))).collect()),
        AttributeType::Ints => Attr::List(attribute.ints.iter().map(|n| Attr::Int(*n)).collect()),
        AttributeType::Strings => Attr::List(attribute.strings.iter().map(text).collect::<Option<_>>()?),
        AttributeType::Tensor => Attr::Tensor(tensor::tensor_data(attribute.t.as_ref()?, None).ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_survives_as_an_operator() {
        let list = |name: &str, ints: &[i64]| AttributeProto {
            name: Some(name.to_string()),
            ints: ints.to_vec(),
            r#type: Some(AttributeType::Ints.into()),
            ..AttributeProto::default()
        };
        let original = NodeProto {
            op_type: Some("Det".to_string()),
            domain: Some("com.example".to_string()),
            attribute: vec![list("axes", &[1, -2])],
            ..NodeProto::default()
        };
        let inputs = [Some(TensorId(4)), None, Some(TensorId(2))];
        let made = operator(&original, 13, &inputs, Some, "unknown").unwrap();
        assert_eq!((made.name.as_str(), made.opaque_reason()), ("com.example.Det", Some("unknown")));
        let list = |ints: &[i64]| Some(Attr::List(ints.iter().map(|n| Attr::Int(*n)).collect()));
        assert_eq!(made.attrs.get("axes").cloned(), list(&[1, -2]));
        assert_eq!(made.attrs.get(OMITTED).cloned(), list(&[1]));
        assert_eq!(made.operands().collect::<Vec<_>>(), [TensorId(4), TensorId(2)]);
    }
}
