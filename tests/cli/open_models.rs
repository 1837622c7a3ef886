//! What ONNX files leave open: the order of operators, types of results, sizes of dimensions, seeds of random numbers.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use crate::common::process::{edgecut, within};
use edgecut::{graph::TensorData, values::read_npz};

/// A folder where the program runs on models of `tests/data/interface`.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// Runs the program; `@name` in `line` is the model of that name.
    fn edgecut(&self, line: &str, variables: &[(&str, &str)]) -> Output {
        let mut command = edgecut(self.0.path());
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/interface");
        command.envs(variables.iter().copied()).args(line.split_whitespace().map(
            |word| match word.strip_prefix('@') {
                Some(name) => models.join(format!("{name}.onnx")),
                None => PathBuf::from(word),
            },
        ));
        within(Duration::from_secs(180), command)
    }

    /// What it printed to stdout and stderr.
    #[track_caller]
    fn succeeds(&self, line: &str) -> (String, String) {
        let output = self.edgecut(line, &[]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    /// Asserts exit code 2, and that the message, however it is wrapped, has all `parts`.
    #[track_caller]
    fn refuses(&self, line: &str, variables: &[(&str, &str)], parts: &[&str]) {
        let output = self.edgecut(line, variables);
        let said = String::from_utf8_lossy(&output.stderr).replace('│', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{line}: `{part}` is not in: {said}"));
    }

    fn output(&self, line: &str) -> TensorData {
        self.succeeds(&format!("{line} --outputs o.npz"));
        read_npz(&self.0.path().join("o.npz")).unwrap()["out_0"].clone()
    }

    /// Whether ONNX Runtime is installed.
    fn has_onnx_runtime(&self) -> bool {
        self.edgecut("run @default --engine onnxruntime", &[]).status.success()
    }
}

#[test]
fn operators_in_any_order_are_computed() {
    let folder = Folder::new();
    let made = folder.output("run @shuffled").to_f64s().unwrap();
    // tanh(a) - exp(a) of a ≥ 0.
    assert!(made.iter().all(|y| *y < 0.0), "{made:?}");
    let exported = folder.succeeds("inspect @shuffled --format csv").0;
    let operators: Vec<&str> = exported.lines().skip(1).filter_map(|line| line.split(',').nth(1)).collect();
    assert_eq!(operators.first(), Some(&"nn.relu"), "{exported}");
    folder.refuses("inspect @cycle", &[], &["Tanh `turns` in graph `cycle`", "depend on its own results"]);
}

#[test]
fn types_that_the_file_does_not_state_are_those_of_onnx_runtime() {
    let folder = Folder::new();
    let missing = [("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so")];
    let parts = ["Inverse `upside_down`", "does not state the types of its results", "shape inference"];
    folder.refuses("inspect @untyped", &missing, &parts);
    if folder.has_onnx_runtime() {
        let made = folder.output("run @untyped --engine onnxruntime");
        assert_eq!(made.shape(), [2, 3, 3]);
        assert!(folder.succeeds("inspect @untyped").0.contains("by ONNX Runtime only"));
    }
}

#[test]
fn sizes_that_are_left_open_are_guessed_and_can_be_copied() {
    let folder = Folder::new();
    let flags = "--bind-dim batch=1 --bind-dim sequence=128 --bind-dim image:2=224 --bind-dim image:3=224";
    let (page, said) = folder.succeeds("inspect @open");
    assert!(said.contains(flags), "{said}");
    for part in ["batch=1 (ids:0, image:0)", "sequence=128 (ids:1)", "image:2=224", "image:3=224"] {
        assert!(page.contains(part), "{page}");
    }
    assert!(!page.contains("unknown dimensions"), "{page}");
    let json: serde_json::Value = serde_json::from_str(&folder.succeeds("inspect @open --format json").0).unwrap();
    assert_eq!(json["guessed_dims"], serde_json::json!(["batch=1", "sequence=128", "image:2=224", "image:3=224"]));
    for verb in ["run @open", "memory place @open", "profile @open --budget 20ms"] {
        folder.refuses(verb, &[], &[flags]);
    }
    assert_eq!(folder.output(&format!("run @open {flags}")).shape(), [1, 128 * 4 + 3]);
    // What is given is not guessed.
    let (page, said) = folder.succeeds("inspect @open --bind-dim sequence=7 --bind-dim batch=2 --format csv");
    assert!(said.contains("--bind-dim image:2=224") && !said.contains("sequence="), "{said}");
    assert!(page.contains("int64[2,7]") && !page.contains('?'), "{page}");
    let (_, said) = folder.succeeds("inspect @open --bind-dim 8");
    assert!(!said.contains("guessed"), "{said}");
}

#[test]
fn random_numbers_are_the_same_in_every_run_and_on_every_engine() {
    let folder = Folder::new();
    let input = edgecut::values::seeded("x", &edgecut::graph::TensorType::of(edgecut::graph::DType::F32, &[4, 8]));
    let made = folder.output("run @noise");
    assert_eq!(made, folder.output("run @noise"));
    assert_ne!(Some(&made), input.ok().as_ref());
    let numbers = made.to_f64s().unwrap();
    folder.succeeds("export @noise --format onnx --output again.onnx");
    let mut others = vec!["run again.onnx"];
    if folder.has_onnx_runtime() {
        others.push("run @noise --engine onnxruntime");
    }
    for line in others {
        let other = folder.output(line).to_f64s().unwrap();
        let far = numbers.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-4, "{line}: {far}");
    }
}
