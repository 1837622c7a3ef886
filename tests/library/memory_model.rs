//! Schedules of models: what is computed in parts, in another order or twice gives the model's results when it runs, and
//! takes no more memory than was predicted.

use std::{path::Path, process::Command};

use crate::common::{operator, shared};
use edgecut::{
    agent::results::{Difference, Tolerance},
    engine::{Engine, EngineError, TractEngine},
    graph::{Granularity, Graph, OperatorId, TensorData, TensorId},
    interop::minimalloc::BufferTable,
    memory::{
        check,
        model::{Group, GroupCosts, GroupedGraph, Model, ScheduleFront, schedule_model},
        remat::RematOptions,
        tvm,
    },
    ops::passes::tile::{SplitAxes, TiledSegment, tile_graph},
    profile::items,
    relay::{ImportOptions, import},
    units::{Bytes, Micros},
    values::seeded,
};
use fastrand::Rng;

/// A random network on small images: convolutions, pools and element-wise operators, with skips where shapes allow.
fn network(rng: &mut Rng) -> Graph {
    let mut parameters = vec!["%x: Tensor[(1, 4, 19, 16), float32]".to_string()];
    let mut lines = Vec::new();
    // By value: its name, channels, rows and columns.
    let mut values = vec![("%x".to_string(), 4, 19, 16)];
    for at in 0..rng.usize(4..12) {
        let (name, channels, rows, columns) = values[values.len() - 1].clone();
        let like = values[..values.len() - 1].iter().rev().find(|v| (v.1, v.2, v.3) == (channels, rows, columns));
        let mut shape = (channels, rows, columns);
        let call = match (rng.u8(0..6), like) {
            (0, Some((other, ..))) => format!("add({name}, {other})"),
            (1, _) => format!("nn.relu({name})"),
            (2, _) if rows > 6 => {
                shape = (channels, (rows - 1) / 2 + 1, (columns - 1) / 2 + 1);
                format!("nn.max_pool2d({name}, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])")
            }
            (3, _) => format!("sigmoid({name})"),
            _ => {
                let (made, kernel) = (rng.usize(1..9), [1, 3, 5][rng.usize(0..3)]);
                let (stride, pad) = (if rows > 6 { rng.usize(1..3) } else { 1 }, kernel / 2);
                shape = (made, (rows - 1) / stride + 1, (columns - 1) / stride + 1);
                parameters.push(format!("%w{at}: Tensor[({made}, {channels}, {kernel}, {kernel}), float32]"));
                format!(
                    "nn.conv2d({name}, %w{at}, strides=[{stride}, {stride}], padding=[{pad}, {pad}, {pad}, {pad}], \
                     channels={made}, kernel_size=[{kernel}, {kernel}])"
                )
            }
        };
        lines.push(format!("  %{at} = {call};\n"));
        values.push((format!("%{at}"), shape.0, shape.1, shape.2));
    }
    let last = &values[values.len() - 1].0;
    let text =
        format!("#[version = \"0.0.5\"]\ndef @main({}) {{\n{}  {last}\n}}\n", parameters.join(", "), lines.concat());
    import("network", text.as_bytes(), &ImportOptions::default())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .graph
}

fn content(graph: &Graph, tensor: TensorId) -> Result<TensorData, EngineError> {
    let tensor = graph.tensor(tensor);
    seeded(&tensor.name, &tensor.ty).map_err(|error| EngineError::Other(error.to_string()))
}

/// The results of a graph in steps, and the most bytes of tensors.
fn run(engine: &TractEngine, graph: &Graph, steps: &[Vec<OperatorId>]) -> (Vec<TensorData>, Bytes) {
    let mut loaded = engine.load_steps(graph, steps, &|tensor| content(graph, tensor)).unwrap();
    let inputs = graph.inputs().map(|tensor| content(graph, tensor).unwrap()).collect();
    let mut most = Bytes::ZERO;
    let results = loaded.run_in_steps(inputs, &mut |_, sample| most = most.max(sample.tensors)).unwrap();
    (results, most)
}

fn alone(graph: &Graph) -> Vec<Vec<OperatorId>> {
    graph.operators().map(|(id, _)| vec![id]).collect()
}

