//! Either of two engines, whichever computes a graph faster: both load it, and are compared on generated inputs; where
//! those are refused, on the inputs of the first run.

use std::sync::Arc;

use crate::{
    Engine, EngineError, EngineId, Executable, Fallback, ParameterSource, Sample, generated::generated_inputs,
};
use edgecut_graph::{Graph, OperatorId, TensorData, units::Bytes};
use edgecut_ops::Unsupported;

/// Runs of each engine that are compared, after one that is not.
const TRIALS: usize = 3;

/// The name of the faster one of two engines.
pub(crate) fn either(first: &EngineId, second: &EngineId) -> EngineId {
    EngineId {
        name: "auto".to_string(),
        version: format!("{}-{} or {}-{}", first.name, first.version, second.name, second.version),
    }
}

/// Chooses between two engines of one device, graph by graph.
pub(crate) struct AutomaticEngine {
    engines: [Arc<dyn Engine>; 2],
}

/// A graph that both engines have loaded, until they have been compared.
struct AutomaticExecutable {
    /// With their engines; one after the comparison.
    candidates: Vec<(EngineId, Box<dyn Executable>)>,
}

impl AutomaticEngine {
    pub(crate) fn new(first: Arc<dyn Engine>, second: Arc<dyn Engine>) -> AutomaticEngine {
        AutomaticEngine { engines: [first, second] }
    }

    /// What both, or the one that can, have loaded.
    fn load_by(
        &self,
        graph: &Graph,
        load: impl Fn(&dyn Engine) -> Result<Box<dyn Executable>, EngineError>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        let [first, second] = &self.engines;
        match (load(&**first), load(&**second)) {
            (Err(error), Err(_)) => Err(error),
            (loaded, other) => {
                let candidates = [(first.id(), loaded), (second.id(), other)];
                let candidates = candidates.into_iter().filter_map(|(id, loaded)| Some((id, loaded.ok()?)));
                let mut loaded = AutomaticExecutable { candidates: candidates.collect() };
                if let Ok(inputs) = generated_inputs(graph) {
                    // An error will be found again, and reported, by the first run.
                    let _ = loaded.chosen(&inputs);
                }
                Ok(Box::new(loaded))
            }
        }
    }
}

impl Engine for AutomaticEngine {
    fn id(&self) -> EngineId {
        either(&self.engines[0].id(), &self.engines[1].id())
    }

    fn threads(&self) -> usize {
        self.engines[0].threads()
    }

    fn quota(&self) -> Option<f64> {
        self.engines[0].quota()
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        self.engines[0].supports(graph, operator).or_else(|_| self.engines[1].supports(graph, operator))
    }

    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        self.load_by(graph, |engine| engine.load(graph, parameter))
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        self.load_by(graph, |engine| engine.load_steps(graph, steps, parameter))
    }
}

impl AutomaticExecutable {
    /// The faster one on `inputs`; the other is unloaded. The engines take turns, so that a disturbance meets both.
    fn chosen(&mut self, inputs: &[TensorData]) -> Result<&mut (dyn Executable + 'static), EngineError> {
        if self.candidates.len() > 1 {
            let mut best = vec![f64::INFINITY; self.candidates.len()];
            let mut failed = Vec::new();
            for trial in 0..=TRIALS {
                for ((_, candidate), best) in self.candidates.iter_mut().zip(&mut best) {
                    match candidate.run_measured(inputs.to_vec()) {
                        Ok((_, sample)) if trial > 0 => *best = best.min(sample.wall.0),
                        Ok(_) => {}
                        Err(error) => failed.push(error),
                    }
                }
            }
            let fastest = (0..best.len()).min_by(|a, b| best[*a].total_cmp(&best[*b])).unwrap_or(0);
            if let (true, Some(error)) = (best[fastest].is_infinite(), failed.pop()) {
                return Err(error);
            }
            self.candidates.swap(0, fastest);
            self.candidates.truncate(1);
        }
        let chosen = self.candidates.first_mut();
        chosen
            .map(|(_, chosen)| &mut **chosen)
            .ok_or_else(|| EngineError::Other("no engine has loaded the graph".to_string()))
    }
}

impl Executable for AutomaticExecutable {
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        self.chosen(&inputs)?.run_measured(inputs)
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        self.chosen(&inputs)?.run_in_steps(inputs, each)
    }

    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        self.chosen(&inputs)?.run_stepwise(inputs, each)
    }

    fn in_place(&self) -> &[(usize, usize)] {
        match &self.candidates[..] {
            [(_, chosen)] => chosen.in_place(),
            _ => &[],
        }
    }

    fn step_shares(&self) -> Option<&[f64]> {
        match &self.candidates[..] {
            [(_, chosen)] => chosen.step_shares(),
            _ => None,
        }
    }

    fn engine(&self) -> Option<EngineId> {
        match &self.candidates[..] {
            [(id, _)] => Some(id.clone()),
            _ => None,
        }
    }

    fn fallbacks(&self) -> &[Fallback] {
        match &self.candidates[..] {
            [(_, chosen)] => chosen.fallbacks(),
            _ => &[],
        }
    }

    /// Until the first run, of the one that holds more.
    fn parameter_bytes(&self) -> Bytes {
        self.candidates.iter().map(|(_, candidate)| candidate.parameter_bytes()).max().unwrap_or_default()
    }

    /// The second loads while the first is held.
    fn loading_bytes(&self) -> Bytes {
        match &self.candidates[..] {
            [(_, first), (_, second)] => first.loading_bytes().max(first.parameter_bytes() + second.loading_bytes()),
            all => all.iter().map(|(_, candidate)| candidate.loading_bytes()).max().unwrap_or_default(),
        }
    }
}
