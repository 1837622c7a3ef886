//! Recurrent layers of ONNX: the operators that they become equal their steps one by one, are split by the law of
//! splitting, and come back from what is written of them.

use std::collections::BTreeMap;

use edgecut::{
    engine::{Engine, EngineError, TractEngine},
    graph::{DType, Graph, TensorData, TensorType},
    onnx::{self, ExportOptions},
    ops::passes::{
        axes::axes,
        shard_graph::{Sharding, shard_graph},
    },
    relay,
    values::seeded,
};

/// A layer of a model with one operator.
#[derive(Debug, Clone, Copy)]
struct Layer {
    kind: &'static str,
    direction: &'static str,
    steps: u64,
    batch: u64,
    input: u64,
    hidden: u64,
    linear_before_reset: bool,
    batch_first: bool,
    /// Whether bias and initial states are stated.
    with_states: bool,
}

const PLAIN: Layer = Layer {
    kind: "LSTM",
    direction: "forward",
    steps: 4,
    batch: 1,
    input: 5,
    hidden: 7,
    linear_before_reset: false,
    batch_first: false,
    with_states: true,
};

/// Every kind in every direction, with other sizes for each.
fn layers() -> Vec<Layer> {
    let mut all = Vec::new();
    for (kind, linear_before_reset) in [("LSTM", false), ("GRU", false), ("GRU", true), ("RNN", false)] {
        for (index, direction) in ["forward", "reverse", "bidirectional"].into_iter().enumerate() {
            let layer = Layer { kind, direction, linear_before_reset, ..PLAIN };
            let (steps, hidden) = (1 + 4 * index as u64, 3 + 15 * index as u64);
            all.push(layer);
            all.push(Layer { batch: 3, with_states: false, ..layer });
            all.push(Layer { batch: 2, batch_first: true, steps, hidden, ..layer });
            all.push(Layer { batch: 17, input: 1, hidden: 33, ..layer });
        }
    }
    all
}

/// A field of a message of protocol buffers: bytes with their length.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn integer(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// An attribute of a number of its own for each type: a float 2, an integer 3, a string 4.
fn attribute(name: &str, kind: u64, value: Vec<u8>) -> Vec<u8> {
    field(5, &[field(1, name.as_bytes()), value, integer(20, kind)].concat())
}

impl Layer {
    fn gates(&self) -> u64 {
        match self.kind {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        }
    }

    /// The names of the inputs, empty where none is stated, and their sizes.
    fn inputs(&self) -> Vec<(&'static str, Vec<u64>)> {
        let directions = if self.direction == "bidirectional" { 2 } else { 1 };
        let rows = self.gates() * self.hidden;
        let state = match self.batch_first {
            true => vec![self.batch, directions, self.hidden],
            false => vec![directions, self.batch, self.hidden],
        };
        let data = match self.batch_first {
            true => vec![self.batch, self.steps, self.input],
            false => vec![self.steps, self.batch, self.input],
        };
        let mut inputs = vec![
            ("x", data),
            ("w", vec![directions, rows, self.input]),
            ("r", vec![directions, rows, self.hidden]),
            ("b", vec![directions, 2 * rows]),
            ("", vec![]),
            ("h", state.clone()),
        ];
        if self.kind == "LSTM" {
            inputs.push(("c", state));
        }
        inputs.truncate(if self.with_states { inputs.len() } else { 3 });
        inputs
    }

    /// The model's file. `clip` is a threshold of the gates, with which the layer is unrolled.
    fn model(&self, weights_inside: bool, clip: Option<f32>) -> Vec<u8> {
        let mut node = Vec::new();
        let mut graph = field(2, b"graph");
        for (name, dims) in self.inputs() {
            node.extend(field(1, name.as_bytes()));
            if name.is_empty() {
                continue;
            }
            if weights_inside && name != "x" {
                let mut tensor = dims.iter().flat_map(|dim| integer(1, *dim)).collect::<Vec<u8>>();
                tensor.extend([integer(2, 1), field(8, name.as_bytes()), field(9, &raw(name, &dims))].concat());
                graph.extend(field(5, &tensor));
                continue;
            }
            let shape: Vec<u8> = dims.iter().flat_map(|dim| field(1, &integer(1, *dim))).collect();
            let ty = field(1, &[integer(1, 1), field(2, &shape)].concat());
            graph.extend(field(11, &[field(1, name.as_bytes()), field(2, &ty)].concat()));
        }
        let outputs: &[&str] = if self.kind == "LSTM" { &["y", "y_h", "y_c"] } else { &["y", "y_h"] };
        for output in outputs {
            node.extend(field(2, output.as_bytes()));
            graph.extend(field(12, &field(1, output.as_bytes())));
        }
        node.extend(field(4, self.kind.as_bytes()));
        node.extend(attribute("hidden_size", 2, integer(3, self.hidden)));
        node.extend(attribute("direction", 3, field(4, self.direction.as_bytes())));
        node.extend(attribute("layout", 2, integer(3, u64::from(self.batch_first))));
        if self.kind == "GRU" {
            node.extend(attribute("linear_before_reset", 2, integer(3, u64::from(self.linear_before_reset))));
        }
        if let Some(most) = clip {
            node.extend(attribute("clip", 1, [varint(2 << 3 | 5), most.to_le_bytes().to_vec()].concat()));
        }
        graph.extend(field(1, &node));
        [integer(1, 8), field(7, &graph), field(8, &integer(2, 14))].concat()
    }
}

