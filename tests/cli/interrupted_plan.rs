//! Planning that is stopped, by Ctrl-C or by `--time-limit`: the best so far is given out.

use std::{fs, path::Path, process::Stdio, thread, time::Duration};

use crate::common::process::{edgecut, ending, model, signal, within};
use edgecut::plan::Plan;

const PATIENCE: Duration = Duration::from_secs(240);

/// A folder with a profile of squeezenet, `p.csv`, and links between two servers.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = edgecut(folder.path());
    profile.args(["profile", &model("squeezenet_v1.1"), "--budget", "20ms", "--output", "measured"]);
    let output = within(PATIENCE, profile);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let made = fs::read_dir(folder.path().join("measured")).unwrap().next().unwrap().unwrap().path();
    let mut files = fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    let rows = files.find(|path| path.to_string_lossy().ends_with("fused.csv")).unwrap();
    fs::copy(rows, folder.path().join("p.csv")).unwrap();
    let links = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                 s0,-,s1,-,100,1000,0,1,1\ns1,-,s0,-,100,1000,0,1,1\n";
    fs::write(folder.path().join("links.csv"), links).unwrap();
    folder
}

fn plan(folder: &Path, flags: &[&str]) -> std::process::Command {
    let mut command = edgecut(folder);
    command.args(["plan", &model("squeezenet_v1.1"), "--profile", "p.csv=s0/cpu", "--profile", "p.csv=s1/cpu"]);
    command.args(["--links", "links.csv"]).args(flags);
    command
}

#[test]
fn planning_that_is_stopped_gives_out_the_best_so_far() {
    let folder = folder();
    let here = folder.path();
    let limited = within(PATIENCE, plan(here, &["--time-limit", "1ms", "--output", "limited.json"]));
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    Plan::from_json(&fs::read(here.join("limited.json")).unwrap()).unwrap();

    // The front is written as it grows. Interrupted then, what there is of it is given out.
    let mut command = plan(here, &["--pareto", "--output", "front"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let table = here.join("front").join("front.csv");
    let interrupting = thread::spawn(move || {
        while !table.exists() {
            thread::sleep(Duration::from_millis(5));
        }
        signal(pid, "INT");
    });
    let output = ending(PATIENCE, child);
    interrupting.join().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("stopping: the best plan so far is used"), "{message}");
    let rows = fs::read_to_string(here.join("front").join("front.csv")).unwrap().lines().count() - 1;
    let plans = (1..).take_while(|number| here.join("front").join(format!("plan-{number}.json")).exists()).count();
    assert!(rows > 0 && rows == plans, "{rows} rows, {plans} plans");
}
