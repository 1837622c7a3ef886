//! TVM's printer cases that are about whole texts rather than about one form: types in comments, metadata, deep
//! chains, models. The others are lines of `data/parser-cases.jsonl`.
//!
//! Not here: R014 (a caller's own comments), R046 and R047 (names of spans) and R048 (a type behind every constant).
//! TVM prints these for people to read; edgecut writes a type behind every operator and no other comment. R011, R013,
//! R016, R018 and R020 are about TVM's second printer, which leaves the metadata out.

use edgecut::{
    graph::{DType, Graph, Origin, TensorType},
    relay::{
        self, ImportOptions, Mode,
        print::{print, print_graph},
    },
    values::seeded,
};

fn import(text: &str) -> relay::Import {
    relay::import("case", text.as_bytes(), &ImportOptions::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The module printed, after checking that it parses in strict mode and prints the same again.
fn round(text: &str) -> String {
    let again = |text: &str| {
        let module = relay::parse("case", text.as_bytes(), Mode::Strict);
        print(&module.unwrap_or_else(|error| panic!("{error}\n{}", &text[..text.len().min(2000)])))
    };
    let once = again(text);
    assert_eq!(once, again(&once));
    once
}

#[test]
fn r007_a_chain_of_90_000_operators_prints_and_parses() {
    let mut text = "#[version = \"0.0.5\"]\ndef @main(%x: float32) -> float32 {\n  %0 = add(%x, 1f);\n".to_string();
    (1..90_000).for_each(|at| text += &format!("  %{at} = add(%{}, 1f);\n", at - 1));
    text += "  %89999\n}\n";
    let printed = round(&text);
    assert_eq!(printed.matches("add(").count(), 90_000);
    let graph = import(&printed).graph;
    assert_eq!(graph.operators().len(), 90_000);
    assert_eq!(import(&print_graph(&graph)).graph.operators().len(), 90_000);
}

#[test]
fn r010_to_r013_a_graph_prints_the_type_of_every_operator() {
    let graph = import("def @main(%x: float32) -> float32 { %0 = add(%x, %x); %1 = add(%0, %0); add(%1, %1) }").graph;
    let text = print_graph(&graph);
    assert!(text.contains("def @main(%x: float32) -> float32 {"), "{text}");
    assert!(text.contains("add(%0, %0) /* ty=float32 */"), "{text}");
}

#[test]
fn r015_to_r021_symbolic_dimensions_and_constants_stay_in_the_metadata() {
    let text = r#"#[version = "0.0.5"]
def @main(%data: Tensor[(meta[tir.SizeVar][0], 3, 224, 224), float32], %w: Tensor[(2, 3, 3, 3), float32]) {
  %0 = nn.conv2d(%data, %w, padding=[0, 0, 0, 0], channels=2, kernel_size=[3, 3]);
  %1 = reshape(meta[relay.Constant][0], newshape=[1, 2, 1, 1]);
  multiply(%0, %1)
}
#[metadata]
{
  "root": 1, "nodes": [{"type_key": ""},
    {"type_key": "Map", "keys": ["relay.Constant", "tir.SizeVar"], "data": [2, 4]},
    {"type_key": "Array", "data": [3]}, {"type_key": "relay.Constant", "attrs": {"data": "0"}},
    {"type_key": "Array", "data": [5]}, {"type_key": "tir.SizeVar", "attrs": {"dtype": "int32", "name": "6"}},
    {"type_key": "runtime.String", "repr_str": "n"}],
  "b64ndarrays": ["P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQACAAAAAAAAAAgAAAAAAAAAAACAPwAAAEA="]
}
"#;
    let printed = round(text);
    for part in ["channels=2", "meta[tir.SizeVar][0]", "meta[relay.Constant][0]", "type_key"] {
        assert!(printed.contains(part), "{part} is missing:\n{printed}");
    }
    let graph = import(&printed).graph;
    let constant = graph.tensors().find(|(_, tensor)| matches!(tensor.origin, Origin::Constant(_)));
    assert_eq!(constant.unwrap().1.ty.to_string(), "float32[2]");
    assert_eq!(graph.tensor(graph.outputs[0]).ty.to_string(), "float32[?,2,222,222]");
}

#[test]
fn r027_a_name_that_is_no_name_of_relay_is_made_one() {
    let mut graph = Graph::new();
    let output = graph.add_tensor("1", TensorType::of(DType::F32, &[]), Origin::Input);
    graph.outputs.push(output);
    assert!(print_graph(&graph).contains("def @main(%v1: float32)"));
}

/// P138, R028 to R038: TVM's test networks; `relay_models.rs` has all those of the folder.
#[test]
fn p139_a_network_with_its_weights_inside_keeps_them() {
    let text = "def @main(%data: Tensor[(1, 8), float32], %fc1_weight: Tensor[(4, 8), float32],
        %fc1_bias: Tensor[(4), float32], %fc2_weight: Tensor[(3, 4), float32], %fc2_bias: Tensor[(3), float32]) {
        %0 = nn.dense(nn.batch_flatten(%data), %fc1_weight, units=4);
        %1 = nn.relu(nn.bias_add(%0, %fc1_bias, axis=-1));
        %2 = nn.bias_add(nn.dense(%1, %fc2_weight, units=3), %fc2_bias, axis=-1);
        nn.softmax(%2)
    }";
    let mut graph = import(text).graph;
    let weights: Vec<_> = graph.parameters().collect();
    assert_eq!(weights.len(), 4);
    for id in &weights {
        let tensor = graph.tensor_mut(*id);
        tensor.origin = Origin::Constant(seeded(&tensor.name, &tensor.ty).unwrap());
    }
    let again = import(&round(&print_graph(&graph))).graph;
    let contents = |graph: &Graph| -> Vec<_> { graph.parameters().map(|id| graph.tensor(id).origin.clone()).collect() };
    assert_eq!(contents(&again).len(), 4);
    assert!(contents(&graph).iter().all(|weight| contents(&again).contains(weight)));
    let names =
        |graph: &Graph| -> Vec<_> { graph.operators().map(|(_, op)| (op.name.clone(), op.attrs.clone())).collect() };
    assert_eq!(names(&again), names(&graph));
}
