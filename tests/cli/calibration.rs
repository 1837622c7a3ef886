//! Calibrations by the real binary: learnt from agents, kept next to profiles, used by plans, refused where they are stale.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use crate::common::process::{AgentProcess, edgecut, model, within};
use edgecut::{plan::Plan, profile::CalibrationRow};

const PATIENCE: Duration = Duration::from_secs(300);

struct Lab {
    folder: tempfile::TempDir,
    _agents: Vec<AgentProcess>,
}

impl Lab {
    fn start() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let agents: Vec<AgentProcess> =
            ["s0", "s1"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
        let server =
            |agent: &AgentProcess| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address);
        fs::write(folder.path().join("lab.toml"), agents.iter().map(server).collect::<String>()).unwrap();
        Lab { folder, _agents: agents }
    }

    fn edgecut(&self, arguments: &str) -> (Output, String) {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' '));
        let output = within(PATIENCE, command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }

    /// Plans, and returns the predicted latency and what was said.
    fn plan(&self, arguments: &str) -> (f64, String) {
        let (output, said) = self.edgecut(arguments);
        assert!(output.status.success(), "{arguments}: {said}");
        let plan = Plan::from_json(&fs::read(self.folder.path().join("plan.json")).unwrap()).unwrap();
        let noted = plan.notes.iter().any(|note| note.starts_with("calibrated: "));
        assert_eq!(noted, said.contains("calibrated: yes"), "{said}");
        (plan.predicted.latency_us.0, said)
    }
}

/// The profile of `server`, below `folder`.
fn profile(folder: &Path, server: &str) -> PathBuf {
    let files =
        fs::read_dir(folder).unwrap().flatten().flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten());
    let mut paths = files.flatten().map(|file| file.path());
    let is_of = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(&format!("{server}-"))
            && !name.contains("summary")
            && !path.to_string_lossy().contains("/calibration-")
    };
    paths.find(is_of).unwrap()
}

#[test]
fn devices_are_calibrated_once_and_plans_use_it() {
    let lab = Lab::start();
    let (output, said) = lab.edgecut("devices --cluster lab.toml --calibrate --format json");
    assert!(output.status.success(), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown: Vec<CalibrationRow> = serde_json::from_value(told["calibrations"].clone()).unwrap();
    assert_eq!(shown.iter().map(|row| row.server.as_str()).collect::<Vec<_>>(), ["s0", "s1"]);
    assert!(shown.iter().all(|row| row.n > 100 && row.factor >= 1.0), "{shown:?}");
    let table = lab.folder.path().join("profiles/calibration.csv");
    let text = fs::read_to_string(&table).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");

    let squeezenet = model("squeezenet_v1.1");
    let pinned =
        format!("plan {squeezenet} --cluster lab.toml --rehearse 0 --no-split --pin *=s0/cpu --profile-budget 1s");
    let (_, said) = lab.plan(&pinned);
    assert!(said.contains("calibrated: yes, by profiles/calibration.csv"), "{said}");
    let (isolated, said) = lab.plan(&format!("{pinned} --calibration none.csv"));
    assert!(said.contains("calibrated: no"), "{said}");

    // Other readers of the folder leave the table alone.
    let (output, said) = lab.edgecut("report costs profiles");
    assert!(output.status.success(), "{said}");

    // Each step takes a quarter longer.
    let slower = |row: CalibrationRow| {
        let bare = edgecut::profile::Calibration { factor: 1.25, ..Default::default() };
        let device = edgecut::profile::ProfiledDevice {
            server: row.server,
            device: row.device,
            hardware: row.hardware,
            engine: edgecut::engine::EngineId { name: row.engine, version: row.engine_version },
            threads: row.threads,
        };
        CalibrationRow::new(&device, bare, &[])
    };
    let slow: Vec<CalibrationRow> = shown.into_iter().map(slower).collect();
    edgecut::session::calibration::CalibrationTable::update(&table, &slow).unwrap();
    let (slow, _) = lab.plan(&pinned);
    assert!((slow / isolated - 1.25).abs() < 1e-6, "{slow} after {isolated}");

    // The same without agents, from files.
    let file = profile(&lab.folder.path().join("profiles"), "s0");
    let (recorded, said) = lab.plan(&format!("plan {squeezenet} --no-split --profile {}", file.display()));
    assert!(
        (recorded / slow - 1.0).abs() < 1e-6 && said.contains("calibrated: yes"),
        "{recorded} after {slow}: {said}"
    );

    let stale = fs::read_to_string(&table).unwrap().replace(",tract,", ",onnxruntime,");
    fs::write(&table, stale).unwrap();
    let (again, said) = lab.plan(&pinned);
    assert!((again / isolated - 1.0).abs() < 1e-6, "{again}");
    assert!(said.contains("calibration of s0/cpu is of") && said.contains("not used"), "{said}");

    fs::write(&table, "from,to\na,b\n").unwrap();
    let (output, said) = lab.edgecut(&pinned);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("calibration.csv"), "{said}");
}
