//! Several bindings of one model: in profiles, in a plan file, and in runs, which select one by the shapes of their inputs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::process::{AgentProcess, cluster_of, edgecut, within};
use edgecut::{
    graph::{DType, TensorData},
    plan::{Plan, PlanSet},
    values::{read_npz, write_npz},
};

const PATIENCE: Duration = Duration::from_secs(180);
const LISTS: &str = "--bind-dim x:0=1,2 --bind-dim x:1=4,8";
const BINDINGS: [&str; 2] = ["x:0=1 x:1=4", "x:0=2 x:1=8"];

/// A folder with a model of two unknown dimensions, `m.relay`, and inputs.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let text = "def @main(%x: Tensor[(?, ?), float32]) { nn.relu(add(%x, %x)) }";
        std::fs::write(folder.path("m.relay"), text).unwrap();
        for (name, shape) in [("small", [1, 4]), ("large", [2, 8]), ("odd", [1, 3]), ("huge", [3, 4])] {
            let elements = 1..=shape.iter().product::<u64>();
            let bytes: Vec<u8> = elements.flat_map(|at| (at as f32).to_le_bytes()).collect();
            let data = TensorData::new(DType::F32, shape, bytes).unwrap();
            write_npz(&folder.path(&format!("{name}.npz")), [("in_x".to_string(), &data)]).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The exit code, stdout, and stderr in one line.
    fn edgecut(&self, line: &str) -> (Option<i32>, String, String) {
        let mut command = edgecut(self.0.path());
        command.args(line.split_whitespace());
        let output = within(PATIENCE, command);
        let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said)
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> (String, String) {
        let (code, printed, said) = self.edgecut(line);
        assert_eq!(code, Some(0), "{line}: {said}");
        (printed, said)
    }

    #[track_caller]
    fn refuses(&self, line: &str, parts: &[&str]) {
        let (code, _, said) = self.edgecut(line);
        assert_eq!(code, Some(2), "{line}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{line}: `{part}` is not in: {said}"));
    }

    /// The profiles, without their summaries.
    fn profiles(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.path("profiles")).unwrap().map(|entry| entry.unwrap().path());
        let folder = folder.filter(|path| path.is_dir()).min().unwrap();
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_profile = |path: &PathBuf| path.to_string_lossy().ends_with(".csv") && !is_summary(path);
        let mut files: Vec<PathBuf> = files.filter(is_profile).collect();
        files.sort();
        files
    }
}

fn is_summary(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".summary.csv")
}

/// The column `name` of each row of a CSV file.
fn cells(csv: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let at = reader.headers().unwrap().iter().position(|column| column == name);
    let at = at.unwrap_or_else(|| panic!("no column {name}: {csv}"));
    reader.records().map(|record| record.unwrap()[at].to_string()).collect()
}

#[test]
fn profiles_of_bindings_resume() {
    let folder = Folder::new();
    let profile = "profile m.relay --budget 20ms --format csv";
    let (one, _) = folder.succeeds(&format!("{profile} --bind-dim x:0=1 --bind-dim x:1=4"));
    assert!(!one.lines().next().unwrap().contains("binding"), "{one}");
    let own = folder.profiles();
    let own_text = std::fs::read(&own[0]).unwrap();
    let (both, _) = folder.succeeds(&format!("{profile} {LISTS}"));
    assert_eq!(cells(&both, "binding"), BINDINGS);
    assert_eq!(cells(&both, "id"), ["0", "0"]);
    let all = folder.profiles();
    assert_eq!(all.len(), 3);
    assert_eq!(std::fs::read(&own[0]).unwrap(), own_text);
    // Complete profiles are not measured again, with several bindings or one.
    let measured = cells(&both, "measured_at");
    let (again, said) = folder.succeeds(&format!("{profile} {LISTS}"));
    assert_eq!((cells(&again, "measured_at"), said.matches("unchanged").count()), (measured.clone(), 2));
    let (second, said) = folder.succeeds(&format!("{profile} --bind-dim x:0=2 --bind-dim x:1=8"));
    assert!(said.contains("unchanged") && !second.lines().next().unwrap().contains("binding"), "{said}");
    assert_eq!(cells(&second, "measured_at"), measured[1..]);
    // A profile that was interrupted before the second binding resumes there.
    let lost = all.iter().find(|path| std::fs::read_to_string(path).unwrap().contains(BINDINGS[1])).unwrap();
    std::fs::remove_file(lost).unwrap();
    std::fs::remove_file(lost.with_extension("summary.csv")).unwrap();
    let (rest, said) = folder.succeeds(&format!("{profile} {LISTS}"));
    assert_eq!(cells(&rest, "measured_at")[0], measured[0]);
    assert_eq!((said.matches("unchanged").count(), said.matches("written").count()), (1, 1), "{said}");
}

