//! ONNX Runtime as the engine: every operator case and every model with outputs, and what is particular to it. Ignored where
//! it is not installed, unless the environment variable `EDGECUT_REQUIRE_SHARED` says that nothing may be lacking.

use std::{path::Path, sync::LazyLock};

use edgecut::{
    engine::{Engine, EngineChoice, EngineOptions, OnnxRuntimeEngine, TractEngine},
    graph::{DType, Graph, Operator, OperatorId, Origin, TensorData, TensorId, TensorType},
};
use libtest_mimic::Trial;

use crate::{cases, composite_splits, models, onnx, onnx_rules, trial};

static ENGINE: LazyLock<Result<OnnxRuntimeEngine, String>> =
    LazyLock::new(|| OnnxRuntimeEngine::new(1, None, &[]).map_err(|error| error.to_string()));

fn engine() -> Result<&'static dyn Engine, String> {
    ENGINE.as_ref().map(|engine| engine as &dyn Engine).map_err(Clone::clone)
}

type Check = fn() -> Result<(), String>;

/// Rules whose sums of byte products exceed 16 bits. Without instructions for dot products of bytes, ONNX Runtime saturates
/// such sums, unless `session.x64quantprecision` is set, which costs time:
/// <https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html#when-and-why-do-i-need-to-try-u8u8>.
const SATURATING: &[&str] = &["qlinear_conv", "qlinear_matmul"];

/// Whether the processor has instructions for dot products of bytes, which do not saturate.
fn has_byte_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512vnni") || std::arch::is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in cases::all() {
        let name = format!("onnxruntime/operators/{}/{}", case.family, case.name);
        trials.push(trial(name, move || case.run(engine()?)));
    }
    for name in cases::models_with_outputs() {
        trials.push(trial(format!("onnxruntime/models/{name}: outputs"), move || models::outputs(&name, engine()?)));
    }
    for name in onnx::names() {
        trials.push(trial(format!("onnxruntime/onnx/{name}: outputs"), move || onnx::outputs(&name, engine()?)));
    }
    for name in composite_splits::names() {
        let name_of_trial = format!("onnxruntime/composite-splits/{name}");
        trials.push(trial(name_of_trial, move || composite_splits::check(&name, engine()?)));
    }
    let own: [(&str, Check); 4] = [
        ("steps are one session whose time they share", steps_share_one_session),
        ("what it lacks is computed by tract and named", fallbacks_are_named),
        ("auto computes the same", auto_computes_the_same),
        ("caches are written in place where nothing else holds them", caches_are_written_in_place),
    ];
    trials.extend(own.map(|(name, check)| trial(format!("onnxruntime: {name}"), check)));
    let is_absent = ENGINE.is_err() && std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none();
    trials = trials.into_iter().map(|trial| trial.with_ignored_flag(is_absent)).collect();
    for name in onnx_rules::names_of_onnx_runtime() {
        let saturates = SATURATING.contains(&name.as_str()) && !has_byte_products();
        let follows = trial(format!("onnxruntime/onnx-rules/{name}"), move || onnx_rules::follows(&name, engine()?));
        trials.push(follows.with_ignored_flag(saturates || is_absent));
    }
    trials
}

/// x → `first` → `second`, both returned, with a matrix product by w between them.
fn graph(first: &str, second: &str) -> Graph {
    let ty = TensorType::of(DType::F32, &[64, 64]);
    let mut graph = Graph::new();
    let x = graph.add_tensor("x", ty.clone(), Origin::Input);
    let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
    let mut add = |name: &str, operands: &[TensorId]| {
        let id = graph.add_operator(Operator::new(name, operands.iter().copied()), std::slice::from_ref(&ty));
        graph.operator(id).outputs[0]
    };
    let one = add(first, &[x]);
    let product = add("nn.dense", &[one, w]);
    let two = add(second, &[product]);
    graph.outputs = vec![one, two, w, x];
    graph
}

