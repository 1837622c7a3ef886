//! The engine for NVIDIA GPUs: TVM's outputs on the GPU, and its speed relative to its peak.
//!
//! `EDGECUT_REQUIRE_GPU=1 cargo test --release --test gpu -- --nocapture --test-threads 1` runs what needs a GPU
//! too. Otherwise tests called `…_on_the_fake_driver_…` run the same engine with its kernels compiled by the C
//! compiler, those of `strict` run this suite on strict fake libraries, and the others are listed as ignored.
//! `EDGECUT_CASES=pool,relu` runs the cases and models whose name contains `pool` or `relu`. With EDGECUT_PACKAGE, the data
//! are those of a package that `cluster/gpu.sh --pack` made. See docs/gpu.md.

mod cases;
#[path = "gpu/comparison.rs"]
mod comparison;
#[path = "gpu/strict.rs"]
mod strict;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use cudarc::{
    cudnn::{ConvForward, Cudnn, sys as cudnn, sys::cudnnConvolutionFwdAlgo_t as Algorithm},
    driver::{
        CudaContext,
        result::{free_sync, malloc_sync},
    },
};
use edgecut::{
    engine::{
        CudaVersion, Engine, EngineError, GpuReport, TractEngine,
        cuda::{CudaEngine, HostMemory},
    },
    graph::{Granularity, Graph, Origin, Part, TensorData, TensorId},
    onnx,
    profile::{
        Sampling, items,
        measure::{ProfileTarget, in_situ, whole_model},
    },
    relay::{ImportOptions, import},
    units::{Bytes, Micros},
    values::{read_npz, seeded},
};

use comparison::{by_cublas, compare, median};

/// How the refusal of an operator reads.
const REFUSED: &str = "is not supported by this engine";

/// The first GPU.
fn gpu() -> (GpuReport, CudaEngine) {
    let report = GpuReport::detect();
    assert!(!report.usable().is_empty(), "{}", report.notes().join("; "));
    let engine = CudaEngine::new(&report, 0).unwrap();
    let version = |version: Option<CudaVersion>| version.map_or("none".to_string(), |version| version.to_string());
    println!(
        "{}, driver for CUDA {}, NVRTC {}, cuBLAS {}, cuDNN {}",
        report.gpus[0].description(),
        version(report.driver),
        version(report.nvrtc),
        version(report.cublas),
        report.cudnn.map_or("none".to_string(), |version| version.to_string())
    );
    (report, engine)
}

fn wanted(name: &str) -> bool {
    let parts = std::env::var("EDGECUT_CASES").unwrap_or_default();
    parts.split(',').any(|part| name.contains(part))
}

/// The program under test: what EDGECUT_PROGRAM names, else the one that was built with this suite.
fn program() -> PathBuf {
    std::env::var_os("EDGECUT_PROGRAM").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_edgecut")), PathBuf::from)
}

fn load(path: &Path) -> Graph {
    import(&path.display().to_string(), &std::fs::read(path).unwrap(), &ImportOptions::default()).unwrap().graph
}

fn content(graph: &Graph, id: TensorId) -> Result<TensorData, EngineError> {
    let tensor = graph.tensor(id);
    match &tensor.origin {
        Origin::Constant(data) => Ok(data.clone()),
        _ => seeded(&tensor.name, &tensor.ty).map_err(|e| EngineError::Other(e.to_string())),
    }
}

/// Counts of cases: computed as TVM does, computed wrong, refused by name.
#[derive(Default)]
struct Counts {
    passed: usize,
    wrong: usize,
    refused: usize,
}

/// Differences that are printed.
const MAX_DIFFERENCES: usize = 10;

