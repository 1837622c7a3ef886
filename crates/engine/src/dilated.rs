//! Time dilation: an engine whose computations take a multiple of the time that another engine needs, by sleeping.
//!
//! A test option: with it, several slow devices share the cores of one machine. Some runs on generated inputs, in turns with
//! the other stages of the device, show what each step takes: in CPU time with one thread, so that waiting for a core that
//! another device uses does not count, and in wall-clock time with several. Nothing is sent or received then: a system
//! counts the processor time of messages as that of the thread that they interrupt. From then on a step takes the factor
//! times that. It does not take the factor times what it takes after a sleep: caches are colder then than in a device that computes without sleeping. Only runs in steps
//! sleep; samples of measurements are multiplied.

use std::{
    fmt, hint,
    str::FromStr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    CpuClock, Engine, EngineError, EngineId, Executable, Fallback, ParameterSource, Sample, generated::generated_inputs,
};
use edgecut_graph::{
    Graph, OperatorId, TensorData,
    units::{Bytes, Micros},
};
use edgecut_ops::Unsupported;

/// How many times as long a dilated computation takes: from 1 to 1000.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dilation(f64);

/// Largest factor: a step of a second then takes a quarter of an hour.
const MAX_FACTOR: f64 = 1000.0;

/// Runs that show what the steps take.
const LEARNING_RUNS: usize = 16;

/// The first of them, which only warm up.
const WARM_UP_RUNS: usize = 4;

/// The last part of the wait at the end of a run, which spins: a sleeping thread wakes up some microseconds late. Within a
/// run the next wait makes up for it.
const SPIN: Duration = Duration::from_micros(40);

impl FromStr for Dilation {
    type Err = String;

    fn from_str(text: &str) -> Result<Dilation, String> {
        let factor = text.parse().ok().filter(|factor| (1.0..=MAX_FACTOR).contains(factor));
        factor.map(Dilation).ok_or_else(|| {
            format!("`{text}` is not a factor of time dilation: expected a number from 1 to {MAX_FACTOR}, such as 8")
        })
    }
}

impl fmt::Display for Dilation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dilated {}x", self.0)
    }
}

impl Dilation {
    /// What a sample of a computation by `threads` threads is once it is dilated. A late wake-up is not part of it, since
    /// the next wait makes up for it.
    fn apply(self, sample: Sample, threads: usize) -> Sample {
        let of = |time: Micros| Micros(self.0 * time.0);
        let wall = if threads == 1 { of(sample.cpu).max(sample.wall) } else { of(sample.wall) };
        Sample { wall, cpu: of(sample.cpu), ..sample }
    }
}

/// Computes as another engine does, in a multiple of its time. Loading is not dilated.
pub struct DilatedEngine {
    inner: Arc<dyn Engine>,
    dilation: Dilation,
}

impl DilatedEngine {
    pub fn new(inner: Arc<dyn Engine>, dilation: Dilation) -> DilatedEngine {
        DilatedEngine { inner, dilation }
    }

    fn dilated(&self, inner: Box<dyn Executable>, graph: Option<Graph>) -> DilatedExecutable {
        let threads = self.inner.threads();
        DilatedExecutable { inner, graph, dilation: self.dilation, threads, learned: Learned::default() }
    }
}

impl Engine for DilatedEngine {
    fn sharing_weights(&self) -> Option<Arc<dyn Engine>> {
        Some(Arc::new(DilatedEngine::new(self.inner.sharing_weights()?, self.dilation)))
    }

    fn id(&self) -> EngineId {
        self.inner.id()
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }

    /// In dilated CPU time, as that of samples is.
    fn quota(&self) -> Option<f64> {
        self.inner.quota().map(|cores| cores * self.dilation.0)
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        self.inner.supports(graph, operator)
    }

    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        Ok(Box::new(self.dilated(self.inner.load(graph, parameter)?, None)))
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        let loaded = self.inner.load_steps(graph, steps, parameter)?;
        Ok(Box::new(self.dilated(loaded, Some(graph.clone()))))
    }
}

/// A graph that another engine has loaded.
struct DilatedExecutable {
    inner: Box<dyn Executable>,
    /// What it computes, while it learns.
    graph: Option<Graph>,
    dilation: Dilation,
    threads: usize,
    learned: Learned,
}

