//! Agents that announce themselves, found without a cluster file.

use std::{
    fs,
    process::Output,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::common::process::{AgentProcess, edgecut, within};

const PATIENCE: Duration = Duration::from_secs(60);

/// Held by a test that has announced agents or counts those that it finds: all on this network hear each other.
pub static ANNOUNCED: Mutex<()> = Mutex::new(());

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn announced_agents_are_added_to_a_cluster_file_and_withdrawn_when_they_stop() {
    let _alone = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| -> Output {
        let mut command = edgecut(folder.path());
        command.args(arguments.split(' '));
        within(PATIENCE, command)
    };
    // Other tests on this network have agents of other names.
    let name = format!("mdns-{}", std::process::id());
    let mut agent = AgentProcess::start(&name, "127.0.0.1:0", &["--mdns".to_string()]);
    let silent = AgentProcess::start(&format!("{name}-silent"), "127.0.0.1:0", &[]);
    let seed = format!("[[server]]\nname = \"seed\"\naddress = \"{}\"\n", silent.address);
    fs::write(folder.path().join("lab.toml"), &seed).unwrap();
    let found = run("cluster discover lab.toml --for 3s");
    let (stdout, stderr) = (text(&found.stdout), text(&found.stderr));
    assert_eq!(found.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains(&format!("{name}: {}, no TLS\n", agent.address)), "{stdout}");
    assert!(!stdout.contains("silent") && stdout.contains("lab.toml: "), "{stdout}");
    let file = fs::read_to_string(folder.path().join("lab.toml")).unwrap();
    let server = format!("[[server]]\nname = \"{name}\"\naddress = \"{}\"\n", agent.address);
    assert!(file.starts_with(&seed) && file.contains(&server), "{file}");
    let again = run("cluster discover lab.toml --for 3s");
    assert_eq!(fs::read_to_string(folder.path().join("lab.toml")).unwrap(), file, "{}", text(&again.stdout));
    // Once it has stopped, it is announced no longer.
    assert_eq!(agent.terminate(PATIENCE), Some(0));
    let found = run("cluster discover --for 2s");
    assert!(!text(&found.stdout).contains(&name), "{}", text(&found.stdout));
    if found.stdout.is_empty() {
        assert_eq!(found.status.code(), Some(1));
        assert!(text(&found.stderr).contains("started with --mdns"), "{}", text(&found.stderr));
    }
}
