//! Whole models, on every file at hand: inferred types against stated ones and TVM's tables, printing, and outputs against
//! those that TVM computed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use edgecut::{
    engine::{Engine, EngineError},
    graph::{Graph, Origin, TensorData, TensorId, Type},
    relay::{self, ExternalCalls, Fault, ImportOptions, ParseMode},
    values::{read_npz, seeded},
};
use libtest_mimic::Trial;

use crate::{cases, operators::ENGINE, trial};

/// Checks one model's file.
type Check = fn(&Path) -> Result<(), String>;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let checks: [(&str, Check); 3] = [
        ("stated types", stated_types),
        ("printing a module", printing_is_a_fixed_point),
        ("printing a graph", a_graph_comes_back_from_its_own_text),
    ];
    for name in names() {
        for (what, check) in checks {
            let path = cases::model(&name);
            trials.push(trial(format!("models/{name}: {what}"), move || check(&path)));
        }
    }
    for name in cases::stems(&cases::data().join("models"), ".ops.csv") {
        trials.push(trial(format!("models/{name}: operators of TVM's table"), move || table(&name)));
    }
    for name in cases::models_with_outputs() {
        trials.push(trial(format!("models/{name}: outputs"), move || outputs(&name, &*ENGINE)));
    }
    trials.push(trial("models: types of all operator cases".to_string(), case_types));
    trials
}

/// The models of the conformance data and of the repository, each once.
fn names() -> BTreeSet<String> {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    [cases::data().join("models"), repository].iter().flat_map(|folder| cases::stems(folder, ".relay")).collect()
}

fn import(path: &Path, options: &ImportOptions<'_>) -> Result<relay::Import, relay::ImportError> {
    let bytes = std::fs::read(path).unwrap();
    relay::import(&path.display().to_string(), &bytes, options)
}

/// Every type that the text states is the inferred one.
fn stated_types(path: &Path) -> Result<(), String> {
    let import = import(path, &ImportOptions::default()).map_err(|error| error.to_string())?;
    match import.checks.mismatches.first() {
        Some(first) => Err(format!("{first:?}, of {} in {}", import.checks.mismatches.len(), import.checks.checked)),
        None => Ok(()),
    }
}

