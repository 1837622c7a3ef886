//! `plan --objective energy` through the real binary, with profiles whose energy columns are filled in as from an external
//! meter.

use std::{fs, path::Path, process::Output, time::Duration};

use crate::common::process::{edgecut, within};
use edgecut::{plan::Plan, profile::reader, units::Micros};

const MODEL: &str = "def @main(%x: Tensor[(64, 256), float32], %w: Tensor[(256, 256), float32]) {
    %0 = nn.softmax(nn.dense(%x, %w, units=256)); tanh(nn.softmax(nn.dense(%0, %w, units=256))) }";

const LINKS: &str = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                     s0,-,s1,-,0.1,1000000,0,1,1\ns1,-,s0,-,0.1,1000000,0,1,1\n";

/// What a meter at the idle server shows, in watts.
const IDLE: f64 = 0.5;

/// A folder with the model, its measured profile `p.csv`, and the links of two servers.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("m.relay"), MODEL).unwrap();
    fs::write(path("links.csv"), LINKS).unwrap();
    assert!(run(folder.path(), "profile m.relay --budget 50ms --output measured").status.success());
    let made = fs::read_dir(path("measured")).unwrap().next().unwrap().unwrap().path();
    let mut files = fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    let profile = files.find(|path| path.to_string_lossy().ends_with("fused.csv")).unwrap();
    fs::copy(profile, path("p.csv")).unwrap();
    folder
}

fn run(folder: &Path, line: &str) -> Output {
    let mut command = edgecut(folder);
    command.args(line.split_whitespace());
    within(Duration::from_secs(120), command)
}

/// Writes `p.csv` as `name`, of a device that takes `slower` times as long and draws `watts` above idle; of the first `filled`
/// rows the columns of energy are filled in, of the others they are empty.
fn metered(folder: &Path, name: &str, slower: f64, watts: f64, filled: usize) {
    let mut table = csv::Reader::from_path(folder.join("p.csv")).unwrap();
    let header = table.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let times: Vec<usize> = (0..header.len()).filter(|at| header[*at].starts_with("time_us_")).collect();
    let mut out = csv::Writer::from_path(folder.join(name)).unwrap();
    out.write_record(&header).unwrap();
    for (number, record) in table.records().enumerate() {
        let mut cells: Vec<String> = record.unwrap().iter().map(str::to_string).collect();
        for at in &times {
            let time: Option<f64> = cells[*at].parse().ok();
            cells[*at] = time.map_or(String::new(), |time| (slower * time).to_string());
        }
        let time: f64 = cells[column("time_us_median")].parse().unwrap();
        let energy = [((IDLE + watts) * time / 1e6).to_string(), IDLE.to_string(), "external".to_string()];
        for (name, value) in ["energy_j", "idle_w", "energy_source"].into_iter().zip(energy) {
            // What this machine may tell itself is replaced too.
            cells[column(name)] = if number < filled { value } else { String::new() };
        }
        out.write_record(&cells).unwrap();
    }
}

