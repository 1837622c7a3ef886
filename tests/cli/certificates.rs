//! `edgecut cluster init` and `revoke`, and what agents make of the certificates: roles, revocation, new files without a restart.

use std::{
    fs,
    path::Path,
    process::Output,
    thread,
    time::{Duration, Instant},
};

use crate::common::process::{AgentProcess, Authority, edgecut, within};
use edgecut::agent::{
    Cluster,
    client::{Agent, Fleet},
    protocol::role::Role,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// Agents look at their files every second.
const SOON: Duration = Duration::from_secs(10);

fn run(folder: &Path, arguments: &str) -> Output {
    let mut command = edgecut(folder);
    command.args(arguments.split(' '));
    within(PATIENCE, command)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Agents of `lab.toml` with the certificates in `certs`, and the file with their addresses.
fn start(folder: &Path, names: &[&str]) -> Vec<AgentProcess> {
    let at = |file: &str| folder.join("certs").join(file).to_string_lossy().into_owned();
    let agents: Vec<AgentProcess> = names
        .iter()
        .map(|name| {
            let files = [("cert", format!("{name}.pem")), ("key", format!("{name}.key"))];
            let mut flags: Vec<String> =
                files.iter().flat_map(|(flag, file)| [format!("--tls-{flag}"), at(file)]).collect();
            flags.extend(["--client-ca".to_string(), at("ca.pem"), "--crl".to_string(), at("revoked.pem")]);
            AgentProcess::start(name, "127.0.0.1:0", &flags)
        })
        .collect();
    let mut text = fs::read_to_string(folder.join("lab.toml")).unwrap();
    for (index, agent) in agents.iter().enumerate() {
        text = text.replace(&format!("127.0.0.1:{}\"", index + 1), &format!("{}\"", agent.address));
    }
    fs::write(folder.join("lab.toml"), text).unwrap();
    agents
}

fn write_cluster(folder: &Path, names: &[&str]) {
    let server = |(index, name): (usize, &&str)| {
        format!("[[server]]\nname = \"{name}\"\naddress = \"127.0.0.1:{}\"\n", index + 1)
    };
    fs::write(folder.join("lab.toml"), names.iter().enumerate().map(server).collect::<String>()).unwrap();
}

/// Waits until a command on the cluster fails with a message that has all of `parts`. An agent may take a new list in the
/// middle of a command, which then fails at another place than the next one.
fn refused_soon(folder: &Path, arguments: &str, parts: &[&str]) {
    let begin = Instant::now();
    loop {
        let output = run(folder, arguments);
        let said = stderr(&output);
        if !output.status.success() && parts.iter().all(|part| said.contains(part)) {
            return;
        }
        assert!(begin.elapsed() < SOON, "{}: {said}", output.status);
        thread::sleep(Duration::from_millis(200));
    }
}

/// The agent of `lab.toml`, connected now.
async fn connect(folder: &Path) -> Agent {
    let text = fs::read_to_string(folder.join("lab.toml")).unwrap();
    let fleet = Fleet::connect(&Cluster::parse(&text, folder).unwrap()).await.unwrap();
    fleet.agent("a").unwrap().unwrap().clone()
}

#[test]
fn from_a_cluster_file_to_agents_that_know_each_other_in_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a", "b"]);
    let made = run(at, "cluster init lab.toml");
    assert!(made.status.success(), "{}", stderr(&made));
    let said = stdout(&made);
    for part in ["a.pem: an agent, new", "operator.pem: an operator, new", "[tls] added", "edgecut agent --name b "] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let agents = start(at, &["a", "b"]);
    let devices = run(at, "devices --cluster lab.toml --links links.csv");
    assert!(devices.status.success(), "{}", stderr(&devices));
    assert_eq!(fs::read_to_string(at.join("links.csv")).unwrap().lines().count(), 3, "agents reach each other");

    let again = run(at, "cluster init lab.toml --operator operator --operator ann");
    let said = stdout(&again);
    assert!(said.contains("a.pem: an agent, kept") && said.contains("ann.pem: an operator, new"), "{said}");
    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    assert_eq!(text.matches("[tls]").count(), 1, "{text}");
    drop(agents);

    for (arguments, message) in [
        ("cluster init lab.toml --operator a", "the name of two certificates"),
        ("cluster init lab.toml --operator ca", "the authority's own files"),
        ("cluster init none.toml", "none.toml"),
        ("cluster revoke lab.toml bob", "no certificate was issued to bob"),
        ("cluster init lab.toml --operator a/b", "cannot be called"),
        ("cluster init lab.toml --days 0", "1..=3650"),
    ] {
        let refused = run(at, arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(message), "{arguments}: {}", stderr(&refused));
    }
}

#[test]
fn an_agents_certificate_gives_no_commands() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a", "b"]);
    assert!(run(at, "cluster init lab.toml").status.success());
    let _agents = start(at, &["a", "b"]);
    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    fs::write(at.join("lab.toml"), text.replace("operator.", "b.")).unwrap();
    let refused = run(at, "devices --cluster lab.toml");
    assert_eq!(refused.status.code(), Some(1));
    let message = "the certificate of `b` has the role of an agent, only that of an operator may do this";
    assert!(stderr(&refused).contains(message), "{}", stderr(&refused));
}

