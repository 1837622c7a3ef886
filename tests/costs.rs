//! What operators and their parts cost, as the program measures, keeps and uses it: files and figures, no times.

mod common;

use std::{fs, path::Path, process::Output, time::Duration};

use common::process::{AgentProcess, edgecut, within};

const PATIENCE: Duration = Duration::from_secs(120);

const MODEL: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 96, 96), float32], %w1: Tensor[(32, 3, 3, 3), float32], %w2: Tensor[(32, 32, 3, 3), float32],
          %w3: Tensor[(32, 32, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.conv2d(%1, %w2, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %3 = nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2]);
  nn.conv2d(%3, %w3, strides=[2, 2], padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])
}
"#;

/// Runs the program in `folder`; its arguments have no spaces inside.
fn run(folder: &Path, arguments: &str) -> Output {
    let mut command = edgecut(folder);
    command.args(arguments.split(' '));
    within(PATIENCE, command)
}

/// Runs it, to success; what it printed, and what it said.
fn done(folder: &Path, arguments: &str) -> (String, String) {
    let output = run(folder, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments}: {said}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), said)
}

/// The rows of a CSV text as maps from column to cell.
fn rows(text: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().map(Result::unwrap).collect()
}

fn with_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), MODEL).unwrap();
    folder
}

#[test]
fn fractions_are_measured_once_and_whole_rows_stay_whole() {
    let folder = with_model();
    let (whole, _) = done(folder.path(), "profile m.relay --budget 200ms --format csv");
    let (first, _) = done(folder.path(), "profile m.relay --fractions --budget 600s --format csv");
    let (again, said) = done(folder.path(), "profile m.relay --fractions --budget 600s --format csv");
    assert_eq!(first, again);
    assert!(said.contains("unchanged"), "{said}");
    let (parts, items): (Vec<_>, Vec<_>) = rows(&first).into_iter().partition(|row| !row["fraction"].is_empty());
    assert_eq!(items, rows(&whole), "no item is measured anew");
    for item in &items {
        let of: Vec<_> = parts.iter().filter(|part| part["id"] == item["id"]).collect();
        for fraction in ["0.5", "0.25", "0.125"] {
            // Rows, columns and channels, and of those that read no other operator's weights more.
            let axes: Vec<&str> = of.iter().filter(|p| p["fraction"] == fraction).map(|p| p["axis"].as_str()).collect();
            assert!(axes.len() >= 3, "{} {fraction}: {axes:?}", item["operator"]);
        }
        for part in of {
            assert_eq!((&part["operators"], &part["operator"]), (&item["operators"], &item["operator"]));
            let (share, flops) = (part["fraction"].parse::<f64>().unwrap(), |row: &str| row.parse::<f64>().unwrap());
            assert!((flops(&part["flops"]) / flops(&item["flops"]) - share).abs() < 0.01, "{part:?}");
            assert!(part["time_us_median"].parse::<f64>().unwrap() > 0.0);
        }
    }
    let refused = run(folder.path(), "profile m.relay --fractions --mode in-situ");
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_plan_made_again_measures_nothing_and_is_the_same() {
    let folder = with_model();
    let agents: Vec<AgentProcess> =
        ["a", "b"].iter().map(|name| AgentProcess::start(name, "127.0.0.1:0", &[])).collect();
    let mut cluster = String::new();
    for agent in &agents {
        cluster += &format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address);
    }
    cluster += "[[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"1us\"\nrate = \"100Gbit/s\"\nboth_ways = true\n";
    fs::write(folder.path().join("lab.toml"), cluster).unwrap();
    let plan = "plan m.relay --cluster lab.toml --profile-budget 200ms --output";
    done(folder.path(), "profile m.relay --cluster lab.toml --fractions --budget 1s");
    let (_, first) = done(folder.path(), &format!("{plan} one.json"));
    let (_, second) = done(folder.path(), &format!("{plan} two.json"));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(!second.contains("measur"), "{first}\n{second}");
    assert_eq!(read("one.json"), read("two.json"));
}