/// Every operator case: right, refused by name, or wrong. Families are printed as they end. A GPU that fails for good ends
/// it, with the number of the case, after which EDGECUT_FIRST_CASE continues.
fn operator_cases(engine: &CudaEngine) {
    let first = std::env::var("EDGECUT_FIRST_CASE").map_or(0, |number| number.parse().unwrap());
    let (mut families, mut wrong) = (BTreeMap::<String, Counts>::new(), Vec::new());
    let cases = cases::all();
    let cases: Vec<_> = cases.iter().enumerate().skip(first).collect();
    for family in cases.chunk_by(|(_, a), (_, b)| a.family == b.family) {
        for (number, case) in family.iter().filter(|(_, case)| wanted(&format!("{}/{}", case.family, case.name))) {
            let counts = families.entry(case.family.clone()).or_default();
            match case.run(engine) {
                Ok(()) => counts.passed += 1,
                Err(why) if why.contains(REFUSED) => counts.refused += 1,
                Err(why) => {
                    counts.wrong += 1;
                    wrong.push(format!("{}/{}: {why}", case.family, case.name));
                    if wrong.len() <= MAX_DIFFERENCES {
                        println!("DIFFERS {}", wrong[wrong.len() - 1]);
                    }
                    assert!(engine.memory().is_ok(), "the GPU is lost at case {number}");
                }
            }
        }
        let name = &family[0].1.family;
        if let Some(Counts { passed, wrong, refused }) = families.get(name) {
            println!("family {name}: {passed} passed, {wrong} wrong, {refused} refused");
        }
    }
    let sum = |of: fn(&Counts) -> usize| families.values().map(of).sum::<usize>();
    let (passed, refused) = (sum(|counts| counts.passed), sum(|counts| counts.refused));
    println!("{passed} cases computed as TVM does, {} wrong, {refused} refused", wrong.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(passed > 0 || refused > 0, "no case was run");
}

/// Computes operator by operator: on `engine` what it can, the rest on a CPU. Counts the latter by name.
fn with_fallback(engine: &CudaEngine, graph: &Graph) -> (Vec<TensorData>, BTreeMap<String, usize>) {
    let cpu = TractEngine::new(1).unwrap();
    let mut table: HashMap<TensorId, TensorData> = HashMap::new();
    let mut fallen: BTreeMap<String, usize> = BTreeMap::new();
    for (id, operator) in graph.operators() {
        let part = Part::cut(graph, &[id]);
        let original = |t: TensorId| part.whole_tensor[t.0 as usize];
        let value = |t: TensorId| table.get(&original(t)).cloned().map_or_else(|| content(graph, original(t)), Ok);
        let made = match engine.evaluate(&part.graph, &value) {
            Ok(made) => made,
            Err(EngineError::Unsupported(_)) => {
                *fallen.entry(operator.name.to_string()).or_default() += 1;
                cpu.evaluate(&part.graph, &value).unwrap()
            }
            Err(error) => panic!("{}: {error}", operator.name),
        };
        let outputs = part.graph.outputs.iter().map(|t| original(*t));
        table.extend(outputs.zip(made));
    }
    let output = |id: &TensorId| table.get(id).cloned().unwrap_or_else(|| content(graph, *id).unwrap());
    (graph.outputs.iter().map(output).collect(), fallen)
}

/// Models that are computed as ONNX too.
const ONNX_TWINS: [&str; 4] = ["resnet18", "torch_bert_tiny", "torch_mobilenet_v2", "torch_yolov3_tiny"];

/// The ONNX file of a model in a package, or what the program exports; its weights are generated from their names.
fn load_twin(name: &str) -> Graph {
    let packaged = cases::package().map(|package| package.join(format!("models/{name}.onnx")));
    let bytes = packaged.map_or_else(
        || {
            let graph = load(&cases::model(name));
            onnx::export(&graph, &onnx::ExportOptions::new(&|_| Ok(None))).unwrap().to_bytes().unwrap()
        },
        |path| std::fs::read(path).unwrap(),
    );
    let cpu = TractEngine::new(1).unwrap();
    let evaluate = |graph: &Graph, given: &onnx::Content<'_>| {
        let value = |id: TensorId| given(&graph.tensor(id).name).map_or_else(|| content(graph, id), Ok);
        cpu.evaluate(graph, &value).map_err(|e| e.to_string())
    };
    let options = onnx::ImportOptions::new(&evaluate);
    onnx::import(name, bytes.into(), &options).unwrap().graph
}

