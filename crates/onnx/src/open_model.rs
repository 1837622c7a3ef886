//! What can be read from an ONNX file before its unknown dimensions are bound, which the import requires.

use bytes::Bytes;
use edgecut_graph::StatePair;
use edgecut_ops::passes::bindings::{OpenDim, OpenInput};
use prost::Message;
use smol_str::SmolStr;

use crate::{
    error::OnnxError,
    proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto, tensor_shape_proto::dimension, type_proto},
    tensor::unknown_dims,
};

/// An ONNX model whose unknown dimensions are not bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenModel {
    /// Tensor inputs.
    pub inputs: Vec<OpenInput>,
    /// States that a step appends to: the output is `Concat(input, new)`.
    pub appended: Vec<StatePair>,
}

impl OpenModel {
    /// Reads a file of the content `bytes`. `name` is the file name used in messages.
    ///
    /// # Errors
    /// If the file is not a valid ONNX model.
    pub fn read(name: &str, bytes: Bytes) -> Result<OpenModel, OnnxError> {
        let model = ModelProto::decode(bytes)
            .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
        let graph = model.graph.unwrap_or_default();
        let inputs: Vec<OpenInput> = graph.input.iter().filter_map(open_input).collect();
        let appended = graph.node.iter().filter_map(|node| appended(&graph, &inputs, node)).collect();
        Ok(OpenModel { inputs, appended })
    }
}

/// The state that `node` appends to.
fn appended(graph: &GraphProto, inputs: &[OpenInput], node: &NodeProto) -> Option<StatePair> {
    let is_concat =
        node.op_type.as_deref() == Some("Concat") && matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"));
    let ([input, _], [output]) = (&node.input[..], &node.output[..]) else { return None };
    let is_input = inputs.iter().any(|open| open.name == *input);
    let is_output = graph.output.iter().any(|of| of.name.as_ref() == Some(output));
    (is_concat && is_input && is_output).then(|| StatePair { input: SmolStr::new(input), output: SmolStr::new(output) })
}

fn open_input(input: &ValueInfoProto) -> Option<OpenInput> {
    let unknown = unknown_dims(input);
    let Some(type_proto::Value::TensorType(tensor)) = input.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return None;
    };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim).enumerate();
    let dim = |(axis, dim): (usize, &crate::proto::tensor_shape_proto::Dimension)| match (
        unknown.iter().find(|unknown| unknown.axis == axis),
        &dim.value,
    ) {
        (None, Some(dimension::Value::DimValue(size))) => OpenDim::Known(size.unsigned_abs()),
        (unknown, _) => OpenDim::Open(unknown.and_then(|unknown| unknown.symbol.clone())),
    };
    Some(OpenInput { name: SmolStr::new(input.name.as_deref()?), dims: dims.map(dim).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_models::{FLOAT, info, model, node};

    #[test]
    fn dimensions_of_inputs_are_known_or_open() {
        let inputs = [info("x", FLOAT, &["batch", "3", "?"]), info("known", FLOAT, &["2"])];
        let bytes = Bytes::from(model(&inputs, Vec::new(), &[]).encode_to_vec());
        let open = vec![OpenDim::Open(Some("batch".into())), OpenDim::Known(3), OpenDim::Open(None)];
        let inputs = [("x", open), ("known", vec![OpenDim::Known(2)])];
        let inputs = inputs.map(|(name, dims)| OpenInput { name: name.into(), dims });
        assert_eq!(OpenModel::read("m.onnx", bytes).unwrap().inputs, inputs);
        assert!(OpenModel::read("m.onnx", Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn states_to_which_a_step_appends_are_outputs_of_concatenations() {
        let inputs = ["past", "old"].map(|name| info(name, FLOAT, &["n"]));
        let concat = |first: &str, to: &str| node("Concat", &[first, "new"], &[to], Vec::new());
        let nodes = vec![concat("past", "present"), concat("old", "inner"), concat("other", "out")];
        let outputs = ["present", "out"].map(|name| info(name, FLOAT, &["n"]));
        let bytes = Bytes::from(model(&inputs, nodes, &outputs).encode_to_vec());
        let appended = OpenModel::read("m.onnx", bytes).unwrap().appended;
        assert_eq!(appended, [StatePair { input: "past".into(), output: "present".into() }]);
    }
}
