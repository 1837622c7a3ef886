//! A plan exported as Relay modules and as ONNX models: each is read again, and run one after the other they are the
//! model; models exported as ONNX.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::common::process::program;
use edgecut::{
    agent::Cluster,
    engine::{Engine, TractEngine},
    graph::{Graph, OperatorId, TensorData, TensorId},
    onnx,
    ops::passes::axes::axes,
    plan::{
        DeviceId, GroupId, Plan, TransferFormat, divided,
        file::{Bound, DevicePlan, Granularity, GroupPlan, MemoryPlan, ModelRef, Predicted, Split, VERSION},
        problem::{Objective, Targets},
    },
    relay::{self, Import, ImportOptions, ParseMode},
    report::modules::{Source, modules},
    session::run::{DeployOptions, deploy},
    units::{Bytes, Micros},
    values::{read_npz, seeded, write_npz},
};

/// A plan that gives operator `i` to device `place(i)`.
fn plan(graph: &Graph, place: impl Fn(u32) -> u32) -> Plan {
    let ids: Vec<u32> = graph.operators().map(|(id, _)| id.0).collect();
    let device = |at: u32| DevicePlan {
        server: format!("server{at}"),
        device: "cpu".to_string(),
        address: None,
        threads: None,
        engine: None,
        hardware: None,
        memory_limit_bytes: None,
        order: ids.iter().filter(|id| place(**id) == at).map(|id| GroupId(*id)).collect(),
        busy_us: Micros::ZERO,
        idle_w: None,
        memory: MemoryPlan::default(),
    };
    let group = |id: &u32| GroupPlan {
        id: Some(*id),
        part: String::new(),
        layer: String::new(),
        name: format!("group {id}"),
        operators: vec![OperatorId(*id)],
        device: DeviceId(place(*id)),
        time_us: Micros::ZERO,
        start_us: Micros::ZERO,
        workspace_bytes: Bytes::ZERO,
        energy_j: None,
        source: Default::default(),
    };
    Plan {
        version: VERSION,
        model: ModelRef { path: "model.relay".to_string(), ..ModelRef::default() },
        cluster: None,
        granularity: Granularity::Op,
        objective: Objective::Latency,
        targets: Targets::default(),
        rules: Vec::new(),
        seed: 0,
        predicted: Predicted {
            latency_us: Micros::ZERO,
            interval_us: Micros::ZERO,
            in_flight: 1,
            throughput_per_s: 0.0,
            peak_bytes: Bytes::ZERO,
            transfer_bytes: None,
            sent_bytes: None,
            energy_j: None,
        },
        bound: Bound { value: 0.0, by: String::new() },
        gap: 0.0,
        source: DeviceId(0),
        sink: DeviceId(0),
        devices: (0..2).map(device).collect(),
        in_flight: None,
        transfer: TransferFormat::Exact,
        splits: Vec::new(),
        states: Vec::new(),
        prefill: None,
        schedules: Vec::new(),
        groups: ids.iter().map(group).collect(),
        transfers: Vec::new(),
        notes: Vec::new(),
    }
}

/// How many stages the agents of `plan` load.
fn deployed_stages(plan: &Plan, graph: &Graph) -> usize {
    let text = "[[server]]\nname = \"server0\"\naddress = \"h:1\"\n[[server]]\nname = \"server1\"\naddress = \"h:2\"\n";
    let cluster = Cluster::parse(text, Path::new("")).unwrap();
    let options = DeployOptions { session: "export".into(), ..DeployOptions::new(1, &BTreeMap::new()) };
    let deployment = deploy(graph, plan, &cluster, &options).unwrap();
    deployment.setups.iter().flat_map(|setup| &setup.partitions).map(|partition| partition.stages.len()).sum()
}

fn run(graph: &Graph, content: &dyn Fn(TensorId) -> TensorData) -> Vec<TensorData> {
    let mut loaded = TractEngine::new(1).unwrap().load(graph, &|id| Ok(content(id))).unwrap();
    loaded.run(&graph.inputs().map(content).collect::<Vec<_>>()).unwrap()
}

