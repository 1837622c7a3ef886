//! The verbs as functions: from a model to runs, on this machine and on two agents in separate processes.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::common::process::{AgentProcess, model as model_path};
use edgecut::{
    engine::{Engine, TractEngine},
    graph::{DType, TensorData},
    session::{
        Cancellation, Error, Event, Events, Model, ModelOptions, PlanOptions, ProfileOptions, Profiles, RecordedModel,
        RunOptions, Site, SiteOptions, plan::options::TimeLimit, profile_source::Source,
    },
    units::Micros,
};

const MODEL: &str = "#[version = \"0.0.5\"]
def @main(%x: Tensor[(1, 4, 16, 16), float32], %w1: Tensor[(8, 4, 3, 3), float32], %w2: Tensor[(8, 8, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  nn.conv2d(%1, %w2, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3])
}
";

/// Writes the model to `folder` and opens it.
fn model(folder: &Path) -> Model {
    let path = folder.join("m.relay");
    std::fs::write(&path, MODEL).unwrap();
    Model::open(path, &ModelOptions::default()).unwrap()
}

fn profile_options(folder: &Path) -> ProfileOptions {
    ProfileOptions { budget: Micros(5e4), output: folder.join("profiles"), ..ProfileOptions::default() }
}

/// Options of a plan without pilot runs.
fn plan_options() -> PlanOptions {
    PlanOptions { rehearse: Some(0), profile_budget: Micros(5e4), budget: Some(200), ..PlanOptions::default() }
}

/// An input whose elements are all `value`.
fn input(value: f32) -> TensorData {
    TensorData::new(DType::F32, [1, 4, 16, 16], value.to_le_bytes().repeat(4 * 16 * 16)).unwrap()
}

/// The output of the whole model for `x`, computed by tract.
fn expected(model: &Model, x: &TensorData) -> TensorData {
    let contents = model.contents(model.graph()).unwrap();
    let of = |id| match model.graph().tensor(id).name.as_str() {
        "x" => Ok(x.clone()),
        _ => contents.of(id),
    };
    TractEngine::new(1).unwrap().evaluate(model.graph(), &of).unwrap().remove(0)
}

fn assert_close(found: &TensorData, wanted: &TensorData) {
    let values = |data: &TensorData| -> Vec<f32> {
        data.bytes().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(found.ty(), wanted.ty());
    let (found, wanted) = (values(found), values(wanted));
    let largest = wanted.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    assert!(largest > 0.0);
    for (a, b) in found.iter().zip(&wanted) {
        assert!((a - b).abs() <= 1e-5 * largest, "{a} for {b}");
    }
}

#[test]
fn a_model_is_profiled_planned_and_run_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = heard.clone();
    let hear = move |event: Event<'_>| listener.lock().unwrap().push(format!("{event:?}"));
    let events = Events::new(Arc::new(hear), Cancellation::new());
    let site = Site::open(&SiteOptions::default(), &events).unwrap();
    let profiles = site.profile(&model, &profile_options(folder.path())).unwrap();
    profiles.check_written().unwrap();
    let [device] = &profiles.devices[..] else { panic!("{} devices", profiles.devices.len()) };
    assert!(device.rows.len() == 2 && device.rows.iter().all(|row| row.time_us_median > Some(Micros(0.0))));
    assert!(heard.lock().unwrap().iter().any(|event| event.starts_with("Measured { device: \"local/cpu\"")));

    let plan = site.plan(&model, &profiles, &plan_options()).unwrap();
    let options = RunOptions { repeat: Some(3), ..RunOptions::default() };
    let runs = site.run(&model, &plan, &options).unwrap();
    assert_eq!((runs.len(), runs[0].result.latencies_us.len()), (1, 3));
    assert!(runs[0].result.outcome.outputs.is_some_and(|difference| difference.is_tolerable()));

    // With the same profiles as files, nothing is measured.
    let source = Source { path: device.path.clone(), device: None };
    let recorded = RecordedModel::read(&model.path, &model.options, &[source], None, &events).unwrap();
    let again = recorded.plan(&PlanOptions { time_limit: TimeLimit::None, ..plan_options() }).unwrap();
    assert_eq!(again.predicted.latency_us, plan.predicted.latency_us);
}

#[test]
fn a_plan_that_stays_loaded_computes_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let agents = ["a", "b"].map(|name| AgentProcess::start(name, "127.0.0.1:0", &[]));
    let servers =
        agents.iter().map(|agent| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address));
    let cluster = folder.path().join("lab.toml");
    std::fs::write(&cluster, servers.collect::<String>()).unwrap();
    let model = model(folder.path());
    let site = SiteOptions { cluster: Some(cluster), ..SiteOptions::default() };
    let site = Site::open(&site, &Events::default()).unwrap();
    let profiles = Profiles::in_folder(folder.path().join("profiles"));
    // One group on each agent.
    let pin = vec!["#0=a/cpu".to_string(), "#1=b/cpu".to_string()];
    let plan = site.plan(&model, &profiles, &PlanOptions { pin, ..plan_options() }).unwrap();
    assert!(plan.devices.iter().all(|device| !device.order.is_empty()), "{:?}", plan.devices);

    let deployed = site.deploy(&model, &plan).unwrap();
    for value in [1.0, -2.0, 0.5] {
        let x = input(value);
        let outputs = deployed.run(&BTreeMap::from([("x", x.clone())])).unwrap();
        assert_close(&outputs[0], &expected(&model, &x));
    }
    let refused = |inputs: BTreeMap<&str, TensorData>| deployed.run(&inputs).unwrap_err().to_string();
    assert!(refused(BTreeMap::from([("y", input(0.0))])).contains("no input `y`; its inputs are x"));
    let small = TensorData::new(DType::F32, [1], 0f32.to_le_bytes().to_vec()).unwrap();
    assert!(refused(BTreeMap::from([("x", small)])).contains("float32[1] was given"));
    // A refused input does not affect later runs.
    assert_close(&deployed.run(&BTreeMap::from([("x", input(3.0))])).unwrap()[0], &expected(&model, &input(3.0)));

    // After an agent is lost, runs fail.
    drop(agents);
    assert!(matches!(deployed.run(&BTreeMap::new()), Err(Error::Agent(_))));
}

