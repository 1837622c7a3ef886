//! One number for a group and one for a tensor in profile, plan and run: the three join, and flags take what they print.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::common::process::{AgentProcess, model, run};
use edgecut::plan::Plan;

/// Rows of a CSV file, by column.
type Rows = Vec<BTreeMap<String, String>>;

/// Two layers, named by their weights.
const MODEL: &str = "def @main(%x: Tensor[(64, 256), float32], %fc0_weight: Tensor[(256, 256), float32],
                               %fc1_weight: Tensor[(256, 256), float32]) {
    %0 = nn.softmax(nn.dense(%x, %fc0_weight, units=256));
    tanh(nn.softmax(nn.dense(%0, %fc1_weight, units=256))) }";

const LINKS: &str = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                     s0,-,s1,-,0.1,1000000,0,1,1\ns1,-,s0,-,0.1,1000000,0,1,1\n";

/// Plans for two devices, by one profile.
const BOTH: &str = "plan m.relay --profile p.csv=s0/cpu --profile p.csv=s1/cpu --links fast.csv";

fn rows(text: &str) -> Rows {
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(|row| row.unwrap()).collect()
}

#[track_caller]
fn done(folder: &Path, line: &str) -> String {
    let (code, stdout, stderr) = run(folder, line);
    assert_eq!(code, Some(0), "{line}\n{stderr}");
    stdout
}

fn plan(folder: &Path, name: &str) -> Plan {
    Plan::from_json(&fs::read(folder.join(name)).unwrap()).unwrap()
}

/// A folder with the model, one profile of it, and the links of two servers.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), MODEL).unwrap();
    fs::write(folder.path().join("fast.csv"), LINKS).unwrap();
    let profile = done(folder.path(), "profile m.relay --budget 50ms --output measured --format csv");
    fs::write(folder.path().join("p.csv"), profile).unwrap();
    folder
}

#[test]
fn profile_plan_and_run_join_by_id() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let squeezenet = model("squeezenet_v1.1");
    let profile = rows(&done(here, &format!("profile {squeezenet} --budget 50ms --format csv")));
    done(here, &format!("plan {squeezenet} --rehearse 0"));
    let plan = rows(&fs::read_to_string(here.join("plan.csv")).unwrap());
    let run = rows(&done(here, "run plan.json --repeat 3 --no-check --format csv"));

    let profiled: BTreeMap<&str, &BTreeMap<String, String>> =
        profile.iter().map(|row| (row["id"].as_str(), row)).collect();
    assert_eq!(profiled.len(), profile.len(), "an id is one row");
    let groups = |rows: &'_ Rows| -> Rows { rows.iter().filter(|row| row["kind"] == "group").cloned().collect() };
    let (planned, ran) = (groups(&plan), groups(&run));
    assert_eq!((planned.len(), ran.len()), (profile.len(), profile.len()));
    for row in planned.iter().chain(&ran) {
        let of = profiled[row["id"].as_str()];
        assert_eq!((&row["name"], &row["layer"]), (&of["operator"], &of["layer"]));
        assert_eq!((&row["server"], &row["device"]), (&of["server"], &of["device"]));
        assert_eq!(row["part"], "");
    }
    assert!(profile.iter().any(|row| row["layer"].contains("conv1")), "the model names its layers by their weights");
    for row in &ran {
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        assert_eq!(row["n"], "3");
        assert!(number("min_us") <= number("measured_us") && number("measured_us") <= number("max_us"));
        assert!(number("mad_us") >= 0.0 && number("predicted_workspace_bytes") >= 0.0);
    }
    let device = run.iter().find(|row| row["kind"] == "device").unwrap();
    assert_eq!((device["server"].as_str(), device["device"].as_str()), ("local", "cpu"));
    let bytes = |column: &str| device[column].parse::<u64>().unwrap();
    assert!(
        bytes("peak_bytes") > bytes("parameter_bytes")
            && bytes("predicted_load_bytes") > 0
            && bytes("loading_bytes") > 0
    );
    assert_eq!(run.last().unwrap()["kind"], "latency");
}

