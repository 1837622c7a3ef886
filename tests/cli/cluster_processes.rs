//! A cluster as its users have it: agents in processes of their own, mutual TLS, the real binary on both sides.
//! Profiles, plans and runs go through it; agents are killed in the middle, stopped, capped and left out.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::Output,
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, Authority, edgecut, ending, model, signal, within};
use edgecut::{
    agent::{protocol::role::Role, results::Breakdown},
    graph::{DType, TensorType},
    plan::{Plan, file::Source},
    units::Micros,
    values::{read_npz, seeded, write_npz},
};

/// Long enough for any deadline of the program itself to strike first.
const PATIENCE: Duration = Duration::from_secs(180);

/// Agents with certificates of one authority, and the cluster file that names them.
struct Lab {
    folder: tempfile::TempDir,
    authority: Authority,
    agents: Vec<AgentProcess>,
}

impl Lab {
    fn start(count: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path());
        let mut lab = Lab { folder, authority, agents: Vec::new() };
        lab.authority.issue("client", Role::Operator);
        for index in 0..count {
            let name = format!("s{index}");
            lab.authority.issue(&name, Role::Agent);
            let agent = AgentProcess::start(&name, "127.0.0.1:0", &lab.tls(&name));
            lab.agents.push(agent);
        }
        lab.write_cluster("");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tls(&self, name: &str) -> Vec<String> {
        self.authority.flags(name)
    }

    /// Writes the cluster file, with `more` at its end.
    fn write_cluster(&self, more: &str) {
        let mut text = "[tls]\nca = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n".to_string();
        for agent in &self.agents {
            text += &format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address);
        }
        fs::write(self.path("lab.toml"), text + more).unwrap();
    }

    /// Runs the program in the lab's folder with the lab's cluster.
    fn edgecut(&self, arguments: &str) -> Output {
        within(PATIENCE, self.command(arguments))
    }

    fn command(&self, arguments: &str) -> std::process::Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn rows(folder: &Path, server: &str) -> Vec<String> {
    let mut found = Vec::new();
    for profile in fs::read_dir(folder.join("profiles")).into_iter().flatten().flatten() {
        for file in fs::read_dir(profile.path()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("{server}-")) && !name.contains("summary") {
                let text = fs::read_to_string(file.path()).unwrap();
                found = text.lines().skip(1).map(str::to_string).collect();
            }
        }
    }
    found
}