#[test]
fn inputs_of_earlier_runs_take_no_memory_of_the_agent() {
    const LIMIT_MIB: usize = 16;
    let folder = tempfile::tempdir().unwrap();
    let agent = AgentProcess::start("a", "127.0.0.1:0", &["--memory".to_string(), format!("{LIMIT_MIB}MiB")]);
    let cluster = folder.path().join("lab.toml");
    std::fs::write(&cluster, format!("[[server]]\nname = \"a\"\naddress = \"{}\"\n", agent.address)).unwrap();
    let path = folder.path().join("relu.relay");
    std::fs::write(&path, "def @main(%x: Tensor[(1, 4, 256, 256), float32]) { nn.relu(%x) }").unwrap();
    let model = Model::open(path, &ModelOptions::default()).unwrap();
    let site = SiteOptions { cluster: Some(cluster), ..SiteOptions::default() };
    let site = Site::open(&site, &Events::default()).unwrap();
    let plan = site.plan(&model, &Profiles::in_folder(folder.path().join("profiles")), &plan_options()).unwrap();
    let deployed = site.deploy(&model, &plan).unwrap();
    let x = TensorData::new(DType::F32, [1, 4, 256, 256], 1f32.to_le_bytes().repeat(4 << 16)).unwrap();
    // An agent receives at most its memory and 64 MiB.
    for _ in 0..LIMIT_MIB + 64 + 16 {
        assert_eq!(deployed.run(&BTreeMap::from([("x", x.clone())])).unwrap()[0].bytes(), x.bytes());
    }
}

#[test]
fn work_that_is_cancelled_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    // The model is large enough that the cancellation takes effect before the profile is complete.
    let model = Model::open(model_path("squeezenet_v1.1"), &ModelOptions::default()).unwrap();
    let cancellation = Cancellation::new();
    let cancel = cancellation.clone();
    // Cancels once the first group is measured.
    let hear = move |event: Event<'_>| {
        if matches!(event, Event::Measured { done: 1.., .. }) {
            cancel.cancel();
        }
    };
    let site = Site::open(&SiteOptions::default(), &Events::new(Arc::new(hear), cancellation)).unwrap();
    assert!(matches!(
        site.profile(&model, &ProfileOptions { budget: Micros(2e7), ..profile_options(folder.path()) }),
        Err(Error::Cancelled)
    ));
    let found = std::fs::read_dir(folder.path().join("profiles")).unwrap().count();
    assert!(found > 0);
    // A cancellation affects only the site that it was given to.
    let site = Site::open(&SiteOptions::default(), &Events::default()).unwrap();
    let profiles =
        site.profile(&model, &ProfileOptions { budget: Micros(1e5), ..profile_options(folder.path()) }).unwrap();
    assert_eq!(
        profiles.devices[0].rows.len(),
        edgecut::profile::items(model.graph(), edgecut::graph::Granularity::Fused).len()
    );
}

#[test]
fn options_are_values_and_mistakes_are_named() {
    let options: PlanOptions = serde_json::from_str(
        r#"{"objective": "energy", "memory": "512MiB", "latency": 40000, "pin": "*=a/cpu", "halos": "exchanged",
            "time_limit": "none", "ratios": "equal"}"#,
    )
    .unwrap();
    assert_eq!((options.latency, options.time_limit), (Some(Micros(4e4)), TimeLimit::None));
    assert_eq!(options.pin, ["*=a/cpu"]);
    for (text, part) in [
        (r#"{"objective": "beauty"}"#, "option `objective`: `beauty`: `beauty` is not an objective: expected latency"),
        (r#"{"memory": "many"}"#, "option `memory`: `many`"),
        (r#"{"beauty": 1}"#, "option `beauty`: unknown field"),
    ] {
        let error = edgecut::session::option_values::read::<PlanOptions>(text).unwrap_err();
        assert!(matches!(error, Error::BadInput(_)) && error.to_string().contains(part), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let site = Site::open(&SiteOptions::default(), &Events::default()).unwrap();
    let options = PlanOptions { estimate: true, rehearse: Some(2), ..PlanOptions::default() };
    let profiles = Profiles::in_folder(folder.path());
    let error = site.plan(&model, &profiles, &options).unwrap_err().to_string();
    assert!(error.contains("option `rehearse` has no effect with option `estimate`"), "{error}");
}
