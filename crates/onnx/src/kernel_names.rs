//! What ONNX Runtime calls the nodes of a file: in its profile of a session, and in its statistics of memory.

use bytes::Bytes;
use prost::Message;

use crate::{
    error::OnnxError,
    murmur3,
    proto::{ModelProto, NodeProto},
};

/// The names of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNames {
    /// Its name in the file; empty where it has none.
    pub name: String,
    /// Its name in profiles, without what each ends in: the name in the file, else the kind and the number of the node.
    pub profiled: String,
    /// Its name in statistics of memory: see [`unique_name`].
    pub unique: String,
    /// The values that it computes.
    pub outputs: Vec<String>,
}

/// The names of the nodes of the model `bytes`, in the order of its file. Those of bodies of loops and branches are not among
/// them. `name` is the file name used in messages.
///
/// # Errors
/// If the file is damaged.
pub fn kernel_names(name: &str, bytes: Bytes) -> Result<Vec<KernelNames>, OnnxError> {
    let model = ModelProto::decode(bytes)
        .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
    // Constants are initializers before nodes are numbered (`Graph::Graph` in `core/graph/graph.cc`).
    let nodes = model.graph.iter().flat_map(|graph| &graph.node).filter(|node| node.op_type() != "Constant");
    Ok(nodes.enumerate().map(|(number, node)| names(number, node)).collect())
}

fn names(number: usize, node: &NodeProto) -> KernelNames {
    let profiled = match node.name() {
        "" => format!("{}_{number}", node.op_type()),
        name => name.to_string(),
    };
    KernelNames {
        name: node.name().to_string(),
        profiled,
        unique: unique_name(node),
        outputs: node.output.iter().filter(|name| !name.is_empty()).cloned().collect(),
    }
}

/// The name, or else the kind, and a hash of the names of all inputs and outputs. Optional ones that are absent have an empty
/// name, which counts (`IResourceAccountant::MakeUniqueNodeName` in `core/framework/resource_accountant.cc`; as of 1.32).
pub(crate) fn unique_name(node: &NodeProto) -> String {
    let values = node.input.iter().chain(&node.output);
    let [low, high, ..] = values.fold([0; 4], |hash, name| murmur3::x86_128(name.as_bytes(), hash[0]));
    let name = if node.name().is_empty() { node.op_type() } else { node.name() };
    format!("{name}_{}", u64::from(high) << 32 | u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{proto::GraphProto, test_models::node};

    #[test]
    fn names_are_those_that_onnx_runtime_writes() {
        let named = |kind: &str, name: &str, inputs: &[&str], outputs: &[&str]| NodeProto {
            name: Some(name.to_string()),
            ..node(kind, inputs, outputs, Vec::new())
        };
        let nodes = vec![
            named("Constant", "", &[], &["k"]),
            named("Add", "", &["x", "k"], &["a"]),
            named("Sin", "", &["a"], &["s"]),
            named("Softmax", "soft", &["s"], &["p"]),
        ];
        let graph = GraphProto { node: nodes, ..GraphProto::default() };
        let model = ModelProto { graph: Some(graph), ..ModelProto::default() };
        let names = kernel_names("m.onnx", model.encode_to_vec().into()).unwrap();
        // From sessions of onnxruntime 1.32.0 of this model.
        let written = [
            ("Add_0", "Add_8497914972398174156"),
            ("Sin_1", "Sin_5630833579929653068"),
            ("soft", "soft_4412503591938936763"),
        ];
        let found: Vec<(&str, &str)> =
            names.iter().map(|names| (names.profiled.as_str(), names.unique.as_str())).collect();
        assert_eq!(found, written);
        assert_eq!((names[1].name.as_str(), &names[1].outputs[..]), ("", &["s".to_string()][..]));
        assert!(kernel_names("m.onnx", Bytes::from_static(b"\x0a")).is_err());
    }
}
