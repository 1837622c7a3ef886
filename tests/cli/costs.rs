//! What operators and their parts cost, as the program measures, keeps and uses it: files and figures, no times.

use std::{collections::BTreeMap, fs, path::Path, process::Output, time::Duration};

use crate::common::process::{AgentProcess, edgecut, within};
use crate::common::shared;

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
fn rows(text: &str) -> Vec<BTreeMap<String, String>> {
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
    assert_eq!(items, rows(&whole), "no item is measured again");
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
    let plan = "plan m.relay --cluster lab.toml --profile-budget 200ms --rehearse 0 --output";
    done(folder.path(), "profile m.relay --cluster lab.toml --fractions --budget 1s");
    let planned = |file: &str| done(folder.path(), &format!("{plan} {file}")).1;
    // Where times vary, a search can end before all shards that plans ask for are measured.
    let mut said: Vec<String> = Vec::new();
    while said.last().is_none_or(|last| last.contains("measur")) {
        assert!(said.len() < 8, "every plan measures: {}", said.join("\n"));
        said.push(planned("one.json"));
    }
    let again = planned("two.json");
    assert!(!again.contains("measur"), "{}\n{again}", said.join("\n"));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("one.json"), read("two.json"));
}

#[test]
fn what_was_not_measured_is_estimated_from_other_models_and_marked() {
    let folder = with_model();
    let larger = MODEL.replace("(1, 3, 96, 96)", "(1, 3, 64, 64)");
    fs::write(folder.path().join("other.relay"), larger).unwrap();
    let plan = "plan other.relay --estimate --output p.json";
    let nothing = run(folder.path(), plan);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("profile a model there first"), "{nothing:?}");

    done(folder.path(), "profile m.relay --budget 200ms");
    let (printed, _) = done(folder.path(), plan);
    assert!(printed.contains("≈") && printed.contains("are estimates"), "{printed}");
    let text = fs::read_to_string(folder.path().join("p.csv")).unwrap();
    let groups: Vec<_> = rows(&text).into_iter().filter(|row| row["kind"] == "group").collect();
    assert!(!groups.is_empty() && groups.iter().all(|row| row["source"] == "estimated"), "{text}");
    let (_, said) = done(folder.path(), "plan m.relay --estimate --output p.json");
    assert!(!said.contains("measured"), "{said}");
    let text = fs::read_to_string(folder.path().join("p.csv")).unwrap();
    assert!(rows(&text).iter().all(|row| row["source"] == "measured"), "{text}");
}