#[test]
fn shards_on_two_agents_join_by_id_part_and_device() {
    let folder = folder();
    let here = folder.path();
    let agents = ["s0", "s1"].map(|name| AgentProcess::start(name, "127.0.0.1:0", &[]));
    let servers = agents.iter().map(|a| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", a.name, a.address));
    fs::write(here.join("c.toml"), servers.collect::<String>()).unwrap();
    // By real links it may be best to split nothing.
    done(here, &format!("{BOTH} --output split.json"));
    let profile = rows(&done(here, "profile m.relay --cluster c.toml --budget 50ms --format csv"));
    done(here, "plan m.relay --cluster c.toml --like split.json --ratios equal --rehearse 0 --output like.json");
    let plan = rows(&fs::read_to_string(here.join("like.csv")).unwrap());
    let run = rows(&done(here, "run like.json --repeat 3 --format csv"));

    let key = |row: &BTreeMap<String, String>, columns: &[&str]| -> Vec<String> {
        columns.iter().map(|column| row[*column].clone()).collect()
    };
    let keys = |rows: &Rows, kind: &str, columns: &[&str]| -> Vec<Vec<String>> {
        rows.iter().filter(|row| row["kind"] == kind && !row["id"].is_empty()).map(|row| key(row, columns)).collect()
    };
    for (kind, columns) in [
        ("group", &["id", "part", "server", "device"][..]),
        ("transfer", &["id", "part", "server", "device", "to_server", "to_device"]),
    ] {
        let (planned, ran) = (keys(&plan, kind, columns), keys(&run, kind, columns));
        let distinct = |keys: &[Vec<String>]| keys.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(distinct(&ran).len(), ran.len(), "{kind}: {ran:?}");
        assert_eq!((distinct(&planned), planned.len()), (distinct(&ran), ran.len()), "{kind}");
    }
    let shards = keys(&run, "group", &["id", "part", "server"]);
    // A device may have a share in pieces.
    let is_there = |server: &str| shards.iter().any(|shard| shard[1].contains("of") && shard[2] == server);
    assert!(is_there("s0") && is_there("s1"), "{shards:?}");

    let columns = ["id", "server", "device"];
    let whole = profile.iter().filter(|row| row["axis"].is_empty()).map(|row| key(row, &columns));
    let whole: Vec<Vec<String>> = whole.collect();
    assert_eq!((whole.len(), whole.iter().collect::<BTreeSet<_>>().len()), (8, 8), "four groups on two servers");
    assert!(keys(&run, "group", &columns).iter().all(|row| whole.contains(row)), "{whole:?}");
}

#[test]
fn shards_and_transfers_keep_the_ids_of_the_model() {
    let folder = folder();
    let here = folder.path();
    done(here, &format!("{BOTH} --output split.json"));
    let profile = rows(&fs::read_to_string(here.join("p.csv")).unwrap());
    let plan = rows(&fs::read_to_string(here.join("split.csv")).unwrap());
    let of_kind = |kind: &'static str| plan.iter().filter(move |row| row["kind"] == kind);
    assert!(of_kind("group").any(|row| row["part"].starts_with("1of")));
    for row in of_kind("group").filter(|row| !row["id"].is_empty()) {
        let of = profile.iter().find(|of| of["id"] == row["id"]).unwrap();
        let part = if row["part"].is_empty() { String::new() } else { format!("[{}]", row["part"]) };
        assert_eq!(row["name"], format!("{}{part}", of["operator"]));
    }
    // What crosses a link is an input of the model, or what a row of the profile makes.
    let made: Vec<&str> = profile.iter().flat_map(|row| row["tensors"].split('+')).collect();
    for row in of_kind("transfer") {
        assert!(row["name"].starts_with('x') || made.contains(&row["id"].as_str()), "{row:?}");
    }
}

#[test]
fn pins_take_numbers_and_printed_names() {
    let folder = folder();
    let here = folder.path();
    for name in ["#2", "nn.dense_2", "fc1", "nn.dens?_2"] {
        done(here, &format!("{BOTH} --pin {name}=s1/cpu --output pinned.json"));
        let plan = plan(here, "pinned.json");
        let pinned: Vec<_> = plan.groups.iter().filter(|group| group.id == Some(2)).collect();
        assert_eq!(pinned.len(), 1, "{name}: what is pinned is not split");
        assert_eq!(plan.devices[pinned[0].device.0 as usize].device_name().to_string(), "s1/cpu", "{name}");
    }
    for (pin, want) in [
        ("#4=s1/cpu", "--pin '#4=s1/cpu': there is no group #4; the model has 4 groups, from #0 on"),
        ("nn.dens_2=s1/cpu", "is called `nn.dens_2` (did you mean nn.dense_2?); the model has nn.dense, nn.softmax"),
        ("nn.relu_3=s1/cpu", "is called `nn.relu_3` (did you mean nn.softmax_3?)"),
        ("fc2=s1/cpu", "is called `fc2` (did you mean fc0?)"),
        ("#2=s1", "unknown device s1 (did you mean s1/cpu?); the cluster has s0/cpu, s1/cpu"),
        ("#2=cpu", "unknown device cpu (did you mean s0/cpu or s1/cpu?)"),
        ("#2", "--pin '#2': expected GROUP=SERVER/DEVICE, such as '#7=local/cpu'"),
    ] {
        let (code, _, stderr) = run(here, &format!("{BOTH} --pin {pin}"));
        let said: String = stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
        assert!(code == Some(2) && said.contains(want), "{pin}: {code:?}\n{stderr}");
    }
}

#[test]
fn a_move_is_told_before_after_and_difference() {
    let folder = folder();
    let here = folder.path();
    done(here, &format!("{BOTH} --output split.json"));
    let before = plan(here, "split.json");
    let like = format!("{BOTH} --like split.json");
    let moved = rows(&done(here, &format!("{like} --move #2=s1/cpu --format csv --output moved.json")));
    let after = plan(here, "moved.json");
    let figure = |name: &str, device: &str| {
        let row = moved.iter().find(|row| (row["figure"].as_str(), row["server"].as_str()) == (name, device)).unwrap();
        let value = |column: &str| row[column].parse::<f64>().unwrap();
        assert!((value("before") + value("difference") - value("after")).abs() < 1e-6, "{row:?}");
        (value("before"), value("after"))
    };
    let (was, is) = figure("latency_us", "");
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(near(was, before.predicted.latency_us.0) && near(is, after.predicted.latency_us.0), "{was} {is}");
    assert_eq!(figure("transfers", ""), (before.transfers.len() as f64, after.transfers.len() as f64));
    for (old, new) in before.devices.iter().zip(&after.devices) {
        let arenas = (old.memory.arena_bytes.0 as f64, new.memory.arena_bytes.0 as f64);
        assert_eq!(figure("arena_bytes", &old.server), arenas);
    }
    let there = after.groups.iter().filter(|group| group.id == Some(2)).map(|group| group.device);
    assert!(there.eq([edgecut::plan::DeviceId(1)]), "{:?}", after.groups);
    let table = done(here, &format!("{like} --move nn.dense_2=s1/cpu"));
    assert!(table.starts_with("#2 nn.dense: from s0/cpu and s1/cpu to s1/cpu\n"), "{table}");
    assert!(table.contains("latency") && table.contains("s1/cpu arena") && table.contains("difference"), "{table}");
    assert!(!here.join("plan.json").exists(), "a question writes no plan");

    done(here, &format!("{BOTH} --pin #2=s0/cpu --output pinned.json"));
    let (code, _, said) = run(here, &format!("{BOTH} --like pinned.json --move nn.dense_2=s1/cpu"));
    assert_eq!(code, Some(0), "{said}");
    let warning = "warning: --move nn.dense_2=s1/cpu contradicts --pin '#2=s0/cpu', by which the plan was made";
    assert!(said.contains(warning), "{said}");

    for (line, want) in [
        (format!("{like} --move nn.dense=s1/cpu"), "`nn.dense` is 2 groups: #0 nn.dense_0, #2 nn.dense_2; name one"),
        (format!("{like} --move #9=s1/cpu"), "--move '#9=s1/cpu': there is no group #9"),
        (format!("{like} --move #2=s1/cpu --move #2=s0/cpu"), "another move has #2 nn.dense_2 already"),
        (format!("{BOTH} --move #2=s1/cpu"), "--like <PLAN>"),
        (format!("{like} --pin #2=s1/cpu"), "it splits #2 nn.dense over s0/cpu, which --pin '#2=s1/cpu' forbids"),
        (format!("{like} --move #2=s1/cpu --pin #1=s0/cpu"), "cannot be used with"),
    ] {
        let (code, _, stderr) = run(here, &line);
        let said: String = stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
        assert!(code == Some(2) && said.contains(want), "{line}: {code:?}\n{stderr}");
    }
}
