//! TVM's printer cases that are about whole texts rather than about one form: types in comments, metadata, deep
//! chains, models. The others are lines of `data/parser-cases.jsonl`.
//!
//! Not here: R014 (a caller's own comments), R046 and R047 (names of spans). TVM prints these for people to read;
//! edgecut writes a type behind every operator and constant and no other comment. R011, R013,
//! R016, R018 and R020 are about TVM's second printer, which leaves the metadata out.

use edgecut::{
    graph::{DType, Graph, Origin, TensorData, TensorType},
    relay::{
        self, ImportOptions, ParseMode,
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
        let module = relay::parse("case", text.as_bytes(), ParseMode::Strict);
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

#[test]
fn r048_every_constant_and_operator_has_its_type_once() {
    let text = print_graph(&import("def @main() { add(1, 1) }").graph);
    assert_eq!(text.matches("/* ty=int32 */").count(), 3, "{text}");
}

/// Constants of a dtype whose bytes begin with these patterns: zero, ones, extremes, what is not finite or subnormal.
fn constants(dtype: DType) -> Vec<TensorData> {
    let size = dtype.size() as usize;
    let element = |bits: u64| bits.to_le_bytes()[..size].to_vec();
    let top = 8 * size as u32 - 1;
    let mut patterns = vec![0, 1, 2, 1 << top, (1 << top) - 1, (1 << top) | 1];
    // One third, the infinities, and a quiet NaN.
    let (exponent, third) = match dtype {
        DType::F16 => (0x7C00, 0x3555),
        DType::Bf16 => (0x7F80, 0x3EAB),
        DType::F32 => (0x7F80_0000, 0x3EAA_AAAB),
        DType::F64 => (0x7FF0_0000_0000_0000, 0x3FD5_5555_5555_5555),
        _ => (3, 5),
    };
    patterns.extend([third, exponent, exponent | 1 << top, exponent | exponent >> 1, exponent - 1]);
    if dtype == DType::Bool {
        patterns = vec![0, 1];
    }
    let scalars = patterns.iter().map(|bits| TensorData::new(dtype, [], element(*bits)).unwrap());
    let all: Vec<u8> = patterns.iter().flat_map(|bits| element(*bits)).collect();
    scalars.chain([TensorData::new(dtype, [1, patterns.len() as u64], all).unwrap()]).collect()
}

#[test]
fn constants_of_every_dtype_come_back_bit_for_bit() {
    use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    for dtype in [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64] {
        let mut graph = Graph::new();
        for data in constants(dtype) {
            let constant = graph.add_tensor("c", data.ty(), Origin::Constant(data));
            graph.outputs.push(constant);
        }
        let text = print_graph(&graph);
        let options = ImportOptions { mode: ParseMode::Strict, ..ImportOptions::default() };
        let again = relay::import("again", text.as_bytes(), &options).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let outputs = |graph: &Graph| -> Vec<Origin> {
            graph.outputs.iter().map(|id| graph.tensor(*id).origin.clone()).collect()
        };
        assert_eq!(outputs(&again.graph), outputs(&graph), "{text}");
        assert_eq!(print_graph(&again.graph), text);
        assert!(again.checks.mismatches.is_empty(), "{:?}", again.checks.mismatches);
    }
}

#[test]
fn names_that_tvm_cannot_read_are_made_legal_and_stay_apart() {
    let names =
        ["1", "", "x", "x", "x1", "a.b::c-d", "a_b__c_d", "type", "ref", "inffoo", "True", "über", "x y", "a/b", "_"];
    let mut graph = Graph::new();
    for name in names {
        let input = graph.add_tensor(name, TensorType::of(DType::F32, &[]), Origin::Input);
        graph.outputs.push(input);
    }
    let text = print_graph(&graph);
    let options = ImportOptions { mode: ParseMode::Strict, ..ImportOptions::default() };
    let again = relay::import("again", text.as_bytes(), &options).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.graph.outputs, graph.outputs);
    assert_eq!(print_graph(&again.graph), text);
}

/// What a printer may stumble over, once printed prints the same again.
#[test]
fn printing_is_a_fixed_point_of_odd_texts() {
    let metadata = "\n#[metadata]\n{\"root\": 1, \"nodes\": [{\"type_key\": \"\"}, {\"type_key\": \"Map\"}]}\n";
    for text in [
        "(nanf, -nanf, inff, -inff, inff64, -inff16, 3f16, 0.1f64, -0f, 1e-45f, 3.4028235e+38f)",
        "(2147483647, 2147483648, -2147483648, 9223372036854775807, -32768i16, True, False)",
        "fn (%a.b: float32, Primitive=1, relay.reshape_only=1, Composite=\"x\\\"y\\\\z\\n\\xC3\\xA9\", n=None, l=[1, [2f, \"s\"], []]) \
         -> float32 { %a.b }",
        "def @f[A, B](%x: A, %y: (B, (A, ()))) -> (B, A) { (%y.0, %x) }",
        "def @main(%x: float32) { let %f = fn (%y: float32) -> float32 { add(%x, %y) }; %f(%f(%x)) }",
        "def @main(%x: (int32, (bool, (int8,)))) { ((%x.1).1).0 }",
        "def @main(%c: bool, %x: int32) { %0 = if (%c) { %1 = add(%x, %x); multiply(%1, %1) } else { %1 }; %0 }",
        "type L[A] { Cons(A, L[A]), Nil, } def @main(%x: L[int32]) { match? (%x) { Cons(%h, Cons(_, %t)) => %h, _ => 0 } }",
        "def @main(%x: ref(int32)) { ref_write(%x, 1); ref_read(ref(ref_read(%x))) }",
        "def @main(%x: fn [A](A) -> A, %y: Tensor[(?, 1i64, 3), bfloat16]) { %x(%y) }",
        "def @main(%x: Tensor[(2), int8x4]) { my.op(%x, k=\"v\", w=word, t=[[0, 1], [2]]) /* ty=int32 */ }",
        "def @main(%x: float32) { (let %y = (let %z = %x; add(%z, %z)); multiply(%y, %y)); %x }",
        "free_var %x: float32; free_var %type: int32; (%x, %type)",
    ] {
        for text in [text.to_string(), text.to_string() + metadata] {
            let again = |text: &str| {
                let module = relay::parse("odd", text.as_bytes(), ParseMode::Tolerant);
                print(&module.unwrap_or_else(|error| panic!("{error}\n{text}")))
            };
            let once = again(&text);
            assert_eq!(once, again(&once));
        }
    }
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
