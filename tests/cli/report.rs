//! `edgecut report` through the real binary: pages of what other verbs wrote, their size, what they load, what they escape,
//! and which files are refused.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::process::{edgecut, within};

/// Limit on the size of a page of 2 000 operators.
const MOST_BYTES: usize = 500_000;

const LINKS: &str = "from,from_address,to,to_address,latency_us,bytes_per_us,fit_error,largest_bytes,n\n\
                     s0,-,s1,-,0.1,1000000,0,1,1\ns1,-,s0,-,0.1,1000000,0,1,1\n";

/// What tries to be markup.
const MARKUP: &str = "</script><img src=x onerror=alert(1)><!--";

const FILE: &str = "<img src=x onerror=alert(1)>.csv";

/// A chain of `count` operators of two kinds, a branch of it each fourth.
fn model(count: usize) -> String {
    let mut text = "def @main(%x: Tensor[(1, 64), float32], %w: Tensor[(64, 64), float32]) {\n".to_string();
    let mut last = "%x".to_string();
    for index in 0..count {
        let _ = match index % 4 {
            0 => writeln!(text, "  %{index} = nn.dense({last}, %w, units=64);"),
            1 => writeln!(text, "  %{index} = nn.relu({last});"),
            2 => writeln!(text, "  %{index} = tanh({last});"),
            _ => writeln!(text, "  %{index} = add({last}, %{});", index - 2),
        };
        last = format!("%{index}");
    }
    text + &format!("  nn.softmax({last})\n}}\n")
}

fn run(folder: &Path, line: &str) -> std::process::Output {
    let mut command = edgecut(folder);
    command.args(line.split_whitespace());
    within(Duration::from_secs(120), command)
}

#[track_caller]
fn done(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one profile under `folder` whose name ends so.
fn profile(folder: &Path, ending: &str) -> PathBuf {
    let made = fs::read_dir(folder.join("profiles")).unwrap().next().unwrap().unwrap().path();
    let mut files = fs::read_dir(made).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
}

/// A folder with a model of `count` operators, its profile `p.csv` and its plan `plan.json` for two devices.
fn planned(count: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), model(count)).unwrap();
    fs::write(here.join("links.csv"), LINKS).unwrap();
    done(here, "profile m.relay --granularity op --budget 50ms");
    fs::copy(profile(here, "op.csv"), here.join("p.csv")).unwrap();
    let devices = "--profile p.csv=s0/cpu --profile p.csv=s1/cpu --links links.csv";
    done(
        here,
        &format!("plan m.relay {devices} --no-split --time-limit 3s --pin '#1=s1/cpu' --output plan.json")
            .replace('\'', ""),
    );
    folder
}

/// The data of a page.
fn data(page: &str) -> serde_json::Value {
    let text = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_page_of_two_thousand_operators_is_small_and_loads_nothing() {
    let folder = planned(2000);
    let here = folder.path();
    let said = done(here, "report p.csv plan.json links.csv");
    assert!(said.contains("report written to report.html"), "{said}");
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    assert!(page.len() <= MOST_BYTES, "{} bytes", page.len());
    for load in ["src=\"", "@import", "url(", "fetch(", "XMLHttpRequest", "import(", "href=\"http"] {
        assert!(!page.contains(load), "{load}");
    }
    assert!(page.contains("default-src 'none'"));
    let data = data(&page);
    let plan = &data["plans"][0];
    for link in data["cluster"]["links"].as_array().unwrap() {
        assert_eq!(link["bytes_per_us"], 1_000_000.0, "{link}");
    }
    assert_eq!(plan["groups"]["id"].as_array().unwrap().len(), 2001);
    assert_eq!(data["tables"][0]["id"].as_array().unwrap().len(), 2001);
    // With the model at hand: what each operator reads, memory over time up to the peak that the plan says.
    assert!(plan["groups"]["reads"].is_array() && plan["without_model"].is_null());
    for curve in plan["memory"].as_array().unwrap() {
        let device = &plan["devices"][curve["device"].as_u64().unwrap() as usize];
        assert_eq!(curve["peak_bytes"], device["load_bytes"], "{}", device["name"]);
    }
    assert_eq!(plan["rules"][0], "pin #1=s1/cpu");
    assert_eq!(plan["groups"]["rules"][0], serde_json::json!([1, 0]));
}

#[test]
fn a_page_has_the_results_of_runs_and_fronts() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("m.relay"), model(8)).unwrap();
    done(here, "plan m.relay --profile-budget 50ms --rehearse 0 --output plan.json");
    done(here, "plan m.relay --profile-budget 50ms --rehearse 0 --pareto --output front.csv");
    let run = run(here, "run plan.json --repeat 2 --format json");
    fs::write(here.join("results"), &run.stdout).unwrap();
    done(here, "report profiles plan.json front.csv results --output pages/all.html");
    let page = data(&fs::read_to_string(here.join("pages/all.html")).unwrap());
    let kinds: Vec<&str> = page["subjects"].as_array().unwrap().iter().map(|of| of[1].as_str().unwrap()).collect();
    assert_eq!(kinds, ["profile", "plan", "front", "results of a run"]);
    assert_eq!((&page["runs"][0]["plan"], page["fronts"][0]["latency_us"].is_array()), (&serde_json::json!(0), true));
    let error = &page["runs"][0]["groups"]["error"];
    assert!(error["n"].as_u64().unwrap() > 0 && error["worst"].as_f64() >= error["median"].as_f64(), "{error}");

    // The model's text is another one now.
    fs::write(here.join("m.relay"), model(9)).unwrap();
    let said = done(here, "report plan.json");
    assert!(said.contains("without its model") && said.contains("its hash differs"), "{said}");
    let page = data(&fs::read_to_string(here.join("report.html")).unwrap());
    assert!(page["plans"][0]["memory"].is_null() && page["tables"].as_array().unwrap().is_empty());
}

