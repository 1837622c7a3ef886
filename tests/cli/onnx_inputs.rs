//! Inputs of ONNX models are inputs, by whatever name: contents that are given are computed with, and fold nothing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use crate::common::process::{AgentProcess, edgecut, within};
use edgecut::{
    graph::{DType, TensorData, TensorType},
    plan::Plan,
    values::{read_npz, seeded, write_npz},
};

const PATIENCE: Duration = Duration::from_secs(180);

/// A folder with files of contents, where the program runs on models of `tests/data/interface`.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program; `@name` in `line` is the model of that name.
    fn edgecut(&self, line: &str) -> Output {
        let mut command = edgecut(self.0.path());
        command.args(line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(name) => model(name),
            None => word.to_string(),
        }));
        within(PATIENCE, command)
    }

    /// What it printed to stdout and stderr.
    #[track_caller]
    fn succeeds(&self, line: &str) -> (String, String) {
        let output = self.edgecut(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    fn write(&self, name: &str, arrays: &[(&str, TensorData)]) {
        write_npz(&self.path(name), arrays.iter().map(|(name, data)| (format!("in_{name}"), data))).unwrap();
    }

    fn outputs(&self, name: &str) -> BTreeMap<String, TensorData> {
        read_npz(&self.path(name)).unwrap()
    }
}

fn model(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/interface");
    folder.join(format!("{name}.onnx")).to_string_lossy().into_owned()
}

fn floats(dims: &[u64], values: &[f32]) -> TensorData {
    TensorData::new(DType::F32, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap()
}

fn ints(values: &[i64]) -> TensorData {
    let bytes: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
    TensorData::new(DType::I64, [values.len() as u64], bytes).unwrap()
}

fn image() -> TensorData {
    seeded("an image", &TensorType::of(DType::F32, &[1, 16, 48, 48])).unwrap()
}

/// The cells of a column of CSV.
fn column(csv: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let at = reader.headers().unwrap().iter().position(|header| header == name).unwrap();
    reader.records().map(|record| record.unwrap()[at].to_string()).collect()
}

#[test]
fn given_inputs_fold_nothing() {
    let folder = Folder::new();
    folder.write("i.npz", &[("image", image())]);
    let profile = |flags: &str| {
        let line = format!("profile @convolutions --budget 200ms --format csv --output p{} {flags}", flags.len());
        folder.succeeds(&line).0
    };
    let (plain, given) = (profile(""), profile("--inputs i.npz"));
    for name in ["id", "operator", "shapes", "signature"] {
        assert_eq!(column(&plain, name), column(&given, name), "{name}");
    }
    assert!(column(&plain, "operator").len() >= 4);
    let time: f64 = column(&given, "time_us_median").iter().map(|cell| cell.parse::<f64>().unwrap()).sum();
    assert!(time > 10.0, "{given}");
    let plan = |flags: &str| {
        let line = "plan @convolutions --profile-budget 200ms --rehearse 0 --output plan.json";
        folder.succeeds(&format!("{line} {flags}"));
        Plan::from_json(&std::fs::read(folder.path("plan.json")).unwrap()).unwrap()
    };
    let groups = |plan: &Plan| plan.groups.iter().map(|group| group.operators.clone()).collect::<Vec<_>>();
    let (plain, given) = (plan(""), plan("--inputs i.npz"));
    assert_eq!(groups(&plain), groups(&given));
    assert!(plain.model.inputs.is_none() && given.model.inputs.is_none());
    for (flags, label) in [("", "plain"), ("--inputs i.npz", "given")] {
        folder.succeeds(&format!("run @convolutions --outputs {label}.npz {flags}"));
        folder.succeeds(&format!("run plan.json --repeat 1 --outputs {label}-plan.npz {flags}"));
    }
    let difference = |a: &str, b: &str| {
        let (a, b) = (folder.outputs(a)["out_0"].to_f64s().unwrap(), folder.outputs(b)["out_0"].to_f64s().unwrap());
        a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(difference("plain.npz", "plain-plan.npz") < 1e-4 && difference("given.npz", "given-plan.npz") < 1e-4);
    assert_ne!(folder.outputs("plain.npz")["out_0"], folder.outputs("given.npz")["out_0"]);
}

#[test]
fn a_plan_with_splits_runs_on_given_inputs_over_agents() {
    let folder = Folder::new();
    folder.write("i.npz", &[("image", image())]);
    let flags = ["--dilate".to_string(), "100".to_string()];
    let agents: Vec<AgentProcess> =
        (0..2).map(|index| AgentProcess::start(&format!("s{index}"), "127.0.0.1:0", &flags)).collect();
    let servers =
        agents.iter().map(|agent| format!("[[server]]\nname = \"{}\"\naddress = \"{}\"\n", agent.name, agent.address));
    std::fs::write(folder.path("c.toml"), servers.collect::<String>()).unwrap();
    folder.succeeds("plan @convolutions --cluster c.toml --profile-budget 1s --rehearse 0 --budget 2000");
    let plan = Plan::from_json(&std::fs::read(folder.path("plan.json")).unwrap()).unwrap();
    assert!(!plan.splits.is_empty());
    folder.succeeds("run @convolutions --inputs i.npz --outputs whole.npz");
    let (said, _) = folder.succeeds("run plan.json --repeat 2 --no-replan --inputs i.npz --outputs parts.npz");
    assert!(said.contains("outputs against one device: equal"), "{said}");
    let (whole, parts) = (folder.outputs("whole.npz"), folder.outputs("parts.npz"));
    let (whole, parts) = (whole["out_0"].to_f64s().unwrap(), parts["out_0"].to_f64s().unwrap());
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() <= 1e-4 + 1e-3 * b.abs()));
}

#[test]
fn inputs_are_inputs_by_whatever_name_and_use() {
    let folder = Folder::new();
    let inputs = |line: &str| {
        let page: serde_json::Value = serde_json::from_str(&folder.succeeds(line).0).unwrap();
        let names = page["inputs"].as_array().unwrap().iter().map(|input| input["name"].as_str().unwrap().to_string());
        names.collect::<Vec<_>>()
    };
    let all = ["x", "weight", "scale", "bias"];
    assert_eq!(inputs("inspect @operands --format json"), all);
    assert_eq!(inputs("inspect @operands --format json --seed-parameters weight --seed-parameters b*"), ["x", "scale"]);
    let refused = folder.edgecut("inspect @operands --seed-parameters *.weight");
    assert_eq!(refused.status.code(), Some(2));
    folder.succeeds("export @operands --format onnx --output again.onnx");
    assert_eq!(inputs("inspect again.onnx --format json"), all);
}

#[test]
fn a_given_value_replaces_a_default() {
    let folder = Folder::new();
    folder.write("x.npz", &[("x", floats(&[3], &[1.0, 2.0, 3.0]))]);
    folder.write("both.npz", &[("x", floats(&[3], &[1.0, 2.0, 3.0])), ("shift", floats(&[3], &[5.0, 5.0, 5.0]))]);
    folder.succeeds("export @default --format onnx --output again.onnx");
    for subject in ["@default", "again.onnx"] {
        for (inputs, expected, says) in [("x.npz", [2.0, 4.0, 6.0], false), ("both.npz", [7.0, 9.0, 11.0], true)] {
            let (_, said) = folder.succeeds(&format!("run {subject} --inputs {inputs} --outputs o.npz"));
            assert_eq!(folder.outputs("o.npz")["out_0"].to_f64s().unwrap(), expected, "{subject} {inputs}");
            assert_eq!(said.contains("the default of `shift` is replaced"), says, "{said}");
        }
    }
}

#[test]
fn contents_decide_branches_and_sizes_and_it_is_said() {
    let folder = Folder::new();
    let x = floats(&[2, 6], &[-1.0; 12]);
    let condition = |truth: bool| TensorData::new(DType::Bool, [], vec![u8::from(truth)]).unwrap();
    folder.write("then.npz", &[("x", x.clone()), ("condition", condition(true)), ("shape", ints(&[3, 4]))]);
    folder.write("else.npz", &[("x", x), ("condition", condition(false)), ("shape", ints(&[4, 3]))]);
    for (inputs, dims, value) in [("then", [3, 4], 0.0), ("else", [4, 3], 1f64.exp())] {
        let (_, said) = folder.succeeds(&format!("run @decided --inputs {inputs}.npz --outputs o.npz"));
        let output = &folder.outputs("o.npz")["out_0"];
        assert_eq!(output.shape(), dims);
        assert!(output.to_f64s().unwrap().iter().all(|x| (x - value).abs() < 1e-5), "{inputs}");
        for part in ["the condition of If", "`condition`", "the shape of Reshape", "`shape`"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    }
    // A plan keeps the contents that decided; others that decide otherwise are refused.
    folder.succeeds("plan @decided --inputs then.npz --profile-budget 20ms --rehearse 0");
    folder.succeeds("run plan.json --repeat 1 --outputs o.npz");
    assert_eq!(folder.outputs("o.npz")["out_0"].shape(), [3, 4]);
    let refused = folder.edgecut("run plan.json --repeat 1 --inputs else.npz");
    let said = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("given contents decide branches or sizes"), "{said}");
}

#[test]
fn outputs_are_whatever_the_model_returns() {
    let folder = Folder::new();
    let names = |line: &str, key: &str| {
        let page: serde_json::Value = serde_json::from_str(&folder.succeeds(line).0).unwrap();
        let names = page[key].as_array().unwrap().iter().map(|input| input["name"].as_str().unwrap().to_string());
        names.collect::<Vec<_>>()
    };
    folder.succeeds("export @outputs --format onnx --output again.onnx");
    assert_eq!(names("inspect again.onnx --format json", "inputs"), ["x", "unused", "at"]);
    folder.succeeds("plan @outputs --profile-budget 20ms --rehearse 0");
    let mut all = Vec::new();
    for line in ["run @outputs", "run again.onnx", "run plan.json --repeat 1"] {
        folder.succeeds(&format!("{line} --outputs o.npz"));
        all.push(folder.outputs("o.npz"));
    }
    assert_eq!(all[0].len(), 7);
    assert_eq!(all[0]["out_4"].to_i64s().unwrap(), [6]);
    assert_eq!((&all[0], &all[0]), (&all[1], &all[2]));
    // Rows of the table, at indices that it has.
    let (table, rows) = (all[0]["out_5"].to_f64s().unwrap(), all[0]["out_6"].to_f64s().unwrap());
    assert!(rows.chunks(2).all(|row| table.chunks(2).any(|known| known == row)));
}

#[test]
fn a_model_whose_result_depends_on_no_input_is_warned_about() {
    let folder = Folder::new();
    let line =
        "run @operands --seed-parameters x --seed-parameters weight --seed-parameters scale --seed-parameters bias";
    assert!(folder.succeeds(line).1.contains("its outputs depend on no input"));
    assert!(!folder.succeeds("run @operands").1.contains("depend on no input"));
}