/// 64 × 64 numbers between −2 and 2.
fn floats() -> TensorData {
    let bytes: Vec<u8> = (0..4096u32).flat_map(|i| ((i * 37 % 401) as f32 / 100.0 - 2.0).to_le_bytes()).collect();
    TensorData::new(DType::F32, [64, 64], bytes).unwrap()
}

fn near(a: &[TensorData], b: &[TensorData]) -> Result<(), String> {
    for (index, (a, b)) in a.iter().zip(b).enumerate() {
        let (a, b) = (a.to_f64s().ok_or("no numbers")?, b.to_f64s().ok_or("no numbers")?);
        if let Some(at) = a.iter().zip(&b).position(|(a, b)| (a - b).abs() > 1e-4 + 1e-3 * b.abs()) {
            return Err(format!("element {at} of output {index} is {}, expected {}", a[at], b[at]));
        }
    }
    if a.len() == b.len() { Ok(()) } else { Err(format!("{} outputs, expected {}", a.len(), b.len())) }
}

fn steps_share_one_session() -> Result<(), String> {
    let graph = graph("nn.relu", "sigmoid");
    let steps: Vec<Vec<OperatorId>> = graph.operators().map(|(id, _)| vec![id]).collect();
    let text = |error: edgecut::engine::EngineError| error.to_string();
    let want = TractEngine::new(1).map_err(text)?.evaluate(&graph, &|_| Ok(floats())).map_err(text)?;
    let mut loaded = engine()?.load_steps(&graph, &steps, &|_| Ok(floats())).map_err(text)?;
    let weight = 64 * 64 * 4;
    if loaded.parameter_bytes().0 < weight || loaded.loading_bytes() < loaded.parameter_bytes() {
        return Err(format!("{} held, {} while loading", loaded.parameter_bytes(), loaded.loading_bytes()));
    }
    let mut seen = Vec::new();
    let made = loaded.run_in_steps(vec![floats()], &mut |step, sample| seen.push((step, sample))).map_err(text)?;
    near(&made, &want)?;
    let indices: Vec<usize> = seen.iter().map(|(step, _)| *step).collect();
    let sum: f64 = loaded.step_shares().ok_or("it has no shares")?.iter().sum();
    if indices != [0, 1, 2] || (sum - 1.0).abs() > 1e-9 {
        return Err(format!("steps {indices:?}, whose shares sum to {sum}"));
    }
    // The input and two results are live in the end.
    let most = seen.iter().map(|(_, sample)| sample.peak).max();
    match most.is_some_and(|most| most.0 >= 3 * weight) {
        true => Ok(()),
        false => Err(format!("the peak of steps is {most:?}")),
    }
}

fn fallbacks_are_named() -> Result<(), String> {
    // ONNX has no operator for the second, and none is composed.
    let unknown = graph("nn.relu", "nn.fifo_buffer_of_nothing");
    let error = engine()?.load(&unknown, &|_| Ok(floats())).err().map(|error| error.to_string());
    if !error.as_deref().is_some_and(|error| error.contains("ONNX Runtime") && error.contains("tract")) {
        return Err(format!("an operator that neither engine knows gave {error:?}"));
    }
    let graph = graph("nn.relu", "sort");
    let text = |error: edgecut::engine::EngineError| error.to_string();
    let mut loaded = engine()?.load(&graph, &|_| Ok(floats())).map_err(text)?;
    let names: Vec<&str> = loaded.fallbacks().iter().map(|fallback| fallback.operator.as_str()).collect();
    if names != ["sort_2"] {
        return Err(format!("fallbacks: {:?}", loaded.fallbacks()));
    }
    let want = TractEngine::new(1).map_err(text)?.evaluate(&graph, &|_| Ok(floats())).map_err(text)?;
    near(&loaded.run(&[floats()]).map_err(text)?, &want)
}

