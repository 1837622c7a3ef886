//! Defaults of flags from the configuration file and the environment, and how much is said.

use std::{fs, path::Path, time::Duration};

use crate::common::process::{edgecut, texts, within};

const MODEL: &str = "def @main(%x: Tensor[(4), float32]) { nn.softmax(tanh(nn.relu(%x))) }";

/// Runs the program with these variables; its exit code, stdout and stderr.
fn run(folder: &Path, variables: &[(&str, &str)], line: &str) -> (Option<i32>, String, String) {
    let mut command = edgecut(folder);
    command.envs(variables.iter().copied()).args(line.split_whitespace());
    texts(within(Duration::from_secs(60), command))
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.relay"), MODEL).unwrap();
    fs::create_dir(folder.path().join("edgecut")).unwrap();
    fs::write(folder.path().join("edgecut/config.toml"), config).unwrap();
    folder
}

#[test]
fn flags_have_defaults_in_a_file() {
    let folder = folder("[profile]\nbudget = \"1ms\"\ngranularity = \"op\"\nformat = \"csv\"\n");
    let here = folder.path();
    let configured = [("EDGECUT_CONFIG", "edgecut/config.toml")];
    let (code, rows, said) = run(here, &configured, "profile m.relay");
    assert_eq!((code, rows.lines().count()), (Some(0), 4), "{rows}{said}");
    let (_, table, _) = run(here, &configured, "profile m.relay --format table");
    assert!(table.contains("whole model"), "{table}");
    assert!(run(here, &configured, "profile --help").1.contains("[default: 1ms]"));

    // Found where configurations are, and left out by an empty variable.
    let mut command = edgecut(here);
    command.env_remove("EDGECUT_CONFIG").env("XDG_CONFIG_HOME", here).args(["profile", "m.relay"]);
    assert!(String::from_utf8_lossy(&within(Duration::from_secs(60), command).stdout).starts_with("server,"));
    assert!(run(here, &[], "profile m.relay --budget 1ms").1.contains("whole model"));
}

#[test]
fn what_is_no_default_is_told_with_its_place() {
    let folder = folder("");
    let here = folder.path();
    for (config, message, place) in [
        ("[profile]\n\nbudgets = \"1ms\"\n", "`profile --help` has no flag --budgets", "config.toml:3:1"),
        ("[profile]\nbudget = \"soon\"\n", "invalid value 'soon' for '--budget <TIME>'", "config.toml:2:10"),
        ("[profil]\n", "`profil` is no verb", "config.toml:1:2"),
        ("cluster = [\n", "array", "config.toml:"),
        ("[profile]\nbudget = [\"1ms\", \"2ms\"]\n", "--budget takes one value, not 2", "config.toml:2:10"),
        ("[profile]\nbudget = []\n", "--budget takes one value, not 0", "config.toml:2:10"),
        ("[profile]\ncluster = \"lab.toml\"\n", "write it at the top of the file", "config.toml:2:1"),
        ("[profile]\nquiet = true\n", "`quiet` is a flag of all verbs: write it at the top", "config.toml:2:1"),
        ("[run.fast]\n", "`fast`: `run` has no verbs below it", "config.toml:1:6"),
        ("[profile]\nimport = [\"a.csv\"]\nbudget = \"1ms\"\n", "cannot be used with --", "config.toml:"),
    ] {
        fs::write(here.join("edgecut/config.toml"), config).unwrap();
        let (code, _, said) = run(here, &[("EDGECUT_CONFIG", "edgecut/config.toml")], "profile m.relay");
        assert_eq!(code, Some(2), "{config}{said}");
        assert!(said.contains(message) && said.contains(place), "{config}{said}");
    }
    let (code, _, said) = run(here, &[("EDGECUT_CONFIG", "none.toml")], "profile m.relay");
    assert_eq!(code, Some(2));
    assert!(said.contains("none.toml"), "{said}");
}

#[test]
fn the_cluster_of_the_environment_comes_before_that_of_the_file() {
    let folder = folder("cluster = \"two.toml\"\n");
    let here = folder.path();
    let (file, named) = (("EDGECUT_CONFIG", "edgecut/config.toml"), ("EDGECUT_CLUSTER", "one.toml"));
    let asked = |variables: &[(&str, &str)], line: &str| run(here, variables, line).2;
    // None of these files is there: messages say which one was looked for.
    assert!(asked(&[file], "devices").contains("edgecut/two.toml"));
    assert!(asked(&[file, named], "devices").contains("one.toml"));
    assert!(asked(&[file, named], "devices --cluster three.toml").contains("three.toml"));
    assert_eq!(run(here, &[file, ("EDGECUT_CLUSTER", "")], "devices").0, Some(0), "this machine");
    assert_eq!(run(here, &[file], "run m.relay").0, Some(0), "a model runs here");
}

