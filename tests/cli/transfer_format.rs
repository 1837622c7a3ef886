//! `plan --transfer` through the real binary: what it saves, and what a run on two agents says of the outputs.

use std::{fs, path::Path, process::Output, time::Duration};

use crate::common::process::{AgentProcess, edgecut, within};
use edgecut::plan::{Plan, TransferFormat};

/// The hidden layer is computed on one server, the others on the other one.
const MODEL: &str = "def @main(%x: Tensor[(64, 256), float32], %w: Tensor[(256, 256), float32]) {
    %0 = nn.relu(nn.dense(%x, %w, units=256));
    %1 = nn.softmax(%0);
    nn.dense(%1, %w, units=256) }";

const PINS: &str = "--pin #0=s0/cpu --pin #1=s1/cpu --pin #2=s0/cpu";

fn run(folder: &Path, line: &str) -> Output {
    let mut command = edgecut(folder);
    command.args(line.split_whitespace());
    within(Duration::from_secs(120), command)
}

#[track_caller]
fn stdout(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn unknown_formats_are_refused_with_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let refused = run(folder.path(), "plan m.relay --transfer f64");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("`f64` is not a transfer format: expected exact, f16 or int8"), "{stderr}");
}

#[test]
fn a_plan_says_what_it_saves_and_a_run_what_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), MODEL).unwrap();
    let agents = ["s0", "s1"].map(|name| AgentProcess::start(name, "127.0.0.1:0", &[]));
    let servers = agents.iter().map(|a| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", a.name, a.address));
    fs::write(here.join("c.toml"), servers.collect::<String>()).unwrap();
    let planned = format!("plan m.relay --cluster c.toml --profile-budget 50ms --rehearse 0 --no-split {PINS}");

    let exact = stdout(here, &format!("{planned} --output exact.json"));
    assert!(!exact.contains("between servers"), "{exact}");
    let text = fs::read_to_string(here.join("exact.json")).unwrap();
    assert!(!text.contains("\"transfer\"") && !text.contains("sent_bytes") && !text.contains("\"format\""), "{text}");
    let said = stdout(here, "run exact.json --repeat 2");
    assert!(said.contains("outputs against one device: equal"), "{said}");

    // The relu and the softmax of 64 KiB each cross the link.
    for (format, sent) in [("f16", 2 * (32 << 10)), ("int8", 2 * ((16 << 10) + 4 * 64))] {
        let said = stdout(here, &format!("{planned} --transfer {format} --output {format}.json"));
        assert!(said.contains("if all were exact"), "{said}");
        let plan = Plan::from_json(&fs::read(here.join(format!("{format}.json"))).unwrap()).unwrap();
        assert_eq!(plan.transfer, format.parse::<TransferFormat>().unwrap());
        let predicted = plan.predicted;
        assert_eq!(
            (predicted.transfer_bytes.unwrap().0, predicted.sent_bytes.unwrap().0),
            (128 << 10, sent),
            "{format}"
        );

        let table = stdout(here, &format!("run {format}.json --repeat 2"));
        assert!(
            table.contains(&format!("outputs of transfers in {format} against one device: largest error")),
            "{table}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&stdout(here, &format!("run {format}.json --repeat 2 --format json"))).unwrap();
        let transfers = json["transfers"].as_array().unwrap();
        let measured: u64 = transfers.iter().map(|transfer| transfer["sent_bytes"].as_u64().unwrap()).sum();
        assert_eq!((transfers.len(), measured), (2, sent), "{json}");
        let error = json["outputs"]["largest_relative_error"].as_f64().unwrap();
        assert!(error > 0.0 && error < 0.05, "{json}");
        let csv = stdout(here, &format!("run {format}.json --repeat 2 --format csv"));
        assert!(csv.lines().next().unwrap().contains(",sent_bytes,largest_error,"), "{csv}");
    }

    // A move of its groups keeps the format.
    let moved =
        "plan m.relay --cluster c.toml --profile-budget 50ms --like f16.json --move #2=s1/cpu --output moved.json";
    stdout(here, moved);
    assert_eq!(Plan::from_json(&fs::read(here.join("moved.json")).unwrap()).unwrap().transfer, TransferFormat::F16);
}