#[test]
fn modules_run_one_after_the_other_give_the_model_s_output() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/torch_bert_tiny.relay");
    let text = std::fs::read(file).unwrap();
    let graph = relay::import("bert", &text, &ImportOptions::default()).unwrap().graph;
    let by_name = |name: &str| -> TensorData {
        let (_, tensor) = graph.tensors().find(|(_, tensor)| tensor.name == name).unwrap();
        seeded(name, &tensor.ty).unwrap()
    };
    let whole = run(&graph, &|id| by_name(&graph.tensor(id).name));
    let last = graph.operators().len() as u32;
    // There once and back, and to and fro.
    for place in [&(|i| u32::from(i > last / 2)) as &dyn Fn(u32) -> u32, &|i| i / 20 % 2] {
        let plan = plan(&graph, place);
        let export = modules(&plan, &graph).unwrap();
        assert_eq!(export.modules.len(), deployed_stages(&plan, &graph), "what is exported is what agents execute");
        let mut made: BTreeMap<(String, usize), TensorData> = BTreeMap::new();
        for (module, (name, text)) in export.manifest.modules.iter().zip(&export.modules) {
            assert_eq!(&module.file, name);
            let options = ImportOptions { mode: ParseMode::Strict, ..ImportOptions::default() };
            let part = relay::import(name, text.as_bytes(), &options).unwrap().graph;
            let given: BTreeMap<&str, TensorData> = module
                .inputs
                .iter()
                .map(|input| match &input.from {
                    Source::Input(of) | Source::Parameter(of) | Source::Constant(of) => {
                        (input.name.as_str(), by_name(of))
                    }
                    Source::Module { file, output } => (input.name.as_str(), made[&(file.clone(), *output)].clone()),
                })
                .collect();
            let outputs = run(&part, &|id| given[part.tensor(id).name.as_str()].clone());
            assert_eq!(outputs.len(), module.outputs.len());
            for (at, output) in outputs.into_iter().enumerate() {
                assert_eq!(output.ty().to_string(), module.outputs[at].ty);
                made.insert((name.clone(), at), output);
            }
        }
        for (want, source) in whole.iter().zip(&export.manifest.outputs) {
            let Source::Module { file, output } = source else { panic!("{source:?}") };
            let (got, want) = (made[&(file.clone(), *output)].to_f64s().unwrap(), want.to_f64s().unwrap());
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 + 1e-4 * b.abs();
            assert!(got.len() == want.len() && got.iter().zip(&want).all(close));
        }
    }
}

/// Runs the real binary, which must succeed.
fn edgecut(arguments: &[&str]) {
    let output = program().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Exports a two-device plan of `model`, runs its modules one after the other, and compares with the whole model.
fn exported_modules_compute(model: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model);
    let text = std::fs::read(&file).unwrap();
    let import = relay::import(model, &text, &ImportOptions::default()).unwrap();
    let half = import.graph.operators().len() as u32 / 2;
    assert!(plan_computes(&file, &import, plan(&import.graph, |at| u32::from(at >= half))) >= 2);
}

