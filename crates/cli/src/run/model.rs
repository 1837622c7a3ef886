//! A whole model on one device.

use std::sync::atomic::Ordering;

use super::{
    binding::BindingChoice,
    flags::Run,
    output::{KEPT, tell_interrupted},
    progress::RunLine,
};
use crate::{
    Failure, Outcome,
    caller::is_stopped,
    cluster_flag::warn,
    contents::engine_failure,
    engine::tell_fallbacks,
    format::{Format, print_csv, print_json},
    ineffective, interrupt,
    model::ModelArguments,
    stdout::print_line,
};
use edgecut_cluster::Oversubscribed;
use edgecut_engine::statistics::Statistics;
use edgecut_graph::{
    TensorData,
    units::{Bytes, Micros},
};
use miette::Report;
use serde::Serialize;

/// Runs the model of `arguments`.
pub(super) fn run(arguments: &Run) -> Result<(ModelLatency, Vec<TensorData>), Failure> {
    let of_plans = [
        ("--cluster", arguments.cluster.given().is_some()),
        ("--model", arguments.model.is_some()),
        ("--throughput", arguments.throughput),
        ("--output", arguments.output.is_some()),
        ("--trace", arguments.trace.is_some()),
        ("--no-check", arguments.no_check),
        ("--replan", arguments.replan),
        ("--no-replan", arguments.no_replan),
    ];
    ineffective::refuse(&of_plans, "a model: only with a plan, as `edgecut plan` writes them")?;
    let flags = arguments.flags.for_engine(&arguments.engine);
    let bindings = flags.bindings()?;
    let choice = BindingChoice { model: &arguments.input, flags: &flags, bindings: &bindings };
    let chosen = choice.choose(arguments)?;
    let flags = flags.with_binding(&bindings[chosen.at], &[]);
    let source = ModelArguments { model: arguments.input.clone(), flags };
    let threads = arguments.threads.threads.unwrap_or(1);
    warn(Oversubscribed::here(threads).as_slice());
    let engine = arguments.engine.options().start(threads as usize).map_err(Failure::failed)?;
    let model = chosen.load(&source)?;
    model.check_sizes(&source.model)?;
    model.check_memory(&source.model)?;
    let graph = &model.import.graph;
    let contents = model.contents(graph)?;
    let line = RunLine::start();
    line.tell("loading the model");
    let mut loaded = engine.load(graph, &|id| contents.of(id)).map_err(engine_failure)?;
    let inputs = contents.inputs().map_err(engine_failure)?;
    let (name, operators) = (model.import.name.clone(), graph.operators().len());
    // The engine has its own copy of the weights: those of the file are not needed while it runs.
    drop(contents);
    drop(model);
    let (mut samples, mut outputs) = (Vec::new(), Vec::new());
    let repeat = arguments.repeat.unwrap_or(1);
    let stop = interrupt::watch(KEPT).map_err(Failure::failed)?;
    line.tell_measured("running the model");
    for _ in 0..repeat {
        if is_stopped() {
            return Err(Failure::Stopped);
        }
        if stop.load(Ordering::Relaxed) && !samples.is_empty() {
            tell_interrupted(samples.len() as u64, repeat.into())?;
            break;
        }
        let (results, sample) = loaded.run_measured(&inputs).map_err(engine_failure)?;
        samples.push(sample);
        outputs = results;
        line.count(samples.len() as u64, repeat.into());
    }
    drop(line);
    tell_fallbacks(&engine.id().name, operators, loaded.fallbacks());
    let walls: Vec<Micros> = samples.iter().map(|sample| sample.wall).collect();
    let time = Statistics::of(&walls).ok_or_else(|| Failure::Failed(Report::msg("no run was measured")))?;
    let latency = ModelLatency {
        model: name,
        engine: loaded.engine().unwrap_or_else(|| engine.id()).to_string(),
        threads,
        fallbacks: loaded.fallbacks().len(),
        runs: time.n,
        median_us: time.median,
        min_us: time.min,
        p95_us: time.p95,
        held_bytes: loaded.parameter_bytes(),
        peak_bytes: samples.iter().map(|sample| sample.peak).max().unwrap_or_default(),
        binding: chosen.label.clone(),
    };
    Ok((latency, chosen.crop(outputs)))
}

/// What was measured of a model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelLatency {
    pub model: String,
    pub engine: String,
    pub threads: u32,
    /// Operators that another engine computed.
    pub fallbacks: usize,
    pub runs: u32,
    pub median_us: Micros,
    pub min_us: Micros,
    pub p95_us: Micros,
    /// What the engine holds of the parameters.
    pub held_bytes: Bytes,
    /// Peak of tensors and workspace, without what is held.
    pub peak_bytes: Bytes,
    /// The sizes of unknown dimensions, if the binding was selected from several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}

impl ModelLatency {
    pub(super) fn print(&self, format: Format) -> Outcome {
        let ModelLatency { model, engine, threads, fallbacks, runs, median_us, min_us, p95_us, .. } = self;
        let ModelLatency { held_bytes, peak_bytes, binding, .. } = self;
        match format {
            Format::Csv => print_csv(std::slice::from_ref(self)),
            Format::Json => {
                let mut page = serde_json::json!({
                    "model": model,
                    "engine": engine,
                    "threads": threads,
                    "fallbacks": fallbacks,
                    "latency": { "runs": runs, "median_us": median_us, "min_us": min_us, "p95_us": p95_us },
                    "memory": { "held_bytes": held_bytes, "peak_bytes": peak_bytes },
                });
                if let Some(binding) = binding {
                    page["binding"] = binding.as_str().into();
                }
                print_json(&page)
            }
            Format::Table => {
                let threads = if *threads == 1 { "one thread".to_string() } else { format!("{threads} threads") };
                let times = match runs {
                    1 => median_us.to_string(),
                    n => format!("median {median_us} of {n} runs (min {min_us}, p95 {p95_us})"),
                };
                let binding = binding.as_ref().map_or(String::new(), |binding| format!(" ({binding})"));
                print_line!("{model}{binding}: {times} on {threads}, {engine}");
                Ok(())
            }
        }
    }
}
