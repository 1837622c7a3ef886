//! The execution provider in sessions of ONNX Runtime's own Python package, over agents in processes of their own.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::common::process::{AgentProcess, cluster_of, done, ending, has_python, model, texts};

/// The library, which is built where this test is.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let name = format!("{}edgecut_ort_ep{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found = [folder.join(&name), folder.parent().unwrap().join(&name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not in {}", folder.display()))
}

/// Starts a Python program in `folder`: a session of `model` with these provider options, called from `threads` threads.
fn session(folder: &Path, model: &str, threads: usize, options: &[&str]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ort_provider.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(library()).args([model, &threads.to_string()]).args(options);
    command.current_dir(folder).env("CUDA_VISIBLE_DEVICES", "").env_remove("EDGECUT_CLUSTER");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs such a program to its end: its exit code, stdout and stderr.
fn of_session(folder: &Path, model: &str, options: &[&str]) -> (Option<i32>, String, String) {
    let mut child = session(folder, model, 1, options);
    drop(child.stdin.take());
    texts(ending(Duration::from_secs(300), child))
}

/// Two agents, with their cluster file and SqueezeNet as `model.onnx` in a folder.
fn cluster() -> (tempfile::TempDir, Vec<AgentProcess>) {
    let folder = tempfile::tempdir().unwrap();
    let agents: Vec<AgentProcess> = ["one", "two"].map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).into();
    fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
    done(folder.path(), &format!("export {} --format onnx --output model.onnx", model("squeezenet_v1.1")));
    (folder, agents)
}

/// Both agents compute: each has a stage.
const OPTIONS: &str =
    r#"plan_options={"objective": "throughput", "rehearse": 0, "profile_budget": "50ms", "time_limit": "5s"}"#;

