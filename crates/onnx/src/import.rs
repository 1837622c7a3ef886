//! Reads an ONNX file: bytes → messages → graph.

use bytes::Bytes;
use edgecut_graph::Graph;
use edgecut_ops::passes::{
    reader_copies::copy_for_readers,
    retype::{BindDim, bound_size},
};
use prost::Message;
use smol_str::SmolStr;

use crate::{
    error::OnnxError,
    families,
    interface::{Decision, Interface},
    live::live,
    lowering::{Lowered, Lowering},
    options::ImportOptions,
    proto::{GraphProto, ModelProto},
    sharding::{ShardedModel, read_shardings},
    tensor::unknown_dims,
    unknown_dim::UnknownDim,
};

/// A model that was read.
#[derive(Debug)]
pub struct Imported {
    pub graph: Graph,
    /// What contents of inputs decided: branches, turns of loops, sizes.
    pub decisions: Vec<Decision>,
    /// Inputs whose initializer a given content replaces.
    pub replaced: Vec<SmolStr>,
    /// Whether given contents determine sizes of inputs.
    pub is_sized: bool,
    /// Sizes of unknown dimensions that were guessed.
    pub guessed: Vec<BindDim>,
    pub interface: Interface,
    /// The multi-device annotations of the file, if it has any.
    pub sharded: Result<Option<ShardedModel>, OnnxError>,
}

/// Reads an ONNX model into a graph. `name` is the file name used in messages.
///
/// A graph input without initializer is an input, whatever its name and use, unless the file or the caller says that it is
/// a parameter.
///
/// # Errors
/// If the file is damaged, an operator or element type is not supported and the file does not state the types that would
/// keep it as an opaque operator, or a shape depends on data.
pub fn import(name: &str, bytes: Bytes, options: &ImportOptions<'_>) -> Result<Imported, OnnxError> {
    let file_bytes = bytes.len();
    let model = ModelProto::decode(bytes)
        .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
    let Some(graph) = &model.graph else {
        return Err(OnnxError::new(name, None, "the file has no graph"));
    };
    let sharded = read_shardings(name, &model);
    let guessed = if options.guess_dims { guessed(graph, options) } else { Vec::new() };
    let bind_dims = [options.bind_dims, &guessed].concat();
    let options = &ImportOptions { bind_dims: &bind_dims, ..*options };
    let lowering = Lowering::new(&model, file_bytes, options, families::find);
    let lowered = lowering.run(graph).map_err(|(place, what)| OnnxError::new(name, place, what))?;
    let Lowered { graph, decisions, interface, replaced, is_sized } = lowered;
    let graph = copy_for_readers(&live(&graph));
    Ok(Imported { graph, decisions, replaced, is_sized, guessed, interface, sharded })
}

/// Sizes for the dimensions that neither the file nor `options` give.
fn guessed(graph: &GraphProto, options: &ImportOptions<'_>) -> Vec<BindDim> {
    let is_open = |dim: &UnknownDim| {
        let bound = bound_size(options.bind_dims, &dim.input, dim.axis, dim.symbol.as_deref());
        bound.is_none() && (options.input_type)(&dim.input).is_none() && (options.parameters)(&dim.input).is_none()
    };
    let unknown: Vec<UnknownDim> = graph.input.iter().flat_map(unknown_dims).filter(is_open).collect();
    UnknownDim::guesses(&unknown)
}

/// Bytes of a file that are examined for its kind.
const SNIFFED_BYTES: usize = 4096;