#[track_caller]
fn planned(folder: &Path, line: &str) -> (Plan, String) {
    let output = run(folder, &format!("plan m.relay --links links.csv --output found.json {line}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let plan = Plan::from_json(&fs::read(folder.join("found.json")).unwrap()).unwrap();
    (plan, String::from_utf8(output.stdout).unwrap())
}

/// The servers that compute.
fn used(plan: &Plan) -> Vec<&str> {
    plan.devices.iter().filter(|device| !device.order.is_empty()).map(|device| device.server.as_str()).collect()
}

#[test]
fn the_slower_server_that_draws_less_wins_by_energy_alone() {
    let folder = folder();
    let here = folder.path();
    metered(here, "fast.csv", 1.0, 60.0, usize::MAX);
    metered(here, "frugal.csv", 3.0, 5.0, usize::MAX);
    let both = "--profile fast.csv=s0/cpu --profile frugal.csv=s1/cpu";
    let (fast, _) = planned(here, &format!("{both} --no-split"));
    fs::copy(here.join("found.json"), here.join("fast.json")).unwrap();
    let (frugal, text) = planned(here, &format!("{both} --no-split --objective energy"));
    assert_eq!((used(&fast), used(&frugal)), (vec!["s0"], vec!["s1"]));
    assert!(frugal.predicted.latency_us > fast.predicted.latency_us);

    // Both servers are on for the whole run.
    let energy = |plan: &Plan, watts: f64| {
        let busy: Micros = plan.groups.iter().map(|group| group.time_us).sum();
        (2.0 * IDLE * plan.predicted.latency_us.0 + watts * busy.0) / 1e6
    };
    for (plan, watts) in [(&fast, 60.0), (&frugal, 5.0)] {
        let (stated, real) = (plan.predicted.energy_j.unwrap().0, energy(plan, watts));
        assert!((stated - real).abs() < 1e-6 * real, "{stated} for {real}");
        assert!(plan.devices.iter().all(|device| device.idle_w.is_some_and(|idle| (idle.0 - IDLE).abs() < 1e-12)));
    }
    assert!(frugal.predicted.energy_j < fast.predicted.energy_j);
    let compared = run(here, "compare fast.json found.json --format csv");
    let compared = String::from_utf8(compared.stdout).unwrap();
    let energies: Vec<&str> = compared.lines().filter(|line| line.contains(",j,")).collect();
    assert!(energies.len() == 1 && energies[0].starts_with("whole,,,energy,"), "{compared}");
    assert!(frugal.bound.value <= frugal.predicted.energy_j.unwrap().0 && frugal.bound.value > 0.0);
    assert!(text.contains("\nenergy ") && text.contains("of 1.00 W idle"), "{text}");
    let rows = fs::read_to_string(here.join("found.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let (energy, kind) = (column("energy_j"), column("kind"));
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let groups = rows.iter().filter(|row| &row[kind] == "group");
    let sum: f64 = groups.filter_map(|row| row[energy].parse::<f64>().ok()).sum();
    let stated: f64 = frugal.groups.iter().filter_map(|group| group.energy_j).map(|energy| energy.0).sum();
    assert!((sum - stated).abs() < 1e-9 * stated, "{sum} of {stated}");

    // Where groups may be split, nothing is worse.
    let (split, _) = planned(here, &format!("{both} --objective energy"));
    assert!(split.predicted.energy_j <= frugal.predicted.energy_j);

    // What rows lack is the mean of the others.
    metered(here, "partly.csv", 3.0, 5.0, 1);
    let (estimated, _) =
        planned(here, "--profile fast.csv=s0/cpu --profile partly.csv=s1/cpu --no-split --objective energy");
    assert_eq!(used(&estimated), ["s1"]);
    let (of, with) = (estimated.predicted.energy_j.unwrap().0, frugal.predicted.energy_j.unwrap().0);
    assert!((of - with).abs() < 1e-6 * with, "{of} for {with}");

    // A target on the latency is kept, at the price of energy.
    let target = fast.predicted.latency_us.0 * 1.2;
    let (timely, _) = planned(here, &format!("{both} --no-split --objective energy --latency {target}us"));
    assert!(timely.predicted.latency_us.0 <= target && timely.predicted.energy_j > frugal.predicted.energy_j);
}

#[test]
fn devices_without_energy_are_named_with_their_profiles() {
    let folder = folder();
    let here = folder.path();
    metered(here, "metered.csv", 1.0, 5.0, usize::MAX);
    metered(here, "bare.csv", 1.0, 5.0, 0);
    let both = "--links links.csv --profile bare.csv=s0/cpu --profile metered.csv=s1/cpu";
    let refused = run(here, &format!("plan m.relay {both} --objective energy"));
    let text = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{text}");
    for part in ["s0/cpu has none in bare.csv", "energy_j", "`edgecut profile` with --again", "--objective latency"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("s1/cpu") && !here.join("plan.json").exists(), "{text}");
    let half = fs::read_to_string(here.join("metered.csv")).unwrap().replace(",0.5,external", ",,external");
    fs::write(here.join("half.csv"), half).unwrap();
    let refused = run(here, "plan m.relay --profile half.csv=s0/cpu --objective energy");
    let text = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.status.code() == Some(2) && text.contains("s0/cpu has no idle_w in half.csv"), "{text}");

    // Other objectives need no energy, and say nothing of it.
    let (plan, text) = planned(here, "--profile bare.csv=s0/cpu --profile metered.csv=s1/cpu");
    assert!(plan.predicted.energy_j.is_none() && !text.contains("energy"), "{text}");
    assert!(!fs::read_to_string(here.join("found.json")).unwrap().contains("energy_j"));
    // A device that may not be used needs none.
    let (plan, _) = planned(
        here,
        "--profile bare.csv=s0/cpu --profile metered.csv=s1/cpu --objective energy --ban *=s0/cpu --no-split",
    );
    assert_eq!((used(&plan), plan.predicted.energy_j.is_some()), (vec!["s1"], true));

    // Its groups are moved by latency where profiles tell less.
    fs::copy(here.join("found.json"), here.join("frugal.json")).unwrap();
    let moved = "--like frugal.json --move #0=s1/cpu";
    let (plan, _) = planned(here, &format!("--profile bare.csv=s0/cpu --profile bare.csv=s1/cpu {moved}"));
    let note = "by latency: the plan was made by energy, which the profiles do not tell of s0/cpu, s1/cpu";
    assert!(plan.notes.iter().any(|found| found == note), "{:?}", plan.notes);
    let front = run(here, &format!("plan m.relay {both} --objective energy --pareto"));
    let text = String::from_utf8_lossy(&front.stderr).into_owned();
    assert!(
        front.status.code() == Some(2) && text.contains("--objective energy has no effect with --pareto"),
        "{text}"
    );

    // Half a meter is none: a power without an energy says nothing.
    let rows = fs::read_to_string(here.join("metered.csv")).unwrap().replace(",external", ",");
    assert!(reader::parse(&rows).unwrap().iter().all(|row| row.energy().is_none() && row.idle_w.is_some()));
    // What a person mistypes is refused with its place.
    for wrong in ["-0.5", "NaN", "inf", "half"] {
        let rows = fs::read_to_string(here.join("metered.csv"))
            .unwrap()
            .replace(",0.5,external", &format!(",{wrong},external"));
        fs::write(here.join("wrong.csv"), rows).unwrap();
        let refused = run(here, "plan m.relay --profile wrong.csv=s1/cpu");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{wrong}: {text}");
        assert!(text.contains("wrong.csv: line 2"), "{wrong}: {text}");
    }
}

#[test]
fn results_have_the_predicted_energy_of_groups_and_of_the_run() {
    let folder = folder();
    let here = folder.path();
    metered(here, "local.csv", 1.0, 5.0, usize::MAX);
    let planned = run(here, "plan m.relay --profile local.csv --rehearse 0 --objective energy");
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let plan = Plan::from_json(&fs::read(here.join("plan.json")).unwrap()).unwrap();
    let output = run(here, "run plan.json --repeat 2 --format csv");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut table = csv::Reader::from_reader(&output.stdout[..]);
    let rows: Vec<std::collections::BTreeMap<String, String>> = table.deserialize().map(Result::unwrap).collect();
    let energies = |kind: &str| -> Vec<f64> {
        let of_kind = rows.iter().filter(|row| row["kind"] == kind);
        of_kind.map(|row| row["predicted_energy_j"].parse().unwrap()).collect()
    };
    let whole = plan.predicted.energy_j.unwrap().0;
    let stated = energies("latency");
    assert!(stated.len() == 1 && (stated[0] - whole).abs() < 1e-9 * whole, "{stated:?} for {whole}");
    let above: f64 = energies("group").iter().sum();
    let idle = IDLE * plan.predicted.latency_us.0 / 1e6;
    assert!(above > 0.0 && (above + idle - whole).abs() < 1e-6 * whole, "{above} and {idle} of {whole}");
}

#[test]
fn power_below_that_of_the_idle_device_is_noted() {
    let folder = folder();
    let here = folder.path();
    metered(here, "metered.csv", 1.0, 5.0, usize::MAX);
    metered(here, "below.csv", 1.0, -0.2, usize::MAX);
    let (plan, text) =
        planned(here, "--profile metered.csv=s0/cpu --profile below.csv=s1/cpu --no-split --objective energy");
    let noted: Vec<&String> = plan.notes.iter().filter(|note| note.contains("no more power")).collect();
    assert!(noted.len() == 1 && noted[0].contains("rows of s1/cpu") && text.contains("check both columns"), "{text}");
}
