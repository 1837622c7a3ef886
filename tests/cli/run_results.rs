//! `run --output`: every run is appended, as rows and as JSON, and no other file is touched. What a run says of its machine.

use std::{fs, sync::Arc, thread};

use crate::common::process::{model, planned, run};
use edgecut::agent::results::{Activity, ActivityTime, file::RunResults};

#[test]
fn runs_are_appended() {
    let folder = planned("lstm");
    let here = folder.path();
    for line in ["run plan.json --repeat 3 --output r.csv", "run plan.json --repeat 2 --output r.csv"] {
        let (code, _, said) = run(here, line);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("results appended to r.csv"), "{said}");
    }
    let mut reader = csv::Reader::from_path(here.join("r.csv")).unwrap();
    let rows: Vec<std::collections::BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let of = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).collect::<Vec<_>>();
    let inferences: Vec<&str> = of("inference").iter().map(|row| row["id"].as_str()).collect();
    assert_eq!(inferences, ["0", "1", "2", "0", "1"]);
    assert_eq!((of("latency").len(), of("device").len()), (2, 2));
    assert!(of("group").iter().all(|row| !row["predicted_us"].is_empty() && !row["measured_us"].is_empty()));
    assert_eq!(rows.iter().map(|row| &row["measured_at"]).collect::<std::collections::BTreeSet<_>>().len(), 2);

    assert_eq!(run(here, "run plan.json --repeat 2 --trace t.json").0, Some(0));
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(here.join("t.json")).unwrap()).unwrap();
    let names = |phase: &str| -> std::collections::BTreeSet<String> {
        let events = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == phase);
        events.map(|event| event[if phase == "C" { "name" } else { "cat" }].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names("X").into_iter().collect::<Vec<_>>(), ["measured", "predicted"]);
    assert_eq!(names("C").into_iter().collect::<Vec<_>>(), ["predicted memory"]);

    for _ in 0..2 {
        assert_eq!(run(here, "run plan.json --repeat 2 --output r.json").0, Some(0));
    }
    let results = RunResults::from_json(&fs::read(here.join("r.json")).unwrap()).unwrap();
    assert_eq!(results.runs.len(), 2);
    let groups = &results.runs[1].outcome.groups;
    assert!(groups.iter().all(|group| group.measured_start_us.is_some_and(|start| start.0 >= 0.0)), "{groups:?}");
    let is_ordered = groups.windows(2).all(|pair| pair[0].measured_start_us <= pair[1].measured_start_us);
    assert!(is_ordered, "one device computes them in order: {groups:?}");
    let about = &results.runs[0].about;
    assert_eq!(about.model_blake3.len(), 64);
    let written = blake3::hash(&fs::read(here.join("plan.json")).unwrap());
    assert_eq!(about.plan_blake3, written.to_hex().as_str(), "a plan that was read is the one that was written");
}

#[test]
fn a_breakdown_adds_up_to_the_latency() {
    let folder = planned("lstm");
    let here = folder.path();
    let (code, text, said) = run(here, "run plan.json --repeat 9 --breakdown");
    assert_eq!(code, Some(0), "{said}");
    assert!(text.contains("computing") && text.contains("(mean of 5 runs, those between the quartiles)"), "{text}");
    let (code, text, said) = run(here, "run plan.json --repeat 1 --breakdown --format csv --output r.json");
    assert_eq!(code, Some(0), "{said}");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<ActivityTime> = reader.deserialize().map(Result::unwrap).collect();
    let results = RunResults::from_json(&fs::read(here.join("r.json")).unwrap()).unwrap();
    let latency = results.runs[0].outcome.latency.median_us.0;
    let sum: f64 = rows.iter().map(|row| row.time_us.0).sum();
    assert!((sum / latency - 1.0).abs() < 1e-9, "{sum}, {latency}: {rows:?}");
    let computing = rows.iter().find(|row| row.activity == Activity::Computing).unwrap();
    // Nothing is waited for on one device.
    assert!(computing.time_us.0 > 0.0 && rows.iter().all(|row| row.peer.is_empty()), "{rows:?}");

    let (code, _, said) = run(here, "run plan.json --throughput --breakdown");
    assert_eq!(code, Some(2), "{said}");
    let (code, _, said) = run(here, &format!("run {} --breakdown", model("lstm")));
    assert!(code == Some(2) && said.contains("--breakdown has no effect with a model"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_on_a_busy_machine_says_so() {
    let folder = planned("lstm");
    let here = folder.path();
    let mut plan: serde_json::Value = serde_json::from_slice(&fs::read(here.join("plan.json")).unwrap()).unwrap();
    let mut predicting = |latency: f64| {
        plan["predicted"]["latency_us"] = latency.into();
        fs::write(here.join("plan.json"), plan.to_string()).unwrap();
    };
    // Many runs, so that they take the 0.1 s after which the load is known.
    let line = "run plan.json --repeat 3000 --no-check --format json";
    let busy = Arc::new(());
    let is_needed = Arc::downgrade(&busy);
    thread::spawn(move || while is_needed.strong_count() > 0 {});
    predicting(0.001);
    let hasty = run(here, line);
    predicting(1e9);
    let patient = run(here, line);
    drop(busy);
    let (code, text, said) = hasty;
    assert_eq!(code, Some(0), "{said}");
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let load = result["load"].as_array().unwrap();
    assert_eq!((load.len(), &load[0]["server"]), (1, &"local".into()), "{load:?}");
    assert!(load[0]["load"].as_f64().unwrap() > 0.25, "{load:?}");
    assert!(said.contains("other workloads kept ") && said.contains("of local's machine busy"), "{said}");
    // A run that keeps to its prediction was not held up.
    assert_eq!(patient.0, Some(0), "{}", patient.2);
    assert!(!patient.2.contains("other workloads"), "{}", patient.2);
}

#[test]
fn other_files_are_refused_and_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    assert_eq!(run(here, "plan m.relay --profile-budget 1ms --rehearse 0").0, Some(0));
    fs::write(here.join("x.csv"), "a,b\n1,2\n").unwrap();
    fs::write(here.join("x.json"), "{\"version\": 7, \"runs\": []}").unwrap();
    for (line, message) in [
        ("run plan.json --output x.csv", "x.csv: not results"),
        ("run plan.json --output x.json", "format version 7"),
        ("run plan.json --output plan.json", "not results"),
        ("run plan.json --output results.txt", "expected FILE.csv or FILE.json"),
        ("run m.relay --output r.csv", "--output has no effect with a model"),
    ] {
        let before = fs::read(here.join("x.csv")).unwrap();
        let (code, _, said) = run(here, line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(message), "{line}: {said}");
        assert_eq!(fs::read(here.join("x.csv")).unwrap(), before);
    }
}