#[test]
fn a_plan_over_three_agents_keeps_memory_limits_and_gives_the_outputs_of_one_device() {
    let lab = Lab::start(3);
    let devices = lab.edgecut("devices --format json --links links.csv");
    assert!(devices.status.success(), "{}", stderr(&devices));
    let told: serde_json::Value = serde_json::from_slice(&devices.stdout).unwrap();
    assert_eq!((told["devices"].as_array().unwrap().len(), told["links"].as_array().unwrap().len()), (3, 6));

    let alone = model("squeezenet_v1.1");
    let run = within(PATIENCE, {
        let mut command = edgecut(lab.folder.path());
        command.args(["run", &alone, "--outputs", "whole.npz"]);
        command
    });
    assert!(run.status.success(), "{}", stderr(&run));

    // The parameters alone are 4.7 MiB.
    let plan = lab.edgecut(&format!(
        "plan {alone} --memory 5MiB --profile-budget 1s --rehearse 1 --budget 500 --output p/plan.json"
    ));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let text = fs::read(lab.path("p/plan.json")).unwrap();
    let planned = Plan::from_json(&text).unwrap();
    let used = planned.devices.iter().filter(|device| !device.order.is_empty()).count();
    assert!(used >= 2 && !planned.transfers.is_empty(), "{}", String::from_utf8_lossy(&text));
    assert!(planned.gap >= 0.0 && planned.bound.value > 0.0);
    // It was run before it was given out.
    assert!(stderr(&plan).contains("pilot run on"), "{}", stderr(&plan));
    assert!(planned.notes.iter().any(|note| note.starts_with("pilot run: ")), "{:?}", planned.notes);
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap();
    // Below the second limit plans ask for shards, which the first of two calls measures.
    for limit in ["5MiB", "9MiB"] {
        let [first, again] = ["first", "again"].map(|call| format!("{call}-{limit}.json"));
        for name in [&first, &again] {
            let flags = format!("--memory {limit} --rehearse 0 --budget 500 --output {name}");
            let plan = lab.edgecut(&format!("plan {alone} {flags}"));
            assert!(plan.status.success() && !stderr(&plan).contains("pilot run"), "{}", stderr(&plan));
            assert!(name == &first || !stderr(&plan).contains("measured"), "{}", stderr(&plan));
        }
        assert_eq!(read(&first), read(&again), "by the same profiles the same plan within {limit}");
    }

    // A plan for a stream has pilot runs as one, and predicted to take what it took.
    let stream = lab.edgecut(&format!(
        "plan {alone} --objective throughput --memory 1GiB --rehearse 1 --budget 500 --output stream.json"
    ));
    assert!(stream.status.success(), "{}", stderr(&stream));
    assert!(stderr(&stream).contains(" between results, predicted "), "{}", stderr(&stream));
    let streamed = Plan::from_json(read("stream.json").as_bytes()).unwrap();
    let between = format!("pilot run: {} between ", streamed.predicted.interval_us);
    assert!(streamed.notes.iter().any(|note| note.starts_with(&between)), "{between}: {:?}", streamed.notes);
    let run = lab.edgecut("run stream.json --throughput --repeat 10 --format json");
    assert!(run.status.success(), "{}", stderr(&run));
    let outcome: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(outcome["interval_us"].as_f64().unwrap() > 0.0, "{outcome}");

    // From the plan's own folder, without --cluster.
    let mut command = edgecut(lab.folder.path());
    command.args("run p/plan.json --repeat 5 --format json --outputs parts.npz".split(' '));
    let run = within(PATIENCE, command);
    assert!(run.status.success(), "{}", stderr(&run));
    let outcome: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(outcome["latency"]["n"], 5);
    assert_eq!(outcome["groups"].as_array().unwrap().len(), planned.groups.len());
    let breakdown: Breakdown = serde_json::from_value(outcome["breakdown"].clone()).unwrap();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    breakdown.times.iter().for_each(|time| *sums.entry(&time.device).or_default() += time.time_us.0);
    assert!(sums.len() >= used, "{breakdown:?}");
    for (device, sum) in sums {
        assert!((sum / breakdown.latency_us.0 - 1.0).abs() < 1e-9, "{device}: {sum}, {breakdown:?}");
    }
    let memory = outcome["memory"].as_array().unwrap();
    assert_eq!(memory.len(), used);
    for device in memory {
        let (peak, limit) = (device["peak_bytes"].as_u64().unwrap(), 5 << 20);
        assert!(peak > 0 && peak <= limit, "{device}");
        assert!(device["loading_bytes"].as_u64() >= device["parameter_bytes"].as_u64(), "{device}");
    }
    let (whole, parts) = (read_npz(&lab.path("whole.npz")).unwrap(), read_npz(&lab.path("parts.npz")).unwrap());
    assert_eq!(whole.keys().collect::<Vec<_>>(), parts.keys().collect::<Vec<_>>());
    for (name, whole) in &whole {
        let (a, b) = (whole.to_f64s().unwrap(), parts[name].to_f64s().unwrap());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-4 + 1e-3 * b.abs()), "{name}");
    }

    // Contents of an input and of a weight that are not generated reach the agents that need them.
    let given = [
        ("in_data", TensorType::of(DType::F32, &[1, 3, 224, 224])),
        ("in_conv1_bias", TensorType::of(DType::F32, &[64])),
    ];
    let given = given.map(|(name, ty)| (name.to_string(), seeded("another name", &ty).unwrap()));
    write_npz(&lab.path("given.npz"), given.iter().map(|(name, data)| (name.clone(), data))).unwrap();
    let run = lab.edgecut("run p/plan.json --repeat 1 --inputs given.npz --outputs given_out.npz");
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(String::from_utf8_lossy(&run.stdout).contains("outputs against one device: equal"));
    assert_ne!(read_npz(&lab.path("given_out.npz")).unwrap()["out_0"], whole["out_0"]);

    let throughput = lab.edgecut("run p/plan.json --repeat 12 --throughput --format json");
    assert!(throughput.status.success(), "{}", stderr(&throughput));
    let outcome: serde_json::Value = serde_json::from_slice(&throughput.stdout).unwrap();
    // Every input in flight takes memory; if the limits allow only one, there is no pipeline.
    let alone = stderr(&throughput).contains("room for one input at a time");
    assert!(alone || outcome["interval_us"].as_f64().is_some_and(|time| time > 0.0), "{outcome}");
}

