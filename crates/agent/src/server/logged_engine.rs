//! An engine that notes what it loads and computes in the log of its device, for when a kernel kills the process.

use std::sync::Arc;

use edgecut_engine::{Engine, EngineError, EngineId, Executable, Fallback, ParameterSource, Sample, Unsupported};
use edgecut_graph::{Graph, OperatorId, TensorData, units::Bytes};

use crate::work_log::{DeviceLog, entry};

/// Maximum number of operators that an entry names; the rest are counted.
const MAX_NAMED: usize = 6;

/// Wraps an engine and records its work.
pub(super) struct LoggedEngine {
    inner: Arc<dyn Engine>,
    log: DeviceLog,
}

impl LoggedEngine {
    /// Wraps `inner`; returns `inner` itself if `log` keeps nothing.
    pub fn of(inner: Arc<dyn Engine>, log: &DeviceLog) -> Arc<dyn Engine> {
        match log.is_kept() {
            true => Arc::new(LoggedEngine { inner, log: log.clone() }),
            false => inner,
        }
    }

    fn loaded(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        load: impl FnOnce() -> Result<Box<dyn Executable>, EngineError>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        let all = names(graph, &steps.concat());
        let work = self.log.begin(&entry(&format!("loading {all}")));
        let inner = load()?;
        drop(work);
        let steps = steps.iter().map(|step| computing(&names(graph, step))).collect();
        Ok(Box::new(LoggedExecutable { inner, log: self.log.clone(), whole: computing(&all), steps }))
    }
}

impl Engine for LoggedEngine {
    fn id(&self) -> EngineId {
        self.inner.id()
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }

    fn quota(&self) -> Option<f64> {
        self.inner.quota()
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        self.inner.supports(graph, operator)
    }

    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        let whole = [graph.operators().map(|(id, _)| id).collect()];
        self.loaded(graph, &whole, || self.inner.load(graph, parameter))
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        self.loaded(graph, steps, || self.inner.load_steps(graph, steps, parameter))
    }

    fn sharing_weights(&self) -> Option<Arc<dyn Engine>> {
        Some(LoggedEngine::of(self.inner.sharing_weights()?, &self.log))
    }
}

/// A graph that another engine has loaded.
struct LoggedExecutable {
    inner: Box<dyn Executable>,
    log: DeviceLog,
    /// What is noted of a run as a whole, and of each step.
    whole: Vec<u8>,
    steps: Vec<Vec<u8>>,
}

impl Executable for LoggedExecutable {
    fn run(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, EngineError> {
        let _work = self.log.begin(&self.whole);
        self.inner.run(inputs)
    }

    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let _work = self.log.begin(&self.whole);
        self.inner.run_measured(inputs)
    }

    /// Notes every step, where steps are computed one by one.
    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let LoggedExecutable { inner, log, whole, steps } = self;
        let is_stepwise = inner.step_shares().is_none();
        let work = log.begin(steps.first().filter(|_| is_stepwise).unwrap_or(whole));
        inner.run_in_steps(inputs, &mut |index, sample| {
            if let Some(next) = steps.get(index + 1).filter(|_| is_stepwise) {
                work.next(next);
            }
            each(index, sample);
        })
    }

    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        let _work = self.log.begin(&self.whole);
        self.inner.run_stepwise(inputs, each)
    }

    fn learn(&mut self) -> bool {
        self.inner.learn()
    }

    fn warm_up_runs(&self) -> u64 {
        self.inner.warm_up_runs()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        self.inner.in_place()
    }

    fn step_shares(&self) -> Option<&[f64]> {
        self.inner.step_shares()
    }

    fn engine(&self) -> Option<EngineId> {
        self.inner.engine()
    }

    fn fallbacks(&self) -> &[Fallback] {
        self.inner.fallbacks()
    }

    fn parameter_bytes(&self) -> Bytes {
        self.inner.parameter_bytes()
    }

    fn loading_bytes(&self) -> Bytes {
        self.inner.loading_bytes()
    }
}

/// The names of operators.
fn names(graph: &Graph, operators: &[OperatorId]) -> String {
    let named: Vec<&str> = operators.iter().take(MAX_NAMED).map(|id| graph.operator(*id).name.as_str()).collect();
    match operators.len() - named.len() {
        0 => named.join(", "),
        others => format!("{} and {others} others", named.join(", ")),
    }
}

fn computing(names: &str) -> Vec<u8> {
    entry(&format!("computing {names}"))
}