/// As [`exported_modules_compute`], for a `plan` of two devices; returns how many modules it became.
fn plan_computes(file: &Path, import: &Import, mut plan: Plan) -> usize {
    plan.model = ModelRef { path: file.display().to_string(), blake3: import.hash.clone(), ..ModelRef::default() };

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("plan.json"), serde_json::to_string(&plan).unwrap()).unwrap();
    edgecut(&["export", &path("plan.json"), "--format", "relay", "--output", &path("parts"), "--with-params"]);
    edgecut(&["run", &file.display().to_string(), "--outputs", &path("whole.npz")]);

    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("parts/manifest.json")).unwrap()).unwrap();
    let modules = manifest["modules"].as_array().unwrap();
    let servers: BTreeSet<&str> = modules.iter().map(|module| module["server"].as_str().unwrap()).collect();
    assert_eq!(servers.len(), 2);
    let mut made: BTreeMap<(String, u64), TensorData> = BTreeMap::new();
    for module in modules {
        let name = module["file"].as_str().unwrap();
        let mut given = Vec::new();
        for input in module["inputs"].as_array().unwrap() {
            let (called, from) = (input["name"].as_str().unwrap(), &input["from"]);
            if let Some(of) = from["input"].as_str() {
                let tensor = import.graph.tensors().find(|(_, tensor)| tensor.name == of).unwrap().1;
                given.push((format!("in_{called}"), seeded(of, &tensor.ty).unwrap()));
            } else if let Some(output) = from["module"]["output"].as_u64() {
                let source = from["module"]["file"].as_str().unwrap().to_string();
                given.push((format!("in_{called}"), made[&(source, output)].clone()));
            }
        }
        write_npz(Path::new(&path("in.npz")), given.iter().map(|(name, data)| (name.clone(), data))).unwrap();
        let (part, params) =
            (path(&format!("parts/{name}")), path(&format!("parts/{name}")).replace(".relay", ".params"));
        let (inputs, outputs) = (path("in.npz"), path("out.npz"));
        edgecut(&["run", &part, "--params", &params, "--inputs", &inputs, "--outputs", &outputs]);
        for (at, data) in read_npz(Path::new(&outputs)).unwrap() {
            made.insert((name.to_string(), at.trim_start_matches("out_").parse().unwrap()), data);
        }
    }
    let whole = read_npz(Path::new(&path("whole.npz"))).unwrap();
    assert_eq!(onnx_parts_compute(&path, &whole), modules.len());
    assert_eq!(whole.len(), manifest["outputs"].as_array().unwrap().len());
    for (at, output) in manifest["outputs"].as_array().unwrap().iter().enumerate() {
        let source =
            (output["module"]["file"].as_str().unwrap().to_string(), output["module"]["output"].as_u64().unwrap());
        let (got, want) = (made[&source].to_f64s().unwrap(), whole[&format!("out_{at}")].to_f64s().unwrap());
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 + 1e-3 * b.abs();
        assert!(got.len() == want.len() && got.iter().zip(&want).all(close), "{}: output {at} differs", file.display());
    }
    modules.len()
}

fn read_onnx(file: &str) -> Graph {
    let engine = TractEngine::new(1).unwrap();
    let evaluate = |graph: &Graph, given: &onnx::Content<'_>| {
        let content = |id| Ok(given(&graph.tensor(id).name).unwrap());
        engine.evaluate(graph, &content).map_err(|error| error.to_string())
    };
    let options = onnx::ImportOptions::new(&evaluate);
    onnx::import(file, std::fs::read(file).unwrap().into(), &options).unwrap().graph
}

/// Exports the same plan as ONNX, runs its models one after the other with values wired by their names, and compares with
/// the outputs of the whole model; returns how many models there are.
fn onnx_parts_compute(path: &dyn Fn(&str) -> String, whole: &BTreeMap<String, TensorData>) -> usize {
    edgecut(&["export", &path("plan.json"), "--format", "onnx", "--output", &path("onnx")]);
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path("onnx/manifest.json")).unwrap()).unwrap();
    assert!(Path::new(&path("onnx/runner.py")).exists());
    let parts = manifest["parts"].as_array().unwrap();
    let mut values: BTreeMap<String, TensorData> = BTreeMap::new();
    for part in parts {
        let graph = read_onnx(&path(&format!("onnx/{}", part["file"].as_str().unwrap())));
        let content = |id: TensorId| {
            let tensor = graph.tensor(id);
            let generated = || seeded(&tensor.name, &tensor.ty).unwrap();
            values.get(tensor.name.as_str()).cloned().unwrap_or_else(generated)
        };
        let made = run(&graph, &content);
        values.extend(graph.outputs.iter().map(|id| graph.tensor(*id).name.to_string()).zip(made));
    }
    for (at, name) in manifest["outputs"].as_array().unwrap().iter().enumerate() {
        let (got, want) = (&values[name.as_str().unwrap()], &whole[&format!("out_{at}")]);
        let (got, want) = (got.to_f64s().unwrap(), want.to_f64s().unwrap());
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 + 1e-3 * b.abs();
        assert!(got.len() == want.len() && got.iter().zip(&want).all(close), "output {at} of the ONNX models differs");
    }
    parts.len()
}

