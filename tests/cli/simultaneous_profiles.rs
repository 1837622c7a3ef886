//! Two profiles that are made on one machine at the same time: they take turns.

use std::{process::Stdio, time::Duration};

use crate::common::process::{edgecut, ending, model};
use edgecut::profile::ProfileRow;

const PATIENCE: Duration = Duration::from_secs(240);

#[test]
fn profiles_on_one_machine_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let start = |output: &str| {
        let mut command = edgecut(folder.path());
        command.args(["profile", &model("squeezenet_v1.1"), "--budget", "2s", "--output", output, "--format", "csv"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [start("one"), start("two")];
    let mut waits = 0;
    for child in children {
        let output = ending(PATIENCE, child);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        waits += usize::from(message.contains("local/cpu: waiting for process "));
        let rows = csv::Reader::from_reader(&output.stdout[..]).into_deserialize::<ProfileRow>();
        let rows: Vec<ProfileRow> = rows.map(Result::unwrap).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.measured_at.is_some()), "{rows:?}");
    }
    assert!(waits > 0, "neither waited for the other");
}