/// The same of the operator cases, without running anything: few branch on data.
fn case_types() -> Result<(), String> {
    let (mut checked, mut refused) = (0, 0);
    for case in cases::all() {
        match import(&case.path.with_extension("relay"), &ImportOptions::default()) {
            Ok(import) => {
                checked += import.checks.checked;
                if let Some(first) = import.checks.mismatches.first() {
                    return Err(format!("{}: {first:?}", case.name));
                }
            }
            Err(error) if matches!(error.fault, Fault::ControlFlow { construct: "this `if`", .. }) => refused += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
    if checked > 1000 && refused <= 3 {
        Ok(())
    } else {
        Err(format!("{checked} types checked, {refused} cases refused"))
    }
}

/// Operators with their types, as TVM's tables list them.
fn rows(graph: &Graph) -> Vec<(String, String, String)> {
    let row = |operator: &edgecut::graph::Operator| {
        let args: Vec<String> = graph.arg_types(operator).iter().map(Type::to_string).collect();
        (operator.name.to_string(), args.join("|"), graph.result_type(operator).to_string())
    };
    graph.operators().map(|(_, operator)| row(operator)).collect()
}

/// The operators are those of TVM's table, in its order.
fn table(name: &str) -> Result<(), String> {
    let options = ImportOptions { external: ExternalCalls::Keep, ..ImportOptions::default() };
    let mut table = csv::Reader::from_path(cases::data().join(format!("models/{name}.ops.csv"))).unwrap();
    let row = |row: Result<(u32, String, String, String), csv::Error>| row.map(|(_, op, args, out)| (op, args, out));
    let mut want = table.deserialize().map(row).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let mut got = rows(&import(&cases::model(name), &options).map_err(|error| error.to_string())?.graph);
    // These were inlined by other passes first, which orders operators differently.
    if name.starts_with("sample_") || ["lstm", "resnet18_fused"].contains(&name) {
        want.sort();
        got.sort();
    }
    if want == got {
        return Ok(());
    }
    let first = want.iter().zip(&got).find(|(want, got)| want != got);
    Err(format!("{} operators, TVM has {}, first difference {first:?}", got.len(), want.len()))
}

/// What a module prints as, prints as itself, and is the same graph.
fn printing_is_a_fixed_point(path: &Path) -> Result<(), String> {
    let bytes = std::fs::read(path).unwrap();
    let print = |text: &[u8]| {
        relay::parse("model", text, ParseMode::Tolerant)
            .map(|module| relay::print::print(&module))
            .map_err(|error| error.to_string())
    };
    let once = print(&bytes)?;
    if print(once.as_bytes())? != once {
        return Err("prints differently the second time".to_string());
    }
    let graph = |text: &[u8]| {
        relay::import("model", text, &ImportOptions::default()).map(|import| import.graph).map_err(|e| e.to_string())
    };
    let same = rows(&graph(&bytes)?) == rows(&graph(once.as_bytes())?);
    if same { Ok(()) } else { Err("other operators after printing".to_string()) }
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

/// A graph that is printed as text and read again is the same graph.
fn a_graph_comes_back_from_its_own_text(path: &Path) -> Result<(), String> {
    let graph = import(path, &ImportOptions::default()).map_err(|error| error.to_string())?.graph;
    let known = graph.operators().all(|(_, operator)| edgecut::ops::lookup(&operator.name).is_some());
    let mode = if known { ParseMode::Strict } else { ParseMode::Tolerant };
    let options = ImportOptions { mode, ..ImportOptions::default() };
    let read = |text: &str| relay::import("model", text.as_bytes(), &options).map_err(|error| error.to_string());
    let again = read(&relay::print::print_graph(&graph))?;
    if let Some(first) = again.checks.mismatches.first() {
        return Err(format!("{first:?}"));
    }
    if meaning(&graph) != meaning(&again.graph) {
        return Err("another graph".to_string());
    }
    // Operators that nothing needs are gone now, and the order is the one that the text gives.
    let text = relay::print::print_graph(&again.graph);
    let same = relay::print::print_graph(&read(&text)?.graph) == text;
    if same { Ok(()) } else { Err("prints differently the second time".to_string()) }
}

/// Outputs on generated parameters and inputs are those that TVM computed, within 1e-4 + 1e-3 of the value.
/// What `engine` computes is what TVM computed.
pub fn outputs(name: &str, engine: &dyn Engine) -> Result<(), String> {
    let graph = import(&cases::model(name), &ImportOptions::default()).map_err(|error| error.to_string())?.graph;
    let content = |id: TensorId| {
        let tensor = graph.tensor(id);
        seeded(&tensor.name, &tensor.ty).map_err(|error| EngineError::Other(error.to_string()))
    };
    let made: Vec<TensorData> = engine.evaluate(&graph, &content).map_err(|error| error.to_string())?;
    let want = read_npz(&cases::data().join(format!("expected/{name}.npz"))).map_err(|error| error.to_string())?;
    if made.len() != want.len() {
        return Err(format!("{} outputs, expected {}", made.len(), want.len()));
    }
    for (index, made) in made.iter().enumerate() {
        let want = want.get(&format!("out_{index}")).ok_or("outputs are not called out_0, out_1, …")?;
        if (made.dtype(), made.shape()) != (want.dtype(), want.shape()) {
            return Err(format!("output {index} is {}, expected {}", made.ty(), want.ty()));
        }
        let (made, want) = (made.to_f64s().ok_or("no numbers")?, want.to_f64s().ok_or("no numbers")?);
        let near = |(made, want): (&f64, &f64)| (made - want).abs() <= 1e-4 + 1e-3 * want.abs();
        if let Some(at) = made.iter().zip(&want).position(|pair| !near(pair)) {
            return Err(format!("element {at} of output {index} is {}, expected {}", made[at], want[at]));
        }
    }
    Ok(())
}
