//! `cluster/lab.sh`: servers as network namespaces with shaped links, agents in them, plans run over them, nothing left.
//!
//! Needs root and a kernel that makes namespaces; where `lab.sh check` says that something is missing the tests say so and
//! pass. They are one test, because labs measure and would disturb each other.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// What `lab.sh check` exits with where a lab cannot be made.
const MISSING: i32 = 77;

const CLUSTER: &str = r#"source = "a"
[[server]]
name = "a"
address = "10.78.0.1:7600"
memory = "1GiB"
threads = 1
lab = { cores = "0", cpu = "100%" }
[[server]]
name = "b"
address = "10.78.0.2:7600"
memory = "512MiB"
threads = 1
lab = { cpu = "50%" }
[[link]]
from = "a"
to = "b"
latency = "0us"
rate = "40Mbit/s"
both_ways = true
"#;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/lab.sh")
}

/// A lab of this process's own name, taken down when dropped.
struct Lab {
    name: String,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab { name: format!("test-{}", std::process::id()), folder: tempfile::tempdir().unwrap() }
    }

    fn say(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(script());
        command.args(arguments).current_dir(self.folder.path());
        command.env("EDGECUT_LAB", &self.name).env("EDGECUT", env!("CARGO_BIN_EXE_edgecut"));
        command.output().unwrap()
    }

    /// What the program says on stdout when it is run as the command line's machine.
    fn edgecut(&self, arguments: &[&str]) -> String {
        let inside = [&["exec", env!("CARGO_BIN_EXE_edgecut")], arguments].concat();
        let output = self.say(&inside);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Every namespace and every cgroup that bears this lab's name.
    fn traces(&self) -> Vec<String> {
        let spaces = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let spaces = String::from_utf8(spaces.stdout).unwrap();
        let of_this = |line: &&str| line.contains(&self.name);
        let mut found: Vec<String> = spaces.lines().filter(of_this).map(str::to_string).collect();
        let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/run"];
        let paths = places.map(|place| format!("{place}/edgecut-{}", self.name));
        found.extend(paths.into_iter().filter(|path| Path::new(path).exists()));
        found
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.say(&["down"]);
    }
}

#[test]
fn a_cluster_in_a_box_is_made_measured_and_taken_down() {
    let lab = Lab::new();
    let check = lab.say(&["check"]);
    if check.status.code() == Some(MISSING) {
        let why = String::from_utf8_lossy(&check.stderr);
        eprintln!("SKIPPED: no lab can be made on this machine, so nothing was tested:\n{why}");
        return;
    }
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let file = lab.folder.path().join("lab.toml");
    fs::write(&file, CLUSTER).unwrap();
    let file = file.to_str().unwrap();

    let up = lab.say(&["up", file]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    assert!(!lab.traces().is_empty());
    let twice = lab.say(&["up", file]);
    assert!(!twice.status.success() && String::from_utf8_lossy(&twice.stderr).contains("is up"));
    let status = String::from_utf8(lab.say(&["status"]).stdout).unwrap();
    assert!(status.contains("a: pid") && status.contains("b: pid") && status.contains("40Mbit"), "{status}");

    // The links have the file's rate, within what their own making allows; half of a slow core reaches it.
    let cluster = String::from_utf8(lab.say(&["cluster"]).stdout).unwrap();
    let cluster = cluster.trim();
    let devices = lab.edgecut(&["devices", "--cluster", cluster, "--format", "json"]);
    let devices: serde_json::Value = serde_json::from_str(&devices).unwrap();
    let links = fs::read_to_string(lab.folder.path().join("profiles/links.csv")).unwrap();
    let mut rows = csv::Reader::from_reader(links.as_bytes());
    let column = rows.headers().unwrap().iter().position(|name| name == "bytes_per_us").unwrap();
    let rates: Vec<f64> = rows.records().map(|row| row.unwrap()[column].parse().unwrap()).collect();
    assert_eq!(rates.len(), 2, "{devices}");
    assert!(rates.iter().all(|rate| (3.0..=6.4).contains(rate)), "40 Mbit/s are 5 bytes/us: {rates:?}");

    // A plan that needs both is run over the link, and computes what one device does.
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/squeezenet_v1.1.relay");
    let model = model.to_str().unwrap();
    let budget = ["--profile-budget", "2s"];
    let halves =
        ["plan", model, "--cluster", cluster, "--no-split", "--pin", "*conv2d*=a/cpu", "--pin", "*max_pool*=b/cpu"];
    lab.edgecut(&[&halves[..], &budget[..]].concat());
    let ran = lab.edgecut(&["run", "plan.json", "--repeat", "2"]);
    assert!(ran.contains("outputs against one device: equal"), "{ran}");

    assert!(lab.say(&["down"]).status.success());
    assert_eq!(lab.traces(), Vec::<String>::new());

    // Up, a command, down: also when the command fails.
    let failed = lab.say(&["run", file, "sh", "-c", "exit 3"]);
    assert_eq!(failed.status.code(), Some(3), "{}", String::from_utf8_lossy(&failed.stderr));
    assert_eq!(lab.traces(), Vec::<String>::new());

    // A file that no lab can be made of leaves nothing behind either.
    fs::write(file, CLUSTER.replace("10.78.0.2", "127.0.0.1")).unwrap();
    let refused = lab.say(&["up", file]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not loopback"));
    assert_eq!(lab.traces(), Vec::<String>::new());
}