#[test]
fn sessions_of_other_programs_compute_on_the_cluster() {
    if !has_python("numpy, onnxruntime") {
        return;
    }
    let (folder, mut agents) = cluster();
    let options = ["cluster=lab.toml", "plan=plan.json", OPTIONS];
    // The session makes the plan.
    let mut child = session(folder.path(), "model.onnx", 4, &options);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    let providers = line();
    if !providers.starts_with("EdgecutExecutionProvider") {
        drop(child.stdin.take());
        panic!("{providers}: {:?}", ending(Duration::from_secs(10), child));
    }
    assert!(line().starts_with("largest difference"));
    let plan: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("plan.json")).unwrap()).unwrap();
    let devices: BTreeSet<u64> =
        plan["groups"].as_array().unwrap().iter().map(|group| group["strategy"]["device"].as_u64().unwrap()).collect();
    assert_eq!(devices.len(), 2, "both agents compute");
    assert!(!folder.path().join("plan.csv").exists());
    // An agent that the session can go on without is lost.
    agents[1].kill();
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(line().starts_with("largest difference"));
    drop(child.stdin.take());
    let (code, _, stderr) = texts(ending(Duration::from_secs(60), child));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_plan_is_loaded_and_what_does_not_fit_is_refused() {
    if !has_python("numpy, onnxruntime") {
        return;
    }
    let (folder, _agents) = cluster();
    let flags = "--profile-budget 50ms --rehearse 0 --time-limit 5s";
    done(folder.path(), &format!("plan model.onnx --cluster lab.toml {flags} --output plan.json"));
    let (code, printed, stderr) = of_session(folder.path(), "model.onnx", &["plan=plan.json"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
    assert!(printed.starts_with("EdgecutExecutionProvider"), "{printed}");
    let seeded = format!("export {} --format onnx --seeded-weights --output seeded.onnx", model("squeezenet_v1.1"));
    done(folder.path(), &seeded);
    // The body of a loop reads what is not an operand of the loop.
    let python = "import onnx.helper as h, numpy as n, onnx.numpy_helper as m; t = lambda n, k, s: h.make_tensor_value_info(n, k, s); \
                  body = h.make_graph([h.make_node('Add', ['v', 'x'], ['w']), h.make_node('Identity', ['c'], ['d'])], 'body', \
                  [t('i', 7, []), t('c', 9, []), t('v', 1, [3])], [t('d', 9, []), t('w', 1, [3])]); \
                  g = h.make_graph([h.make_node('Loop', ['n', '', 's'], ['y'], body=body)], 'loop', [t('x', 1, [3]), t('s', 1, [3])], \
                  [t('y', 1, [3])], [m.from_array(n.array(4), 'n')]); \
                  o = h.make_model(g, opset_imports=[h.make_opsetid('', 17)], ir_version=8); open('loop.onnx', 'wb').write(o.SerializeToString())";
    assert!(Command::new("python3").args(["-c", python]).current_dir(folder.path()).status().unwrap().success());
    let (code, printed, stderr) = of_session(folder.path(), "loop.onnx", &["cluster=lab.toml", OPTIONS]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
    // A model that edgecut cannot read is left to ONNX Runtime, which logs why.
    let python = "import onnx.helper as h; t = lambda n: h.make_tensor_value_info(n, 8, [2]); \
                  g = h.make_graph([h.make_node('Identity', ['a'], ['b'])], 'text', [t('a')], [t('b')]); \
                  m = h.make_model(g, opset_imports=[h.make_opsetid('', 17)], ir_version=8); open('text.onnx', 'wb').write(m.SerializeToString())";
    assert!(Command::new("python3").args(["-c", python]).current_dir(folder.path()).status().unwrap().success());
    let (_, printed, stderr) = of_session(folder.path(), "text.onnx", &["cluster=lab.toml"]);
    assert!(printed.contains("CPUExecutionProvider"), "{printed}");
    assert!(stderr.contains("edgecut: other providers compute the model: text.onnx"), "{stderr}");
    // The plan has one size of what ONNX Runtime calls symbolic: calls of other sizes are refused, not computed on this machine.
    let python = "import onnx.helper as h; t = lambda n: h.make_tensor_value_info(n, 1, ['n', 3]); \
                  g = h.make_graph([h.make_node('Relu', ['a'], ['b'])], 'symbolic', [t('a')], [t('b')]); \
                  m = h.make_model(g, opset_imports=[h.make_opsetid('', 17)], ir_version=8); open('symbolic.onnx', 'wb').write(m.SerializeToString())";
    assert!(Command::new("python3").args(["-c", python]).current_dir(folder.path()).status().unwrap().success());
    for (model, options, why) in [
        ("symbolic.onnx", &["cluster=lab.toml", "bind_dim=n=2", OPTIONS][..], "INVALID_ARGUMENT"),
        ("model.onnx", &[], "give option `plan`, a plan file, or `cluster`, a cluster file"),
        ("model.onnx", &["plan=missing.json"], "missing.json"),
        ("model.onnx", &["cluster=missing.toml"], "missing.toml"),
        ("model.onnx", &["cluster=lab.toml", "bind_dim=x=y=z"], "option `bind_dim`"),
        ("model.onnx", &["cluster=lab.toml", r#"plan_options={"latency": "soon"}"#], "soon"),
        ("seeded.onnx", &["plan=plan.json"], "is not the file that the plan was made for"),
        ("seeded.onnx", &["cluster=lab.toml", OPTIONS], "is not an input of the plan"),
        ("model.onnx", &["plan=plan.json", "model=model.onnx"], "option `model` is for sessions created from memory"),
        ("model.onnx", &["plan=plan.json", "clusters=lab.toml"], "`clusters` is not an option of the provider"),
        ("model.onnx", &["cluster=lab.toml", "bind_dim=bacth=1"], "bacth"),
    ] {
        let (code, _, stderr) = of_session(folder.path(), model, options);
        assert_eq!(code, Some(1), "{options:?}: {stderr}");
        assert!(stderr.contains(why) && stderr.contains("edgecut: "), "{options:?}: {stderr}");
    }
}
