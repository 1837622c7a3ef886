//! `plan --advise`, `plan --explain` and `plan --like` through the real binary: with profiles that are files, and on agents. Limits of memory that
//! are none.

use std::{fs, path::Path, time::Duration};

use crate::common::process::{AgentProcess, edgecut, within};
use edgecut::plan::Plan;

/// Two products that two devices share where the link between them is fast.
const MODEL: &str = "def @main(%x: Tensor[(64, 256), float32], %w: Tensor[(256, 256), float32]) {
    %0 = nn.softmax(nn.dense(%x, %w, units=256)); tanh(nn.softmax(nn.dense(%0, %w, units=256))) }";

const FAST_LINKS: &str = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                          s0,-,s1,-,0.1,1000000,0,1,1\ns1,-,s0,-,0.1,1000000,0,1,1\n";

/// Its widest tensors take 4 MiB each, all others little.
const WIDE: &str = "def @main(%x: Tensor[(1, 4, 128, 128), float32], %w1: Tensor[(64, 4, 1, 1), float32],
                              %w2: Tensor[(8, 64, 1, 1), float32]) {
    %0 = nn.relu(nn.conv2d(%x, %w1, channels=64, kernel_size=[1, 1]));
    %1 = nn.max_pool2d(%0, pool_size=[3, 3], strides=[4, 4], padding=[1, 1, 1, 1]);
    tanh(nn.conv2d(%1, %w2, channels=8, kernel_size=[1, 1])) }";

/// A folder with the model, one profile of it, and the links of two servers.
fn folder() -> tempfile::TempDir {
    folder_with(MODEL)
}

/// The same with another model.
fn folder_with(model: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("m.relay"), model).unwrap();
    fs::write(path("fast.csv"), FAST_LINKS).unwrap();
    run(folder.path(), "profile m.relay --budget 50ms --output measured");
    let made = fs::read_dir(path("measured")).unwrap().next().unwrap().unwrap().path();
    let mut files = fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    let profile = files.find(|path| path.to_string_lossy().ends_with("fused.csv")).unwrap();
    fs::copy(profile, path("p.csv")).unwrap();
    folder
}

