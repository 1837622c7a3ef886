//! A whole model on one device.

use std::{collections::BTreeMap, path::Path};

use super::Run;
use crate::{
    cli::{Failure, Outcome},
    engine::{CpuEngine, Engine, EngineError, Sample},
    graph::{Graph, TensorData, TensorId},
    relay::Params,
    units::Micros,
    values::{read_npz, seeded, write_npz},
};

/// Runs the model of `arguments` and prints its latency.
pub(super) fn run(arguments: &Run) -> Outcome {
    let model = arguments.model.load()?;
    let graph = &model.import.graph;
    let contents = Contents::open(graph, arguments.inputs.as_deref(), &model.params)?;
    let engine = CpuEngine::new(arguments.threads.into()).map_err(Failure::failed)?;
    let mut loaded = engine.load(graph, &|id| contents.of(id)).map_err(engine_failure)?;
    let inputs: Vec<TensorData> =
        graph.inputs().map(|id| contents.of(id)).collect::<Result<_, _>>().map_err(engine_failure)?;
    let mut samples = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..arguments.repeat {
        let (results, sample) = loaded.run_measured(&inputs).map_err(engine_failure)?;
        samples.push(sample);
        outputs = results;
    }
    if let Some(path) = &arguments.outputs {
        let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
        write_npz(path, named).map_err(Failure::failed)?;
    }
    print_latency(&model.import.name, arguments.threads, &samples);
    Ok(())
}

/// Where the content of a model's inputs and parameters comes from: the `.npz` file, else the `.params` file,
/// else generated from the name.
struct Contents<'a> {
    graph: &'a Graph,
    given: BTreeMap<String, TensorData>,
    params: &'a Params,
}

impl<'a> Contents<'a> {
    fn open(graph: &'a Graph, inputs: Option<&Path>, params: &'a Params) -> Result<Contents<'a>, Failure> {
        let given = match inputs {
            Some(path) => read_npz(path).map_err(Failure::bad_input)?,
            None => BTreeMap::new(),
        };
        let declared: Vec<String> =
            graph.inputs().chain(graph.parameters()).map(|id| format!("in_{}", graph.tensor(id).name)).collect();
        for name in given.keys().filter(|name| name.starts_with("in_")) {
            if !declared.contains(name) {
                let error = EngineError::Other(format!(
                    "the inputs file has an array `{name}`, but the model declares no %{}; it declares {}",
                    &name["in_".len()..],
                    declared.iter().take(8).map(|d| d.as_str()).collect::<Vec<_>>().join(", ")
                ));
                return Err(Failure::bad_input(error));
            }
        }
        Ok(Contents { graph, given, params })
    }

    fn of(&self, id: TensorId) -> Result<TensorData, EngineError> {
        let tensor = self.graph.tensor(id);
        let name = tensor.name.as_str();
        if let Some(data) = self.given.get(&format!("in_{name}")).or_else(|| self.params.get(name)) {
            return Ok(data.clone());
        }
        seeded(name, &tensor.ty).map_err(|e| EngineError::Tensor { name: name.to_string(), what: e.to_string() })
    }
}

/// A tensor that does not fit is bad input; all else failed while running.
fn engine_failure(error: EngineError) -> Failure {
    match error {
        EngineError::Tensor { .. } | EngineError::Unsupported(_) => Failure::bad_input(error),
        _ => Failure::failed(error),
    }
}

fn print_latency(model: &str, threads: u16, samples: &[Sample]) {
    let mut walls: Vec<f64> = samples.iter().map(|s| s.wall.0).collect();
    walls.sort_by(f64::total_cmp);
    let at = |fraction: f64| Micros(walls[((walls.len() - 1) as f64 * fraction).round() as usize]);
    let threads = if threads == 1 { "one thread".to_string() } else { format!("{threads} threads") };
    match samples {
        [_] => println!("{model}: {} on {threads}", at(0.5)),
        _ => println!(
            "{model}: median {} of {} runs on {threads} (min {}, p95 {})",
            at(0.5),
            walls.len(),
            at(0.0),
            at(0.95)
        ),
    }
}