#[test]
fn what_keeps_a_limit_by_a_schedule_has_pilot_runs_as_it_is() {
    let lab = Lab::start(1);
    // As a whole it takes 9.8 MiB.
    let subject = model("squeezenet_v1.1");
    let plan = lab.edgecut(&format!("plan {subject} --memory 9MiB --profile-budget 1s --rehearse 1 --budget 500"));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let message = stderr(&plan);
    assert!(message.contains("0 operators split, with schedules that need less memory: "), "{message}");
    let planned = Plan::from_json(&fs::read(lab.path("plan.json")).unwrap()).unwrap();
    assert!(!planned.schedules.is_empty());
    let piloted = planned.notes.iter().find(|note| note.starts_with("pilot run: "));
    let said = piloted.and_then(|note| note.split(['(', ':']).nth(1)).unwrap();
    let said: Micros = said.trim().parse().unwrap();
    // Parts without a measurement before are predicted to take what they took in the pilot run.
    assert!(planned.groups.iter().all(|group| group.source == Source::Measured));
    let predicted = planned.predicted.latency_us;
    assert!((predicted.0 / said.0 - 1.0).abs() < 0.01, "{predicted}, {said}");
    let run = lab.edgecut("run plan.json --repeat 3 --format json");
    assert!(run.status.success(), "{}", stderr(&run));
}

#[test]
fn a_profile_outlives_its_agent_and_goes_on() {
    let mut lab = Lab::start(1);
    let profile = format!("profile {} --budget 30s --granularity op", model("resnet18"));
    let mut running = lab.command(&profile).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while rows(lab.folder.path(), "s0").len() < 3 && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(running.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
    lab.agents[0].kill();
    let ended = ending(PATIENCE, running);
    let message = stderr(&ended);
    assert_eq!(ended.status.code(), Some(1), "{message}");
    for part in ["agent s0 was lost while profiling", "rows of s0/cpu are kept", "run the command again to continue"] {
        assert!(message.contains(part), "{message}");
    }
    let kept = rows(lab.folder.path(), "s0");
    assert!(kept.len() >= 3);

    let address = lab.agents[0].address.clone();
    lab.agents[0] = AgentProcess::start("s0", &address, &lab.tls("s0"));
    let again = lab.edgecut(&profile.replace("30s", "1s"));
    assert!(again.status.success(), "{}", stderr(&again));
    let all = rows(lab.folder.path(), "s0");
    assert!(all.len() > kept.len());
    assert!(kept.iter().all(|row| all.contains(row)), "what was measured is measured no more");
}

#[test]
fn a_plan_is_given_out_although_an_agent_is_lost_once_it_was_found() {
    let mut lab = Lab::start(2);
    let plan = format!("plan {} --profile-budget 1s --budget 500", model("squeezenet_v1.1"));
    let mut planning = lab.command(&plan).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(planning.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("found a plan of") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before");
    }
    lab.agents[1].kill();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(ending(PATIENCE, planning).status.success(), "{rest}");
    let planned = Plan::from_json(&fs::read(lab.path("plan.json")).unwrap()).unwrap();
    let notes = planned.notes.join("; ");
    let reasons = [
        "not all shards that plans asked for were measured: agent s1",
        "no pilot run: agent s1",
        "pilot runs ended early: agent s1",
    ];
    assert!(reasons.iter().any(|reason| notes.contains(reason)), "{notes}; {rest}");
}

#[test]
fn a_run_whose_agent_is_killed_ends_with_its_name() {
    let mut lab = Lab::start(2);
    let bert = model("torch_bert_tiny");
    let plan =
        lab.edgecut(&format!("plan {bert} --profile-budget 1s --rehearse 0 --budget 500 --pin nn.layer_norm*=s1/cpu"));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let mut run = lab.command("run plan.json --repeat 1000000 --no-check");
    let running = run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    lab.agents[1].kill();
    let begin = Instant::now();
    let ended = ending(PATIENCE, running);
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("agent s1 was lost"), "{}", stderr(&ended));
    // What was finished before is not lost with it.
    assert!(stderr(&ended).contains("of 1000000 runs were finished"), "{}", stderr(&ended));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("nn.layer_norm"));
    assert!(begin.elapsed() < Duration::from_secs(30), "it took {:?} to notice", begin.elapsed());

    // The other agent has let go of everything; the one that is gone is named with its address.
    let gone = lab.edgecut("run plan.json --repeat 1");
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains(&format!("agent s1 at {} does not answer", lab.agents[1].address)));
    let address = lab.agents[1].address.clone();
    lab.agents[1] = AgentProcess::start("s1", &address, &lab.tls("s1"));
    let again = lab.edgecut("run plan.json --repeat 3");
    assert!(again.status.success(), "{}", stderr(&again));
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(text.contains("predicted") && text.contains("outputs against one device: equal"), "{text}");
}

