//! Agents killed at random moments of everything that is done with them: it ends with a clear message or goes on, in time, and
//! what was measured or finished before is not lost. And many runs, after which agents hold no more than before.
//!
//! `EDGECUT_KILLS` kills agents that often, `EDGECUT_SOAK_RUNS` is the number of runs, `EDGECUT_SEED` chooses what and when.

#[path = "common/mod.rs"]
mod common;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::process::{AgentProcess, Authority, edgecut, ending, model, within};
use edgecut::agent::protocol::role::Role;

/// Nothing may take longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// In which a stream must go on.
const RECOVERY: Duration = Duration::from_secs(10);

/// Three agents with mutual TLS and metrics.
struct Lab {
    folder: tempfile::TempDir,
    authority: Authority,
    agents: Vec<AgentProcess>,
    metrics: Vec<String>,
}

impl Lab {
    fn start() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path());
        authority.issue("client", Role::Operator);
        let mut lab = Lab { folder, authority, agents: Vec::new(), metrics: Vec::new() };
        let mut cluster = "[tls]\nca = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n".to_string();
        for index in 0..3 {
            let name = format!("s{index}");
            lab.authority.issue(&name, Role::Agent);
            let (agent, metrics) = lab.agent(index, "127.0.0.1:0");
            lab.metrics.push(metrics);
            cluster += &format!("[[server]]\nname = \"{name}\"\naddress = \"{}\"\n", agent.address);
            lab.agents.push(agent);
        }
        fs::write(lab.path("lab.toml"), cluster).unwrap();
        let plan = "--memory 6MiB --profile-budget 1s --rehearse 1 --budget 500 --output plan.json";
        let planned = lab.edgecut(&format!("plan {} {plan}", model("squeezenet_v1.1")));
        assert!(planned.status.success(), "{}", stderr(&planned));
        lab
    }

    fn agent(&self, index: usize, listen: &str) -> (AgentProcess, String) {
        let name = format!("s{index}");
        AgentProcess::start_watched(&name, listen, &self.authority.flags(&name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }

    fn edgecut(&self, arguments: &str) -> Output {
        within(PATIENCE, self.command(arguments))
    }

    /// Inferences that the agent of the source has taken part in; `None` if it does not answer.
    fn inferences(&self) -> Option<u64> {
        let mut socket = TcpStream::connect(&self.metrics[0]).ok()?;
        write!(socket, "GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        socket.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix("edgecut_inferences_total ")?.parse().ok())
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Rows of the profiles in a folder, without their headers.
fn rows(folder: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for model in fs::read_dir(folder).into_iter().flatten().flatten() {
        for file in fs::read_dir(model.path()).into_iter().flatten().flatten() {
            if !file.file_name().to_string_lossy().contains("summary") {
                let text = fs::read_to_string(file.path()).unwrap();
                let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
                all.extend(complete.lines().skip(1).map(str::to_string));
            }
        }
    }
    all
}

/// Runs of which outcomes were printed.
fn finished(output: &Output) -> u64 {
    let outcomes = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    outcomes.map(|outcome| outcome.unwrap()["latency"]["n"].as_u64().unwrap()).sum()
}

#[test]
fn agents_are_killed_at_any_moment() {
    let kills = number("EDGECUT_KILLS", 8);
    let mut rng = fastrand::Rng::with_seed(number("EDGECUT_SEED", 1));
    let mut lab = Lab::start();
    let squeezenet = model("squeezenet_v1.1");
    let (mut recoveries, mut ends) = (Vec::new(), 0);
    for kill in 0..kills {
        let (victim, delay) = (rng.usize(0..3), Duration::from_millis(rng.u64(20..2500)));
        let profiles = format!("profiles-{kill}");
        let verb = ["profile", "plan", "run", "stream"][rng.usize(0..4)];
        let arguments = match verb {
            "profile" => format!("profile {squeezenet} --budget 2s --output {profiles}"),
            "plan" => format!(
                "plan {squeezenet} --profile {profiles} --profile-budget 500ms --rehearse 1 --budget 200 --output {kill}.json"
            ),
            "run" => "run plan.json --repeat 150 --no-check --no-replan --format json".to_string(),
            _ => "run plan.json --repeat 150 --throughput --no-check --replan --format json".to_string(),
        };
        let running = lab.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(delay);
        lab.agents[victim].kill();
        let killed = Instant::now();
        let kept = rows(&lab.path(&profiles));
        let before = lab.inferences();
        let mut recovered = None;
        let mut running = running;
        while verb == "stream" && victim > 0 && recovered.is_none() && running.try_wait().unwrap().is_none() {
            if lab.inferences() > before.map(|count| count + 1) {
                recovered = Some(killed.elapsed());
            }
            thread::sleep(Duration::from_millis(20));
        }
        let ended = ending(PATIENCE, running);
        let (message, code) = (stderr(&ended), ended.status.code());
        let story = format!("{kill}: {verb}, s{victim} after {delay:?}: {code:?} in {:?}\n{message}", killed.elapsed());
        println!("{}", story.lines().next().unwrap_or_default());
        let names_it = ["agent", "server", "link to"].iter().any(|of| message.contains(&format!("{of} s{victim}")));
        match code {
            Some(0) => {}
            Some(1) => assert!(names_it, "it does not say why it ended: {story}"),
            _ => panic!("{story}"),
        }
        ends += u32::from(code == Some(1));
        let after = rows(&lab.path(&profiles));
        assert!(after.is_superset(&kept), "measurements are lost: {story}");
        if matches!(verb, "run" | "stream") {
            let told = message.rsplit(" of 150 runs were finished").nth(1).and_then(|text| text.rsplit(' ').next());
            match code {
                Some(0) => assert_eq!(finished(&ended), 150, "{story}"),
                _ => assert_eq!(finished(&ended), told.map_or(0, |count| count.parse().unwrap()), "{story}"),
            }
        }
        if verb == "stream" && victim > 0 {
            assert_eq!(code, Some(0), "there is a plan for two: {story}");
            // What ended before the kill had nothing to recover from.
            if let Some(took) = recovered.filter(|_| message.contains("planning again")) {
                assert!(took < RECOVERY, "{took:?}: {story}");
                recoveries.push(took);
            }
        }
        let address = lab.agents[victim].address.clone();
        (lab.agents[victim], lab.metrics[victim]) = lab.agent(victim, &address);
    }
    recoveries.sort();
    println!(
        "{kills} kills: {ends} ended with a message, the others went on or had ended; streams went on after {recoveries:?}"
    );
}

/// What a process holds.
#[derive(Debug)]
struct Resources {
    resident: u64,
    /// Bytes in transparent huge pages: the system collapses small pages, which makes untouched memory resident.
    huge: u64,
    threads: u64,
    descriptors: usize,
}

impl Resources {
    /// `None` where there is no /proc.
    fn of(pid: u32) -> Option<Resources> {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        Some(Resources {
            resident: field("status", "VmRSS:")? << 10,
            huge: field("smaps_rollup", "AnonHugePages:").unwrap_or_default() << 10,
            threads: field("status", "Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
        })
    }
}

#[test]
fn agents_hold_no_more_after_many_runs() {
    let runs = number("EDGECUT_SOAK_RUNS", 3000);
    let lab = Lab::start();
    let plan = "--profile-budget 500ms --rehearse 0 --budget 200 --no-split --output small.json";
    let pins = "--pin nn.dense*=s1/cpu --pin sigmoid*=s2/cpu";
    let planned = lab.edgecut(&format!("plan {} {plan} {pins}", model("lstm")));
    assert!(planned.status.success(), "{}", stderr(&planned));
    let run = |count: u64| {
        let mut command = lab.command(&format!("run small.json --repeat {count} --no-check --no-replan --format json"));
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = ending(Duration::from_secs(7200), running);
        assert!(ended.status.success(), "{}", stderr(&ended));
        let outcome: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        (outcome["latency"]["median_us"].as_f64().unwrap(), outcome["latency"]["p95_us"].as_f64().unwrap())
    };
    run(1000);
    let held = || lab.agents.iter().filter_map(|agent| Resources::of(agent.worker())).collect::<Vec<_>>();
    let mut before = held();
    // Threads of the runtime's pool for blocking work come and go.
    let has_no_more = |now: &Resources, before: &Resources| {
        now.threads <= before.threads + 2 && now.descriptors <= before.descriptors
    };
    // In huge pages, a leak grows in every batch.
    let mut always_grows = vec![true; before.len()];
    for _ in 0..3 {
        let begin = Instant::now();
        let (median, p95) = run(runs);
        let rate = runs as f64 / begin.elapsed().as_secs_f64();
        println!("{runs} runs: {rate:.0} a second, median {median} us, 95th percentile {p95} us");
        // Connections between agents may close after that of their client.
        let ended = Instant::now();
        let mut after = held();
        while !after.iter().zip(&before).all(|(now, before)| has_no_more(now, before)) && ended.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(100));
            after = held();
        }
        for (number, (before, after)) in before.iter().zip(&after).enumerate() {
            let what = format!("{}: {before:?} to {after:?}", lab.agents[number].name);
            println!("{what}");
            let most = 1.05 * before.resident as f64;
            let joined = after.huge.saturating_sub(before.huge);
            assert!(after.resident.saturating_sub(joined) as f64 <= most, "{what}");
            assert!(has_no_more(after, before), "{what}");
            always_grows[number] &= after.resident as f64 > most;
        }
        if !always_grows.contains(&true) {
            return;
        }
        before = after;
    }
    panic!("memory in huge pages has grown in every batch");
}
