//! Runs that go on when an agent is lost, with a plan for those that are left.

use std::{
    fs,
    path::PathBuf,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, cluster_of, edgecut, ending, model, within};
use edgecut::plan::Plan;

const PATIENCE: Duration = Duration::from_secs(120);

/// Agents without TLS, and the cluster file that names them.
struct Lab {
    folder: tempfile::TempDir,
    agents: Vec<AgentProcess>,
}

impl Lab {
    fn start(count: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let agents: Vec<AgentProcess> =
            (0..count).map(|index| AgentProcess::start(&format!("s{index}"), "127.0.0.1:0", &[])).collect();
        fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
        Lab { folder, agents }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &str) -> std::process::Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }

    fn edgecut(&self, arguments: &str) -> Output {
        within(PATIENCE, self.command(arguments))
    }

    /// A plan that needs the memory of two devices, so that it uses at least these.
    fn plan(&self) -> Plan {
        let squeezenet = model("squeezenet_v1.1");
        let plan =
            self.edgecut(&format!("plan {squeezenet} --memory 6MiB --profile-budget 1s --rehearse 1 --budget 500"));
        assert!(plan.status.success(), "{}", stderr(&plan));
        Plan::from_json(&fs::read(self.path("plan.json")).unwrap()).unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many runs each printed outcome is of.
fn counts(output: &Output) -> Vec<u64> {
    let outcomes = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    outcomes.map(|outcome| outcome.unwrap()["latency"]["n"].as_u64().unwrap()).collect()
}

#[test]
fn a_stream_goes_on_when_an_agent_is_killed() {
    let mut lab = Lab::start(3);
    let plan = lab.plan();
    let used = |name: &str| plan.devices.iter().any(|device| device.server == name && !device.order.is_empty());
    let victim = (1..3).find(|index| used(&format!("s{index}"))).expect("a plan over two servers");
    let mut run = lab.command("run plan.json --repeat 600 --throughput --format json");
    let running = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(3));
    lab.agents[victim].kill();
    let begin = Instant::now();
    let ended = ending(PATIENCE, running);
    let message = stderr(&ended);
    assert!(ended.status.success(), "after {:?}: {message}", begin.elapsed());
    assert!(message.contains("planning again for the servers that answer"), "{message}");
    let counts = counts(&ended);
    assert!(counts.len() == 2 && counts.iter().sum::<u64>() == 600, "{counts:?}: {message}");
}

#[test]
fn without_results_or_other_plans_a_run_ends() {
    let mut lab = Lab::start(2);
    lab.plan();
    lab.agents[1].kill();
    // No result yet: what was asked for cannot be had.
    let gone = lab.edgecut("run plan.json --repeat 3");
    assert_eq!(gone.status.code(), Some(1), "{}", stderr(&gone));
    assert!(!stderr(&gone).contains("planning again"), "{}", stderr(&gone));
    // One device alone has too little memory.
    let gone = lab.edgecut("run plan.json --repeat 3 --replan");
    assert_eq!(gone.status.code(), Some(1), "{}", stderr(&gone));
    assert!(stderr(&gone).contains("no other plan"), "{}", stderr(&gone));
    let back = AgentProcess::start("s1", &lab.agents[1].address.clone(), &[]);
    let again = lab.edgecut("run plan.json --repeat 3");
    assert!(again.status.success(), "{}", stderr(&again));
    drop(back);
}

#[test]
fn the_server_of_the_inputs_cannot_be_replaced() {
    let mut lab = Lab::start(2);
    lab.plan();
    lab.agents[0].kill();
    let gone = lab.edgecut("run plan.json --repeat 3 --replan");
    assert_eq!(gone.status.code(), Some(1), "{}", stderr(&gone));
    assert!(stderr(&gone).contains("server s0 has the inputs or gets the results"), "{}", stderr(&gone));
}