#[test]
fn parts_put_together_are_the_whole() {
    let engine = TractEngine::new(1).unwrap();
    let mut rng = Rng::with_seed(3);
    let mut compared = 0;
    for _ in 0..60 {
        let graph = network(&mut rng);
        let ids: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
        let (wanted, _) = run(&engine, &graph, &alone(&graph));
        let splits = SplitAxes::of(&graph);
        for _ in 0..4 {
            let last = rng.usize(0..ids.len());
            let first = rng.usize(0..=last);
            let axes = splits.result_axes(ids[last]);
            let Some(&axis) = axes.get(rng.usize(0..axes.len().max(1))) else { continue };
            let segment = |range: std::ops::Range<usize>, parts| TiledSegment {
                operators: ids[range].to_vec(),
                tiles: parts,
                axis,
            };
            let segments =
                [segment(0..first, 1), segment(first..last + 1, rng.u64(2..5)), segment(last + 1..ids.len(), 1)];
            // An axis may be too short, or what the segment begins with may be needed whole.
            let Ok(made) = tile_graph(&splits, &segments) else { continue };
            let (found, _) = run(&engine, &made.graph, &alone(&made.graph));
            let difference = Difference::between(&found, &wanted, Tolerance::Rounding);
            assert!(difference.is_tolerable(), "{segments:?} of {graph:?}: {difference}");
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared} were compared");
}

/// Time in proportion to the work, and something for each call.
struct Proportional;

impl GroupCosts for Proportional {
    fn part(&self, _: &[OperatorId], whole: Micros, share: f64) -> Micros {
        Micros(whole.0 * share + 0.1)
    }

    fn copy(&self, bytes: Bytes) -> Micros {
        Micros(0.1 + bytes.0 as f64 / 1e4)
    }
}

#[test]
fn schedules_run_within_their_prediction() {
    let engine = TractEngine::new(1).unwrap();
    let mut rng = Rng::with_seed(11);
    let mut in_parts = 0;
    for _ in 0..12 {
        let graph = network(&mut rng);
        let group = |item: edgecut::profile::Item| Group {
            time: Micros(1.0 + item.flops as f64 / 1e4),
            workspace: Bytes::ZERO,
            in_place: false,
            operators: item.operators,
        };
        let groups: Vec<Group> = items(&graph, Granularity::Fused).into_iter().map(group).collect();
        let (wanted, _) = run(&engine, &graph, &alone(&graph));
        let grouped = GroupedGraph { graph, groups };
        let model = Model { grouped: &grouped, costs: &Proportional, host: None };
        let options = RematOptions { seed: 1, budget: 100_000, cut_off: None };
        let fitted = schedule_model(&model, &options).unwrap();
        let front = fitted.front();
        assert!(front.windows(2).all(|w| w[0].peak < w[1].peak && w[0].time > w[1].time));
        assert!(fitted.peak_bound <= front[0].peak && front[front.len() - 1].peak <= fitted.original.0);
        for schedule in front.iter().step_by(front.len().div_ceil(6)) {
            let scheduled = schedule.graph();
            check::values::values(&schedule.variant.grouped.graph, &scheduled.graph).unwrap();
            let (found, most) = run(&engine, &scheduled.graph, &scheduled.steps);
            let difference = Difference::between(&found, &wanted, Tolerance::Rounding);
            assert!(difference.is_tolerable(), "{difference}");
            assert!(most <= schedule.peak, "{most} were taken, {} predicted", schedule.peak);
            in_parts += usize::from(!schedule.variant.segments.is_empty());
        }
        // A looser target is never worse.
        for pair in (0..=20).map(|i| Bytes(fitted.original.0.0 * i / 20)).collect::<Vec<_>>().windows(2) {
            let time = |peak| fitted.within_memory(peak).map_or(f64::INFINITY, |schedule| schedule.time.0);
            assert!(time(pair[0]) >= time(pair[1]));
        }
        let again = schedule_model(&model, &options).unwrap();
        let figures = |fitted: &ScheduleFront| fitted.front().iter().map(|s| (s.peak, s.time)).collect::<Vec<_>>();
        assert_eq!(figures(&fitted), figures(&again));
    }
    assert!(in_parts > 5, "{in_parts} were in parts");
}

#[test]
fn what_runs_again_computes_the_same() {
    // `%0` is large and read at the beginning and at the end; meanwhile `%2` is as large.
    let text = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(100, 1), float32], %y: Tensor[(1, 100), float32]) {
  %0 = multiply(%x, %y);
  %1 = sum(%0);
  %2 = tile(%1, reps=[100, 100]);
  %3 = sum(%2);
  %4 = multiply(%y, %3);
  %5 = nn.dense(%0, %4, units=1);
  %6 = add(%5, %x);
  %7 = sum(%y);
  add(%6, %7)
}
"#;
    let graph = import("again", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let group = |operators| Group { operators, time: Micros(1.0), workspace: Bytes::ZERO, in_place: false };
    let grouped = GroupedGraph { groups: alone(&graph).into_iter().map(group).collect(), graph };
    let model = Model { grouped: &grouped, costs: &Proportional, host: None };
    let fitted = schedule_model(&model, &RematOptions { seed: 1, budget: 50_000, cut_off: None }).unwrap();
    let (peak, _) = fitted.original;
    let schedule = fitted.within_memory(Bytes(peak.0 / 2 + 4_000)).unwrap();
    assert_eq!((schedule.time, schedule.variant.segments.len()), (Micros(10.0), 0));
    let scheduled = schedule.graph();
    assert_eq!(scheduled.steps.len(), 10, "{:?}", scheduled.steps);
    check::values::values(&grouped.graph, &scheduled.graph).unwrap();
    let engine = TractEngine::new(1).unwrap();
    let (found, most) = run(&engine, &scheduled.graph, &scheduled.steps);
    let (wanted, before) = run(&engine, &grouped.graph, &alone(&grouped.graph));
    assert_eq!(found, wanted);
    assert!(most <= schedule.peak && before <= peak && most < before, "{most} of {before}");
}

