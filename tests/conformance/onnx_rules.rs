//! The rules of ONNX at the edges of its operators: one small model each, whose inputs are given when it runs, so that kernels
//! compute and nothing is folded. `tests/data/onnx_rules.py` makes them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut::{
    engine::{Engine, EngineError},
    graph::{Graph, Origin, TensorData, TensorId},
    values::read_npz,
};
use libtest_mimic::Trial;

use crate::{cases, onnx, operators::ENGINE, trial};

/// Rules that not all versions of ONNX Runtime follow.
#[cfg(feature = "onnxruntime")]
const NOT_OF_ONNX_RUNTIME: &[&str] = &["max_pool_of_infinities"];

pub fn trials() -> Vec<Trial> {
    let make = |name: String| trial(format!("onnx-rules/{name}"), move || follows(&name, &*ENGINE));
    names().into_iter().map(make).collect()
}

pub fn names() -> Vec<String> {
    cases::stems(&folder(), ".onnx")
}

/// The rules that every ONNX Runtime follows.
#[cfg(feature = "onnxruntime")]
pub fn names_of_onnx_runtime() -> Vec<String> {
    names().into_iter().filter(|name| !NOT_OF_ONNX_RUNTIME.contains(&name.as_str())).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/onnx_rules")
}

/// The model of a rule, and the arrays of its file: inputs as `in_<name>`, outputs as `out_<index>`.
pub fn read(name: &str) -> Result<(Graph, BTreeMap<String, TensorData>), String> {
    let mut graph = onnx::read(&folder().join(format!("{name}.onnx")), &[])?.graph;
    let stored = read_npz(&folder().join(format!("{name}.npz"))).map_err(|error| error.to_string())?;
    let is_given = |id: &TensorId| stored.contains_key(&input_key(&graph, *id));
    let inputs: Vec<TensorId> = graph.tensors().map(|(id, _)| id).filter(is_given).collect();
    inputs.into_iter().for_each(|id| graph.tensor_mut(id).origin = Origin::Input);
    Ok((graph, stored))
}

fn input_key(graph: &Graph, id: TensorId) -> String {
    format!("in_{}", graph.tensor(id).name)
}

/// The content of an input of `graph`.
pub fn input(graph: &Graph, stored: &BTreeMap<String, TensorData>, id: TensorId) -> Result<TensorData, EngineError> {
    let missing = || EngineError::Other(format!("{} is not given", graph.tensor(id).name));
    stored.get(&input_key(graph, id)).cloned().ok_or_else(missing)
}

/// What `engine` computes is what the rule says: an error where its file has no outputs.
pub fn follows(name: &str, engine: &dyn Engine) -> Result<(), String> {
    let (graph, stored) = read(name)?;
    let content = |id: TensorId| input(&graph, &stored, id);
    let made = engine.evaluate(&graph, &content);
    let wanted: Vec<&TensorData> = (0..).map_while(|at| stored.get(&format!("out_{at}"))).collect();
    if wanted.is_empty() {
        return match made {
            Err(_) => Ok(()),
            Ok(made) => Err(format!("it computed {:?}, expected an error", made[0].to_f64s())),
        };
    }
    let made = made.map_err(|error| error.to_string())?;
    if made.len() != wanted.len() {
        return Err(format!("{} outputs, expected {}", made.len(), wanted.len()));
    }
    made.iter().zip(wanted).try_for_each(|(made, want)| equals(made, want))
}

fn equals(made: &TensorData, want: &TensorData) -> Result<(), String> {
    if (made.dtype(), made.shape()) != (want.dtype(), want.shape()) {
        return Err(format!("{}, expected {}", made.ty(), want.ty()));
    }
    if !want.dtype().is_float() {
        let same = made.bytes() == want.bytes();
        return if same { Ok(()) } else { Err(format!("{:?}, expected {:?}", made.to_i64s(), want.to_i64s())) };
    }
    let (made, want) = (made.to_f64s().ok_or("no numbers")?, want.to_f64s().ok_or("no numbers")?);
    let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1e-4 * b.abs();
    match made.iter().zip(&want).all(near) {
        true => Ok(()),
        false => Err(format!("{made:?}, expected {want:?}")),
    }
}
