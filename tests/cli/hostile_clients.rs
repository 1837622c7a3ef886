//! Clients that mean harm, or know no better, against a real agent: it serves an honest client all the same, soon, and what
//! it was made to hold is free again.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, Authority, edgecut, ending, model, signal, within};
use edgecut::{
    agent::{
        Cluster,
        client::{Agent, Fleet, RunHandle},
        protocol::{
            named_tensors::StreamedTensor,
            peer::Peer,
            role::Role,
            run::RunEvent,
            setup::{EnforcedLimit, Outgoing, Partition, Setup, Stage, Value, ValueId},
        },
    },
    graph::{DType, Graph, TensorType},
    plan::TransferFormat,
    units::Bytes,
};

/// A small model.
const MODEL: &str = "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }";

const PATIENCE: Duration = Duration::from_secs(120);
/// In which an honest client is served.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// One agent and a cluster file that names it.
pub(crate) struct Lab {
    folder: tempfile::TempDir,
    agent: AgentProcess,
    /// With TLS.
    authority: Option<Authority>,
}

impl Lab {
    /// An agent started by `command`, which goes on with the flags of all agents here and `flags`.
    fn start(command: &[&str], flags: &[&str], tls: bool) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = String::new();
        let mut all: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let authority = tls.then(|| Authority::new(folder.path()));
        if let Some(authority) = &authority {
            authority.issue("s0", Role::Agent);
            authority.issue("client", Role::Operator);
            all.extend(authority.flags("s0"));
            cluster += "[tls]\nca = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n";
        }
        let [program, before @ ..] = command else { panic!("no program") };
        let mut command = Command::new(program);
        command.args(before).args(["agent", "--name", "s0", "--listen", "127.0.0.1:0", "--threads", "1"]).args(&all);
        // Its measurements take turns with no other test's: the locks for that are in the folder for temporary files.
        command.env("TMPDIR", folder.path());
        let agent = AgentProcess::spawn("s0", command.stderr(Stdio::null()));
        cluster += &format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent.address);
        fs::write(folder.path().join("lab.toml"), cluster).unwrap();
        fs::write(folder.path().join("m.relay"), MODEL).unwrap();
        Lab { folder, agent, authority }
    }

    pub(crate) fn plain(flags: &[&str]) -> Lab {
        Lab::start(&[env!("CARGO_BIN_EXE_edgecut")], flags, false)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = edgecut(self.folder.path());
        command.args(arguments.split(' ')).args(["--cluster", "lab.toml"]);
        command
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.agent.address).unwrap()
    }

    /// An honest client is served, soon.
    pub(crate) fn serves(&self, arguments: &str) -> Output {
        let begin = Instant::now();
        let output = within(PATIENCE, self.command(arguments));
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(begin.elapsed() < SOON, "it took {:?}", begin.elapsed());
        output
    }

    /// Another client's certificate.
    fn issue(&self, name: &str) {
        self.authority.as_ref().unwrap().issue(name, Role::Operator);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processor time that a process has used, in clock ticks; 0 where the system does not tell.
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = text.rsplit(") ").next().unwrap_or_default();
    after.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn sockets_that_say_nothing_take_no_descriptors_from_others() {
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_edgecut")];
    let lab = Lab::start(&limited, &[], false);
    let idle: Vec<TcpStream> = (0..70).map(|_| lab.connect()).collect();
    let before = ticks(lab.agent.worker());
    thread::sleep(Duration::from_secs(1));
    let busy = ticks(lab.agent.worker()) - before;
    assert!(busy < 30, "{busy} of 100 ticks");
    lab.serves("devices");
    drop(idle);
}

#[test]
fn handshakes_that_stop_half_way_keep_no_one_out() {
    let lab = Lab::start(&[env!("CARGO_BIN_EXE_edgecut")], &[], true);
    // The head of a record of a ClientHello, and a part of it.
    let halves: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = lab.connect();
            socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
            socket
        })
        .collect();
    lab.serves("devices");
    drop(halves);
}

#[test]
fn what_is_not_http_2_is_closed() {
    let lab = Lab::plain(&["--limit", "handshake-time=500ms"]);
    let mut slow = lab.connect();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX", &[0xff; 64]] {
        let mut socket = lab.connect();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.write_all(garbage).unwrap();
        // Closed, or reset since bytes were left unread.
        assert!(is_closed(&mut socket), "{garbage:?}");
    }
    // Frames that are none, after the preface.
    let mut socket = lab.connect();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    socket.write_all(&[0xaa; 4096]).unwrap();
    slow.set_read_timeout(Some(SOON)).unwrap();
    assert!(is_closed(&mut slow), "its time is over");
    lab.serves("devices");
}