#[test]
fn inputs_select_among_the_plans_of_one_file() {
    let folder = Folder::new();
    let agents = [AgentProcess::start("here", "127.0.0.1:0", &[])];
    std::fs::write(folder.path("lab.toml"), cluster_of(&agents)).unwrap();
    let plan = "plan m.relay --cluster lab.toml --profile-budget 20ms";
    let (csv, _) = folder.succeeds(&format!("{plan} {LISTS} --format csv"));
    let found: std::collections::BTreeSet<String> = cells(&csv, "binding").into_iter().collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), BINDINGS.iter().collect::<Vec<_>>());
    assert_eq!(csv, std::fs::read_to_string(folder.path("plan.csv")).unwrap());
    let text = std::fs::read(folder.path("plan.json")).unwrap();
    let plans = PlanSet::from_json(&text).unwrap();
    assert_eq!(plans.plans().iter().map(|plan| plan.model.binding().to_string()).collect::<Vec<_>>(), BINDINGS);
    assert!(Plan::from_json(&text).unwrap_err().to_string().contains("it has plans for 2 bindings of its model"));

    for (inputs, chosen, shape) in [("small", BINDINGS[0], [1, 4]), ("large", BINDINGS[1], [2, 8])] {
        let line = format!("run plan.json --repeat 1 --inputs {inputs}.npz --outputs o.npz");
        let (page, said) = folder.succeeds(&line);
        assert!(page.starts_with(&format!("binding {chosen}\n")) && said.contains(chosen), "{page} {said}");
        assert_eq!(read_npz(&folder.path("o.npz")).unwrap()["out_0"].shape(), shape);
        let json: serde_json::Value =
            serde_json::from_str(&folder.succeeds(&format!("{line} --format json")).0).unwrap();
        assert_eq!(json["binding"], chosen);
    }
    let odd = "run plan.json --repeat 1 --inputs odd.npz";
    folder.refuses(odd, &["`x:0=1 x:1=4`, `x:0=2 x:1=8`", "exactly", "x 1×3", "--pad-inputs"]);
    let (page, _) = folder.succeeds(&format!("{odd} --pad-inputs --outputs o.npz"));
    assert!(page.starts_with(&format!("binding {}\n", BINDINGS[0])), "{page}");
    let output = &read_npz(&folder.path("o.npz")).unwrap()["out_0"];
    assert_eq!((output.shape(), output.to_f64s().unwrap()), (&[1, 3][..], vec![2.0, 4.0, 6.0]));
    folder.refuses("run plan.json --inputs huge.npz --pad-inputs", &["none holds the inputs (x 3×4)"]);
    folder.refuses("run plan.json", &["choose one, such as --bind-dim x:0=1 --bind-dim x:1=4"]);
    folder.refuses("run plan.json --bind-dim x:0=5", &["it has no plan for this binding"]);
    // A size that only one plan has is enough.
    let (page, _) = folder.succeeds("run plan.json --repeat 1 --bind-dim x:1=8");
    assert!(page.contains("latency: predicted"), "{page}");
    let dot = folder.succeeds("export plan.json --format dot --bind-dim x:0=2").0;
    assert!(dot.contains("nn.relu"), "{dot}");
    folder.refuses("export plan.json --format dot", &["plans for 2 bindings", "such as --bind-dim x:0=1"]);
    folder.succeeds("report plan.json profiles");
    let page = std::fs::read_to_string(folder.path("report.html")).unwrap();
    BINDINGS.iter().for_each(|binding| assert!(page.contains(&format!("plan.json ({binding})"))));
    folder.refuses("compare plan.json plan.json", &["plans for several bindings", BINDINGS[1]]);
}

#[test]
fn targets_hold_for_each_binding() {
    let folder = Folder::new();
    let (code, _, said) = folder.edgecut(&format!("plan m.relay {LISTS} --profile-budget 20ms --memory 64B"));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains(&format!("binding `{}`", BINDINGS[0])) || said.contains(BINDINGS[1]), "{said}");
    assert!(!folder.path("plan.json").exists());
}

#[test]
fn models_run_with_the_binding_that_their_inputs_select() {
    let folder = Folder::new();
    let (page, _) = folder.succeeds(&format!("run m.relay {LISTS} --inputs large.npz --format csv"));
    assert_eq!(cells(&page, "binding"), [BINDINGS[1]]);
    folder.succeeds(&format!("run m.relay {LISTS} --inputs odd.npz --pad-inputs --outputs o.npz"));
    assert_eq!(read_npz(&folder.path("o.npz")).unwrap()["out_0"].shape(), [1, 3]);
    // Padding works with a single binding too.
    folder.succeeds("run m.relay --bind-dim 4 --inputs odd.npz --pad-inputs --outputs o.npz");
    assert_eq!(read_npz(&folder.path("o.npz")).unwrap()["out_0"].to_f64s().unwrap(), [2.0, 4.0, 6.0]);
    folder.refuses("run m.relay --bind-dim 4 --pad-inputs", &["--pad-inputs has no effect with generated inputs"]);
    folder.refuses("run m.relay --bind-dim 2,4", &["the bindings are `2`, `4`", "such as --bind-dim 2"]);
}

#[test]
fn verbs_that_take_one_binding_refuse_several() {
    let folder = Folder::new();
    for verb in ["inspect", "memory place", "memory schedule", "memory liveness", "export --format dot"] {
        let parts = ["`x:0=1 x:1=4`, `x:0=2 x:1=8`", "only profile, plan and run", "--bind-dim x:0=1 --bind-dim x:1=4"];
        folder.refuses(&format!("{verb} m.relay {LISTS}"), &parts);
    }
    for (flags, part) in [
        ("--bind-dim x:0=1,2 --bind-dim x:1=1,2,3", "found 2 and 3 sizes"),
        ("--bind-dim 1,2,1", "the sizes 1 are given twice"),
        ("--bind-dim 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "17 sizes of a dimension; at most 16"),
        ("--bind-dim 1,2 --pareto", "--pareto has no effect with several bindings"),
    ] {
        folder.refuses(&format!("plan m.relay {flags}"), &[part]);
    }
}