#[test]
fn configured_flags_without_effect_are_no_mistake() {
    let folder = folder("[run]\nthroughput = true\nengine = \"tract\"\n");
    let (here, configured) = (folder.path(), [("EDGECUT_CONFIG", "edgecut/config.toml")]);
    let (code, _, said) = run(here, &configured, "run m.relay");
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = run(here, &configured, "run m.relay --throughput");
    assert_eq!(code, Some(2));
    assert!(said.contains("--throughput has no effect with a model"), "{said}");

    let (code, _, said) = run(here, &configured, "plan m.relay --profile-budget 1ms --rehearse 0");
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = run(here, &configured, "run plan.json --repeat 2");
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = run(here, &configured, "run plan.json --engine tract");
    assert_eq!(code, Some(2));
    assert!(said.contains("--engine has no effect with a plan"), "{said}");
}

#[test]
fn configured_options_that_a_typed_flag_excludes_are_no_mistake() {
    let folder = folder("[run]\npad-inputs = true\n[plan]\nrehearse = 2\n");
    let (here, configured) = (folder.path(), [("EDGECUT_CONFIG", "edgecut/config.toml")]);
    for line in ["run m.relay", "plan m.relay --profile-budget 1ms --rehearse 0", "plan m.relay --estimate"] {
        let (code, _, said) = run(here, &configured, line);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    let (code, _, said) = run(here, &configured, "plan m.relay --estimate --rehearse 2");
    assert!(code == Some(2) && said.contains("--rehearse has no effect with --estimate"), "{said}");
    let (code, _, said) = run(here, &configured, "run m.relay --pad-inputs");
    assert!(code == Some(2) && said.contains("--pad-inputs has no effect with generated inputs"), "{said}");
}

#[test]
fn flags_come_before_configured_flags_that_conflict_with_them() {
    let folder = folder("[plan]\npareto = true\n");
    let (here, configured) = (folder.path(), [("EDGECUT_CONFIG", "edgecut/config.toml")]);
    let line = "plan m.relay --profile-budget 1ms --rehearse 0";
    let (code, _, said) = run(here, &configured, line);
    assert_eq!(code, Some(0), "{said}");
    assert!(!here.join("plan.json").exists(), "a front is no plan: {said}");
    let (code, _, said) = run(here, &configured, &format!("{line} --ratios equal"));
    assert_eq!(code, Some(0), "{said}");
    assert!(here.join("plan.json").exists(), "{said}");
}

#[test]
fn the_file_matters_to_the_verb_that_is_called() {
    let broken = "[plan]\nbudgets = 7\n[profile]\nbudget = \"1ms\"\n";
    let folder = folder(broken);
    let (here, configured) = (folder.path(), [("EDGECUT_CONFIG", "edgecut/config.toml")]);
    let (code, _, said) = run(here, &configured, "run m.relay");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(run(here, &configured, "plan m.relay").0, Some(2));
    let (_, help, _) = run(here, &configured, "profile --help");
    assert!(help.contains("[default: 1ms]"), "{help}");

    for config in [broken, "cluster = [\n", "[plann]\n"] {
        fs::write(here.join("edgecut/config.toml"), config).unwrap();
        for file in ["edgecut/config.toml", "none.toml"] {
            for line in ["--help", "plan --help", "help plan", "--version", "completions bash", "man"] {
                let (code, printed, said) = run(here, &[("EDGECUT_CONFIG", file)], line);
                assert_eq!(code, Some(0), "{config}{file}: {line}: {said}");
                assert!(printed.contains("edgecut"), "{config}{file}: {line}: {printed}");
            }
        }
    }
}

#[test]
fn flags_of_all_verbs_are_at_the_top_of_the_file() {
    let folder = folder("quiet = true\n");
    let (here, configured) = (folder.path(), [("EDGECUT_CONFIG", "edgecut/config.toml")]);
    let line = "plan m.relay --profile-budget 1ms --rehearse 0";
    let (code, _, said) = run(here, &configured, line);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, _, said) = run(here, &configured, &format!("{line} --verbose"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("plan written to plan.json"), "{said}");
}

#[test]
fn a_quiet_command_says_nothing_but_its_result() {
    let folder = folder("");
    let here = folder.path();
    let line = "plan m.relay --profile-budget 1ms --rehearse 0 --format csv";
    let (code, quiet, said) = run(here, &[], &format!("{line} -q"));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (_, loud, said) = run(here, &[], line);
    assert_eq!(quiet, loud);
    assert!(said.contains("plan written to plan.json"), "{said}");
    let (_, helped, _) = run(here, &[], "help plan");
    assert!(helped.contains("Usage: edgecut plan"), "{helped}");
}

#[test]
fn profiles_are_sorted_and_cut() {
    let folder = folder("");
    let here = folder.path();
    let rows = run(here, &[], "profile m.relay --budget 5ms --granularity op --sort time --top 2 --format csv").1;
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    let at = reader.headers().unwrap().iter().position(|column| column == "time_us_median").unwrap();
    let times: Vec<f64> = reader.records().map(|row| row.unwrap()[at].parse().unwrap()).collect();
    assert_eq!(times.len(), 2, "{rows}");
    assert!(times[0] >= times[1], "{times:?}");
    let table = run(here, &[], "profile m.relay --granularity op --top 1").1;
    assert!(table.contains("and 2 more"), "{table}");
}
