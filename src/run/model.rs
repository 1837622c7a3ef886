//! A whole model on one device.

use super::flags::Run;
use crate::{
    Failure, Outcome, cluster::warn, contents::engine_failure, format::Format, ineffective, model::ModelArguments,
};
use edgecut_cluster::Oversubscribed;
use edgecut_engine::{Engine, Sample, TractEngine, statistics::Statistics};
use edgecut_graph::units::Micros;
use edgecut_values::write_npz;

/// Runs the model of `arguments` and prints its latency.
pub(crate) fn run(arguments: &Run) -> Outcome {
    let of_plans = [
        ("--cluster", arguments.cluster.path().is_some()),
        ("--model", arguments.model.is_some()),
        ("--throughput", arguments.throughput),
        ("--trace", arguments.trace.is_some()),
        ("--no-check", arguments.no_check),
        ("--format", arguments.format != Format::Table),
    ];
    ineffective::refuse(&of_plans, "a model: only with a plan, as `edgecut plan` writes them")?;
    let source = ModelArguments { model: arguments.input.clone(), flags: arguments.flags.clone() };
    let threads = arguments.threads.threads.unwrap_or(1);
    warn(Oversubscribed::here(threads).as_slice());
    let engine = TractEngine::new(threads as usize).map_err(Failure::failed)?;
    let model = source.load()?;
    model.check_sizes(&source.model)?;
    let graph = &model.import.graph;
    let contents = model.contents(graph)?;
    let mut loaded = engine.load(graph, &|id| contents.of(id)).map_err(engine_failure)?;
    let inputs = contents.inputs().map_err(engine_failure)?;
    let mut samples = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..arguments.repeat.unwrap_or(1) {
        let (results, sample) = loaded.run_measured(&inputs).map_err(engine_failure)?;
        samples.push(sample);
        outputs = results;
    }
    if let Some(path) = &arguments.outputs {
        let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
        write_npz(path, named).map_err(Failure::failed)?;
    }
    print_latency(&model.import.name, threads, &samples);
    Ok(())
}

fn print_latency(model: &str, threads: u32, samples: &[Sample]) {
    let walls: Vec<Micros> = samples.iter().map(|s| s.wall).collect();
    let Some(time) = Statistics::of(&walls) else { return };
    let threads = if threads == 1 { "one thread".to_string() } else { format!("{threads} threads") };
    match time.n {
        1 => println!("{model}: {} on {threads}", time.median),
        n => println!("{model}: median {} of {n} runs on {threads} (min {}, p95 {})", time.median, time.min, time.p95),
    }
}
