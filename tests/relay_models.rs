//! Whole models: what importing, printing and exporting them gives, on every file at hand.
//!
//! Reads `models/` of this repository and, where it is there, `../shared/relay`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut::{
    graph::{Graph, Origin, TensorId, Type},
    relay::{self, ExternalCalls, Fault, ImportOptions, Mode},
};

/// The folder beside the repository, unless it is absent; with EDGECUT_REQUIRE_SHARED=1 it must be there.
fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/relay").join(folder);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none(), "{} is not there", path.display());
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}

fn relay_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "relay") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn models() -> Vec<PathBuf> {
    let mut files = relay_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models"));
    files.extend(shared("models").iter().flat_map(|folder| relay_files(folder)));
    files
}

fn import(path: &Path, options: &ImportOptions<'_>) -> Result<relay::Import, relay::ImportError> {
    let bytes = std::fs::read(path).unwrap();
    relay::import(&path.display().to_string(), &bytes, options)
}

fn report(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} files:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_stated_type_agrees_with_inference() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in models() {
        match import(&path, &ImportOptions::default()) {
            Ok(import) => {
                checked += import.checks.checked;
                wrong.extend(import.checks.disagreements.iter().map(|d| format!("{}: {d:?}", path.display())));
            }
            Err(error) => wrong.push(error.to_string()),
        }
    }
    println!("{checked} stated types checked");
    assert!(checked > 1000);
    report(wrong);
}

#[test]
fn operator_cases_import_with_their_types() {
    let Some(folder) = shared("cases") else { return };
    let (mut checked, mut refused, mut wrong) = (0, 0, Vec::new());
    for path in relay_files(&folder) {
        match import(&path, &ImportOptions::default()) {
            Ok(import) => {
                checked += import.checks.checked;
                wrong.extend(import.checks.disagreements.iter().map(|d| format!("{}: {d:?}", path.display())));
            }
            Err(error) if matches!(error.fault, Fault::ControlFlow { construct: "this `if`", .. }) => refused += 1,
            Err(error) => wrong.push(error.to_string()),
        }
    }
    println!("{checked} stated types checked; {refused} cases branch on data");
    assert!(refused <= 3);
    report(wrong);
}

/// Operators with their types, as TVM's tables list them.
fn rows(graph: &Graph) -> Vec<(String, String, String)> {
    let row = |operator: &edgecut::graph::Operator| {
        let args: Vec<String> = graph.arg_types(operator).iter().map(Type::to_string).collect();
        (operator.name.to_string(), args.join("|"), graph.result_type(operator).to_string())
    };
    graph.operators().map(|(_, operator)| row(operator)).collect()
}

#[test]
fn operators_are_those_of_the_tables_in_their_order() {
    let Some(folder) = shared("models") else { return };
    let options = ImportOptions { external: ExternalCalls::Keep, ..ImportOptions::default() };
    let mut wrong = Vec::new();
    for path in relay_files(&folder).iter().filter(|path| path.with_extension("ops.csv").exists()) {
        let mut table = csv::Reader::from_path(path.with_extension("ops.csv")).unwrap();
        let mut want: Vec<(String, String, String)> = table
            .deserialize()
            .map(|row| row.unwrap())
            .map(|(_, op, args, out): (u32, _, _, _)| (op, args, out))
            .collect();
        let mut got = rows(&import(path, &options).unwrap().graph);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // These were inlined by other passes first, which orders operators differently.
        let inlined = name.starts_with("sample_") || ["lstm.relay", "resnet18_fused.relay"].contains(&name.as_str());
        if inlined {
            want.sort();
            got.sort();
        }
        if want != got {
            let first = want.iter().zip(&got).position(|(want, got)| want != got);
            wrong.push(format!("{name}: {} rows, TVM has {}, first difference {first:?}", got.len(), want.len()));
        }
    }
    report(wrong);
}

#[test]
fn printing_a_module_is_a_fixed_point_and_keeps_its_graph() {
    let mut wrong = Vec::new();
    for path in models() {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.display().to_string();
        let print = |text: &[u8]| relay::parse(&name, text, Mode::Tolerant).map(|module| relay::print::print(&module));
        let once = print(&bytes).unwrap();
        match print(once.as_bytes()) {
            Ok(twice) if twice == once => {}
            Ok(_) => wrong.push(format!("{name}: prints differently the second time")),
            Err(error) => wrong.push(error.to_string()),
        }
        let options = ImportOptions::default();
        match (relay::import(&name, &bytes, &options), relay::import(&name, once.as_bytes(), &options)) {
            (Ok(before), Ok(after)) if rows(&before.graph) == rows(&after.graph) => {}
            (Ok(_), Ok(_)) => wrong.push(format!("{name}: other operators after printing")),
            (_, Err(error)) | (Err(error), _) => wrong.push(error.to_string()),
        }
    }
    report(wrong);
}

/// What each output is computed from, all the way down, without names, places and order.
fn meaning(graph: &Graph) -> Vec<blake3::Hash> {
    let mut known: BTreeMap<TensorId, blake3::Hash> = BTreeMap::new();
    for (at, (id, _)) in relay::print::parameter_names(graph).into_iter().enumerate() {
        known.insert(id, blake3::hash(format!("parameter {at} {}", graph.tensor(id).ty).as_bytes()));
    }
    for (id, tensor) in graph.tensors() {
        if let Origin::Constant(data) = &tensor.origin {
            known.insert(id, blake3::hash(&[data.ty().to_string().as_bytes(), data.bytes()].concat()));
        }
    }
    for (_, operator) in graph.operators() {
        let args: Vec<Vec<_>> = operator.args.iter().map(|a| a.tensors().iter().map(|t| known[t]).collect()).collect();
        for (at, output) in operator.outputs.iter().enumerate() {
            let all = format!("{} {:?} {args:?} {at} {}", operator.name, operator.attrs, graph.tensor(*output).ty);
            known.insert(*output, blake3::hash(all.as_bytes()));
        }
    }
    graph.outputs.iter().map(|output| known[output]).collect()
}

#[test]
fn a_graph_comes_back_from_its_own_text() {
    let mut wrong = Vec::new();
    for path in models() {
        let name = path.display().to_string();
        let graph = import(&path, &ImportOptions::default()).unwrap().graph;
        let known = graph.operators().all(|(_, operator)| edgecut::ops::lookup(&operator.name).is_some());
        let mode = if known { Mode::Strict } else { Mode::Tolerant };
        let options = ImportOptions { mode, ..ImportOptions::default() };
        let read = |text: &str| relay::import(&name, text.as_bytes(), &options);
        let text = relay::print::print_graph(&graph);
        match read(&text) {
            Ok(again) => {
                wrong.extend(again.checks.disagreements.iter().map(|d| format!("{name}: {d:?}")));
                if meaning(&graph) != meaning(&again.graph) {
                    wrong.push(format!("{name}: another graph"));
                }
                // Operators that nothing needs are gone now, and the order is the one that the text gives.
                let text = relay::print::print_graph(&again.graph);
                if read(&text).map(|import| relay::print::print_graph(&import.graph)).as_ref() != Ok(&text) {
                    wrong.push(format!("{name}: prints differently the second time"));
                }
            }
            Err(error) => wrong.push(error.to_string()),
        }
    }
    report(wrong);
}
