//! Energy through the real binary: columns are filled where this machine has a source, and where it has none, the absent sources are
//! named to those who ask.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::common::process::{edgecut, run, texts, within};
use edgecut::{
    engine::energy::{EnergyMeter, EnergySource},
    graph::units::{Joules, Micros, Watts},
    profile::ProfileRow,
};

const MODEL: &str = "def @main(%x: Tensor[(64, 64), float32], %w: Tensor[(64, 64), float32]) {
  %0 = nn.dense(%x, %w, units=64);
  nn.relu(%0)
}";

/// The rows that a command printed.
fn rows(text: &str) -> Vec<ProfileRow> {
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(Result::unwrap).collect()
}

/// Whether a meter counts: on some virtual machines it stands still.
fn counts(meter: &EnergyMeter) -> bool {
    let reading = meter.start().unwrap();
    thread::sleep(Duration::from_millis(500));
    reading.so_far().unwrap().energy.0 > 0.0
}

fn profile(folder: &Path, flags: &str) -> (Vec<ProfileRow>, String) {
    let (code, printed, said) = run(folder, &format!("profile m.relay --budget 200ms --format csv {flags}"));
    assert_eq!(code, Some(0), "{said}");
    (rows(&printed), said)
}

#[test]
fn a_profile_has_the_energy_of_each_item_or_says_why_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), MODEL).unwrap();
    let (found, said) = profile(here, "--verbose");
    assert!(!found.is_empty());
    let (told, counting) = match EnergyMeter::of_processor() {
        Ok(meter) => (format!("energy of local/cpu: {meter}"), counts(&meter)),
        Err(absent) => (format!("no energy of local/cpu: {absent}"), false),
    };
    assert_eq!(said.matches(&told).count(), 1, "{said}");
    for row in &found {
        assert_eq!(row.energy().is_some(), counting, "{row:?}");
        assert!(row.energy().is_none_or(|energy| energy.run.0 > 0.0 && energy.idle.0 > 0.0), "{row:?}");
    }
    let (again, said) = profile(here, "--again");
    assert!(again.len() == found.len() && !said.contains("energy of"), "{said}");
    let (in_place, _) = profile(here, "--mode in-situ --output in-situ");
    assert!(!in_place.is_empty() && in_place.iter().all(|row| row.energy().is_none()), "{in_place:?}");
}

#[test]
fn devices_have_a_source_or_the_reason_why_they_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (code, printed, said) = run(here, "devices --format json");
    assert_eq!(code, Some(0), "{said}");
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let device = &printed["devices"][0];
    let (source, absent) = match EnergyMeter::of_processor() {
        Ok(meter) => (meter.to_string(), String::new()),
        Err(absent) => (String::new(), absent.to_string()),
    };
    assert_eq!(device["energy_source"], source.as_str());
    assert_eq!(device["energy_absent"], absent.as_str());
    let (_, table, _) = run(here, "devices");
    let line = if absent.is_empty() { format!("energy by {source}") } else { format!("no energy: {absent}") };
    assert!(table.contains(&format!("local/cpu: {line}\n")), "{table}");
}

#[test]
fn a_run_tells_the_energy_of_servers_that_have_a_source() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), MODEL).unwrap();
    assert_eq!(run(here, "plan m.relay --profile-budget 50ms --rehearse 0").0, Some(0));
    // Long enough for any source.
    let (code, printed, said) = run(here, "run plan.json --repeat 3000 --format json");
    assert_eq!(code, Some(0), "{said}");
    let outcome: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let energy = outcome["energy"].as_array().unwrap();
    match EnergyMeter::of_processor() {
        Ok(meter) if counts(&meter) => {
            assert_eq!(energy[0]["server"], "local");
            assert_eq!(energy[0]["sources"][0]["source"], meter.to_string());
            assert!(energy[0]["measured_energy_j"].as_f64().unwrap() > 0.0, "{energy:?}");
        }
        _ => assert!(energy.is_empty(), "{energy:?}"),
    }
    let (_, table, _) = run(here, "run plan.json --repeat 3");
    assert!(EnergyMeter::of_processor().is_ok() || !table.contains("energy of"), "{table}");
}

#[test]
fn a_plan_by_energy_without_a_source_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), MODEL).unwrap();
    let planned = || {
        let mut command = edgecut(here);
        let arguments = ["plan", "m.relay", "--objective", "energy", "--profile-budget", "50ms", "--rehearse", "0"];
        command.env("EDGECUT_SYSFS", here.join("sys")).args(arguments);
        let (code, _, said) = texts(within(Duration::from_secs(120), command));
        (code, said.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, said) = planned();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("local/cpu has none in profiles/") && said.contains(", and cannot measure any: "), "{said}");
    assert!(said.contains("no folder") && !said.contains("--again"), "{said}");
    let folders = fs::read_dir(here.join("profiles")).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let is_profile = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("local-cpu-") && name.ends_with("fused.csv")
    };
    let path = files.map(|entry| entry.unwrap().path()).find(is_profile).unwrap();
    assert!(rows(&fs::read_to_string(&path).unwrap()).is_empty(), "{}", path.display());

    // What was measured without a source is not measured again.
    let zone = here.join("sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    for (name, value) in [("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "1000000")] {
        fs::write(zone.join(name), value).unwrap();
    }
    profile(here, "");
    let measured = rows(&fs::read_to_string(&path).unwrap());
    let written = |energy: &dyn Fn(Micros) -> Option<Joules>| {
        let mut table = csv::Writer::from_path(&path).unwrap();
        for row in &measured {
            let energy_j = energy(row.time_us_median.unwrap());
            let (idle_w, energy_source) = (energy_j.map(|_| Watts(4.0)), energy_j.map(|_| EnergySource::External));
            table.serialize(ProfileRow { energy_j, idle_w, energy_source, ..row.clone() }).unwrap();
        }
        table.flush().unwrap();
    };
    written(&|_| None);
    let (code, said) = planned();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("local/cpu has none in profiles/") && !said.contains("cannot measure any"), "{said}");
    assert!(said.contains("`edgecut profile` with --again"), "{said}");

    // Figures of an external meter are as good.
    written(&|time| Some(Watts(10.0).during(time)));
    let (code, said) = planned();
    assert_eq!(code, Some(0), "{said}");
}