/// Numbers around zero, by the name of the tensor.
fn raw(name: &str, dims: &[u64]) -> Vec<u8> {
    seeded(name, &TensorType::of(DType::F32, dims)).unwrap().bytes().to_vec()
}

fn read(model: Vec<u8>) -> Graph {
    let evaluate = |graph: &Graph, _: &onnx::Content<'_>| compute(graph);
    let options = onnx::ImportOptions::new(&evaluate);
    onnx::import("model", model.into(), &options).unwrap().graph
}

fn compute(graph: &Graph) -> Result<Vec<TensorData>, String> {
    let content = |id| {
        let tensor = graph.tensor(id);
        seeded(&tensor.name, &tensor.ty).map_err(|error| EngineError::Other(error.to_string()))
    };
    TractEngine::new(1).and_then(|engine| engine.evaluate(graph, &content)).map_err(|error| error.to_string())
}

fn assert_near(made: &[TensorData], want: &[TensorData], what: &str) {
    assert_eq!(made.len(), want.len(), "{what}");
    for (index, (made, want)) in made.iter().zip(want).enumerate() {
        assert_eq!(made.ty(), want.ty(), "{what}: output {index}");
        for (made, want) in made.to_f64s().unwrap().iter().zip(want.to_f64s().unwrap()) {
            assert!((made - want).abs() <= 1e-5, "{what}: {made} in output {index}, expected {want}");
        }
    }
}

fn is_one_operator(graph: &Graph) -> bool {
    graph.operators().any(|(_, operator)| ["nn.lstm", "nn.gru", "nn.rnn"].contains(&operator.name.as_str()))
}

#[test]
fn one_operator_is_its_steps() {
    for layer in layers() {
        for weights_inside in [true, false] {
            let one = read(layer.model(weights_inside, None));
            let steps = read(layer.model(weights_inside, Some(1e30)));
            assert!(is_one_operator(&one) && !is_one_operator(&steps), "{layer:?}");
            assert_near(&compute(&one).unwrap(), &compute(&steps).unwrap(), &format!("{layer:?}"));
            let names = |graph: &Graph| -> Vec<String> {
                graph.outputs.iter().map(|id| graph.tensor(*id).name.to_string()).collect()
            };
            assert_eq!(names(&one)[..2], ["y", "y_h"], "{layer:?}");
        }
    }
}

#[test]
fn shards_put_together_are_the_layer() {
    for layer in layers() {
        let graph = read(layer.model(true, None));
        let want = compute(&graph).unwrap();
        for (id, operator) in graph.operators().filter(|(_, operator)| operator.name.starts_with("nn.")) {
            for (number, axis) in axes(&graph, operator).iter().enumerate() {
                let cuts = axis.cuts(&[0.6, 0.4]);
                if cuts[1] == 0 || cuts[1] == cuts[2] {
                    continue;
                }
                let split =
                    shard_graph(&graph, &[], &BTreeMap::from([(id, Sharding::disjoint(number, cuts))])).unwrap();
                assert_near(&compute(&split.graph).unwrap(), &want, &format!("{layer:?} along {axis:?}"));
            }
        }
    }
}

#[test]
fn layers_come_back_from_what_is_written() {
    for layer in layers() {
        let graph = read(layer.model(true, None));
        let want = compute(&graph).unwrap();
        let written = onnx::export(&graph, &ExportOptions::new(&|_| Ok(None))).unwrap();
        let again = read(written.to_bytes().unwrap());
        assert!(is_one_operator(&again), "{layer:?}");
        assert_near(&compute(&again).unwrap(), &want, &format!("{layer:?} as ONNX"));
        let text = relay::print::print_graph(&graph);
        let again = relay::import("text", text.as_bytes(), &relay::ImportOptions::default()).unwrap();
        assert_eq!(again.checks.mismatches.len(), 0, "{layer:?}");
        assert_near(&compute(&again.graph).unwrap(), &want, &format!("{layer:?} as Relay text"));
    }
}
