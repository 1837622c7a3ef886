//! ONNX models: their outputs against those that ONNX Runtime computed, with contents generated from names.
//!
//! Models are read from `../shared/onnx` where it lies next to the checkout, else from the sample in `tests/data/onnx`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut::{
    engine::{Engine, EngineError},
    graph::{Graph, TensorData, TensorId},
    onnx::{Content, ExportOptions, ImportOptions, Imported, export, import},
    ops::passes::retype::BindDim,
    values::{read_npz, seeded},
};
use libtest_mimic::Trial;

use crate::{cases, operators::ENGINE, trial};

pub fn trials() -> Vec<Trial> {
    let name = |name: &str| format!("onnx/{name}: outputs");
    let mut trials: Vec<Trial> =
        names().into_iter().map(|stem| trial(name(&stem), move || outputs(&stem, &*ENGINE))).collect();
    let variants = folder().join("variants");
    if variants.exists() {
        let name = |name: &str| format!("onnx/variants/{name}: what is kept as read comes back");
        let stems = cases::stems(&variants, ".onnx").into_iter();
        trials.extend(stems.map(|stem| trial(name(&stem), move || comes_back(&stem))));
    }
    trials
}

/// The operators that are kept as read, by name and how many: the same once the model is exported and read again.
fn comes_back(name: &str) -> Result<(), String> {
    let path = folder().join(format!("variants/{name}.onnx"));
    let kept = |graph: &Graph| {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for (_, operator) in graph.operators().filter(|(_, operator)| operator.is_kept_as_read()) {
            *kinds.entry(operator.name.to_string()).or_default() += 1;
        }
        kinds
    };
    let graph = read(&path, &[])?.graph;
    let written = export(&graph, &ExportOptions::new(&|_| Ok(None))).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let copy = folder.path().join("exported.onnx");
    std::fs::write(&copy, written.to_bytes().map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    let (before, after) = (kept(&graph), kept(&read(&copy, &[])?.graph));
    if before == after { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
}

/// The models at hand.
pub fn names() -> Vec<String> {
    cases::stems(&folder(), ".onnx")
}

fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = root.join("../shared/onnx");
    if shared.exists() { shared } else { root.join("tests/data/onnx") }
}

fn content(graph: &Graph, given: &Content<'_>, id: TensorId) -> Result<TensorData, EngineError> {
    let tensor = graph.tensor(id);
    let generated = || seeded(&tensor.name, &tensor.ty).map_err(|error| EngineError::Other(error.to_string()));
    given(&tensor.name).map_or_else(generated, Ok)
}

pub fn read(path: &Path, bind_dims: &[BindDim]) -> Result<Imported, String> {
    let evaluate = |graph: &Graph, given: &Content<'_>| {
        ENGINE.evaluate(graph, &|id| content(graph, given, id)).map_err(|error| error.to_string())
    };
    let options = ImportOptions { bind_dims, file: Some(path), ..ImportOptions::new(&evaluate) };
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    import(&path.display().to_string(), bytes.into(), &options).map_err(|error| error.to_string())
}

/// The sizes of symbolic dimensions that `dims.json` gives for a model.
fn sizes(name: &str) -> Vec<BindDim> {
    let Ok(text) = std::fs::read(folder().join("dims.json")) else { return Vec::new() };
    let all: BTreeMap<String, Vec<BindDim>> = serde_json::from_slice(&text).unwrap();
    all.get(name).cloned().unwrap_or_default()
}

/// What `engine` computes is what ONNX Runtime's own session of the file computed.
pub fn outputs(name: &str, engine: &dyn Engine) -> Result<(), String> {
    let graph = read(&folder().join(format!("{name}.onnx")), &sizes(name))?.graph;
    let made = engine.evaluate(&graph, &|id| content(&graph, &|_| None, id)).map_err(|error| error.to_string())?;
    let want = read_npz(&folder().join(format!("expected/{name}.npz"))).map_err(|error| error.to_string())?;
    if made.len() != want.len() {
        return Err(format!("{} outputs, expected {}", made.len(), want.len()));
    }
    for (index, made) in made.iter().enumerate() {
        let want = want.get(&format!("out_{index}")).ok_or("outputs are not called out_0, out_1, …")?;
        if (made.dtype(), made.shape()) != (want.dtype(), want.shape()) {
            return Err(format!("output {index} is {}, expected {}", made.ty(), want.ty()));
        }
        let (made, want) = (made.to_f64s().ok_or("no numbers")?, want.to_f64s().ok_or("no numbers")?);
        let near = |(made, want): (&f64, &f64)| (made - want).abs() <= 1e-4 + 1e-3 * want.abs();
        // A quantised value between two steps may be rounded to either.
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let apart = norm(&mut made.iter().zip(&want).map(|(a, b)| a - b)) / norm(&mut want.iter().copied()).max(1e-30);
        let quantised = name.ends_with("_qdq") && apart <= 0.01;
        if let Some(at) = made.iter().zip(&want).position(|pair| !near(pair)).filter(|_| !quantised) {
            return Err(format!("element {at} of output {index} is {}, expected {}", made[at], want[at]));
        }
    }
    Ok(())
}