#[test]
fn models_of_one_page_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, count) in [("a", 4), ("b", 8)] {
        fs::write(here.join(format!("{name}.relay")), model(count)).unwrap();
        done(here, &format!("plan {name}.relay --profile-budget 50ms --rehearse 0 --output {name}.json"));
        done(here, &format!("run {name}.json --repeat 2 --output {name}-results.json"));
    }
    done(here, "report profiles b.json a.json a-results.json b-results.json");
    let page = data(&fs::read_to_string(here.join("report.html")).unwrap());
    let lengths = |of: &str, ids: &str| -> Vec<usize> {
        page[of].as_array().unwrap().iter().map(|of| of.pointer(ids).unwrap().as_array().unwrap().len()).collect()
    };
    let (tables, plans) = (lengths("tables", "/id"), lengths("plans", "/groups/id"));
    assert!(tables.len() == 2 && tables[0] < tables[1], "a table each: {tables:?}");
    assert_eq!(tables, [plans[1], plans[0]]);
    let runs: Vec<u64> = page["runs"].as_array().unwrap().iter().map(|run| run["plan"].as_u64().unwrap()).collect();
    assert_eq!(runs, [1, 0], "each with its plan");
    // Times on other devices are of the plan's own model.
    for (plan, table) in page["plans"].as_array().unwrap().iter().zip([1, 0]) {
        let tables: Vec<u64> =
            plan["profiled"].as_array().unwrap().iter().map(|column| column["table"].as_u64().unwrap()).collect();
        assert_eq!(tables, [table], "{}", plan["name"]);
    }
}

#[test]
fn names_are_no_markup() {
    let folder = planned(4);
    let here = folder.path();
    let rows = fs::read_to_string(here.join("p.csv")).unwrap();
    fs::write(here.join(FILE), rows.replace(",tract,", &format!(",{MARKUP},"))).unwrap();
    let mut command = edgecut(here);
    command.args(["report", FILE, "plan.json"]);
    let output = within(Duration::from_secs(60), command);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(here.join("report.html")).unwrap();
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 2);
    let data = data(&page);
    assert!(data["cluster"]["devices"].to_string().contains(MARKUP), "{}", data["cluster"]);
    assert_eq!(data["subjects"][0][0], FILE);
}

#[test]
fn what_is_no_subject_is_refused_with_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("nothing")).unwrap();
    for (name, text, why) in [
        ("m.relay", "def @main(%x: Tensor[(4), float32]) { tanh(%x) }", "this is Relay text"),
        ("a.csv", "a,b\n1,2\n", "this is CSV with the header `a,b`"),
        ("rows.csv", "kind,id,name,start_us,to_device\n", "the rows of a plan"),
        ("x.json", "{\"a\": 1}", "this is JSON of no kind that is known"),
        ("broken.json", "{\"version\": 2, \"groups\": [", "not JSON that can be read"),
        ("old.json", "{\"version\": 1, \"groups\": []}", "format version 1"),
        ("run.json", "{\"latency\": {}, \"predicted_latency_us\": 1, \"groups\": []}", "not results of a run"),
        ("front.csv", "latency_us,interval_us,peak_bytes,devices,splits,measured_us\n1,2,x,1,0,\n", "not a front"),
        ("empty", "", "the file is empty"),
        ("c.toml", "[[server]]\nname = \"a\"\n", "this is TOML"),
        ("picture", "\u{89}PNG\r\n", "neither a profile nor a plan"),
    ] {
        fs::write(here.join(name), text).unwrap();
        let output = run(here, &format!("report {name}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(name) && said.contains(why), "{name}: {said}");
        assert!(!here.join("report.html").exists(), "{name}");
    }
    for (line, why) in [
        ("report", "SUBJECT"),
        ("report absent.json", "absent.json"),
        ("report nothing", "nothing: a folder without profiles"),
        ("report m.relay --output nothing", "nothing is a folder"),
    ] {
        let output = run(here, line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{line}: {said}");
    }
}
