//! Model configurations of NVIDIA Triton Inference Server, in the text form of its protocol buffers.

use std::fmt::Write as _;

use crate::onnx_parts::{PartFile, PartValue, portable};

/// A type that Triton does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value} is of type {dtype}, which Triton does not have")]
pub struct TypeError {
    value: String,
    dtype: String,
}

/// The `config.pbtxt` of a part: a model of ONNX Runtime with one instance on its device.
///
/// # Errors
/// If a value has a type that Triton lacks.
pub fn config(part: &PartFile) -> Result<String, TypeError> {
    let kind = match part.device.strip_prefix("gpu") {
        Some(number) => format!("KIND_GPU, gpus: [ {number} ]"),
        None => "KIND_CPU".to_string(),
    };
    let mut text = format!("name: {}\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 0\n", quoted(model_name(part)));
    for (field, values) in [("input", &part.inputs), ("output", &part.outputs)] {
        for value in values {
            let dims: Vec<String> = value.shape.iter().map(u64::to_string).collect();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{field} [ {{ name: {}, data_type: {}, dims: [ {} ]{} }} ]",
                quoted(&value.name),
                data_type(value)?,
                // A scalar is a vector of one element, reshaped.
                if dims.is_empty() { "1".to_string() } else { dims.join(", ") },
                if dims.is_empty() { ", reshape: { shape: [ ] }" } else { "" },
            );
        }
    }
    let _ = writeln!(text, "instance_group [ {{ count: 1, kind: {kind} }} ]");
    text.push_str("parameters { key: \"intra_op_thread_count\", value: { string_value: \"1\" } }\n");
    Ok(text)
}

/// The folder of a server's model repository.
pub fn repository(part: &PartFile) -> String {
    portable(&part.server)
}

/// The name of a part's model, and of its folder: that of its file.
pub fn model_name(part: &PartFile) -> &str {
    part.file.strip_suffix(".onnx").unwrap_or(&part.file)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// As `model_config.proto` calls it.
fn data_type(value: &PartValue) -> Result<&'static str, TypeError> {
    Ok(match value.dtype.as_str() {
        "bool" => "TYPE_BOOL",
        "float16" => "TYPE_FP16",
        "float32" => "TYPE_FP32",
        "float64" => "TYPE_FP64",
        "bfloat16" => "TYPE_BF16",
        "int8" => "TYPE_INT8",
        "int16" => "TYPE_INT16",
        "int32" => "TYPE_INT32",
        "int64" => "TYPE_INT64",
        "uint8" => "TYPE_UINT8",
        "uint16" => "TYPE_UINT16",
        "uint32" => "TYPE_UINT32",
        "uint64" => "TYPE_UINT64",
        _ => return Err(TypeError { value: value.name.clone(), dtype: value.dtype.clone() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_model_of_onnx_runtime() {
        let value = |name: &str, dtype: &str, shape: &[u64]| PartValue {
            name: name.to_string(),
            dtype: dtype.to_string(),
            shape: shape.to_vec(),
        };
        let part = |dtype: &str| PartFile {
            file: "00-a-cpu.onnx".to_string(),
            server: "a".to_string(),
            device: "cpu".to_string(),
            stage: 0,
            inputs: vec![value("x\"y", dtype, &[1, 3]), value("n", "int64", &[])],
            outputs: vec![value("z", "float32", &[7])],
        };
        let wanted = r#"name: "00-a-cpu"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [ { name: "x\"y", data_type: TYPE_BOOL, dims: [ 1, 3 ] } ]
input [ { name: "n", data_type: TYPE_INT64, dims: [ 1 ], reshape: { shape: [ ] } } ]
output [ { name: "z", data_type: TYPE_FP32, dims: [ 7 ] } ]
instance_group [ { count: 1, kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count", value: { string_value: "1" } }
"#;
        assert_eq!(config(&part("bool")).unwrap(), wanted);
        assert!(config(&part("handle")).unwrap_err().to_string().contains("of type handle"));
    }
}