#[test]
fn a_server_with_the_certificate_of_another_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a", "b"]);
    assert!(run(at, "cluster init lab.toml").status.success());
    let agents = start(at, &["a", "b"]);
    // Both certificates are valid for the host that the agents share.
    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    let swapped = text.replace(&agents[0].address, "FIRST").replace(&agents[1].address, &agents[0].address);
    fs::write(at.join("lab.toml"), swapped.replace("FIRST", &agents[1].address)).unwrap();
    for command in ["devices --cluster lab.toml", "profile m.relay --cluster lab.toml --budget 1ms --output p"] {
        fs::write(at.join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
        let refused = run(at, command);
        assert_eq!(refused.status.code(), Some(1), "{command}: {}", stderr(&refused));
        let message = "its certificate is that of `b`, expected that of `a`";
        assert!(stderr(&refused).contains(message), "{command}: {}", stderr(&refused));
    }
    let other = text.replace("name = \"b\"", "name = \"c\"");
    fs::write(at.join("lab.toml"), other).unwrap();
    let refused = run(at, "devices --cluster lab.toml");
    assert!(stderr(&refused).contains("its certificate is that of `b`, expected that of `c`"), "{}", stderr(&refused));
    fs::write(at.join("lab.toml"), text).unwrap();
    assert!(run(at, "devices --cluster lab.toml").status.success(), "each where it is");

    let flags = "--tls-cert certs/operator.pem --tls-key certs/operator.key --client-ca certs/ca.pem";
    let refused = run(at, &format!("agent --listen 127.0.0.1:0 {flags}"));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let message = "the certificate is of an operator, expected one of an agent";
    assert!(stderr(&refused).contains(message), "{}", stderr(&refused));
}

#[test]
fn a_revoked_certificate_is_refused_also_on_a_connection_that_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a"]);
    assert!(run(at, "cluster init lab.toml --operator operator --operator ann").status.success());
    let _agents = start(at, &["a"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let open = runtime.block_on(connect(at));
    runtime.block_on(open.describe()).unwrap();

    let revoked = run(at, "cluster revoke lab.toml operator");
    assert!(revoked.status.success(), "{}", stderr(&revoked));
    refused_soon(at, "devices --cluster lab.toml", &["agent a at", "our certificate is revoked"]);
    let error = runtime.block_on(open.describe()).unwrap_err().to_string();
    assert!(error.contains("the certificate of `operator` is revoked"), "{error}");

    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    fs::write(at.join("lab.toml"), text.replace("operator.", "ann.")).unwrap();
    assert!(run(at, "devices --cluster lab.toml").status.success(), "others are served");
    let issued = run(at, "cluster init lab.toml");
    assert!(stdout(&issued).contains("operator.pem: an operator, new"), "{}", stdout(&issued));
    fs::write(at.join("lab.toml"), text).unwrap();
    assert!(run(at, "devices --cluster lab.toml").status.success(), "the new one is good");
}

#[test]
fn a_revoked_agent_gets_no_commands() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a", "b"]);
    assert!(run(at, "cluster init lab.toml").status.success());
    let _agents = start(at, &["a", "b"]);
    assert!(run(at, "devices --cluster lab.toml").status.success());
    assert!(run(at, "cluster revoke lab.toml b").status.success());
    let revoked = "invalid peer certificate: Revoked";
    refused_soon(at, "devices --cluster lab.toml", &["agent b at", revoked]);
    // Nor tensors or probes of the other agent, for one that does not know of the list.
    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    fs::write(at.join("lab.toml"), text.replace("crl = ", "# crl = ")).unwrap();
    assert!(run(at, "devices --cluster lab.toml").status.success());
    refused_soon(at, "devices --cluster lab.toml --measure", &["agent a: the link to b failed", revoked]);
}

