//! The interface of a model: its inputs, defaults and outputs, by name, order and type, as its file states them.

use std::collections::{BTreeMap, HashSet};

use edgecut_graph::TensorData;
use smol_str::SmolStr;

use crate::{
    error::shown,
    proto::{ModelProto, TypeProto, ValueInfoProto, type_proto},
    tensor,
    unknown_dim::UnknownDim,
};

/// The key of a model's metadata whose value names the inputs that are parameters to be generated, one a line.
pub(crate) const SEEDED_PARAMETERS: &str = "seeded_parameters";

/// The inputs and outputs of a model as its file states them; a model that is written again has the same.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// All inputs in order, those with an initializer and those that nothing reads included.
    pub(crate) inputs: Vec<ValueInfoProto>,
    /// The contents of inputs with an initializer.
    pub(crate) defaults: BTreeMap<SmolStr, TensorData>,
    /// The outputs in order.
    pub(crate) outputs: Vec<InterfaceOutput>,
}

/// An output of the file.
#[derive(Debug, Clone)]
pub(crate) struct InterfaceOutput {
    pub name: SmolStr,
    /// Whether an initializer has this name, so that nothing computes it.
    pub is_initializer: bool,
    /// Why it is no tensor of the graph, if it is none.
    pub refusal: Option<String>,
}

impl Interface {
    /// The initial content of the input `name`, if it has one.
    pub(crate) fn default_of(&self, name: &str) -> Option<&TensorData> {
        self.defaults.get(name)
    }

    /// The names of the outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|output| output.name.as_str())
    }

    /// The dimensions of inputs whose sizes the file leaves open, those that were bound included.
    pub fn unknown_dims(&self) -> impl Iterator<Item = UnknownDim> {
        self.inputs.iter().flat_map(tensor::unknown_dims)
    }
}

/// What contents of inputs decided during the import: it is part of the graph, and no other content changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What was decided, and of which operator.
    pub what: String,
    /// The inputs that it depends on.
    pub inputs: Vec<SmolStr>,
    /// Whether the content of any of them was generated.
    pub is_generated: bool,
}

/// The first version of the format in which initializers need not be listed as inputs, so that those listed are defaults.
const FIRST_DEFAULTS: i64 = 4;

/// Whether an initializer of `model` may be the default of an input.
pub(crate) fn has_defaults(model: &ModelProto) -> bool {
    model.ir_version.unwrap_or_default() >= FIRST_DEFAULTS
}

/// The inputs that the file says are parameters to be generated.
pub(crate) fn seeded_parameters(model: &ModelProto) -> HashSet<&str> {
    let said = model.metadata_props.iter().filter(|entry| entry.key.as_deref() == Some(SEEDED_PARAMETERS));
    said.flat_map(|entry| entry.value.as_deref().unwrap_or_default().lines()).map(str::trim).collect()
}

