//! What those see who watch an agent, and how it stops.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, edgecut, ending, get, metric, model, signal, within};

const PATIENCE: Duration = Duration::from_secs(120);

/// An agent with metrics, and the folder of a cluster file that names it.
struct Watched {
    folder: tempfile::TempDir,
    agent: AgentProcess,
    metrics: String,
}

impl Watched {
    fn start(flags: &[&str]) -> Watched {
        let folder = tempfile::tempdir().unwrap();
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let (agent, metrics) = AgentProcess::start_watched("s0", "127.0.0.1:0", &flags);
        let cluster = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
        fs::write(folder.path().join("lab.toml"), cluster).unwrap();
        Watched { folder, agent, metrics }
    }

    fn command(&self, arguments: &str) -> std::process::Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }

    /// Status and body of what the agent serves at `path`.
    fn get(&self, path: &str) -> (u16, String) {
        get(&self.metrics, path)
    }

    fn metric(&self, name: &str) -> Option<f64> {
        metric(&self.metrics, name)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A free port of loopback, as an address.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// An agent whose log goes where `stderr` leads.
fn logging_to(stderr: Stdio) -> Watched {
    let (folder, metrics) = (tempfile::tempdir().unwrap(), free_address());
    let mut command = edgecut(folder.path());
    command.args(["agent", "--name", "s0", "--listen", "127.0.0.1:0", "--threads", "1", "--metrics", &metrics]);
    let agent = AgentProcess::spawn("s0", command.env("TMPDIR", folder.path()).stderr(stderr));
    let cluster = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
    fs::write(folder.path().join("lab.toml"), cluster).unwrap();
    Watched { folder, agent, metrics }
}

#[cfg(target_os = "linux")]
#[test]
fn an_agent_whose_log_cannot_be_written_serves_all_the_same() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let (reader, unread) = std::io::pipe().unwrap();
    for (log, is_lost) in [(Stdio::from(full), true), (Stdio::from(closed), true), (Stdio::from(unread), false)] {
        let mut watched = logging_to(log);
        let begin = Instant::now();
        while TcpStream::connect(&watched.metrics).is_err() {
            assert!(begin.elapsed() < PATIENCE, "it serves no metrics");
            thread::sleep(Duration::from_millis(20));
        }
        // Each is closed, and logged.
        for _ in 0..100 {
            TcpStream::connect(&watched.agent.address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        }
        let found = within(PATIENCE, watched.command("devices"));
        assert!(found.status.success(), "{}", stderr(&found));
        assert_eq!(watched.get("/readyz"), (200, "cpu: ready\n".to_string()));
        assert_eq!(watched.metric("edgecut_log_lines_lost_total").unwrap() > 0.0, is_lost);
        assert_eq!(watched.agent.terminate(PATIENCE), Some(0));
    }
    drop(reader);
}

#[test]
fn metrics_count_what_an_agent_does() {
    let watched = Watched::start(&["--memory", "1GiB"]);
    assert_eq!(watched.get("/livez"), (200, "ok\n".to_string()));
    assert_eq!(watched.get("/readyz"), (200, "cpu: ready\n".to_string()));
    assert_eq!(watched.get("/other").0, 404);
    assert_eq!(watched.metric("edgecut_device_memory_limit_bytes{device=\"cpu\"}"), Some(f64::from(1 << 30)));
    let plan = format!("plan {} --profile-budget 200ms --rehearse 0 --budget 100", model("lstm"));
    let plan = within(PATIENCE, watched.command(&plan));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let run = within(PATIENCE, watched.command("run plan.json --repeat 7 --no-check"));
    assert!(run.status.success(), "{}", stderr(&run));
    assert_eq!(watched.metric("edgecut_jobs_total{kind=\"Run\",outcome=\"Done\"}"), Some(1.0));
    assert_eq!(watched.metric("edgecut_jobs_total{kind=\"Profile\",outcome=\"Done\"}"), Some(1.0));
    assert!(watched.metric("edgecut_inferences_total").unwrap() >= 8.0, "{}", watched.get("/metrics").1);
    // The device is given back after the client has its last answer.
    let begin = Instant::now();
    while watched.metric("edgecut_device_leased{device=\"cpu\"}") != Some(0.0) {
        assert!(begin.elapsed() < PATIENCE, "{}", watched.get("/metrics").1);
        thread::sleep(Duration::from_millis(20));
    }
    if cfg!(target_os = "linux") {
        assert!(watched.metric("process_resident_memory_bytes").unwrap() > 1e6);
    }
    assert!(watched.get("/metrics").1.ends_with("# EOF\n"));
}

#[test]
fn weights_are_sent_once() {
    let watched = Watched::start(&["--memory", "1GiB"]);
    let does = |command: &str| {
        let done = within(PATIENCE, watched.command(command));
        assert!(done.status.success(), "{command}: {}", stderr(&done));
    };
    let exported = within(PATIENCE, {
        let mut command = edgecut(watched.folder.path());
        command.args(["export", &model("lstm"), "--format", "onnx", "--output", "lstm.onnx"]);
        command
    });
    assert!(exported.status.success(), "{}", stderr(&exported));
    let received = || watched.metric("edgecut_weights_received_bytes_total").unwrap();
    assert_eq!(received(), 0.0);
    does("profile lstm.onnx --budget 200ms");
    let once = received();
    assert!(once > 1e6 && watched.metric("edgecut_weights_bytes") == Some(once), "{once}");
    does("plan lstm.onnx --rehearse 1 --budget 100");
    // The outputs are compared with those of this machine.
    does("run plan.json --repeat 3");
    assert_eq!(received(), once);
}

/// A run that takes longer than the tests wait, once it has begun.
fn long_run(watched: &Watched) -> std::process::Child {
    let plan = format!("plan {} --profile-budget 200ms --rehearse 0 --budget 100", model("lstm"));
    let plan = within(PATIENCE, watched.command(&plan));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let mut run = watched.command("run plan.json --repeat 1000000 --no-check");
    let running = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while watched.metric("edgecut_inferences_total").unwrap() < 10.0 {
        assert!(begin.elapsed() < PATIENCE, "it does not run");
        thread::sleep(Duration::from_millis(50));
    }
    running
}

#[test]
fn an_agent_that_is_to_stop_lets_what_is_under_way_end() {
    let mut watched = Watched::start(&["--limit", "drain-time=1m"]);
    let running = long_run(&watched);
    signal(watched.agent.id(), "TERM");
    let begin = Instant::now();
    while watched.get("/readyz").0 != 503 {
        assert!(begin.elapsed() < PATIENCE);
    }
    assert_eq!(watched.get("/livez").0, 200);
    let refused = within(PATIENCE, watched.command(&format!("profile {} --budget 1s --output p", model("lstm"))));
    assert!(stderr(&refused).contains("the agent is shutting down"), "{}", stderr(&refused));
    let before = watched.metric("edgecut_inferences_total").unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(watched.metric("edgecut_inferences_total").unwrap() > before, "it goes on");
    // Its client leaves: nothing is under way any longer.
    signal(running.id(), "KILL");
    ending(PATIENCE, running);
    let status = watched.agent.wait(Duration::from_secs(20));
    assert_eq!(status, Some(0));
}

#[test]
fn what_is_under_way_has_a_limited_time_to_end() {
    for second_signal in [false, true] {
        let limit = if second_signal { "drain-time=60m" } else { "drain-time=500ms" };
        let mut watched = Watched::start(&["--limit", limit]);
        let running = long_run(&watched);
        signal(watched.agent.id(), "TERM");
        if second_signal {
            thread::sleep(Duration::from_millis(200));
            signal(watched.agent.id(), "TERM");
        }
        let ended = ending(PATIENCE, running);
        assert_eq!(ended.status.code(), Some(1));
        assert!(stderr(&ended).contains("the agent is shutting down"), "{}", stderr(&ended));
        assert_eq!(watched.agent.wait(Duration::from_secs(20)), Some(0));
    }
}

#[test]
fn a_log_of_json_has_an_object_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = edgecut(folder.path());
    command.args(["agent", "--name", "s0", "--listen", "127.0.0.1:0", "--threads", "1", "--log-format", "json"]);
    let agent = AgentProcess::spawn("s0", command.stderr(fs::File::create(&log).unwrap()));
    let cluster = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
    fs::write(folder.path().join("lab.toml"), cluster).unwrap();
    let mut devices = edgecut(folder.path());
    devices.args(["devices", "--cluster", "lab.toml"]);
    assert!(within(PATIENCE, devices).status.success());
    let is_connection =
        |event: &serde_json::Value| event["message"].as_str().unwrap().starts_with("connection from 127.0.0.1:");
    // A thread of the agent writes its log; the last line may not be whole yet.
    let begin = Instant::now();
    loop {
        let log = fs::read_to_string(&log).unwrap();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let events: Vec<serde_json::Value> = whole
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if events.iter().any(is_connection) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{log}");
        thread::sleep(Duration::from_millis(10));
    }
    drop(agent);
}