impl Executable for DilatedExecutable {
    /// Does not wait, as all that is not run in steps.
    fn run(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, EngineError> {
        self.inner.run(inputs)
    }

    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let (outputs, sample) = self.inner.run_measured(inputs)?;
        Ok((outputs, self.dilation.apply(sample, self.threads)))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let (dilation, threads) = (self.dilation, self.threads);
        let mut pace = Pace::start(dilation, threads, &mut self.learned);
        let outputs = self.inner.run_in_steps(inputs, &mut |index, sample| {
            pace.step();
            each(index, dilation.apply(sample, threads));
        })?;
        pace.end();
        Ok(outputs)
    }

    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        let mut pace = Pace::start(self.dilation, self.threads, &mut self.learned);
        let outputs = self.inner.run_stepwise(inputs, &mut |index| {
            pace.step();
            each(index);
        })?;
        pace.end();
        Ok(outputs)
    }

    /// Where inputs cannot be generated, or are none that it can compute, the first runs show what the steps take.
    fn learn(&mut self) -> bool {
        let Some(graph) = self.graph.take() else { return false };
        let inputs = generated_inputs(&graph);
        if !inputs.is_ok_and(|inputs| self.run_stepwise(inputs, &mut |_| {}).is_ok()) {
            self.learned = Learned::default();
            return false;
        }
        self.graph = (!self.learned.is_complete()).then_some(graph);
        self.graph.is_some()
    }

    fn warm_up_runs(&self) -> u64 {
        if self.learned.is_complete() { 1 } else { LEARNING_RUNS as u64 }
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

/// What the steps of a graph take without dilation: CPU time of one thread, wall-clock time of several. The last entry of a run
/// is what comes after the last step.
#[derive(Default)]
struct Learned {
    runs: Vec<Vec<Duration>>,
    /// By step, once enough runs are over: the lower quartile of the runs after those that warm up. In half of the runs a step may
    /// still touch memory for the first time, and one huge page takes up to 5 ms on a virtual machine.
    steps: Vec<Duration>,
}

impl Learned {
    fn add(&mut self, run: Vec<Duration>) {
        self.runs.push(run);
        if self.runs.len() == LEARNING_RUNS {
            let warm = std::mem::take(&mut self.runs).split_off(WARM_UP_RUNS);
            let of = |step: usize| {
                let mut times: Vec<Duration> = warm.iter().filter_map(|run| run.get(step)).copied().collect();
                times.sort_unstable();
                times.get(times.len() / 4).copied().unwrap_or_default()
            };
            self.steps = (0..warm.iter().map(Vec::len).min().unwrap_or_default()).map(of).collect();
        }
    }

    fn is_complete(&self) -> bool {
        !self.steps.is_empty()
    }
}

/// One run: it learns what the steps take, or waits for as long as they take when dilated. Waits end at a time relative to
/// the start of the run, so that delays do not add up.
struct Pace<'a> {
    dilation: Dilation,
    threads: usize,
    start: Instant,
    learned: &'a mut Learned,
    /// The number of the step that is next.
    next: usize,
    /// Undilated time of the steps so far.
    computed: Duration,
    /// In a run that learns: what each step took, and the clock when it ended.
    taken: Vec<Duration>,
    before: Duration,
}

impl Pace<'_> {
    fn start(dilation: Dilation, threads: usize, learned: &mut Learned) -> Pace<'_> {
        shorten_timer_slack();
        let (start, zero) = (Instant::now(), Duration::ZERO);
        let mut pace =
            Pace { dilation, threads, start, learned, next: 0, computed: zero, taken: Vec::new(), before: zero };
        pace.before = pace.clock();
        pace
    }

    /// Goes on after a step.
    fn step(&mut self) {
        self.go_on(Duration::ZERO);
    }

    /// Goes on at the end of the run.
    fn end(mut self) {
        self.go_on(SPIN);
        if !self.learned.is_complete() {
            self.learned.add(self.taken);
        }
    }

    /// Waits until the steps so far have taken their dilated time; the last part of that, up to `spin`, on the core.
    fn go_on(&mut self, spin: Duration) {
        if !self.learned.is_complete() {
            let now = self.clock();
            self.taken.push(now.saturating_sub(self.before));
            self.before = now;
            return;
        }
        self.computed += self.learned.steps.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        let until = self.start + self.computed.mul_f64(self.dilation.0);
        let left = until.saturating_duration_since(Instant::now());
        if left > spin {
            thread::sleep(left - spin);
        }
        while !spin.is_zero() && Instant::now() < until {
            hint::spin_loop();
        }
    }

    fn clock(&self) -> Duration {
        if self.threads == 1 { CpuClock::Thread.now() } else { self.start.elapsed() }
    }
}

