//! Every definition against TVM's operator registry: operands, attributes in print order with their defaults,
//! where they print, fusion class.

use std::fs;

use edgecut::ops::{self, AttrKind, FusionClass, OpDef};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::{cases, trial};

pub fn trials() -> [Trial; 2] {
    let run = |check: fn(&Value)| {
        move || {
            check(&serde_json::from_slice(&fs::read(cases::data().join("ops.json")).unwrap()).unwrap());
            Ok(())
        }
    };
    [
        trial("registry: definitions agree with it".to_string(), run(definitions_agree_with_the_registry)),
        trial("registry: every operator is defined".to_string(), run(every_operator_of_the_registry_is_defined)),
    ]
}

fn class(name: &str) -> FusionClass {
    match name {
        "elemwise" => FusionClass::Elementwise,
        "broadcast" => FusionClass::Broadcast,
        "injective" => FusionClass::Injective,
        "reduce" => FusionClass::Reduce,
        "out-fusable" => FusionClass::OutFusable,
        _ => FusionClass::Opaque,
    }
}

/// Whether an attribute that TVM declares as `ty` may be read as `kind`.
fn kind_fits(kind: AttrKind, ty: &str) -> bool {
    use AttrKind::*;
    match ty {
        "int" => kind == Int,
        "bool" => kind == Bool,
        "float" => kind == Float,
        "str" => kind == Str,
        "dtype" => kind == DType,
        "[int]" | "[[int]]" | "[[dim]]" => matches!(kind, Ints | OptionalInts),
        // Expressions: whole numbers, but for the scales and ratios of a proposal.
        "[dim]" => matches!(kind, Ints | OptionalInts | Floats),
        "[float]" => kind == Floats,
        "dim?" | "int?" => kind == OptionalInt,
        "[int]?" => kind == OptionalInts,
        "float?" => kind == OptionalFloat,
        "int|[int]" => kind == IntOrInts,
        _ => kind == Object,
    }
}

fn differences(def: &OpDef, facts: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let operands: Vec<&str> = facts["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    if def.operands != operands {
        found.push(format!("operands {:?}, registered {operands:?}", def.operands));
    }
    if def.attrs_key != facts["attrs_type"].as_str().unwrap_or("") {
        found.push(format!("attributes {:?}, registered {}", def.attrs_key, facts["attrs_type"]));
    }
    let attrs = facts["attrs"].as_array().unwrap();
    let names = |of: &mut dyn Iterator<Item = String>| of.collect::<Vec<_>>().join(", ");
    let own = names(&mut def.attrs.iter().map(|a| format!("{}={}", a.name, a.default.unwrap_or("!"))));
    let registered = names(
        &mut attrs.iter().map(|a| format!("{}={}", a["name"].as_str().unwrap(), a["default"].as_str().unwrap_or("!"))),
    );
    if own != registered {
        found.push(format!("attributes {own}, registered {registered}"));
    } else {
        for (own, registered) in def.attrs.iter().zip(attrs) {
            if !kind_fits(own.kind, registered["type"].as_str().unwrap()) {
                found.push(format!("{} is {:?}, registered {}", own.name, own.kind, registered["type"]));
            }
        }
    }
    let in_metadata = ["undeclared", "mismatch"].contains(&facts["attrs_in_text"].as_str().unwrap());
    if def.attrs_in_metadata != in_metadata {
        found.push(format!("attrs_in_metadata {}, registered {in_metadata}", def.attrs_in_metadata));
    }
    if def.class != class(facts["pattern"].as_str().unwrap()) {
        found.push(format!("class {:?}, registered {}", def.class, facts["pattern"]));
    }
    found.into_iter().map(|what| format!("{}: {what}", def.name)).collect()
}

/// Operators of ONNX that TVM lacks.
const OWN: [&str; 9] = [
    "nn.lstm",
    "nn.gru",
    "nn.rnn",
    "qnn.dynamic_quantize",
    "qnn.matmul",
    "random_normal",
    "random_normal_like",
    "random_uniform",
    "random_uniform_like",
];

fn definitions_agree_with_the_registry(registry: &Value) {
    let mut wrong = Vec::new();
    for def in ops::all() {
        match registry["ops"].get(def.name) {
            Some(facts) => wrong.extend(differences(def, facts)),
            None if OWN.contains(&def.name) => {}
            None => wrong.push(format!("{}: not registered", def.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Operators of the registry without a definition, and why. They stay in a graph with the type that the text gives.
const UNDEFINED: [(&str, &str); 1] =
    [("meta_schedule_layout_transform", "its map of indices is an object of TVM's tensor language")];

fn every_operator_of_the_registry_is_defined(registry: &Value) {
    let undefined = |name: &&String| ops::lookup(name).is_none();
    let missing: Vec<&str> =
        registry["ops"].as_object().unwrap().keys().filter(undefined).map(String::as_str).collect();
    assert_eq!(missing, UNDEFINED.map(|(name, _)| name));
}