#[test]
fn the_cost_model_is_a_table_with_errors() {
    let folder = with_model();
    done(folder.path(), "profile m.relay --fractions --budget 1s");
    let (printed, _) = done(folder.path(), "report costs profiles --format csv --output costs.csv");
    assert_eq!(printed, fs::read_to_string(folder.path().join("costs.csv")).unwrap());
    let table = rows(&printed);
    let all = table.last().unwrap();
    assert_eq!(all["operator"], "(all)");
    let sum = |column: &str| {
        table[..table.len() - 1].iter().map(|row| row[column].parse::<usize>().unwrap()).sum::<usize>().to_string()
    };
    assert_eq!((&all["n"], &all["parts"]), (&sum("n"), &sum("parts")));
    let convolutions: Vec<_> = table.iter().filter(|row| row["window"] == "3x3").collect();
    assert!(!convolutions.is_empty());
    for row in table.iter().filter(|row| row["n"].parse::<usize>().unwrap() >= 3) {
        assert!(row["error_median"].parse::<f64>().unwrap() <= row["error_worst"].parse::<f64>().unwrap());
    }
    for (file, text, why) in [
        ("no.csv", "a,b\n1,2\n", "no.csv: line 1: a profile needs a column `signature`"),
        ("empty", "", "empty: no profile, or none with rows"),
    ] {
        fs::write(folder.path().join(file), text).unwrap();
        let output = run(folder.path(), &format!("report costs {file}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
    }
}

fn sum(rows: &[BTreeMap<String, String>]) -> f64 {
    rows.iter().map(|row| row["time_us_median"].parse::<f64>().unwrap()).sum()
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn eop_profiles_are_imported_by_number_and_planned_with() {
    let folder = shared("profiles/eop").canonicalize().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (model, cpu, gpu) = (at("lstm_5x128x10.relay"), at("lstm_512_cpu_512.csv"), at("lstm_512_k40_512.csv"));
    let here = tempfile::tempdir().unwrap();
    let import = format!("profile {model} --import {cpu} --import {gpu}=edge/gpu0 --format csv --output imported");
    let found = rows(&done(here.path(), &import).0);
    let (of_cpu, of_gpu): (Vec<_>, Vec<_>) = found.into_iter().partition(|row| row["device"] == "cpu");
    // Alone they take 1702 and 4446 us, tuples among it.
    assert_eq!((of_cpu.len(), of_gpu.len()), (218, 218));
    assert!((sum(&of_cpu) - 1702.0).abs() < 2.0 && (sum(&of_gpu) - 4446.0).abs() < 2.0);
    assert_eq!((of_cpu[0]["server"].as_str(), of_gpu[0]["server"].as_str()), ("eop", "edge"));
    assert!(of_cpu.iter().all(|row| row["cpu_us_median"].is_empty() && row["n"] == "1"));

    // The imported files and EOP's own give the same plan, better than either device alone.
    let files: Vec<String> = fs::read_dir(here.path().join("imported"))
        .unwrap()
        .flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| !path.ends_with(".summary.csv"))
        .collect();
    assert_eq!(files.len(), 2);
    let latency = |profiles: &str, output: &str| -> f64 {
        done(here.path(), &format!("plan {model} {profiles} --output {output}"));
        let plan: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(here.path().join(output)).unwrap()).unwrap();
        plan["predicted"]["latency_us"].as_f64().unwrap()
    };
    let links = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                 eop,-,edge,-,2,1000000,0,1,1\nedge,-,eop,-,2,1000000,0,1,1\n";
    fs::write(here.path().join("links.csv"), links).unwrap();
    let alone = latency(&format!("--profile {cpu}"), "alone.json");
    assert!((alone - sum(&of_cpu)).abs() < 1e-6);
    let own = latency(&format!("--profile {cpu} --profile {gpu}=edge/gpu0 --links links.csv --no-split"), "own.json");
    let mut ordered = files.clone();
    ordered.sort_by_key(|path| path.contains("edge-"));
    let ours = format!("--profile {} --profile {} --links links.csv --no-split", ordered[0], ordered[1]);
    assert!((latency(&ours, "ours.json") - own).abs() < 1e-6 && own < alone, "{own} {alone}");
    let linkless = run(here.path(), &format!("plan {model} --profile {cpu} --profile {gpu}=edge/gpu0"));
    assert_eq!(linkless.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&linkless.stderr).contains("--links"));
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn dumps_of_tvms_debug_executor_are_imported_and_planned_with() {
    let folder = shared("profiles/tvmdbg").canonicalize().unwrap();
    for (name, operators, time) in [("mobile_net", 302 + 54, 5646.0), ("vgg16", 54, 12503.0)] {
        let at = |kind: &str| folder.join(format!("{name}.{kind}.json")).display().to_string();
        let here = tempfile::tempdir().unwrap();
        // The graph and its trace are found from each other.
        for file in [at("graph_dump"), at("execution_trace")] {
            let found = rows(&done(here.path(), &format!("profile --import {file} --format csv")).0);
            assert_eq!(found.len(), operators);
            assert!((sum(&found) - time).abs() < 1.0, "{}", sum(&found));
            assert!(found.iter().all(|row| row["device"] == "gpu0" && row["mode"] == "in-situ"));
            let convolutions = found.iter().filter(|row| row["operator"] == "nn.conv2d");
            assert!(convolutions.clone().count() > 10 && convolutions.clone().all(|row| row["flops"] != "0"));
        }
        let groups = rows(&done(here.path(), &format!("plan {} --format csv", at("graph_dump"))).0);
        assert_eq!(groups.len(), operators);
    }
}

#[test]
fn what_cannot_be_imported_is_refused_with_its_place() {
    let folder = with_model();
    fs::write(folder.path().join("short.csv"), "a_name,forward_fw_mean_time\nnn.conv2d-9,12\nnn.relu,1\n").unwrap();
    fs::write(folder.path().join("other.csv"), "a_name,forward_fw_mean_time\nnn.dense-4,12\n").unwrap();
    fs::write(folder.path().join("x.graph_dump.json"), "{\"nodes\": [{\"op\": 3}]}").unwrap(); // JSON of no dump
    fs::write(folder.path().join("y.json"), "{\"traceEvents\": []}").unwrap();
    for (arguments, why) in [
        ("profile m.relay --import short.csv", "short.csv: line 3: `nn.relu` is not an operator's name"),
        (
            "profile m.relay --import other.csv",
            "other.csv: line 2: the profile has `nn.dense-4`, number 4 of the module is",
        ),
        ("profile --import other.csv", "other.csv: neither a graph dump nor an execution trace"),
        ("profile --import x.graph_dump.json", "x.graph_dump.json: not a graph dump"),
        ("profile --import y.json", "y.json"),
        ("profile m.relay --import y.json", "y.json: a trace of TVM's debug executor is of a graph dump"),
        ("profile m.relay --import absent.csv", "absent.csv"),
        ("plan m.relay --profile other.csv", "other.csv: line 2"),
        ("plan x.graph_dump.json", "x.graph_dump.json: not a graph dump"),
        ("profile", "nothing to profile"),
    ] {
        let output = run(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(why), "{arguments}: {said}");
    }
}