#[test]
fn an_agent_goes_on_with_the_certificates_of_another_authority() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a"]);
    assert!(run(at, "cluster init lab.toml").status.success());
    let _agents = start(at, &["a"]);
    assert!(run(at, "devices --cluster lab.toml").status.success());

    let next = tempfile::tempdir().unwrap();
    let authority = Authority::new(next.path());
    authority.issue("a", Role::Agent);
    authority.issue("operator", Role::Operator);
    // Half of the new files are not in use: those that are valid together stay so.
    fs::copy(next.path().join("a.key"), at.join("certs/a.key")).unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(run(at, "devices --cluster lab.toml").status.success(), "as before");
    fs::create_dir(at.join("old")).unwrap();
    for file in ["ca.pem", "operator.pem", "operator.key"] {
        fs::copy(at.join("certs").join(file), at.join("old").join(file)).unwrap();
    }
    for file in ["ca.pem", "revoked.pem", "a.pem", "operator.pem", "operator.key"] {
        fs::copy(next.path().join(file), at.join("certs").join(file)).unwrap();
    }
    let begin = Instant::now();
    while !run(at, "devices --cluster lab.toml").status.success() {
        assert!(begin.elapsed() < SOON, "it does not take the new certificates");
        thread::sleep(Duration::from_millis(200));
    }
    let text = fs::read_to_string(at.join("lab.toml")).unwrap();
    fs::write(at.join("lab.toml"), text.replace("certs/", "old/")).unwrap();
    assert!(!run(at, "devices --cluster lab.toml").status.success(), "the old authority is not trusted");
}

#[test]
fn servers_are_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("lab.toml"), "[[server]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\ntls_name = \"localhost\"\n")
        .unwrap();
    assert!(run(at, "cluster init lab.toml").status.success());
    let agents = start(at, &["a"]);
    let port = agents[0].address.rsplit_once(':').unwrap().1;
    // On some systems the name has an address of IPv6 too, where no agent listens.
    let tls = "[tls]\nca = \"certs/ca.pem\"\ncert = \"certs/operator.pem\"\nkey = \"certs/operator.key\"\n";
    fs::write(at.join("dns.toml"), format!("servers = \"dns:localhost:{port}\"\n{tls}")).unwrap();
    let found = run(at, "devices --cluster dns.toml --format csv");
    let is_there = found.status.success() && stdout(&found).contains("a/cpu,127.0.0.1:");
    assert!(is_there || stderr(&found).contains("[::1]"), "{}{}", stdout(&found), stderr(&found));
    for (text, code, message) in [
        ("servers = \"dns:localhost:1\"\n", 1, "does not answer"),
        ("servers = \"dns:no.such.name.invalid:1\"\n", 1, "cannot be looked up"),
        ("servers = \"mdns:x\"\n", 2, "expected dns:HOST:PORT"),
    ] {
        fs::write(at.join("wrong.toml"), text).unwrap();
        let refused = run(at, "devices --cluster wrong.toml");
        assert_eq!(refused.status.code(), Some(code), "{text}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(message), "{text}: {}", stderr(&refused));
    }
}

#[test]
fn a_check_says_which_servers_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_cluster(at, &["a", "b"]);
    assert!(run(at, "cluster init lab.toml").status.success());
    // Nothing listens where the other one should be.
    let _agents = start(at, &["a"]);
    let checked = run(at, "cluster check lab.toml --format json");
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    let rows: serde_json::Value = serde_json::from_str(&stdout(&checked)).unwrap();
    assert_eq!((&rows[0]["server"], &rows[0]["certificate_role"]), (&"a".into(), &"an agent".into()), "{rows}");
    assert_eq!((&rows[0]["certificate_days"], &rows[0]["problems"]), (&364.into(), &"".into()), "{rows}");
    assert!(rows[0]["clock_offset_us"].is_number() && rows[0]["memory_available_bytes"].is_number(), "{rows}");
    assert!(rows[1]["problems"].as_str().unwrap().contains("127.0.0.1:2"), "{rows}");
    let said = stderr(&checked);
    assert!(said.contains("b: ") && !said.contains("a: its"), "{said}");

    let servers: Vec<String> =
        fs::read_to_string(at.join("lab.toml")).unwrap().split("[[server]]").map(str::to_string).collect();
    let tls = servers[2].split_once("[tls]").unwrap().1;
    fs::write(at.join("lab.toml"), format!("[[server]]{}[tls]{tls}", servers[1])).unwrap();
    let checked = run(at, "cluster check lab.toml");
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("an agent"), "{}", stdout(&checked));

    // Of another name: its tensors would be refused.
    let renamed = fs::read_to_string(at.join("lab.toml")).unwrap().replace("name = \"a\"", "name = \"c\"");
    fs::write(at.join("c.toml"), renamed).unwrap();
    refused_soon(at, "cluster check c.toml", &["its certificate is that of `a`, expected that of `c`"]);
    assert!(run(at, "cluster init lab.toml --renew --days 5").status.success());
    refused_soon(at, "cluster check lab.toml", &["its certificate ends in 4 days"]);
}
