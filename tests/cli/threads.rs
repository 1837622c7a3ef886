//! More compute threads than cores: allowed, and told.

use std::{fs, process::Command, thread::available_parallelism, time::Duration};

use crate::common::process::{AgentProcess, edgecut, within};

const PATIENCE: Duration = Duration::from_secs(180);

/// What is said of `threads` threads on this machine.
fn warning(threads: usize, cores: usize) -> String {
    let cores = if cores == 1 { "one core".to_string() } else { format!("{cores} cores") };
    format!("computes with {threads} threads, but its process may use {cores}")
}

#[test]
fn more_threads_than_cores_are_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    let cores = available_parallelism().unwrap().get();
    let many = 32 * cores;
    for line in ["run m.relay", "profile m.relay --budget 1ms --output p", "plan m.relay --rehearse 0 --profile p"] {
        for (threads, told) in [(many, true), (1, false)] {
            let mut command = edgecut(folder.path());
            command.args(line.split(' ')).args(["--threads", &threads.to_string()]);
            let output = within(PATIENCE, command);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{line}: {said}");
            assert_eq!(said.matches("warning:").count(), usize::from(told), "{line} --threads {threads}: {said}");
            assert_eq!(said.contains(&warning(many, cores)), told, "{line} --threads {threads}: {said}");
            assert_eq!(said.contains(&format!("ask for at most {cores} (--threads")), told, "{line}: {said}");
        }
    }
}

/// The agent tells it, and so do its clients, to which it offers these threads.
#[test]
fn an_agent_with_more_threads_than_cores_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let cores = available_parallelism().unwrap().get();
    let many = 32 * cores;
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
    command.args(["agent", "--name", "edge", "--listen", "127.0.0.1:0", "--threads", &many.to_string()]);
    let mut agent = AgentProcess::spawn("edge", command.stderr(fs::File::create(&log).unwrap()));
    fs::write(folder.path().join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    let cluster = format!("[[server]]\nname = \"edge\"\naddress = \"{}\"\n", agent.address);
    fs::write(folder.path().join("c.toml"), cluster).unwrap();
    let mut command = edgecut(folder.path());
    command.args(["profile", "m.relay", "--budget", "1ms", "--output", "p", "--cluster", "c.toml"]);
    let output = within(PATIENCE, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(agent.terminate(PATIENCE), Some(0));
    for said in [said, fs::read_to_string(log).unwrap()] {
        assert!(said.contains(&format!("warning: edge/cpu {}", warning(many, cores))), "{said}");
    }
}
