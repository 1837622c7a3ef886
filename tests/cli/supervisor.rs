//! Agents whose process is killed while it computes: the run is lost, the server is not.

use std::{
    fs,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, cluster_of, edgecut, ending, model, signal, within};

const PATIENCE: Duration = Duration::from_secs(120);

/// Agents whose runs take long, and a plan that runs on all of them.
struct Lab {
    folder: tempfile::TempDir,
    agents: Vec<AgentProcess>,
}

impl Lab {
    fn start(count: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let agent = |index: usize| {
            let name = format!("s{index}");
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_edgecut"));
            command.args(["agent", "--name", &name, "--listen", "127.0.0.1:0", "--threads", "1", "--dilate", "20"]);
            command.args(["--limit", "drain-time=10m"]).stderr(Stdio::null());
            // The locks by which measurements take turns are there: those of other tests are not waited for.
            AgentProcess::spawn(&name, command.env("TMPDIR", folder.path()))
        };
        let agents: Vec<AgentProcess> = (0..count).map(agent).collect();
        fs::write(folder.path().join("lab.toml"), cluster_of(&agents)).unwrap();
        Lab { folder, agents }
    }

    fn planned(count: usize, pins: &str) -> Lab {
        let lab = Lab::start(count);
        let squeezenet = model("squeezenet_v1.1");
        lab.succeeds(&format!("plan {squeezenet} --profile-budget 200ms --rehearse 0 --budget 100 --no-split{pins}"));
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

    /// Runs until the agents compute, then calls `then`; how it ended.
    fn interrupted(&self, arguments: &str, then: impl FnOnce()) -> Output {
        let mut running = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while !self.succeeds("devices").contains("is in use by") {
            assert!(begin.elapsed() < PATIENCE, "nothing runs");
        }
        thread::sleep(Duration::from_secs(2));
        assert!(running.try_wait().unwrap().is_none(), "it has ended");
        then();
        ending(PATIENCE, running)
    }
}

/// What was printed, without the breaks of long lines.
fn said(output: &Output) -> String {
    stderr(output).split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_killed_process_costs_the_run_and_not_the_server() {
    let lab = Lab::planned(1, "");
    let before = lab.agents[0].worker();
    for (verb, name, arguments) in [
        ("run", "FPE", "run plan.json --repeat 5000 --no-check --no-replan".to_string()),
        // Not SEGV: Rust's handler ignores one that no memory access has caused.
        ("profile", "ILL", format!("profile {} --mode in-situ --budget 40000s --output p", model("squeezenet_v1.1"))),
    ] {
        let ended = lab.interrupted(&arguments, || signal(lab.agents[0].worker(), name));
        let said = said(&ended);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        let killed = format!("its process was killed by SIG{name}");
        assert!(said.contains(&killed) && said.contains(&format!("the {verb} of ")), "{said}");
        assert!(said.contains(": computing ") || said.contains(": loading "), "{said}");
        assert!(lab.succeeds("devices").contains(&killed));
    }
    assert_ne!(lab.agents[0].worker(), before);
    lab.succeeds("run plan.json --repeat 1 --no-check");
}

#[test]
fn the_agent_that_was_killed_is_named_and_not_its_peer() {
    let lab = Lab::planned(2, " --pin nn.max_pool2d*=s1/cpu");
    let ended = lab.interrupted("run plan.json --repeat 5000 --no-check --no-replan", || {
        signal(lab.agents[1].worker(), "ABRT");
    });
    let said = said(&ended);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("agent s1 was lost") && said.contains("its process was killed by SIGABRT"), "{said}");
}

#[test]
fn a_service_manager_may_stop_both_processes() {
    let mut lab = Lab::planned(1, "");
    let ended = lab.interrupted("run plan.json --repeat 20 --no-check", || {
        let worker = lab.agents[0].worker();
        signal(lab.agents[0].id(), "TERM");
        signal(worker, "TERM");
    });
    assert!(ended.status.success(), "what is under way is finished: {}", stderr(&ended));
    assert_eq!(lab.agents[0].wait(PATIENCE), Some(0));
}

#[test]
fn no_process_stays_when_an_agent_is_killed() {
    let mut lab = Lab::start(1);
    let worker = lab.agents[0].worker();
    assert_ne!(worker, lab.agents[0].id());
    lab.agents[0].kill();
    let begin = Instant::now();
    // A zombie does not run.
    let runs = || fs::read_to_string(format!("/proc/{worker}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while runs() {
        assert!(begin.elapsed() < PATIENCE, "{worker} still runs");
        thread::sleep(Duration::from_millis(10));
    }
    let back = AgentProcess::start("s0", &lab.agents[0].address.clone(), &[]);
    assert_eq!(back.address, lab.agents[0].address);
}