/// Every model whose outputs TVM computed, and some of them as ONNX.
fn expected_outputs(engine: &CudaEngine) {
    let names = cases::models_with_outputs().into_iter().filter(|name| wanted(name));
    let twins = |name: String| {
        let twin = ONNX_TWINS.contains(&name.as_str()).then(|| (name.clone(), true));
        std::iter::once((name, false)).chain(twin)
    };
    let models: Vec<(String, bool)> = names.flat_map(twins).collect();
    let (mut wrong, mut fallen_back) = (Vec::new(), 0);
    for (name, as_onnx) in &models {
        let began = Instant::now();
        let graph = if *as_onnx { load_twin(name) } else { load(&cases::model(name)) };
        let value = |id: TensorId| content(&graph, id);
        let (made, fallen) = match engine.evaluate(&graph, &value) {
            Ok(made) => (made, BTreeMap::new()),
            Err(EngineError::Unsupported(_)) => with_fallback(engine, &graph),
            Err(error) => panic!("{name}: {error}"),
        };
        let want = read_npz(&cases::data().join(format!("expected/{name}.npz"))).unwrap();
        let mut worst = 0f64;
        for (index, made) in made.iter().enumerate() {
            let want = &want[&format!("out_{index}")];
            assert_eq!((made.dtype(), made.shape()), (want.dtype(), want.shape()), "{name}");
            let (made, want) = (made.to_f64s().unwrap(), want.to_f64s().unwrap());
            // Of the tolerance that the CPU engine is held to.
            let off = made.iter().zip(&want).map(|(a, b)| (a - b).abs() / (1e-4 + 1e-3 * b.abs()));
            worst = off.fold(worst, |worst, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) });
        }
        fallen_back += fallen.values().sum::<usize>();
        let format = if *as_onnx { "ONNX" } else { "Relay" };
        println!("{name} ({format}): {worst:.3} of the tolerance, {fallen:?} on a CPU, {:.1?}", began.elapsed());
        if worst > 1.0 {
            wrong.push(format!("{name} ({format}): {worst:.2} times the tolerance"));
        }
    }
    println!("{} models, {fallen_back} operators fell back to a CPU", models.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn operators_on_the_fake_driver_compute_what_tvm_computes() {
    operator_cases(&CudaEngine::with_fake_driver().unwrap());
}

#[test]
fn models_on_the_fake_driver_compute_what_tvm_computes() {
    expected_outputs(&CudaEngine::with_fake_driver().unwrap());
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn operators_on_the_gpu_compute_what_tvm_computes() {
    let (_, engine) = gpu();
    operator_cases(&engine);
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn models_on_the_gpu_compute_what_tvm_computes() {
    let (_, engine) = gpu();
    expected_outputs(&engine);
}

/// Memory that others take is an error of what needs it, and the next computation succeeds when it is free again.
#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn a_full_gpu_recovers() {
    let (_, engine) = gpu();
    // Two tensors of 64 MiB at a time.
    let text = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(16384, 1), float32], %y: Tensor[(1, 1024), float32]) {\n  \
                %0 = add(%x, %y);\n  %1 = nn.relu(%0);\n  sum(%1, axis=[0])\n}\n";
    let graph = import("a model", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let run = || engine.evaluate(&graph, &|id| content(&graph, id));
    let context = CudaContext::new(0).unwrap();
    context.bind_to_thread().unwrap();
    let (free, _) = engine.memory().unwrap();
    let (mut held, mut size) = (Vec::new(), free.0 as usize);
    while size > 16 << 20 {
        // SAFETY: the context is current; the memory is not used.
        match unsafe { malloc_sync(size) } {
            Ok(memory) => held.push((memory, size)),
            Err(_) => size /= 2,
        }
    }
    let error = run().unwrap_err().to_string();
    println!("{} of {free} held: {error}", Bytes(held.iter().map(|(_, size)| *size as u64).sum()));
    assert!(error.contains("out of memory"), "{error}");
    context.synchronize().unwrap();
    for (memory, _) in held {
        // SAFETY: allocated above, and freed once.
        unsafe { free_sync(memory) }.unwrap();
    }
    let computed = run().unwrap()[0].to_f64s().unwrap();
    let expected = TractEngine::new(1).unwrap().evaluate(&graph, &|id| content(&graph, id)).unwrap();
    let expected = expected[0].to_f64s().unwrap();
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * b.abs();
    assert!(computed.iter().zip(&expected).all(close), "{computed:?} {expected:?}");
    println!("recovered: 128 MiB are computed with again");
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn operators_add_up_to_the_model() {
    let (_, engine) = gpu();
    for name in ["resnet50", "torch_bert_base"] {
        let graph = load(&cases::model(name));
        let items = items(&graph, Granularity::Op);
        let parameter = |id: TensorId| content(&graph, id);
        let inputs: Vec<TensorData> = graph.inputs().map(|id| parameter(id).unwrap()).collect();
        let subject = ProfileTarget {
            engine: &engine,
            graph: &graph,
            items: &items,
            inputs: &inputs,
            parameter: &parameter,
            memory: None,
            energy: None,
            is_cancelled: &|| false,
        };
        let sampling = Sampling { precision: 0.01, budget: Micros(20e6) };
        let (mut walls, mut kernels) = (0.0, 0.0);
        in_situ(&subject, &sampling, &mut |measured| {
            if let Ok(cost) = measured.cost {
                walls += cost.time.median.0;
                kernels += cost.kernels.map_or(0.0, |time| time.0);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        let all = whole_model(&subject, &sampling, None).unwrap();
        let off = walls / all.time.median.0 - 1.0;
        println!(
            "{name}: operators {walls:.0} us (on the GPU {kernels:.0} us), whole {:.0} us (on the GPU {:.0} us): {:+.1} %",
            all.time.median.0,
            all.kernels.map_or(0.0, |time| time.0),
            off * 100.0
        );
        assert!(off.abs() <= 0.1, "{name}: the operators' sum is {:+.1} % off", off * 100.0);
    }
}

fn measured(engine: &CudaEngine, text: &str) -> Micros {
    let graph = import("a model", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let items = items(&graph, Granularity::Op);
    let parameter = |id: TensorId| content(&graph, id);
    let inputs: Vec<TensorData> = graph.inputs().map(|id| parameter(id).unwrap()).collect();
    let subject = ProfileTarget {
        engine,
        graph: &graph,
        items: &items,
        inputs: &inputs,
        parameter: &parameter,
        memory: None,
        energy: None,
        is_cancelled: &|| false,
    };
    whole_model(&subject, &Sampling::default(), None).unwrap().time.median
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn a_dense_layer_is_as_fast_as_the_matrix_library() {
    let (report, engine) = gpu();
    const N: usize = 4096;
    let text = format!(
        "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[({N}, {N}), float32], %w: Tensor[({N}, {N}), float32]) {{\n  \
         nn.dense(%x, %w, units={N})\n}}\n"
    );
    let ours = measured(&engine, &text).0 / 1e6;
    println!("dense {N}: {:.2} TFLOP/s", 2.0 * (N as f64).powi(3) / ours / 1e12);
    let Some(theirs) = by_cublas(N, N, N) else { return };
    compare(&format!("dense {N}"), &report.gpus[0], 2.0 * (N as f64).powi(3), ours, "cuBLAS", theirs);
    assert!(ours <= 1.25 * theirs, "{ours} s for cuBLAS' {theirs} s");
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn a_convolution_against_the_libraries() {
    let (report, engine) = gpu();
    const C: usize = 256;
    const S: usize = 56;
    let text = format!(
        "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, {C}, {S}, {S}), float32], %w: Tensor[({C}, {C}, 3, 3), float32]) \
         {{\n  nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels={C}, kernel_size=[3, 3])\n}}\n"
    );
    let ours = measured(&engine, &text).0 / 1e6;
    let (what, flops) = (format!("3x3 convolution of {C} channels, {S} x {S}"), 2.0 * (C * C * 9 * S * S) as f64);
    println!("{what}: {:.2} TFLOP/s", flops / ours / 1e12);
    if let Some(theirs) = by_cublas(S * S, C, 9 * C) {
        compare(&what, &report.gpus[0], flops, ours, "the product alone by cuBLAS", theirs);
    }
    // SAFETY: this only tries to open the library.
    if report.cudnn.is_none() || !unsafe { cudarc::cudnn::sys::is_culib_present() } {
        return eprintln!("SKIPPED, NOT RUN: the comparison with cuDNN, which is not here");
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let handle = Cudnn::new(stream.clone()).unwrap();
    let (c, s) = (C as i32, S as i32);
    let format = cudnn::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;
    let x = handle.create_4d_tensor::<f32>(format, [1, c, s, s]).unwrap();
    let w = handle.create_4d_filter::<f32>(format, [c, c, 3, 3]).unwrap();
    let y = handle.create_4d_tensor::<f32>(format, [1, c, s, s]).unwrap();
    let mode = cudnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let mut conv = handle.create_conv2d::<f32>([1, 1], [1, 1], [1, 1], mode).unwrap();
    // Single precision, as the engine computes: not the shorter floats of tensor units.
    conv.set_math_type(cudnn::cudnnMathType_t::CUDNN_FMA_MATH).unwrap();
    let forward = ConvForward { conv: &conv, x: &x, w: &w, y: &y };
    let (data, weight) = (stream.alloc_zeros::<f32>(C * S * S).unwrap(), stream.alloc_zeros::<f32>(C * C * 9).unwrap());
    let mut made = stream.alloc_zeros::<f32>(C * S * S).unwrap();
    // All algorithms that there are in this precision: the library's heuristics may name others.
    let algorithms = [
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
        Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
    ];
    let timed = |algorithm: Algorithm| {
        let space = forward.get_workspace_size(algorithm).ok()?;
        let mut workspace = stream.alloc_zeros::<u8>(space.max(1)).ok()?;
        // SAFETY: the tensors are as large as their descriptions.
        let mut run =
            || unsafe { forward.launch(algorithm, Some(&mut workspace), (1.0, 0.0), &data, &weight, &mut made) };
        run().ok()?;
        Some((median(&stream, || run().unwrap()), algorithm))
    };
    let (theirs, algorithm) = algorithms.into_iter().filter_map(timed).min_by_key(|(time, _)| *time).unwrap();
    compare(&what, &report.gpus[0], flops, ours, &format!("cuDNN ({algorithm:?})"), theirs.as_secs_f64());
}

#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn copies_cost_what_a_line_says() {
    let (_, engine) = gpu();
    for memory in [HostMemory::Pageable, HostMemory::Pinned] {
        let link = engine.host_link(memory).unwrap();
        for (direction, samples) in [("to the GPU", &link.to_device), ("back", &link.from_device)] {
            let cost = edgecut::graph::LinkCost::fit(samples).unwrap();
            println!("{memory:?} {direction}: {} + bytes / {}", cost.latency, cost.rate);
            let off = samples.iter().map(|(bytes, time)| (cost.time(*bytes).0 / time.0 - 1.0).abs());
            assert!(off.fold(0.0, f64::max) < 1.0, "{memory:?} {direction}: {samples:?}");
        }
    }
    let (free, total) = engine.memory().unwrap();
    assert!(Bytes::ZERO < free && free <= total);
}

/// The program's plan and run over the processor and the GPU of this machine: free, and with less memory on either than
/// the model's parameters need, so that both must compute.
#[test]
#[cfg_attr(not(gpu), ignore = "needs an NVIDIA GPU")]
fn a_plan_over_cpu_and_gpu_runs_as_predicted() {
    gpu();
    let folder = tempfile::tempdir().unwrap();
    let edgecut = |arguments: &str| -> String {
        let mut command = Command::new(program());
        let output = command.current_dir(&folder).args(arguments.split(' ')).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments}: {stdout}{stderr}");
        println!("$ edgecut {arguments}\n{stdout}{stderr}");
        stdout.into_owned()
    };
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    std::fs::copy(cases::model("resnet18"), folder.path().join("m.relay")).unwrap();
    // 45 MiB of parameters, and activations: neither device holds the model alone.
    let cluster = "[[server]]\nname = \"local\"\n\
                   device = [{ name = \"cpu\", memory = \"40MiB\" }, { name = \"gpu0\", memory = \"30MiB\" }]\n";
    std::fs::write(folder.path().join("small.toml"), cluster).unwrap();
    let devices = json(&edgecut("devices --format json"));
    let named = devices["devices"].as_array().unwrap().iter().map(|device| device["device"].as_str().unwrap());
    assert_eq!(named.collect::<Vec<_>>()[..2], ["local/cpu", "local/gpu0"]);
    for (name, flags) in [("free", ""), ("small", " --cluster small.toml")] {
        edgecut(&format!("plan m.relay{flags} --profile-budget 5s --time-limit 20s --output {name}.json"));
        let plan = json(&std::fs::read_to_string(folder.path().join(format!("{name}.json"))).unwrap());
        let devices = plan["devices"].as_array().unwrap();
        let used: Vec<&str> = devices
            .iter()
            .filter(|device| !device["order"].as_array().unwrap().is_empty())
            .map(|device| device["device"].as_str().unwrap())
            .collect();
        println!("{name}: {used:?}, {} operators are split", plan["splits"].as_array().map_or(0, Vec::len));
        if name == "small" {
            assert_eq!(used, ["cpu", "gpu0"], "both devices compute");
        }
        // The run compares its outputs with those of the processor alone, and fails if they differ.
        let run = json(&edgecut(&format!("run {name}.json --format json")));
        let micros = |value: &serde_json::Value| value.as_f64().unwrap();
        let (predicted, measured) = (micros(&run["predicted_latency_us"]), micros(&run["latency"]["median_us"]));
        println!(
            "{name}: predicted {predicted:.0} us, measured {measured:.0} us: {:+.1} %",
            100.0 * (predicted / measured - 1.0)
        );
        for device in &used {
            let of = |key: &str| -> f64 {
                let groups = run["groups"].as_array().unwrap().iter();
                groups
                    .filter(|group| group["device"] == format!("local/{device}"))
                    .map(|group| micros(&group[key]))
                    .sum()
            };
            println!("{name}: {device}: predicted {:.0} us, measured {:.0} us", of("predicted_us"), of("measured_us"));
            assert!(of("measured_us") > 0.0, "{device} computes nothing");
        }
        // Outputs, once more, as this test sees them.
        edgecut(&format!("run {name}.json --no-check --repeat 1 --outputs plan.npz"));
        edgecut("run m.relay --outputs alone.npz");
        let read = |name: &str| read_npz(&folder.path().join(name)).unwrap()["out_0"].to_f64s().unwrap();
        let (plan, alone) = (read("plan.npz"), read("alone.npz"));
        let off = plan.iter().zip(&alone).map(|(a, b)| (a - b).abs() / (1e-4 + 1e-3 * b.abs()));
        let worst = off.fold(0.0, |worst: f64, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) });
        println!("{name}: outputs differ by {worst:.3} of the tolerance");
        assert!(worst <= 1.0);
    }
}