#[test]
fn an_agent_logs_connections_jobs_and_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = edgecut(folder.path());
    command.args(["agent", "--name", "s0", "--listen", "127.0.0.1:0", "--threads", "1", "--memory", "64KiB"]);
    let agent = AgentProcess::spawn("s0", command.stderr(fs::File::create(&log).unwrap()));
    let cluster = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
    fs::write(folder.path().join("lab.toml"), cluster).unwrap();
    let mut profile = edgecut(folder.path());
    profile.args(["profile", &model("lstm"), "--cluster", "lab.toml", "--budget", "100ms"]);
    within(PATIENCE, profile);
    drop(agent);
    let log = fs::read_to_string(&log).unwrap();
    let line = |part: &str| log.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {log}"));
    assert!(line("connection from 127.0.0.1:").starts_with("20"), "the time comes first: {log}");
    line("profile on cpu, ");
    line(" after ");
}

#[test]
fn an_agent_that_hangs_is_named_and_not_those_that_wait_for_it() {
    let lab = Lab::start(3);
    let bert = model("torch_bert_tiny");
    let pins = "--pin nn.layer_norm*=s1/cpu --pin *softmax*=s2/cpu";
    let plan = lab.edgecut(&format!("plan {bert} --profile-budget 1s --rehearse 0 --budget 500 --no-split {pins}"));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let mut run = lab.command("run plan.json --repeat 1000000 --no-check");
    let running = run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(2));
    lab.agents[1].freeze();
    let ended = ending(PATIENCE, running);
    let message = stderr(&ended);
    assert_eq!(ended.status.code(), Some(1), "{message}");
    assert!(
        message.contains("agent s1") && !message.contains("agent s0") && !message.contains("agent s2"),
        "{message}"
    );
}

#[test]
fn an_agent_stops_when_it_is_told_to_and_tells_its_clients() {
    let mut lab = Lab::start(1);
    // With fractions there is always more to measure.
    let profile = format!("profile {} --budget 60s --fractions", model("resnet18"));
    let running = lab.command(&profile).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while rows(lab.folder.path(), "s0").is_empty() && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
    }
    // The profile would go on for the time that the agent gives it.
    signal(lab.agents[0].id(), "TERM");
    let stopped = lab.agents[0].terminate(PATIENCE);
    assert_eq!(stopped, Some(0), "the agent ends well");
    let ended = ending(PATIENCE, running);
    assert_eq!(ended.status.code(), Some(1));
    assert!(stderr(&ended).contains("agent s0: the agent is shutting down"), "{}", stderr(&ended));
}

