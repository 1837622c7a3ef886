//! The operator cases that TVM computed: Relay text, inputs and outputs, as data for any engine.

#![allow(dead_code)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut::{
    engine::{CpuEngine, Engine, EngineError},
    graph::{DType, Graph, TensorData, TensorId},
    relay::{ImportOptions, import},
    values::{read_npz, seeded},
};

/// One operator case: `<folder>/<family>/<name>.relay` and `.npz`.
pub struct Case {
    pub name: String,
    pub family: String,
    path: PathBuf,
    rtol: f64,
    atol: f64,
}

/// All cases below `../shared`; `None`, said aloud, if the folder is not there.
///
/// # Panics
/// If `EDGECUT_REQUIRE_SHARED` is set and the folder is not there.
pub fn all() -> Option<Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/relay/cases");
    let index = folder.join("index.csv");
    if !index.exists() {
        assert!(std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none(), "{} is missing", index.display());
        eprintln!("skipped: {} is missing", index.display());
        return None;
    }
    let mut rows = csv::Reader::from_path(index).unwrap();
    let case = |row: BTreeMap<String, String>| Case {
        path: folder.join(&row["family"]).join(&row["case"]),
        name: row["case"].clone(),
        family: row["family"].clone(),
        rtol: row["rtol"].parse().unwrap(),
        atol: row["atol"].parse().unwrap(),
    };
    Some(rows.deserialize().map(|row| case(row.unwrap())).collect())
}

impl Case {
    /// Runs the case on `engine`.
    ///
    /// # Errors
    /// Why it did not load or run, or the first element that differs.
    pub fn run(&self, engine: &dyn Engine) -> Result<(), String> {
        let (graph, tensors) = self.read()?;
        let outputs = compute(engine, &graph, &tensors)?;
        for (index, found) in outputs.iter().enumerate() {
            let want = tensors.get(&format!("out_{index}")).ok_or_else(|| format!("output {index} is one too many"))?;
            self.compare(found, want).map_err(|e| format!("output {index}: {e}"))?;
        }
        match tensors.contains_key(&format!("out_{}", outputs.len())) {
            true => Err(format!("only {} outputs", outputs.len())),
            false => Ok(()),
        }
    }

    /// The case's graph, and its inputs and outputs by name.
    ///
    /// # Errors
    /// Why it cannot be read, or the first type that differs from what the text says.
    pub fn read(&self) -> Result<(Graph, BTreeMap<String, TensorData>), String> {
        let text = std::fs::read(self.path.with_extension("relay")).map_err(|e| e.to_string())?;
        let npz = PathBuf::from(format!("{}.npz", self.path.display()));
        let tensors = read_npz(&npz).map_err(|e| e.to_string())?;
        let evaluate = |graph: &Graph| {
            let engine = CpuEngine::new(1).map_err(|e| e.to_string())?;
            compute(&engine, graph, &tensors)?.into_iter().next().ok_or_else(|| "no output".to_string())
        };
        let options = ImportOptions { evaluate: Some(&evaluate), ..ImportOptions::default() };
        let import = import(&self.name, &text, &options).map_err(|e| e.to_string())?;
        match import.checks.disagreements.first() {
            Some(first) => Err(format!("the text says {}, inferred is {}", first.theirs, first.ours)),
            None => Ok((import.graph, tensors)),
        }
    }

    /// Whether `found` is `want` within the case's tolerance.
    ///
    /// # Errors
    /// The first element that differs.
    pub fn compare(&self, found: &TensorData, want: &TensorData) -> Result<(), String> {
        if found.ty() != want.ty() {
            return Err(format!("is {}, expected {}", found.ty(), want.ty()));
        }
        let exact = !want.dtype().is_float() && self.rtol == 0.0 && self.atol == 0.0;
        if exact && want.dtype() != DType::Bool {
            let differs = found.bytes() != want.bytes();
            return if differs { Err(format!("{:?}, expected {:?}", some(found), some(want))) } else { Ok(()) };
        }
        let (a, b) = (found.to_f64s().ok_or("no numbers")?, want.to_f64s().ok_or("no numbers")?);
        let fits =
            |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= self.atol + self.rtol * b.abs();
        match a.iter().zip(&b).position(|(a, b)| !fits(*a, *b)) {
            Some(at) => Err(format!("element {at} is {}, expected {}", a[at], b[at])),
            None => Ok(()),
        }
    }
}

/// The outputs of `graph` on a case's inputs.
///
/// # Errors
/// Why it did not load or run.
pub fn compute(
    engine: &dyn Engine,
    graph: &Graph,
    tensors: &BTreeMap<String, TensorData>,
) -> Result<Vec<TensorData>, String> {
    engine.evaluate(graph, &|id| content(graph, tensors, id)).map_err(|e| e.to_string())
}

/// The first elements, for messages.
fn some(tensor: &TensorData) -> Vec<i64> {
    tensor.to_i64s().unwrap_or_default().into_iter().take(12).collect()
}

/// The content of an input or parameter: as the case gives it, else generated from its name.
fn content(graph: &Graph, tensors: &BTreeMap<String, TensorData>, id: TensorId) -> Result<TensorData, EngineError> {
    let tensor = graph.tensor(id);
    match tensors.get(&format!("in_{}", tensor.name)) {
        Some(given) => Ok(given.clone()),
        None => seeded(&tensor.name, &tensor.ty).map_err(|e| EngineError::Other(e.to_string())),
    }
}