/// Lets the calling thread wake up on time: by default, the kernel delays its timers by up to 50 us.
#[cfg(target_os = "linux")]
fn shorten_timer_slack() {
    // Without it, waits end later and the next one is shorter.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
fn shorten_timer_slack() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TractEngine;
    use edgecut_graph::{DType, Operator, Origin, TensorType};

    /// Products of matrices of some milliseconds each.
    fn graph(steps: usize) -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[400, 400]);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let mut x = graph.add_tensor("x", ty.clone(), Origin::Input);
        for _ in 0..steps {
            let product = graph.add_operator(Operator::new("nn.dense", [x, w]), std::slice::from_ref(&ty));
            x = graph.operator(product).outputs[0];
        }
        graph.outputs = vec![x];
        graph
    }

    fn floats() -> TensorData {
        let bytes: Vec<u8> = (0..400 * 400).flat_map(|i| (i as f32 / 1e5).to_le_bytes()).collect();
        TensorData::new(DType::F32, [400, 400], bytes).unwrap()
    }

    #[test]
    fn a_factor_is_a_number_from_1_to_1000() {
        for (text, shown) in
            [("8", "dilated 8x"), ("2.5", "dilated 2.5x"), ("1", "dilated 1x"), ("1e3", "dilated 1000x")]
        {
            assert_eq!(text.parse::<Dilation>().unwrap().to_string(), shown);
        }
        for text in ["0.5", "0", "-8", "NaN", "inf", "1001", "8x", ""] {
            let error = text.parse::<Dilation>().unwrap_err();
            assert!(
                error.starts_with(&format!("`{text}` is not a factor")) && error.contains("from 1 to 1000"),
                "{error}"
            );
        }
    }

    #[test]
    fn steps_take_the_factor_times_their_cpu_time_and_compute_the_same() {
        let graph = graph(4);
        let steps: Vec<_> = graph.operators().map(|(id, _)| vec![id]).collect();
        let inner: Arc<dyn Engine> = Arc::new(TractEngine::new(1).unwrap());
        let engine = DilatedEngine::new(Arc::clone(&inner), Dilation(8.0));
        assert_eq!((engine.id(), engine.threads()), (inner.id(), 1));
        let mut plain = inner.load_steps(&graph, &steps, &|_| Ok(floats())).unwrap();
        let mut dilated = engine.load_steps(&graph, &steps, &|_| Ok(floats())).unwrap();
        while dilated.learn() {}
        let outputs = plain.run(&[floats()]).unwrap();
        assert_eq!(dilated.run(&[floats()]).unwrap(), outputs);
        let (made, sample) = dilated.run_measured(vec![floats()]).unwrap();
        assert_eq!(made, outputs);
        assert!(sample.wall >= sample.cpu, "{sample:?}");

        type Run = dyn Fn(&mut dyn Executable) -> (Vec<TensorData>, usize);
        let in_steps = |loaded: &mut dyn Executable| {
            let mut all: Vec<Sample> = Vec::new();
            let outputs = loaded.run_in_steps(vec![floats()], &mut |_, sample| all.push(sample)).unwrap();
            (outputs, all.len())
        };
        let stepwise = |loaded: &mut dyn Executable| {
            let mut count = 0usize;
            let outputs = loaded.run_stepwise(vec![floats()], &mut |_| count += 1).unwrap();
            (outputs, count)
        };
        let timed = |loaded: &mut dyn Executable, run: &Run| {
            let (begin, cpu) = (Instant::now(), CpuClock::Thread.now());
            assert_eq!(run(loaded), (outputs.clone(), 4));
            (Micros::from(begin.elapsed()), Micros::from(CpuClock::Thread.now() - cpu))
        };
        assert_eq!(dilated.warm_up_runs(), 1, "it has learned");
        let learning: Vec<f64> = (0..LEARNING_RUNS).map(|_| timed(&mut *plain, &stepwise).1.0).collect();
        let (least, most) = learning[WARM_UP_RUNS..]
            .iter()
            .fold((f64::INFINITY, 0.0f64), |(least, most), cpu| (least.min(*cpu), most.max(*cpu)));
        for run in [&in_steps as &Run, &stepwise] {
            let (wall, _) = timed(&mut *dilated, run);
            // Waking up may be late by any time on a busy machine; the quartiles of steps are not those of runs.
            assert!(
                wall.0 > 0.8 * 8.0 * least && wall.0 < 8.0 * most + 1e6,
                "{wall}, {least} to {most} us of CPU time"
            );
        }
    }

    #[test]
    fn several_threads_are_dilated_by_their_wall_clock_time() {
        let graph = graph(2);
        let engine = DilatedEngine::new(Arc::new(TractEngine::new(2).unwrap()), Dilation(4.0));
        let mut loaded = engine.load(&graph, &|_| Ok(floats())).unwrap();
        let mut timed = || {
            let begin = Instant::now();
            loaded.run_stepwise(vec![floats()], &mut |_| {}).unwrap();
            begin.elapsed()
        };
        let learning: Vec<Duration> = (0..LEARNING_RUNS).map(|_| timed()).collect();
        let least = learning[WARM_UP_RUNS..].iter().min().unwrap();
        let elapsed = timed();
        assert!(elapsed > 3 * *least, "{elapsed:?} after {learning:?}");
    }

    #[test]
    fn a_disturbance_within_the_dilated_time_does_not_count() {
        let sample = |wall: f64, cpu: f64| Sample {
            wall: Micros(wall),
            cpu: Micros(cpu),
            kernels: None,
            workspace: Bytes(1),
            peak: Bytes(2),
            tensors: Bytes(3),
        };
        let dilation = Dilation(8.0);
        assert_eq!(dilation.apply(sample(30.0, 10.0), 1), sample(80.0, 80.0));
        assert_eq!(dilation.apply(sample(100.0, 10.0), 1), sample(100.0, 80.0), "a core was missing for longer");
        assert_eq!(dilation.apply(sample(30.0, 50.0), 2), sample(240.0, 400.0));
    }
}