/// What is written as ONNX is read again, and computes the same: weights inside, and in a file next to it.
#[test]
fn a_model_comes_back_from_its_own_onnx() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (model, flags) in [
        ("lstm.relay", &[][..]),
        ("torch_mobilenet_v2.relay", &["--external-data"]),
        ("squeezenet_v1.1.relay", &[]),
        ("torch_yolov3_tiny.relay", &["--external-data"]),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model).display().to_string();
        let mut arguments = vec!["export", &file, "--format", "onnx", "--output"];
        let written = path("model.onnx");
        arguments.push(&written);
        arguments.extend(flags);
        edgecut(&arguments);
        edgecut(&["run", &file, "--outputs", &path("relay.npz")]);
        edgecut(&["run", &written, "--outputs", &path("onnx.npz")]);
        let read = |name: &str| read_npz(Path::new(&path(name))).unwrap();
        let (want, got) = (read("relay.npz"), read("onnx.npz"));
        assert_eq!(want.len(), got.len(), "{model}");
        for (name, want) in &want {
            let (got, want) = (got[name].to_f64s().unwrap(), want.to_f64s().unwrap());
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 + 1e-3 * b.abs();
            assert!(got.len() == want.len() && got.iter().zip(&want).all(close), "{model}: {name} differs");
        }
    }
}

/// Shards take slices of neighbours' results, weights are sliced, results are concatenated or summed: as operators that
/// Relay has.
#[test]
fn split_operators_run_from_the_modules_of_both_devices() {
    const MODEL: &str = r#"def @main(%x: Tensor[(1, 3, 16, 16), float32], %w: Tensor[(8, 3, 3, 3), float32],
          %b: Tensor[(8), float32], %d: Tensor[(10, 512), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.bias_add(%0, %b);
  %2 = nn.relu(%1);
  %3 = nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2]);
  %4 = nn.batch_flatten(%3);
  (nn.dense(%4, %d, units=10), %2)
}"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.relay");
    std::fs::write(&file, MODEL).unwrap();
    let import = relay::import("model.relay", MODEL.as_bytes(), &ImportOptions::default()).unwrap();
    let mut tried = 0;
    for (id, operator) in import.graph.operators() {
        for (axis, ways) in
            axes(&import.graph, operator).iter().enumerate().filter(|(_, way)| way.size > 1 && way.carried.is_none())
        {
            let (cuts, devices) = (ways.cuts(&[0.3, 0.7]), [0, 1].map(DeviceId).to_vec());
            let split = Split { operator: id, axis, cuts, tiles: Vec::new(), packed: None, devices };
            let graph = divided(&import.graph, &[], std::slice::from_ref(&split)).unwrap().graph;
            let mut plan = plan(&graph, |at| at % 2);
            plan.splits.push(split);
            assert!(plan_computes(&file, &import, plan) >= 2);
            tried += 1;
        }
    }
    assert!(tried >= 8, "only {tried} splits");
}

#[test]
fn resnet18_on_two_devices_runs_from_its_modules() {
    exported_modules_compute("resnet18.relay");
}

/// Its parameters have names that TVM cannot read: the contents follow the model's names all the same.
#[test]
fn renamed_parameters_keep_their_contents() {
    exported_modules_compute("torch_bert_tiny.relay");
}