#[track_caller]
fn run(folder: &Path, line: &str) -> String {
    let mut command = edgecut(folder);
    command.args(line.split_whitespace());
    let output = within(Duration::from_secs(120), command);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn plan(folder: &Path, name: &str) -> Plan {
    Plan::from_json(&fs::read(folder.join(name)).unwrap()).unwrap()
}

/// What a plan's notes say of its value without a server.
#[track_caller]
fn advice(plan: &Plan, server: &str) -> String {
    let begin = format!("without server {server} ");
    let note = plan.notes.iter().find_map(|note| note.strip_prefix(&begin));
    note.unwrap_or_else(|| panic!("nothing of {server} in {:?}", plan.notes)).to_string()
}

/// Operators that are split, with the names of the devices that share them.
fn splits(plan: &Plan) -> Vec<(u32, Vec<String>)> {
    let name = |index: u32| plan.devices[index as usize].device_name().to_string();
    let split = plan.splits.iter();
    split.map(|split| (split.operator.0, split.devices.iter().map(|device| name(device.0)).collect())).collect()
}

#[test]
fn advice_is_the_latency_of_the_plan_without_a_server() {
    let folder = folder();
    let here = folder.path();
    run(here, "plan m.relay --profile p.csv=s0/cpu --output alone.json");
    let both = "plan m.relay --profile p.csv=s0/cpu --profile p.csv=s1/cpu --links fast.csv";
    run(here, &format!("{both} --advise --output advised.json"));
    run(here, &format!("{both} --output plain.json"));
    let (alone, advised, plain) = (plan(here, "alone.json"), plan(here, "advised.json"), plan(here, "plain.json"));
    assert!(!advised.splits.is_empty(), "{:?}", advised.groups);
    assert_eq!(advised.predicted, plain.predicted, "advice changes no plan");
    assert!(plain.notes.iter().all(|note| !note.starts_with("without server")));

    let worse = 100.0 * (alone.predicted.latency_us.0 / advised.predicted.latency_us.0 - 1.0);
    assert_eq!(advice(&advised, "s1"), format!("the plan is {worse:.1} % worse"));
    // Inputs start and results arrive at the first server: a plan without it means nothing.
    assert!(advised.notes.iter().all(|note| !note.starts_with("without server s0")));
}

#[test]
fn agents_split_what_another_plan_splits_and_say_what_that_gains() {
    let folder = folder();
    let here = folder.path();
    let agents = ["s0", "s1"].map(|name| AgentProcess::start(name, "127.0.0.1:0", &[]));
    let servers = agents.iter().map(|a| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", a.name, a.address));
    fs::write(here.join("c.toml"), servers.collect::<String>()).unwrap();
    run(here, "plan m.relay --profile p.csv=s0/cpu --profile p.csv=s1/cpu --links fast.csv --output split.json");
    let on_agents = "plan m.relay --cluster c.toml --profile-budget 50ms --rehearse 0";
    run(here, &format!("{on_agents} --like split.json --ratios equal --advise --output like.json"));
    let (split, like) = (plan(here, "split.json"), plan(here, "like.json"));
    assert!(!split.splits.is_empty());
    assert_eq!(splits(&like), splits(&split));
    for split in &like.splits {
        let size = |device: u32| -> u64 {
            let shards = split.cuts.windows(2).zip(&split.devices).filter(|(_, of)| of.0 == device);
            shards.map(|(cut, _)| cut[1] - cut[0]).sum()
        };
        assert!(size(0).abs_diff(size(1)) <= 1, "{split:?}");
    }
    // The links are real ones: whether both servers gain anything is up to them.
    assert!(advice(&like, "s1").starts_with("the plan is "));

    // What has to run on the second server cannot do without it.
    run(here, &format!("{on_agents} --ban nn.dense=s0/cpu --advise --output banned.json"));
    assert_eq!(advice(&plan(here, "banned.json"), "s1"), "no plan was found");
    run(here, "run like.json --repeat 2");
}

#[test]
fn a_plan_that_computes_in_parts_is_made_again_with_a_pin() {
    let folder = folder_with(WIDE);
    let here = folder.path();
    let limited = "plan m.relay --profile p.csv=s0/cpu --memory 3MiB";
    run(here, &format!("{limited} --output parts.json"));
    assert!(!plan(here, "parts.json").schedules.is_empty());
    let mut command = edgecut(here);
    command.args(format!("{limited} --like parts.json --move #0=s0/cpu").split(' '));
    let refused = within(Duration::from_secs(120), command);
    let stderr = String::from_utf8_lossy(&refused.stderr).replace('│', " ");
    let said = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--like parts.json: groups of s0/cpu are computed in parts"), "{said}");
    assert!(said.contains("plan again with --pin '#0=s0/cpu' in place of --like and --move"), "{said}");
    run(here, &format!("{limited} --pin #0=s0/cpu --output pinned.json"));
}

#[test]
fn an_explained_plan_says_what_each_strategy_found() {
    let folder = folder_with(WIDE);
    let here = folder.path();
    let limited = "plan m.relay --profile p.csv=s0/cpu --memory 3MiB";
    let plain = run(here, &format!("{limited} --output plain.json"));
    let explained = run(here, &format!("{limited} --explain --output explained.json"));
    let table = explained.strip_prefix(plain.as_str()).expect("the table comes after the plan");
    assert_eq!(fs::read(here.join("plain.json")).unwrap(), fs::read(here.join("explained.json")).unwrap());
    let rows: Vec<&str> = table.lines().filter(|line| !line.trim().is_empty()).collect();
    let row = |name: &str| *rows.iter().find(|row| row.starts_with(name)).unwrap_or_else(|| panic!("{name}: {table}"));
    assert!(row("whole groups ").contains("the nearest plan needs"), "{table}");
    assert!(row("split groups").contains("not tried: there is one device"), "{table}");
    assert!(row("memory-saving schedules").contains("latency ") && row("memory-saving schedules").ends_with("yes"));
    assert_eq!(rows.iter().filter(|row| row.ends_with("yes")).count(), 1, "{table}");
    let mut command = edgecut(here);
    command.args(format!("{limited} --explain --format json").split(' '));
    assert_eq!(within(Duration::from_secs(120), command).status.code(), Some(2));
}

#[test]
fn a_limit_that_no_device_exceeds_is_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), MODEL).unwrap();
    let said = |limit: &str| {
        let mut command = edgecut(folder.path());
        let line = format!("plan m.relay --memory {limit} --profile-budget 20ms --rehearse 0");
        command.args(line.split_whitespace());
        let output = within(Duration::from_secs(120), command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{limit}: {said}");
        said
    };
    let warning = "has no effect: the largest device, local/cpu, has";
    let far = said("1000000GiB");
    assert!(far.contains("warning: --memory '1000000.00 GiB'") && far.contains(warning), "{far}");
    assert!(!said("16MiB").contains(warning));
}
