//! Agents with time dilation: what they report, and the lab files that ask for it.

use std::{fs, path::Path, time::Duration};

use crate::common::process::{AgentProcess, edgecut, within};
use edgecut::{agent::Cluster, plan::Plan};

const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn a_dilated_agent_says_so_in_devices_profiles_and_plans() {
    let folder = tempfile::tempdir().unwrap();
    let agent = AgentProcess::start("slow", "127.0.0.1:0", &["--dilate".into(), "2.5".into()]);
    fs::write(folder.path().join("m.relay"), "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }").unwrap();
    let cluster = format!("[[server]]\nname = \"slow\"\naddress = \"{}\"\n", agent.address);
    fs::write(folder.path().join("c.toml"), cluster).unwrap();
    let of = |line: &str| {
        let mut command = edgecut(folder.path());
        command.args(line.split(' ')).args(["--cluster", "c.toml"]);
        let output = within(PATIENCE, command);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let devices: serde_json::Value = serde_json::from_str(&of("devices --format json --links l.csv")).unwrap();
    let model = devices["devices"][0]["model"].as_str().unwrap();
    assert!(model.ends_with(", dilated 2.5x"), "{model}");
    assert_eq!(devices["devices"].as_array().unwrap().len(), 1, "GPUs are not used");
    assert!(devices["notes"].to_string().contains("no GPU: time dilation"), "{}", devices["notes"]);

    let profile = of("profile m.relay --budget 1ms --output p --format csv");
    assert!(profile.contains(", dilated 2.5x, "), "{profile}");
    of("plan m.relay --rehearse 0 --profile p --output plan.json");
    let plan = Plan::from_json(&fs::read(folder.path().join("plan.json")).unwrap()).unwrap();
    assert!(plan.devices[0].hardware.as_ref().unwrap().contains("dilated 2.5x"), "{:?}", plan.devices[0]);
}

#[test]
fn lab_files_with_dilation_are_cluster_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/dilated");
    for (name, servers) in [("2", 2), ("3", 3), ("4", 4), ("6", 6), ("8", 8), ("mixed", 3)] {
        let text = fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let cluster = Cluster::parse(&text, Path::new("")).unwrap();
        assert_eq!((cluster.servers.len(), cluster.links.len()), (servers, servers * (servers - 1)), "{name}.toml");
        assert_eq!(text.matches("dilate = ").count(), servers, "{name}.toml");
    }
}
