//! The inputs with unknown dimensions, from the types in the file alone: their sizes must be known before the model is
//! imported.

use bytes::Bytes;
use edgecut_ops::passes::bindings::{OpenDim, OpenInput};
use prost::Message;

use crate::{
    error::OnnxError,
    proto::{ModelProto, ValueInfoProto, tensor_shape_proto::dimension, type_proto},
    tensor::unknown_dims,
};

/// The inputs of an ONNX model that have unknown dimensions. `name` is the file name used in messages.
///
/// # Errors
/// If the file is not a valid ONNX model.
pub fn open_inputs(name: &str, bytes: Bytes) -> Result<Vec<OpenInput>, OnnxError> {
    let model = ModelProto::decode(bytes)
        .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
    Ok(model.graph.iter().flat_map(|graph| &graph.input).filter_map(open_input).collect())
}

fn open_input(input: &ValueInfoProto) -> Option<OpenInput> {
    let unknown = unknown_dims(input);
    let first = unknown.first()?;
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
    Some(OpenInput { name: first.input.clone(), dims: dims.map(dim).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_models::{FLOAT, info, model};

    #[test]
    fn inputs_with_unknown_dimensions_are_listed() {
        let inputs = [info("x", FLOAT, &["batch", "3", "?"]), info("fixed", FLOAT, &["2"])];
        let bytes = Bytes::from(model(&inputs, Vec::new(), &[]).encode_to_vec());
        let dims = vec![OpenDim::Open(Some("batch".into())), OpenDim::Known(3), OpenDim::Open(None)];
        assert_eq!(open_inputs("m.onnx", bytes).unwrap(), [OpenInput { name: "x".into(), dims }]);
        assert!(open_inputs("m.onnx", Bytes::from_static(b"\xff")).is_err());
    }
}