/// An output of a graph with the given names of `initializers`.
pub(crate) fn output(initializers: &HashSet<&str>, info: &ValueInfoProto) -> InterfaceOutput {
    let name = SmolStr::new(info.name.as_deref().unwrap_or_default());
    let is_tensor = |ty: &TypeProto| matches!(ty.value, None | Some(type_proto::Value::TensorType(_)));
    let refusal = match &info.r#type {
        Some(ty) if !is_tensor(ty) => Some(format!("output `{}` is not a tensor", shown(&name))),
        _ => None,
    };
    let is_initializer = initializers.contains(name.as_str());
    InterfaceOutput { name, is_initializer, refusal }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, Graph, Origin, TensorType};
    use prost::Message;

    use super::*;
    use crate::{
        Defaults, ExportOptions, ImportOptions, Imported, export, import,
        proto::{GraphProto, NodeProto, StringStringEntryProto, TensorProto},
        test_models::{FLOAT, info, model, node},
    };

    const INT64: i32 = 7;

    fn initializer(name: &str, values: &[f32]) -> TensorProto {
        TensorProto {
            name: Some(name.to_string()),
            data_type: Some(FLOAT),
            dims: vec![values.len() as i64],
            float_data: values.to_vec(),
            ..TensorProto::default()
        }
    }

    fn floats(values: &[f32]) -> TensorData {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        TensorData::new(DType::F32, [values.len() as u64], bytes).unwrap()
    }

    /// What is read with `given` contents of inputs. Nothing can be computed.
    fn read_with(model: &ModelProto, given: &[(&str, TensorData)], defaults: Defaults) -> Imported {
        let evaluate = |_: &Graph, _: &crate::Content<'_>| Err("nothing is computed here".to_string());
        let inputs = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, data)| data.clone());
        let options = ImportOptions { inputs: &inputs, defaults, ..ImportOptions::new(&evaluate) };
        import("m.onnx", model.encode_to_vec().into(), &options).unwrap()
    }

    fn origins(graph: &Graph) -> Vec<(&str, &'static str)> {
        let kind = |origin: &Origin| match origin {
            Origin::Input => Some("input"),
            Origin::Parameter => Some("parameter"),
            Origin::Constant(_) => Some("constant"),
            Origin::Operator { .. } => None,
        };
        graph.tensors().filter_map(|(_, tensor)| Some((tensor.name.as_str(), kind(&tensor.origin)?))).collect()
    }

    fn product(inputs: &[ValueInfoProto], graph: GraphProto) -> ModelProto {
        let nodes: Vec<NodeProto> = vec![node("Mul", &["x", "scale"], &["y"], Vec::new())];
        let mut made = model(inputs, nodes, &[info("y", FLOAT, &["2"])]);
        made.graph.as_mut().unwrap().initializer = graph.initializer;
        made
    }

    #[test]
    fn inputs_are_what_has_no_initializer() {
        let all = [info("x", FLOAT, &["2"]), info("scale", FLOAT, &["2"]), info("weight", FLOAT, &["2"])];
        let plain = product(&all, GraphProto::default());
        let expected = [("x", "input"), ("scale", "input"), ("weight", "input")];
        assert_eq!(origins(&read_with(&plain, &[], Defaults::Constant).graph), expected);
        // A given content changes nothing.
        assert_eq!(origins(&read_with(&plain, &[("scale", floats(&[1.0, 2.0]))], Defaults::Constant).graph), expected);
        let mut seeded = plain;
        seeded.metadata_props = vec![StringStringEntryProto {
            key: Some("seeded_parameters".to_string()),
            value: Some("scale\nweight\n".to_string()),
        }];
        let expected = [("x", "input"), ("scale", "parameter"), ("weight", "parameter")];
        assert_eq!(origins(&read_with(&seeded, &[], Defaults::Constant).graph), expected);
    }

    #[test]
    fn an_initializer_of_an_input_is_a_default() {
        let graph = GraphProto { initializer: vec![initializer("scale", &[2.0, 3.0])], ..GraphProto::default() };
        let made = product(&[info("x", FLOAT, &["2"]), info("scale", FLOAT, &["2"])], graph);
        let mut older = made.clone();
        older.ir_version = Some(3);
        let other = [("scale", floats(&[4.0, 5.0]))];
        for (model, given, defaults, expected) in [
            (&made, &[][..], Defaults::Constant, "constant"),
            (&made, &other[..], Defaults::Constant, "input"),
            (&made, &[][..], Defaults::Input, "input"),
            (&older, &[][..], Defaults::Input, "constant"),
            (&older, &other[..], Defaults::Input, "input"),
        ] {
            let read = read_with(model, given, defaults);
            let found = origins(&read.graph);
            let expected = if expected == "input" {
                [("x", "input"), ("scale", expected)]
            } else {
                [("scale", expected), ("x", "input")]
            };
            assert_eq!(found, expected);
            assert_eq!(read.replaced.len(), given.len());
        }
    }

    #[test]
    fn a_written_model_has_the_interface_of_the_one_that_was_read() {
        let nodes = vec![
            node("Identity", &["x"], &["same"], Vec::new()),
            node("Relu", &["x"], &["score"], Vec::new()),
            node("Identity", &["score"], &["again"], Vec::new()),
            node("Size", &["x"], &["count"], Vec::new()),
            node("Mul", &["x", "gain"], &["m"], Vec::new()),
        ];
        let inputs = [
            info("unused", INT64, &["4"]),
            info("gain", FLOAT, &["2"]),
            info("x", FLOAT, &["2"]),
            info("text", 8, &["1"]),
        ];
        let outputs = [
            info("same", FLOAT, &["2"]),
            info("x", FLOAT, &["2"]),
            info("again", FLOAT, &["2"]),
            info("score", FLOAT, &["2"]),
            info("count", INT64, &[]),
            info("table", FLOAT, &["2"]),
            info("m", FLOAT, &["2"]),
        ];
        let mut made = model(&inputs, nodes, &outputs);
        made.graph.as_mut().unwrap().initializer =
            vec![initializer("table", &[1.0, 2.0]), initializer("gain", &[3.0, 4.0])];
        let read = read_with(&made, &[], Defaults::Input);
        let options = ExportOptions { content: &|_| Ok(None), interface: Some(&read.interface) };
        let written = export(&read.graph, &options).unwrap();
        let written = ModelProto::decode(written.to_bytes().unwrap().as_slice()).unwrap().graph.unwrap();
        assert_eq!((&written.input[..], &written.output[..]), (&inputs[..], &outputs[..]));
        let stored: Vec<&str> = written.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
        assert!(stored.contains(&"gain") && stored.contains(&"table") && !stored.contains(&"count"), "{stored:?}");
        let ty = |name: &str| {
            read.graph.tensors().find(|(_, tensor)| tensor.name == name).map(|(_, tensor)| tensor.ty.clone())
        };
        assert_eq!(ty("unused"), Some(TensorType::of(DType::I64, &[4])));
    }
}