#[test]
fn value_numbers_tell_other_results_apart() {
    let mut graph = network(&mut Rng::with_seed(5));
    let same = graph.clone();
    check::values::values(&graph, &same).unwrap();
    let output = graph.outputs[0];
    let ty = graph.tensor(output).ty.clone();
    let copy = graph.add_operator(operator("copy", &[output]), std::slice::from_ref(&ty));
    graph.outputs[0] = graph.operator(copy).outputs[0];
    check::values::values(&same, &graph).unwrap();
    let other = graph.add_operator(operator("nn.relu", &[output]), &[ty]);
    graph.outputs[0] = graph.operator(other).outputs[0];
    assert_eq!(check::values::values(&same, &graph), Err(check::values::ValueViolation::Other { index: 0 }));
}

#[test]
fn a_model_runs_in_half_its_memory() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/mobilenet.relay").display().to_string();
    let arguments = ["memory", "schedule", &model, "--limit", "50%", "--effort", "1", "--run", "--format", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_edgecut")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = |name: &str| found[0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {found}"));
    assert_eq!(found[0]["wrong"], 0);
    assert!(bytes("run_arena_bytes") <= bytes("arena_bytes"));
    assert!(2 * bytes("run_arena_bytes") <= bytes("plain_arena_bytes"));
    assert!(bytes("plain_arena_bytes") <= bytes("tvm_arena_bytes"));
}

#[test]
fn tensors_may_lie_on_a_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let servers = "[[server]]\nname = \"here\"\naddress = \"127.0.0.1:1\"\n\
                   [[server]]\nname = \"there\"\naddress = \"127.0.0.1:2\"\n";
    let link = "[[link]]\nfrom = \"here\"\nto = \"there\"\nlatency = \"1us\"\nrate = \"100GB/s\"\nboth_ways = true\n";
    // A tensor that is made first and read last, and that cannot be made again: what it is made of is gone by then.
    let model = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(300, 300), float32]) {\n  %0 = nn.dense(%x, %x, units=300);\n  \
                 %1 = nn.softmax(%0, axis=0);\n  %2 = nn.softmax(%1, axis=1);\n  %3 = nn.dense(%2, %1, units=300);\n  \
                 %4 = nn.softmax(%3, axis=1);\n  %5 = nn.dense(%4, %3, units=300);\n  \
                 %6 = nn.softmax(%5, axis=0);\n  add(%6, %0)\n}\n";
    let [model, bare, linked] =
        [("m.relay", model), ("bare.toml", servers), ("linked.toml", &format!("{servers}{link}"))].map(
            |(name, text)| {
                let path = folder.path().join(name);
                std::fs::write(&path, text).unwrap();
                path.display().to_string()
            },
        );
    let memory = |cluster: &str| {
        let arguments = [
            "memory",
            "schedule",
            &model,
            "--slowdown",
            "2",
            "--effort",
            "2",
            "--cluster",
            cluster,
            "--format",
            "json",
        ];
        Command::new(env!("CARGO_BIN_EXE_edgecut")).args(arguments).current_dir(&folder).output().unwrap()
    };
    let output = memory(&linked);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found[0]["stored"].as_u64() > Some(0), "{found}");
    assert!(found[0]["arena_bytes"].as_u64() >= found[0]["peak_bytes"].as_u64(), "{found}");
    let output = memory(&bare);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no link from `here`"));
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn the_arena_to_compare_with_is_tvms() {
    let folder = shared("arena");
    // What TVM came to on these files, in times of the lower bound.
    let ratio = |file: &str| {
        let table = BufferTable::parse(&std::fs::read(folder.join(file)).unwrap()).unwrap();
        let packing = tvm::greedy_by_size(&table.buffers);
        check::packing(&table.buffers, &packing).unwrap();
        packing.height.0 as f64 / packing.bound.0 as f64
    };
    let (one, suite) = (
        ratio("tvm_usmp_deep_speech.csv"),
        ["A", "C", "E", "G", "I", "K"].map(|name| ratio(&format!("{name}.1048576.csv"))),
    );
    assert!((3.015..3.025).contains(&one), "{one}");
    assert!(suite.iter().all(|ratio| (1.605..2.515).contains(ratio)), "{suite:?}");
}
