//! What is said about broken files: the place, and what was expected or can be done.

use edgecut::{
    graph::{DType, Graph, TensorData},
    relay::{self, Fault, ImportOptions},
};

/// A text, the place of its fault, and a part of the message.
const CASES: &[(&str, &str, &str)] = &[
    ("", "1:1", "the file says nothing"),
    ("// only a comment\n", "2:1", "the file says nothing"),
    ("\u{8}\u{7}pytorch", "1:1", "not UTF-8 text"),
    ("{\"nodes\": []}", "1:2", "expected an expression"),
    ("hello", "1:1", "the file says only `hello`"),
    ("@main = primfn(A: handle) -> () {}", "1:1", "lowered to tensor-level functions"),
    ("#[version = \"0.0.4\"]\ndef @main() { 1 }", "1:1", "expected version \"0.0.5\""),
    ("def @a() { 1 }\ndef @b() { 2 }", "1:1", "expected a function `@main`"),
    ("def @main(%x: float32) { %0 = add(%x, 1f) nn.relu(%0) }", "1:43", "expected an operator or `;`, found `nn`"),
    ("def @main(%x: float32) { nn.relu(%x }", "1:37", "expected `,` or `)`"),
    ("def @main(%x: float32) { nn.relu(%y) }", "1:34", "`%y` is not defined here"),
    ("def @main(%x: float32) { %1 }", "1:26", "`%1` is not defined before this use"),
    ("def @main(%x: float32) { @helper(%x) }", "1:26", "`@helper` is not defined in this file"),
    ("def @main(%x: float32) { nn.rellu(%x) }", "1:26", "did you mean `nn.relu`?"),
    ("def @main(%x: float32) { my.operator(%x) }", "1:26", "no `ty=` comment gives the type"),
    ("def @main(%x: Tensor[(1, n), float32]) { %x }", "1:26", "an integer or `?`"),
    ("def @main(%x: floot32, %y) { add(%x, %y) }", "1:11", "`floot32` is not a type"),
    ("def @main(%x) { add(%x, 1f) }", "1:17", "annotate it"),
    ("def @main(%x: int32) { add(%x) }", "1:24", "operand 1 is missing"),
    ("def @main(%x: int32) { add(%x, %x, %x) }", "1:24", "takes 2 operands, 3 are given"),
    ("def @f(%a: int32) { %a }\ndef @main(%x: int32) { @f(%x, %x) }", "2:24", "takes 1 operands, 2 are given"),
    ("def @main(%x: int32) { %0 = (%x, %x); %0.2 }", "1:39", "no field 2 in a tuple of 2"),
    ("def @main(%x: float32) { cast(%x, dtype=\"int8) }", "1:41", "this string does not end"),
    ("def @main(%x: float32) { /* cast(%x) }", "1:26", "this comment does not end"),
    ("def @main(%x: Tensor[(4), float32]) { reshape(%x, newshape=[3]) }", "1:39", "shape [3] has 3"),
    ("def @main(%x: Tensor[(4), float32]) { nn.softmax(%x, axis=3) }", "1:39", "out of range for rank 1"),
    ("def @main(%x: Tensor[(4), float32]) { add(%x, meta[relay.Constant][0]) }", "1:47", "the file has none"),
    ("type L { A, B }\ndef @main(%x: L) { match (%x) { A => 1, B => 2 } }", "2:20", "`match` cannot become part"),
    ("type L { A, B }\ndef @main() { match (A) { A => 1, B => 2 } }", "2:15", "`match` cannot become part"),
    ("def @main(%x: int32) { ref_read(ref(%x)) }", "1:24", "`ref_read` cannot become part"),
    ("def @main(%x: float32) { fn (%y: float32) { %y } }", "1:26", "a function value cannot"),
    ("def @f(%x: int32) -> int32 { @f(add(%x, 1)) }\ndef @main(%x: int32) { @f(%x) }", "1:30", "`@f` calls itself"),
    ("def @main(%x: int32) { let %f = fn (%y: int32) -> int32 { %f(%y) }; %f(%x) }", "1:59", "this recursion"),
    ("def @main(%c: bool, %x: int32) { if (%c) { %x } else { add(%x, 1) } }", "1:34", "depends on `%c`"),
    ("def @main(%c: int32) { if (%c) { 1 } else { 2 } }", "1:28", "must be a scalar of type `bool`, found `int32"),
];

#[test]
fn messages_name_the_place_and_the_cause() {
    let mut wrong = Vec::new();
    for (text, place, part) in CASES {
        match relay::import("m.relay", text.as_bytes(), &ImportOptions::default()) {
            Ok(_) => wrong.push(format!("accepted: {text}")),
            Err(error) => {
                let message = error.to_string();
                if !message.starts_with(&format!("m.relay:{place}: ")) || !message.contains(part) {
                    wrong.push(format!("{text}\n  got:  {message}\n  want: {place}: {part}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} messages:\n{}", wrong.len(), wrong.join("\n"));
}

const NESTED: &str = "def @main(%a: bool, %b: bool, %x: float32) {
  if (%a) { nn.relu(%x) } else { if (logical_and(%b, True)) { abs(%x) } else { sqrt(%x) } }
}";

/// Imports [`NESTED`] for these contents of `%a` and `%b`.
fn taken(a: bool, b: bool) -> Vec<String> {
    let evaluate = |graph: &Graph| -> Result<TensorData, String> {
        // One condition is an input itself, the other one is computed from an input.
        let value = if graph.operators().len() == 0 { a } else { b };
        TensorData::new(DType::Bool, [], vec![u8::from(value)]).map_err(|error| error.to_string())
    };
    let options = ImportOptions { evaluate: Some(&evaluate), ..ImportOptions::default() };
    let graph = relay::import("m.relay", NESTED.as_bytes(), &options).unwrap().graph;
    graph.operators().map(|(_, operator)| operator.name.to_string()).collect()
}

#[test]
fn only_the_branch_that_is_taken_is_in_the_graph() {
    assert_eq!(taken(true, false), ["nn.relu"]);
    assert_eq!(taken(false, true), ["logical_and", "abs"]);
    assert_eq!(taken(false, false), ["logical_and", "sqrt"]);
}

#[test]
fn a_condition_that_cannot_be_computed_says_why() {
    let evaluate = |_: &Graph| -> Result<TensorData, String> { Err("nothing gives %b".to_string()) };
    let options = ImportOptions { evaluate: Some(&evaluate), ..ImportOptions::default() };
    let error = relay::import("m.relay", NESTED.as_bytes(), &options).unwrap_err();
    assert!(matches!(error.fault, Fault::ControlFlow { construct: "this `if`", .. }));
    assert!(error.to_string().ends_with("nothing gives %b"), "{error}");
}
