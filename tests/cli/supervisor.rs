//! Agents whose process is killed while it computes: the run is lost, the server is not.

use std::{
    fs,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, edgecut, ending, model, signal, within};

const PATIENCE: Duration = Duration::from_secs(120);

/// An agent whose runs take long, and a plan that runs on it.
struct Lab {
    folder: tempfile::TempDir,
    agent: AgentProcess,
}

impl Lab {
    fn start() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let agent = AgentProcess::start("s0", "127.0.0.1:0", &["--dilate".to_string(), "20".to_string()]);
        let server = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
        fs::write(folder.path().join("lab.toml"), server).unwrap();
        Lab { folder, agent }
    }

    fn planned() -> Lab {
        let lab = Lab::start();
        let squeezenet = model("squeezenet_v1.1");
        lab.succeeds(&format!("plan {squeezenet} --profile-budget 200ms --rehearse 0 --budget 100 --no-split"));
        lab
    }

    fn command(&self, arguments: &str) -> std::process::Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }

    fn succeeds(&self, arguments: &str) -> String {
        let output = within(PATIENCE, self.command(arguments));
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output) + &String::from_utf8(output.stdout).unwrap()
    }

    /// Runs until the agent computes, then calls `then`; how it ended.
    fn interrupted(&self, arguments: &str, then: impl FnOnce(&AgentProcess)) -> Output {
        let running = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while !self.succeeds("devices").contains("is in use by") {
            assert!(begin.elapsed() < PATIENCE, "nothing runs");
        }
        thread::sleep(Duration::from_secs(2));
        then(&self.agent);
        ending(PATIENCE, running)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_killed_process_costs_the_run_and_not_the_server() {
    let lab = Lab::planned();
    let before = lab.agent.worker();
    for (verb, name, arguments) in [
        ("run", "FPE", "run plan.json --repeat 5000 --no-check --no-replan".to_string()),
        ("profile", "SEGV", format!("profile {} --budget 1000s --output p", model("squeezenet_v1.1"))),
    ] {
        let ended = lab.interrupted(&arguments, |agent| signal(agent.worker(), name));
        let message = stderr(&ended);
        assert_eq!(ended.status.code(), Some(1), "{message}");
        let said = message.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let killed = format!("its process was killed by SIG{name}");
        assert!(said.contains(&killed) && said.contains(&format!("the {verb} of ")), "{message}");
        assert!(said.contains(": computing ") || said.contains(": loading "), "{message}");
        assert!(lab.succeeds("devices").contains(&killed));
    }
    assert_ne!(lab.agent.worker(), before);
    lab.succeeds("run plan.json --repeat 1 --no-check");
}

#[test]
fn a_service_manager_may_stop_both_processes() {
    let mut lab = Lab::planned();
    let ended = lab.interrupted("run plan.json --repeat 20 --no-check", |agent| {
        let worker = agent.worker();
        signal(agent.id(), "TERM");
        signal(worker, "TERM");
    });
    assert!(ended.status.success(), "what is under way is finished: {}", stderr(&ended));
    assert_eq!(lab.agent.wait(PATIENCE), Some(0));
}

#[test]
fn no_process_stays_when_an_agent_is_killed() {
    let mut lab = Lab::start();
    let worker = lab.agent.worker();
    assert_ne!(worker, lab.agent.id());
    lab.agent.kill();
    let begin = Instant::now();
    // A process that has ended and that nobody has waited for is no running one.
    let runs = || fs::read_to_string(format!("/proc/{worker}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while runs() {
        assert!(begin.elapsed() < PATIENCE, "{worker} still runs");
        thread::sleep(Duration::from_millis(10));
    }
    let back = AgentProcess::start("s0", &lab.agent.address.clone(), &[]);
    assert_eq!(back.address, lab.agent.address);
}
