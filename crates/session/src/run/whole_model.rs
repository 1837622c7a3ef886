//! Runs of a whole model on one device.

use std::path::Path;

use edgecut_agent::Oversubscribed;
use edgecut_engine::{Fallback, statistics::Statistics};
use edgecut_graph::{
    TensorData,
    units::{Bytes, Micros},
};
use serde::Serialize;

use super::{
    binding::BindingChoice,
    execution::{KEPT, tell_interrupted},
    options::RunOptions,
    progress::RunWatch,
};
use crate::{Error, Events, ModelOptions, SiteOptions, model::contents::engine_error};

/// Runs the model at `path` on this machine's CPU, with the threads and the engine of `site`. Returns the measurements,
/// and the outputs of the last run.
///
/// # Errors
/// If the model cannot be read or computed, or the runs are cancelled.
pub fn run_model(
    path: &Path,
    options: &ModelOptions,
    site: &SiteOptions,
    run: &RunOptions,
    events: &Events,
) -> Result<(ModelLatency, Vec<TensorData>), Error> {
    run.check()?;
    site.check()?;
    let bindings = options.bindings()?;
    let choice = BindingChoice { model: path, options, bindings: &bindings, returns_states: true, events };
    let chosen = choice.choose(run.pad_inputs)?;
    let options = options.with_binding(&bindings[chosen.at], &[]);
    let threads = site.threads.unwrap_or(1);
    Oversubscribed::here(threads).iter().for_each(|warning| events.notice(warning));
    let engine = site.engine_options().start(threads as usize).map_err(Error::failed)?;
    let model = chosen.open(path, &options)?;
    events.notices(&model.notices);
    model.check_sizes()?;
    model.check_memory()?;
    let graph = &model.import.graph;
    let contents = model.contents(graph)?;
    let watch = RunWatch::start(events);
    watch.tell("loading the model");
    let mut loaded = engine.load(graph, &|id| contents.of(id)).map_err(engine_error)?;
    let inputs = contents.inputs().map_err(engine_error)?;
    let (name, operators) = (model.import.name.clone(), graph.operators().len());
    // The engine has its own copy of the weights, so the contents of the file are released.
    drop(contents);
    drop(model);
    let (mut samples, mut outputs) = (Vec::new(), Vec::new());
    let repeat = run.repeat.unwrap_or(1);
    let stop = events.stop(None, KEPT);
    watch.tell_measured("running the model");
    for _ in 0..repeat {
        events.check()?;
        if stop.is_requested() && !samples.is_empty() {
            tell_interrupted(samples.len() as u64, repeat.into(), events)?;
            break;
        }
        let (results, sample) = loaded.run_measured(inputs.clone()).map_err(engine_error)?;
        samples.push(sample);
        outputs = results;
        watch.count(samples.len() as u64, repeat.into());
    }
    drop(watch);
    tell_fallbacks(&engine.id().name, operators, loaded.fallbacks(), events);
    let walls: Vec<Micros> = samples.iter().map(|sample| sample.wall).collect();
    let time = Statistics::of(&walls).ok_or_else(|| Error::Failed("no run was measured".into()))?;
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
    Ok((latency, chosen.crop(outputs, events)))
}

/// Measurements of a model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelLatency {
    pub model: String,
    pub engine: String,
    pub threads: u32,
    /// Number of operators that another engine computed.
    pub fallbacks: usize,
    pub runs: u32,
    pub median_us: Micros,
    pub min_us: Micros,
    pub p95_us: Micros,
    /// Memory of the parameters that the engine holds.
    pub held_bytes: Bytes,
    /// Peak memory of tensors and workspace, without these parameters.
    pub peak_bytes: Bytes,
    /// The sizes of unknown dimensions, if the binding was selected from several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}

/// Reports how many operators are computed by another engine than `engine`, and lists the first of them.
fn tell_fallbacks(engine: &str, operators: usize, fallbacks: &[Fallback], events: &Events) {
    const SHOWN: usize = 5;
    if fallbacks.is_empty() {
        return;
    }
    events.notice(format_args!("{} of {operators} operators are computed by tract, not by {engine}:", fallbacks.len()));
    for fallback in fallbacks.iter().take(SHOWN) {
        events.notice(format_args!("  {}: {}", fallback.operator, fallback.reason));
    }
    if fallbacks.len() > SHOWN {
        events.notice(format_args!("  and {} more", fallbacks.len() - SHOWN));
    }
}