/// Whether the bytes are an ONNX model: a message whose first fields are those of a model.
pub fn is_onnx(bytes: &[u8]) -> bool {
    // `ir_version` is field 1, a varint; every exporter writes it first. Version numbers are small.
    match bytes {
        [0x08, version, rest @ ..] if (1..=64).contains(version) => {
            rest.first().is_none_or(|tag| matches!(tag >> 3, 2..=8 | 14) && rest.len().min(SNIFFED_BYTES) > 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, TensorType};

    use crate::{
        proto::{NodeProto, TensorProto},
        test_models::{FLOAT, info, int, model, node, read},
    };

    const STRING: i32 = 8;

    #[test]
    fn messages_name_file_graph_operator_and_attribute() {
        let (x, y) = (info("x", FLOAT, &["2", "3"]), info("y", FLOAT, &["n"]));
        for (nodes, expected) in [
            (
                vec![node("Wonder", &["x"], &["y"], Vec::new())],
                "Wonder `Wonder_1` in graph `main`: operator Wonder is not",
            ),
            (
                vec![node("Relu", &["z"], &["y"], Vec::new())],
                "Relu `Relu_1` in graph `main`: `z` is not defined: no operator",
            ),
            (vec![node("Softmax", &["x"], &["y"], vec![int("axis", 7)])], "axis 7 is out of range for rank 2"),
            (
                vec![node("Cast", &["x"], &["y"], vec![int("to", STRING.into())])],
                "attribute to: elements of type string",
            ),
            (
                vec![node("Reshape", &["x", "s"], &["y"], Vec::new())],
                "depends on `s`: give its content with option `inputs`",
            ),
            (vec![node("Relu", &["text"], &["y"], Vec::new())], "input `text`: elements of type string"),
        ] {
            let inputs = [x.clone(), info("s", 7, &["1"]), info("text", STRING, &["1"])];
            let error = read(&model(&inputs, nodes, std::slice::from_ref(&y)), &[]).unwrap_err().to_string();
            assert!(error.starts_with("m.onnx: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn symbols_are_bound_by_their_names() {
        let made = model(
            &[info("x", FLOAT, &["batch", "3"])],
            vec![node("Relu", &["x"], &["y"], Vec::new())],
            &[info("y", FLOAT, &["batch", "3"])],
        );
        for (bind, expected) in [("batch=5", 5), ("x:0=4", 4), ("6", 6)] {
            let graph = read(&made, &[bind.parse().unwrap()]).unwrap().graph;
            assert_eq!(graph.tensor(graph.outputs[0]).ty, TensorType::of(DType::F32, &[expected, 3]), "{bind}");
        }
        assert!(read(&made, &["other=5".parse().unwrap()]).unwrap_err().to_string().contains("`batch`"));
    }

    #[test]
    fn what_has_no_equivalent_is_opaque_and_names_survive() {
        let nodes = vec![node("Relu", &["x"], &["r"], Vec::new()), node("Wonder", &["r"], &["y"], vec![int("n", 2)])];
        let made = model(&[info("x", FLOAT, &["2"])], nodes, &[info("y", FLOAT, &["4"])]);
        let graph = read(&made, &[]).unwrap().graph;
        let operators: Vec<_> = graph.operators().map(|(_, operator)| operator).collect();
        assert_eq!(operators[1].name, "onnx.Wonder");
        assert_eq!(operators[1].opaque_reason(), Some("operator Wonder is not supported"));
        assert_eq!(operators[1].layer.as_deref(), Some("Wonder_1"));
        assert_eq!(graph.tensor(operators[0].outputs[0]).name, "r");
        assert_eq!(graph.tensor(graph.outputs[0]).ty, TensorType::of(DType::F32, &[4]));
    }

    #[test]
    fn sizes_are_checked_before_anything_has_them() {
        const INT64: i32 = 7;
        let huge = &["1125899906842624"][..];
        let constant = |name: &str, value: i64| TensorProto {
            name: Some(name.into()),
            data_type: Some(INT64),
            int64_data: vec![value],
            ..TensorProto::default()
        };
        let cases: Vec<(&[&str], Vec<NodeProto>, Option<&str>)> = vec![
            (huge, vec![node("SplitToSequence", &["x"], &["s"], vec![])], Some("more than")),
            (huge, vec![node("Split", &["x"], &["y"], vec![int("num_outputs", 1 << 50)])], Some("more than")),
            (&["1048576", "1048576"], vec![node("EyeLike", &["x"], &["y"], vec![])], Some("too large for a file")),
            (
                &["1", "4", "1", "1"],
                vec![node("DepthToSpace", &["x"], &["y"], vec![int("blocksize", 1 << 32)])],
                Some("blocks"),
            ),
            (
                &["1", "4", "1", "1"],
                vec![node("SpaceToDepth", &["x"], &["y"], vec![int("blocksize", 1 << 62)])],
                Some("blocks"),
            ),
            // A range that is too long to be a constant is an operator.
            (huge, (0..150).map(|_| node("Range", &["zero", "many", "one"], &["y"], vec![])).collect(), None),
        ];
        for (dims, nodes, expected) in cases {
            let title = nodes[0].op_type.clone();
            let mut made = model(&[info("x", FLOAT, dims)], nodes, &[]);
            let graph = made.graph.as_mut().unwrap();
            graph.initializer = vec![constant("zero", 0), constant("one", 1), constant("many", 10_000_000)];
            let found = read(&made, &[]).err().map(|error| error.to_string());
            match expected {
                Some(part) => assert!(found.as_ref().is_some_and(|error| error.contains(part)), "{title:?}: {found:?}"),
                None => assert_eq!(found, None, "{title:?}"),
            }
        }
    }

    #[test]
    fn tensors_of_unknown_element_types_refuse_only_their_users() {
        let mut made = model(
            &[info("x", FLOAT, &["2"])],
            vec![node("Relu", &["x"], &["y"], Vec::new())],
            &[info("y", FLOAT, &["2"])],
        );
        let text = TensorProto { name: Some("t".into()), data_type: Some(STRING), ..TensorProto::default() };
        made.graph.as_mut().unwrap().initializer.push(text);
        assert!(read(&made, &[]).is_ok());
    }
}