/// Whether the other side has closed a connection, or does so before its read timeout.
fn is_closed(socket: &mut TcpStream) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
    match socket.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => matches!(error.kind(), ConnectionReset | ConnectionAborted),
    }
}

#[test]
fn no_more_threads_than_an_agent_offers() {
    let lab = Lab::plain(&[]);
    let mut command = lab.command("profile m.relay --budget 1ms --threads 1024");
    command.arg("--output").arg("p");
    let output = within(PATIENCE, command);
    assert!(!output.status.success());
    let message = stderr(&output);
    assert!(message.contains("device cpu computes with at most 1 thread, 1024 were asked for"), "{message}");
    assert!(threads(lab.agent.worker()).is_none_or(|count| count < 32));
}

/// The number of a process's threads, where the system tells.
fn threads(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/task")).ok()?.count())
}

#[test]
fn a_client_that_vanishes_leaves_its_device_to_others() {
    let lab = Lab::plain(&[]);
    let resnet = model("resnet18");
    let mut command = lab.command(&format!("profile {resnet} --mode in-situ --budget 40000s"));
    let mut gone = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_secs(5));
    assert!(gone.try_wait().unwrap().is_none(), "it is measuring");
    signal(gone.id(), "KILL");
    ending(PATIENCE, gone);
    lab.serves("profile m.relay --budget 1ms --output p");
}

/// A run that announces a parameter.
pub(crate) fn setup(session: &str) -> Setup {
    let ty = TensorType::of(DType::F32, &[1 << 20]);
    let partition = Partition {
        device: "cpu".into(),
        memory: None,
        enforced: EnforcedLimit::default(),
        threads: None,
        engine: None,
        activations: Bytes::ZERO,
        stages: vec![],
    };
    Setup {
        session: session.to_string(),
        server: "s0".into(),
        peers: vec![],
        senders: vec![],
        values: vec![],
        partitions: vec![partition],
        sends: vec![],
        source: None,
        sink: None,
        states: vec![],
        in_flight: 1,
        wait: None,
        is_shared: false,
        streamed: vec![StreamedTensor { name: "w".into(), ty }],
        reported: Default::default(),
    }
}

/// The agent of the lab, for a client with the certificate `name`.
pub(crate) async fn agent(lab: &Lab, name: &str) -> Agent {
    let text = fs::read_to_string(lab.folder.path().join("lab.toml")).unwrap().replace("client.", &format!("{name}."));
    let cluster = Cluster::parse(&text, lab.folder.path()).unwrap();
    let fleet = Fleet::connect(&cluster).await.unwrap();
    fleet.agent("s0").unwrap().unwrap().clone()
}

