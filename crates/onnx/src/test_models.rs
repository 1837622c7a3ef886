//! Small models for tests: messages built by hand.

use edgecut_graph::Graph;
use edgecut_ops::passes::retype::BindDim;
use prost::Message;

use crate::{
    Content, ImportOptions, Imported, OnnxError, import,
    proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
        ValueInfoProto, attribute_proto::AttributeType, tensor_shape_proto::Dimension, tensor_shape_proto::dimension,
        type_proto,
    },
};

/// The number of `float` in the file.
pub(crate) const FLOAT: i32 = 1;

pub(crate) fn node(kind: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
    NodeProto {
        op_type: Some(kind.to_string()),
        name: Some(format!("{kind}_1")),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..NodeProto::default()
    }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    let kind = Some(AttributeType::Int.into());
    AttributeProto { name: Some(name.to_string()), i: Some(value), r#type: kind, ..AttributeProto::default() }
}

pub(crate) fn info(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = |text: &&str| Dimension {
        value: Some(match text.parse() {
            Ok(size) => dimension::Value::DimValue(size),
            Err(_) => dimension::Value::DimParam((*text).to_string()),
        }),
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(elem_type), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)) };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(ty) }
}

pub(crate) fn model(inputs: &[ValueInfoProto], nodes: Vec<NodeProto>, outputs: &[ValueInfoProto]) -> ModelProto {
    let graph = GraphProto {
        name: Some("main".to_string()),
        node: nodes,
        input: inputs.to_vec(),
        output: outputs.to_vec(),
        ..GraphProto::default()
    };
    let set = OperatorSetIdProto { domain: None, version: Some(17) };
    ModelProto { ir_version: Some(8), graph: Some(graph), opset_import: vec![set], ..ModelProto::default() }
}

pub(crate) fn read(model: &ModelProto, bind_dims: &[BindDim]) -> Result<Imported, OnnxError> {
    let evaluate = |_: &Graph, _: &Content<'_>| Err("nothing is computed here".to_string());
    let options = ImportOptions { bind_dims, ..ImportOptions::new(&evaluate) };
    import("m.onnx", model.encode_to_vec().into(), &options)
}
