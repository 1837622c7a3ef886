//! The operator cases that TVM computed: Relay text, inputs and outputs, as data for any engine.

#![allow(dead_code)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut::{
    engine::{Engine, EngineError, TractEngine},
    graph::{DType, Graph, TensorData, TensorId},
    relay::{ImportOptions, import},
    values::{read_npz, seeded},
};

/// One operator case: `<folder>/<family>/<name>.relay` and `.npz`.
pub struct Case {
    pub name: String,
    pub family: String,
    pub path: PathBuf,
    rtol: f64,
    atol: f64,
}

/// The folder of a package for a machine without this repository (`cluster/gpu.sh --pack`), if EDGECUT_PACKAGE names one.
pub fn package() -> Option<PathBuf> {
    std::env::var_os("EDGECUT_PACKAGE").map(PathBuf::from)
}

/// The Relay conformance data: the package's, else `../shared/relay` where it lies next to the checkout, else the sample in
/// `tests/data/relay`.
pub fn data() -> PathBuf {
    if let Some(package) = package() {
        return package.join("relay");
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = repository.join("../shared/relay");
    if shared.exists() { shared } else { repository.join("tests/data/relay") }
}

/// The text of the model `name` of the conformance data. What is in `models/` of the repository is not repeated in the sample.
pub fn model(name: &str) -> PathBuf {
    let path = data().join(format!("models/{name}.relay"));
    let root = package().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    if path.exists() { path } else { root.join(format!("models/{name}.relay")) }
}

/// Names of the models whose outputs TVM computed, sorted.
pub fn models_with_outputs() -> Vec<String> {
    stems(&data().join("expected"), ".npz")
}

/// Names of the files of `folder` that end in `ending`, without it, sorted.
pub fn stems(folder: &Path, ending: &str) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str().and_then(|name| name.strip_suffix(ending)).map(str::to_string)
    };
    let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().filter_map(name).collect();
    names.sort();
    names
}

/// All cases of the conformance data.
pub fn all() -> Vec<Case> {
    let folder = data().join("cases");
    let mut rows = csv::Reader::from_path(folder.join("index.csv")).unwrap();
    let case = |row: BTreeMap<String, String>| Case {
        path: folder.join(&row["family"]).join(&row["case"]),
        name: row["case"].clone(),
        family: row["family"].clone(),
        rtol: row["rtol"].parse().unwrap(),
        atol: row["atol"].parse().unwrap(),
    };
    rows.deserialize().map(|row| case(row.unwrap())).collect()
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
            let engine = TractEngine::new(1).map_err(|e| e.to_string())?;
            compute(&engine, graph, &tensors)?.into_iter().next().ok_or_else(|| "no output".to_string())
        };
        let options = ImportOptions { evaluate: Some(&evaluate), ..ImportOptions::default() };
        let import = import(&self.name, &text, &options).map_err(|e| e.to_string())?;
        match import.checks.mismatches.first() {
            Some(first) => Err(format!("the text says {}, inferred is {}", first.stated, first.inferred)),
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