/// What comes after all that is not an error.
async fn refusal(mut run: RunHandle) -> String {
    loop {
        match tokio::time::timeout(SOON, run.events.recv()).await.unwrap() {
            Some(Err(error)) => return error.to_string(),
            Some(Ok(_)) => {}
            None => panic!("it ended without an error"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_which_nothing_is_heard_ends() {
    let lab = Lab::plain(&["--limit", "idle-time=1s"]);
    let run = agent(&lab, "client").await.run(Arc::new(setup("silent")));
    let message = refusal(run).await;
    assert!(message.contains("no message from the client for 1 s"), "{message}");
    lab.serves("profile m.relay --budget 1ms --output p");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_ask_for_too_much_are_refused() {
    let lab = Lab::plain(&["--limit", "document=64KiB", "--limit", "in-flight=4"]);
    let many = Setup { in_flight: u32::MAX, ..setup("many") };
    let long = setup(&"x".repeat(1 << 17));
    for (asked, expected) in
        [(many, "4294967295 inputs in flight, at most 4 are allowed"), (long, "a document exceeds")]
    {
        let message = refusal(agent(&lab, "client").await.run(Arc::new(asked))).await;
        assert!(message.contains(expected), "{message}");
    }
    lab.serves("profile m.relay --budget 1ms --output p");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_peers_are_bounded_in_number_and_in_memory() {
    let lab = Lab::plain(&["--memory", "64MiB", "--limit", "peers=8"]);
    let peer = Peer { server: "".into(), address: String::new(), tls_name: None };
    for (count, expected) in [
        (9, "9 servers to exchange values with, at most 8 are allowed (the agent's limit `peers`)"),
        (250_000, "on the agent"),
    ] {
        let peers = vec![peer.clone(); count];
        let run = agent(&lab, "client").await.run(Arc::new(Setup { peers, ..setup("peers") }));
        let message = refusal(run).await;
        assert!(message.contains(expected), "{message}");
        lab.serves("profile m.relay --budget 1ms --output p");
    }
    let most = Bytes((64 + 128) << 20);
    assert!(resident(lab.agent.worker()).is_none_or(|bytes| bytes < most));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_in_setups_are_bounded_by_name() {
    let lab = Lab::plain(&["--limit", "values=3", "--limit", "stages=2"]);
    let value = Value { name: "v".into(), ty: TensorType::of(DType::F32, &[1]), phase: Default::default() };
    let send = Outgoing { value: ValueId(0), peer: 0, format: TransferFormat::Exact };
    let stage = Stage { name: "s".to_string(), graph: Graph::new(), steps: vec![], operands: vec![], results: vec![] };
    let peers = vec![Peer { server: "p".into(), address: "p:1".to_string(), tls_name: None }];
    let streamed = setup("lists").streamed;
    let staged = Partition { stages: vec![stage; 3], ..setup("lists").partitions[0].clone() };
    for (asked, expected) in [
        (
            Setup { values: vec![value.clone(); 4], ..setup("lists") },
            "4 values, at most 3 are allowed (the agent's limit `values`)",
        ),
        (
            Setup { streamed: vec![streamed[0].clone(); 4], ..setup("lists") },
            "4 parameters, at most 3 are allowed (the agent's limit `values`)",
        ),
        (
            Setup { values: vec![value], sends: vec![send; 4], peers, ..setup("lists") },
            "4 values to send, at most 3 are allowed (the agent's limit `values`)",
        ),
        (
            Setup { partitions: vec![staged], ..setup("lists") },
            "3 stages, at most 2 are allowed (the agent's limit `stages`)",
        ),
    ] {
        let message = refusal(agent(&lab, "client").await.run(Arc::new(asked))).await;
        assert!(message.contains(expected), "{message}");
    }
    lab.serves("profile m.relay --budget 1ms --output p");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_logged_in_one_line_and_counted_as_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, authority) = (folder.path().join("log"), Authority::new(folder.path()));
    authority.issue("s0", Role::Agent);
    authority.issue("client", Role::Operator);
    let mut command = edgecut(folder.path());
    command.args(["agent", "--name", "s0", "--listen", "127.0.0.1:0", "--threads", "1"]).args(authority.flags("s0"));
    command.env("TMPDIR", folder.path()).stderr(fs::File::create(&log).unwrap());
    let agent_process = AgentProcess::spawn("s0", &mut command);
    let tls = "[tls]\nca = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n";
    let server = format!("[[server]]\nname = \"s0\"\naddress = \"{}\"\n", agent_process.address);
    fs::write(folder.path().join("lab.toml"), format!("{tls}{server}")).unwrap();
    fs::write(folder.path().join("m.relay"), MODEL).unwrap();
    let lab = Lab { folder, agent: agent_process, authority: Some(authority) };
    // Its check by the client is left out: the agent's is what counts.
    let forged = "cpu\nINFO forged \u{1b}[2J";
    let mut wrong = setup("wrong");
    wrong.partitions[0].device = forged.into();
    let message = refusal(agent(&lab, "client").await.run(Arc::new(wrong))).await;
    assert!(message.contains("no device cpu\\nINFO forged \\u{1b}[2J"), "{message}");
    let message = refusal(agent(&lab, "client").await.run(Arc::new(Setup { in_flight: 0, ..setup("none") }))).await;
    assert!(message.contains("no inference may be in flight"), "{message}");
    lab.serves("profile m.relay --budget 1ms --output p");
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(&log).unwrap();
        let leases = text.lines().filter(|line| line.contains("cpu is leased for a profile to client at "));
        let leases = leases.filter(|line| line.contains("(certificate ")).count();
        let failed =
            text.lines().filter(|line| line.contains("failed after") && line.contains("(certificate ")).count();
        assert!(text.lines().all(|line| !line.starts_with("INFO forged")) && !text.contains('\u{1b}'), "{text}");
        if failed == 2 && leases > 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{text}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_wait_for_a_device_in_order_and_are_told() {
    let lab = Lab::plain(&["--limit", "lease-wait=2s"]);
    let agent = agent(&lab, "client").await;
    let mut first = agent.run(Arc::new(setup("first")));
    assert_eq!(first.events.recv().await.unwrap().unwrap(), RunEvent::Admitted);
    let mut second = agent.run(Arc::new(setup("second")));
    let Some(Ok(RunEvent::Queued(queued))) = second.events.recv().await else { panic!("it was not told") };
    let told = queued.to_string();
    assert!(told.starts_with("waiting for cpu, which is busy with the run of "), "{told}");
    let mut third = agent.run(Arc::new(setup("third")));
    let Some(Ok(RunEvent::Queued(queued))) = third.events.recv().await else { panic!("it was not told") };
    assert_eq!(queued.ahead, 1);
    drop(first);
    assert_eq!(second.events.recv().await.unwrap().unwrap(), RunEvent::Admitted);
    let message = refusal(third).await;
    assert!(message.contains("device cpu is busy with the run of "), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_streams_of_one_client_keep_no_one_out() {
    let lab = Lab::start(&[env!("CARGO_BIN_EXE_edgecut")], &[], true);
    lab.issue("many");
    let mut open = Vec::new();
    for _ in 0..10 {
        let agent = agent(&lab, "many").await;
        let runs = (0..50).map(|number| {
            agent.run(Arc::new(Setup { partitions: vec![], ..setup(&format!("{}-{number}", open.len())) }))
        });
        let runs: Vec<RunHandle> = runs.collect();
        open.extend(runs);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    lab.serves("profile m.relay --budget 1ms --output p");
    assert!(resident(lab.agent.worker()).is_none_or(|bytes| bytes < Bytes(256 << 20)));
    drop(open);
}

/// Resident memory of a process, where the system tells.
fn resident(pid: u32) -> Option<Bytes> {
    status(pid, "VmRSS:")
}

/// A crop of 1 x 1 images to 2^20 x 2^20 pixels.
const VAST: &str =
    "def @main(%x: Tensor[(1, 1, 4, 4), float32], %boxes: Tensor[(1, 4), float32], %of: Tensor[(1), int32]) {
  %0 = image.crop_and_resize(%x, %boxes, %of, crop_size=[1048576, 1048576]);
  max(%0)
}
";

#[test]
fn a_tensor_beyond_all_memory_is_refused_and_the_agent_lives() {
    let lab = Lab::plain(&["--memory", "64MiB"]);
    fs::write(lab.folder.path().join("vast.relay"), VAST).unwrap();
    let beyond = "memory limit of the device";
    for (arguments, expected) in [
        ("profile vast.relay --budget 10ms --output p", beyond),
        ("profile vast.relay --budget 10ms --output q --granularity op", beyond),
        ("profile vast.relay --budget 10ms --output r --mode in-situ", beyond),
        ("plan vast.relay --profile-budget 10ms --rehearse 0", "runs on no device"),
    ] {
        let output = within(PATIENCE, lab.command(arguments));
        let message = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!message.contains("lost") && message.contains(expected), "{arguments}: {message}");
    }
    lab.serves("profile m.relay --budget 1ms --output p");
}

/// A parameter of 4 GiB of which 16 bytes are read.
const SLICED: &str = "def @main(%x: Tensor[(4), float32], %w_weight: Tensor[(1073741824), float32]) {
  %0 = strided_slice(%w_weight, begin=[0], end=[4], strides=[1], axes=None);
  add(%x, %0)
}
";

/// A constant of 4 GiB that no file holds.
const ZEROS: &str = "def @main(%x: Tensor[(4), float32]) {
  %0 = zeros(shape=[1073741824], dtype=\"float32\");
  %1 = sum(%0, axis=[0]);
  add(%x, %1)
}
";

#[test]
fn what_exists_only_while_a_model_is_loaded_counts() {
    let lab = Lab::plain(&["--memory", "512MiB"]);
    for (name, text) in [("sliced", SLICED), ("zeros", ZEROS)] {
        fs::write(lab.folder.path().join(format!("{name}.relay")), text).unwrap();
        for arguments in [
            format!("profile {name}.relay --budget 10ms --output {name}"),
            format!("profile {name}.relay --budget 10ms --output {name}-in-situ --mode in-situ"),
            format!("plan {name}.relay --profile-budget 10ms --output {name}.json"),
        ] {
            let output = within(PATIENCE, lab.command(&arguments));
            let message = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
            assert!(!message.contains("lost"), "{arguments}: {message}");
            let peak = most_resident(lab.agent.worker());
            assert!(peak.is_none_or(|bytes| bytes < Bytes(640 << 20)), "{arguments}: {peak:?}: {message}");
        }
    }
    lab.serves("profile m.relay --budget 1ms --output p");
}

#[cfg(target_os = "linux")]
#[test]
fn the_system_limits_the_memory_of_a_worker() {
    let lab = Lab::plain(&["--memory", "512MiB"]);
    lab.serves("devices");
    let limits = fs::read_to_string(format!("/proc/{}/limits", lab.agent.worker())).unwrap();
    let data = limits.lines().find_map(|line| line.strip_prefix("Max data size")).unwrap();
    let processors = thread::available_parallelism().unwrap().get();
    let expected = (2 * 512 + 512 + 16 * processors) << 20;
    assert_eq!(data.split_whitespace().next(), Some(expected.to_string().as_str()), "{limits}");
}

/// The most resident memory that a process ever had, where the system tells.
fn most_resident(pid: u32) -> Option<Bytes> {
    status(pid, "VmHWM:")
}

/// A size in a process's status, where the system tells.
fn status(pid: u32, name: &str) -> Option<Bytes> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(Bytes(line.split_whitespace().next()?.parse::<u64>().ok()? << 10))
}
