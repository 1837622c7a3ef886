//! The files in `deploy/`: manifests of Kubernetes give each agent its own key and nothing else, and an agent starts with what
//! they give it; all files name one image.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::common::process::{AgentProcess, run, texts, within};

const PATIENCE: Duration = Duration::from_secs(60);

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

/// `kubernetes.sh` with the words of `line`: its exit code, stdout and stderr.
fn manifests(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new("bash");
    command.arg(deploy("kubernetes.sh")).args(line.split_whitespace()).current_dir(folder);
    texts(within(PATIENCE, command))
}

/// A folder with `lab.toml`, whose servers have these names, and `certs`.
fn certified(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let server =
        |(port, name): (usize, &&str)| format!("[[server]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n");
    fs::write(folder.path().join("lab.toml"), (7600..).zip(names).map(server).collect::<String>()).unwrap();
    let (code, _, said) = run(folder.path(), "cluster init lab.toml");
    assert_eq!(code, Some(0), "{said}");
    folder
}

/// The bytes that base64 without line breaks stands for.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes().map(|byte| DIGITS.iter().position(|digit| *digit == byte).unwrap());
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_usize, 0);
    for digit in digits {
        (bits, count) = ((bits << 6 | digit) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

/// The document of a kind and a name.
fn document<'a>(manifests: &'a str, kind: &str, name: &str) -> &'a str {
    let is_it = |text: &&str| text.contains(&format!("kind: {kind}\n")) && text.contains(&format!("  name: {name}\n"));
    manifests.split("\n---\n").find(is_it).unwrap_or_else(|| panic!("no {kind} {name} in\n{manifests}"))
}

/// The entries under `data` of a secret: base64 after a name.
fn secret(document: &str) -> Vec<(String, Vec<u8>)> {
    let (_, data) = document.split_once("\ndata:\n").unwrap();
    let entry = |line: &str| line.trim().split_once(": ").map(|(name, text)| (name.to_string(), decoded(text)));
    data.lines().map(entry).collect::<Option<_>>().unwrap()
}

/// The entries under `data` of a config map: indented lines after a name.
fn config(document: &str) -> Vec<(String, Vec<u8>)> {
    let (_, data) = document.split_once("\ndata:\n").unwrap();
    let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
    for line in data.lines() {
        match line.trim().strip_suffix(": |") {
            Some(name) => entries.push((name.to_string(), Vec::new())),
            None => entries.last_mut().unwrap().1.extend(format!("{}\n", &line[4..]).bytes()),
        }
    }
    entries
}

#[test]
fn a_pod_gets_the_key_of_its_own_machine_and_no_other() {
    let folder = certified(&["camera", "box"]);
    let (code, manifests, said) = manifests(folder.path(), "certs camera box");
    assert_eq!(code, Some(0), "{said}");
    let key = |name: &str| fs::read(folder.path().join("certs").join(format!("{name}.key"))).unwrap();
    for (own, other) in [("camera", "box"), ("box", "camera")] {
        let entries = secret(document(&manifests, "Secret", &format!("edgecut-{own}")));
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["tls.crt", "tls.key"]);
        assert_eq!(entries[1].1, key(own));
        let pod = document(&manifests, "Deployment", &format!("edgecut-{own}"));
        assert!(!pod.contains(other) && !pod.contains("MACHINE") && !pod.contains("hostPath"), "{pod}");
    }
    let shared = config(document(&manifests, "ConfigMap", "edgecut-authority"));
    let names: Vec<&str> = shared.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ca.pem", "revoked.pem"]);
    let keys = ["ca", "operator"].map(|name| String::from_utf8(key(name)).unwrap());
    for line in keys.iter().flat_map(|key| key.lines()).filter(|line| !line.starts_with("--")) {
        assert!(!manifests.contains(line), "a key that stays where it is");
    }
}

#[test]
fn an_agent_starts_with_what_its_pod_gets() {
    let folder = certified(&["camera"]);
    let (_, manifests, said) = manifests(folder.path(), "certs camera");
    let mounted = folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let own = secret(document(&manifests, "Secret", "edgecut-camera"));
    for (name, content) in own.into_iter().chain(config(document(&manifests, "ConfigMap", "edgecut-authority"))) {
        fs::write(mounted.join(name), content).unwrap();
    }
    let pod = document(&manifests, "Deployment", "edgecut-camera");
    let argument = |line: &str| line.trim().strip_prefix("- --").map(|flag| format!("--{flag}"));
    let mounted = mounted.to_string_lossy();
    let flags: Vec<String> = pod.lines().filter_map(argument).map(|flag| flag.replace("/certs", &mounted)).collect();
    assert!(flags.iter().any(|flag| flag.starts_with("--crl=")), "{flags:?}: {said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgecut"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--threads", "1"]).args(&flags);
    let mut agent = AgentProcess::spawn("camera", &mut command);
    assert_eq!(agent.terminate(PATIENCE), Some(0));
}

#[test]
fn manifests_are_written_for_agents_alone() {
    let folder = certified(&["camera"]);
    for (line, message) in [
        ("certs operator", "operator.pem: expected the certificate of an agent"),
        ("certs ca", "ca.pem: expected the certificate of an agent"),
        ("certs camera box", "box.pem cannot be read"),
        ("certs ../camera", "expected the name of a machine"),
        ("certs", "usage:"),
    ] {
        let (code, written, said) = manifests(folder.path(), line);
        assert_eq!((code, written.as_str()), (Some(2), ""), "{line}: {said}");
        assert!(said.contains(message), "{line}: {said}");
    }
}

#[test]
fn all_files_name_one_image() {
    let image = concat!("edgecut:", env!("CARGO_PKG_VERSION"));
    for (file, count) in [("kubernetes.yaml", 1), ("Containerfile", 2)] {
        let text = fs::read_to_string(deploy(file)).unwrap();
        let images = text.split_whitespace().filter(|word| word.starts_with("edgecut:")).collect::<Vec<_>>();
        assert_eq!(images, vec![image; count], "{file}");
    }
}
