//! Nodes that are kept as they are for engines that read ONNX: opaque operators, which have no equivalent in the graph,
//! and composite ones, which have a decomposition.
//!
//! The operator is called `onnx.Kind`, or `domain.Kind` in another domain than the default one. Its attributes are the
//! node's, and three more: the version of the operator set, and which optional inputs and outputs are omitted. An opaque
//! operator also has the reason why it is opaque.

use std::{collections::HashMap, rc::Rc};

use edgecut_graph::{Arg, Attr, Operator, TensorId, TensorType};
use edgecut_ops::OMITTED_INPUTS;
use smol_str::{SmolStr, format_smolstr};

use crate::{
    error::Message,
    external::ExternalFiles,
    proto::{AttributeProto, NodeProto, TensorProto, attribute_proto::AttributeType},
    seed::missing_seed,
    tensor,
};

/// The domain of names for the default one, which ONNX leaves empty.
const DEFAULT_DOMAIN: &str = "onnx";
/// Attributes that are not the node's begin so.
const ADDED: &str = "onnx.";
const VERSION: &str = "onnx.opset";
const OMITTED_OUTPUTS: &str = "onnx.omitted_outputs";

/// The engine's answers about models of one node, by the hash of the model: the types of the outputs, or why it refuses
/// it.
pub(crate) type Answers = HashMap<blake3::Hash, Result<Rc<[Option<TensorType>]>, Message>>;

/// Why the types of results are not known.
pub(crate) enum TypeError {
    /// The engine's error, or that there is no engine.
    NotInferred(Message),
    /// They depend on the contents of operands.
    Unknown,
}

/// The operator for `node`, whose present inputs are `Some`; `attribute` resolves references to those of functions.
/// `None` if an attribute is a graph or a tensor that cannot be represented.
pub(crate) fn operator<'m>(
    node: &'m NodeProto,
    version: i64,
    inputs: &[Option<TensorId>],
    attribute: impl Fn(&'m AttributeProto) -> Option<&'m AttributeProto>,
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
    if let Some(seed) = missing_seed(node) {
        attrs.push(("seed".into(), value(&seed)?));
    }
    let omitted: Box<[Attr]> =
        (0..).zip(inputs).filter(|(_, input)| input.is_none()).map(|(at, _)| Attr::Int(at)).collect();
    attrs.push((VERSION.into(), Attr::Int(version)));
    attrs.push((OMITTED_INPUTS.into(), Attr::List(omitted)));
    let unnamed = (0..).zip(&node.output).filter(|(_, name)| name.is_empty());
    attrs.push((OMITTED_OUTPUTS.into(), Attr::List(unnamed.map(|(at, _)| Attr::Int(at)).collect())));
    let args: Vec<Arg> = inputs.iter().flatten().map(|tensor| Arg::Tensor(*tensor)).collect();
    let name = format_smolstr!("{domain}.{}", node.op_type.as_deref()?);
    Some(Operator::new(name, args).with_attrs(attrs.into_iter().collect()))
}

/// The node that `operator` was, without inputs' and outputs' names: its kind, domain and attributes, with the version of
/// its operator set and, for each input and output in order, whether it is present. `None` for other operators.
pub(crate) fn node(operator: &Operator) -> Option<OpaqueNode> {
    if !operator.is_kept_as_read() {
        return None;
    }
    let (domain, kind) = operator.name.rsplit_once('.')?;
    let present = |key: &str, count: usize| -> Vec<bool> {
        let omitted: Vec<i64> = match operator.attrs.get(key) {
            Some(Attr::List(list)) => list.iter().filter_map(Attr::int).collect(),
            _ => Vec::new(),
        };
        (0..(count + omitted.len()) as i64).map(|at| !omitted.contains(&at)).collect()
    };
    let attributes = operator.attrs.iter().filter(|(name, _)| !name.starts_with(ADDED));
    let node = NodeProto {
        op_type: Some(kind.to_string()),
        domain: (domain != DEFAULT_DOMAIN).then(|| domain.to_string()),
        attribute: attributes.map(|(name, value)| attribute(name, value)).collect::<Option<_>>()?,
        ..NodeProto::default()
    };
    let version = operator.attrs.get(VERSION).and_then(Attr::int)?;
    let inputs = present(OMITTED_INPUTS, operator.args.len());
    Some(OpaqueNode { node, version, inputs, outputs: present(OMITTED_OUTPUTS, operator.outputs.len()) })
}

/// See [`node`].
pub(crate) struct OpaqueNode {
    pub node: NodeProto,
    pub version: i64,
    pub inputs: Vec<bool>,
    pub outputs: Vec<bool>,
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
        AttributeType::Tensor => {
            Attr::Tensor(tensor::tensor_data(attribute.t.as_ref()?, &ExternalFiles::default()).ok()?)
        }
        _ => return None,
    })
}

fn attribute(name: &str, value: &Attr) -> Option<AttributeProto> {
    let mut made = AttributeProto { name: Some(name.to_string()), ..AttributeProto::default() };
    let kind = match value {
        Attr::Float(x) => {
            made.f = Some(*x as f32);
            AttributeType::Float
        }
        Attr::Int(n) => {
            made.i = Some(*n);
            AttributeType::Int
        }
        Attr::Str(text) => {
            made.s = Some(text.as_str().to_string().into());
            AttributeType::String
        }
        Attr::Tensor(data) => {
            made.t = Some(TensorProto {
                dims: data.shape().iter().map(|size| i64::try_from(*size).ok()).collect::<Option<_>>()?,
                data_type: Some(tensor::element_type(data.dtype()).ok()?),
                raw_data: Some(data.bytes().clone()),
                ..TensorProto::default()
            });
            AttributeType::Tensor
        }
        Attr::List(list) if list.iter().all(|item| matches!(item, Attr::Int(_))) => {
            made.ints = list.iter().filter_map(Attr::int).collect();
            AttributeType::Ints
        }
        Attr::List(list) if list.iter().all(|item| matches!(item, Attr::Float(_))) => {
            made.floats = list.iter().filter_map(|x| Some(x.float()? as f32)).collect();
            AttributeType::Floats
        }
        Attr::List(list) => {
            let text = |item: &Attr| match item {
                Attr::Str(text) => Some(text.as_str().to_string().into()),
                _ => None,
            };
            made.strings = list.iter().map(text).collect::<Option<_>>()?;
            AttributeType::Strings
        }
        Attr::None | Attr::Bool(_) => return None,
    };
    made.r#type = Some(kind.into());
    Some(made)
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
        let made = operator(&original, 13, &inputs, Some).unwrap().with_opaque_reason("unknown");
        assert_eq!((made.name.as_str(), made.opaque_reason()), ("com.example.Det", Some("unknown")));
        let back = node(&made).unwrap();
        assert_eq!((back.node, back.version, back.inputs), (original, 13, vec![true, false, true]));
    }
}