#[test]
fn only_those_with_a_certificate_get_in() {
    let lab = Lab::start(1);
    let plain = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", lab.agents[0].address);
    fs::write(lab.path("lab.toml"), &plain).unwrap();
    let refused = lab.edgecut("devices");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("does it require TLS?"), "{}", stderr(&refused));

    let other = lab.path("other");
    fs::create_dir(&other).unwrap();
    Authority::new(&other).issue("client", Role::Operator);
    let stranger = "[tls]\nca = \"ca.pem\"\ncert = \"other/client.pem\"\nkey = \"other/client.key\"\n";
    fs::write(lab.path("lab.toml"), format!("{stranger}{plain}")).unwrap();
    let refused = lab.edgecut("devices");
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("agent s0 at"), "{}", stderr(&refused));

    let open = within(PATIENCE, {
        let mut command = edgecut(lab.folder.path());
        command.args(["agent", "--listen", "0.0.0.0:0"]);
        command
    });
    assert_eq!(open.status.code(), Some(2));
    assert!(stderr(&open).contains("--insecure"), "{}", stderr(&open));
}

#[test]
fn what_no_agent_can_hold_is_no_plan_and_a_cap_refuses_a_partition() {
    let mut lab = Lab::start(1);
    let bert = model("torch_bert_tiny");
    let plan = lab.edgecut(&format!("plan {bert} --profile-budget 1s --rehearse 0 --budget 500"));
    assert!(plan.status.success(), "{}", stderr(&plan));
    let address = lab.agents[0].address.clone();
    lab.agents[0].kill();
    let mut flags = lab.tls("s0");
    flags.extend(["--memory".to_string(), "1MiB".to_string()]);
    lab.agents[0] = AgentProcess::start("s0", &address, &flags);
    let refused = lab.edgecut("run plan.json");
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("cannot hold the partition") && message.contains("short"), "{message}");
    let none = lab.edgecut(&format!("plan {bert} --profile-budget 1s"));
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
    assert!(stderr(&none).contains("more than all memories together"), "{}", stderr(&none));
    lab.write_cluster("[[server]]\nname = \"gone\"\naddress = \"127.0.0.1:9\"\n");
    let absent = lab.edgecut(&format!("plan {bert}"));
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).contains("agent gone at 127.0.0.1:9 does not answer"), "{}", stderr(&absent));
}

#[test]
fn tensors_lie_on_a_neighbour_while_a_schedule_runs() {
    let lab = Lab::start(2);
    let link = "[[link]]\nfrom = \"s0\"\nto = \"s1\"\nlatency = \"1us\"\nrate = \"100GB/s\"\nboth_ways = true\n";
    lab.write_cluster(link);
    // The first result is read last, and what it is made of is gone when the others are largest.
    let model = "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(60, 60), float32]) {\n  %0 = nn.softmax(%x, axis=0);\n  \
                 %1 = nn.softmax(%0, axis=1);\n  %2 = nn.softmax(%1, axis=0);\n  %3 = (%2, %2, %2);\n  \
                 %4 = concatenate(%3);\n  %5 = nn.softmax(%4, axis=0);\n  %6 = nn.softmax(%5, axis=1);\n  \
                 %7 = sum(%6);\n  multiply(%0, %7)\n}\n";
    fs::write(lab.path("m.relay"), model).unwrap();
    let output = lab.edgecut("memory schedule m.relay --slowdown 2 --effort 2 --run --format json");
    assert!(output.status.success(), "{}", stderr(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| found[0][name].as_u64().unwrap_or_else(|| panic!("no {name} in {found}"));
    assert!(number("stored") > 0 && number("wrong") == 0, "{found}");
    assert!(number("peak_bytes") <= number("arena_bytes"), "{found}");
    assert!(number("neighbour_peak_bytes") >= 4 * 60 * 60, "{found}");
    let output = lab.edgecut("memory schedule m.relay --limit 1KiB --effort 1 --run");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("the lower bound is"), "{}", stderr(&output));
}