fn auto_computes_the_same() -> Result<(), String> {
    let graph = graph("nn.relu", "tanh");
    let text = |error: edgecut::engine::EngineError| error.to_string();
    let options = EngineOptions { engine: EngineChoice::Auto, ..EngineOptions::default() };
    let mut loaded = options.start(1).map_err(text)?.load(&graph, &|_| Ok(floats())).map_err(text)?;
    let want = TractEngine::new(1).map_err(text)?.evaluate(&graph, &|_| Ok(floats())).map_err(text)?;
    near(&loaded.run(&[floats()]).map_err(text)?, &want)?;
    match loaded.engine().map(|id| id.name).as_deref() {
        Some("tract" | "onnxruntime") => Ok(()),
        other => Err(format!("it was computed by {other:?}")),
    }
}

fn caches_are_written_in_place() -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/decoder/model.onnx");
    let sizes = ["batch_size=1", "sequence_length=1", "total_sequence_length=8", "past_sequence_length=8"];
    let bind = |text: &&str| text.parse().map_err(|error| format!("{text}: {error}"));
    let graph = onnx::read(&file, &sizes.iter().map(bind).collect::<Result<Vec<_>, String>>()?)?.graph;
    let integer = |value: i64, count: u64| {
        let bytes: Vec<u8> = (0..count).flat_map(|_| value.to_le_bytes()).collect();
        TensorData::new(DType::I64, [1, count], bytes).unwrap()
    };
    let mask = |seen: u64| {
        let bytes: Vec<u8> = (0..8u64).flat_map(|at| i64::from(at < seen).to_le_bytes()).collect();
        TensorData::new(DType::I64, [1, 8], bytes).unwrap()
    };
    // The inputs of step `past`: its states are `left`, or zeros.
    let step = |past: u64, left: &mut dyn Iterator<Item = TensorData>| -> Vec<TensorData> {
        let content = |id: TensorId| match graph.tensor(id).name.as_str() {
            "attention_mask" => mask(past + 1),
            "position_ids" => integer(past as i64, 1),
            name if name.starts_with("past") => {
                left.next().unwrap_or_else(|| TensorData::zeros(&graph.tensor(id).ty).unwrap())
            }
            _ => integer(5 + past as i64, 1),
        };
        graph.inputs().map(content).collect()
    };
    let text = |error: edgecut::engine::EngineError| error.to_string();
    let mut loaded =
        engine()?.load(&graph, &|id| Err(edgecut::engine::EngineError::Other(format!("{id:?}")))).map_err(text)?;
    // The logits of three steps, and how many caches of the last two were written in place. What is `held` is read later.
    let mut steps = |held: usize| -> Result<(Vec<TensorData>, usize), String> {
        let (mut logits, mut kept, mut in_place) = (Vec::new(), Vec::new(), 0);
        let mut outputs = loaded.run_stepwise(step(0, &mut std::iter::empty()), &mut |_| {}).map_err(text)?;
        for past in 1..3 {
            logits.push(outputs.remove(0));
            let address = |data: &TensorData| data.bytes().as_ptr();
            let before: Vec<*const u8> = outputs.iter().map(address).collect();
            kept.extend(outputs.iter().take(held).map(|data| (data.clone(), data.bytes().to_vec())));
            outputs = loaded.run_stepwise(step(past, &mut outputs.into_iter()), &mut |_| {}).map_err(text)?;
            in_place += outputs[1..].iter().zip(before).filter(|(data, before)| address(data) == *before).count();
        }
        if kept.iter().any(|(data, content)| data.bytes()[..] != content[..]) {
            return Err("a cache that is held was overwritten".to_string());
        }
        logits.push(outputs.remove(0));
        Ok((logits, in_place))
    };
    // Two layers with keys and values, in two steps. A kernel writes both of a layer in place or none.
    let (alone, first) = steps(0)?;
    for (held, in_place) in [(4, 0), (1, 4), (0, 8)] {
        let (logits, found) = steps(held)?;
        near(&alone, &logits)?;
        if (first, found) != (8, in_place) {
            return Err(format!("{found} caches are written in place where {held} are held, {first} without"));
        }
    }
    Ok(())
}
