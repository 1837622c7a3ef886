//! `edgecut compare` on real profiles, plans and runs.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::process::{model, run};

type Rows = Vec<BTreeMap<String, String>>;

#[track_caller]
fn rows(folder: &Path, line: &str) -> Rows {
    let (code, text, said) = run(folder, line);
    assert_eq!(code, Some(0), "{line}: {said}");
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(Result::unwrap).collect()
}

/// The rows of a kind, but for energy, which this machine may tell.
fn of<'a>(rows: &'a Rows, kind: &str) -> Vec<&'a BTreeMap<String, String>> {
    rows.iter().filter(|row| row["kind"] == kind && row["unit"] != "j").collect()
}

#[test]
fn profiles_plans_and_runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let lstm = model("lstm");
    let done = |line: &str| {
        let (code, _, said) = run(here, line);
        assert_eq!(code, Some(0), "{line}: {said}");
    };
    done(&format!("profile {lstm} --budget 100ms --output a"));
    done(&format!("profile {lstm} --budget 100ms --output b"));
    let profiles = rows(here, "compare a b --format csv");
    let groups = of(&profiles, "group");
    assert!(groups.len() > 10 && of(&profiles, "whole").len() == 1, "{profiles:?}");
    // Against itself nothing differs.
    let same = rows(here, "compare a a --format csv");
    assert!(same.iter().all(|row| row["ratio"] == "1.0" && row["is_significant"] != "true"), "{same:?}");
    let (_, table, _) = run(here, "compare a b --top 3");
    assert!(table.starts_with("A  a") && table.contains("local/cpu") && table.contains("more: --top N"), "{table}");

    done(&format!("plan {lstm} --profile-budget 100ms --rehearse 0 --output one.json"));
    done(&format!("plan {lstm} --profile-budget 100ms --rehearse 0 --objective memory --output two.json"));
    let plans = rows(here, "compare one.json two.json --format csv");
    let names: Vec<&str> = of(&plans, "whole").iter().map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["latency", "between results", "peak memory", "sent"]);
    assert!(plans.iter().all(|row| row["z"].is_empty()), "predictions have no scatter");

    for plan in ["one", "two"] {
        done(&format!("run {plan}.json --repeat 20 --output {plan}-results.json"));
    }
    let runs = rows(here, "compare one-results.json two-results.json --format csv --output all.csv");
    assert!(of(&runs, "whole").iter().all(|row| !row["z"].is_empty()), "{runs:?}");
    let written = fs::read_to_string(here.join("all.csv")).unwrap();
    assert_eq!(written.lines().count(), runs.len() + 1);
}

#[test]
fn the_gap_of_a_plan_is_told_as_a_fraction_of_its_bound() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    assert_eq!(run(here, "plan m.relay --profile-budget 1ms --rehearse 0").0, Some(0));
    let mut plan: serde_json::Value = serde_json::from_slice(&fs::read(here.join("plan.json")).unwrap()).unwrap();
    // The gap in a plan's file is a fraction of the value.
    plan["bound"]["value"] = (plan["predicted"]["latency_us"].as_f64().unwrap() / 4.0).into();
    plan["gap"] = 0.75.into();
    fs::write(here.join("far.json"), plan.to_string()).unwrap();
    let (code, table, said) = run(here, "compare plan.json far.json");
    assert_eq!(code, Some(0), "{said}");
    assert!(table.contains("B  far.json: 1 of 1 devices, for latency, 300.0 % above its bound\n"), "{table}");
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    fs::write(here.join("n.relay"), "def @main(%x: Tensor[(4), float32]) { tanh(%x) }").unwrap();
    for (model, at) in [("m", "pm"), ("n", "pn")] {
        assert_eq!(run(here, &format!("profile {model}.relay --budget 1ms --output {at}")).0, Some(0));
    }
    assert_eq!(run(here, "plan m.relay --profile-budget 1ms --rehearse 0").0, Some(0));
    for (line, message) in [
        ("compare pm pn", "nothing in common"),
        ("compare pm plan.json", "of different kinds"),
        ("compare pm m.relay", "m.relay: neither a profile nor a plan"),
        ("compare pm none", "none: No such file"),
    ] {
        let (code, _, said) = run(here, line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(message), "{line}: {said}");
    }
}
