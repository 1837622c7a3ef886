//! Rules of the repository that Cargo and the compiler do not keep: no import cycle inside a crate, one public type of a
//! name in a crate, a head on every file, sizes, banned words, docs/formats.md against the structs, and that what docs,
//! comments and messages refer to is there.

#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/items.rs"]
mod items;
#[path = "tidy/references.rs"]
mod references;
#[path = "tidy/source.rs"]
mod source;

use std::{collections::BTreeMap, fs, path::Path};

use source::{Crate, root};

/// Longest file that is still one idea, and longest function.
const MOST_LINES: usize = 600;
const MOST_FUNCTION_LINES: usize = 80;

/// What each crate may depend on besides foreign crates. Only `session` depends on `interop`.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("graph", &[]),
    ("values", &["graph"]),
    ("ops", &["graph"]),
    ("relay", &["graph", "ops"]),
    ("onnx", &["graph", "ops", "values"]),
    ("engine", &["graph", "onnx", "ops", "values"]),
    ("profile", &["engine", "graph", "ops", "values"]),
    ("memory", &["graph", "ops"]),
    ("plan", &["graph", "memory", "ops"]),
    ("interop", &["engine", "graph", "memory", "ops", "plan", "profile"]),
    ("agent", &["engine", "graph", "plan", "profile", "values"]),
    ("report", &["agent", "graph", "memory", "onnx", "ops", "plan", "profile", "relay"]),
    (
        "session",
        &[
            "agent", "engine", "graph", "interop", "memory", "onnx", "ops", "plan", "profile", "relay", "report",
            "values",
        ],
    ),
    ("ort_ep", &["graph", "onnx", "ops", "plan", "session"]),
    ("cli", &["agent", "graph", "plan", "profile", "session"]),
    ("python", &["agent", "cli", "engine", "graph", "ops", "plan", "profile", "relay", "report", "session"]),
    ("fuzz", &["agent", "engine", "graph", "onnx", "ops", "plan", "relay", "session", "values"]),
];

/// Words with one meaning too many, and what excuses a line: the foreign format or library that forces them. In
/// `crates/onnx` and `crates/ort_ep` nodes are ONNX's.
const BANNED: &[(&str, &[&str])] = &[
    (
        "node",
        &[
            "node_limit",
            "node_memory",
            "nodes_solved",
            "tract",
            "Node",
            "json",
            "JSON",
            "serde",
            "petgraph",
            "digraph",
            "shape=box",
        ],
    ),
    ("anew", &[]),
    ("beside", &[]),
    ("nobody", &[]),
    ("whoever", &[]),
    ("theatre", &[]),
    ("sparings", &[]),
];

fn passes(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} findings:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn crates_depend_on_those_below() {
    let mut wrong = Vec::new();
    for found in Crate::all() {
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(name, _)| *name == found.name) else {
            assert_eq!(found.name, "edgecut", "a crate without a line in MAY_KNOW");
            continue;
        };
        for other in found.dependencies() {
            if !allowed.contains(&other.as_str()) {
                wrong.push(format!("{} must not depend on {other}", found.name));
            }
        }
    }
    passes(&wrong);
}

/// The crates that may depend on tract, and turn on the kernels of `ops`, which do.
const MAY_KNOW_TRACT: &[&str] = &["engine"];

#[test]
fn only_engines_build_tract() {
    let mut wrong = Vec::new();
    for found in Crate::all() {
        let manifest = found.manifest();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        let dependencies = tables.iter().filter_map(|name| manifest.get(*name)?.as_table()).flatten();
        for (name, given) in dependencies {
            let is_optional = given.get("optional").and_then(toml::Value::as_bool) == Some(true);
            let features = given.get("features").and_then(toml::Value::as_array);
            let has_kernels = features.is_some_and(|list| list.iter().any(|f| f.as_str() == Some("kernels")));
            let needs_tract = name.starts_with("tract-") && !(found.name == "ops" && is_optional);
            if (needs_tract || has_kernels) && !MAY_KNOW_TRACT.contains(&found.name.as_str()) {
                wrong.push(format!("{} must not build tract by {name}", found.name));
            }
        }
        let features = manifest.get("features").and_then(toml::Value::as_table);
        let defaults = features.and_then(|table| table.get("default")).map(toml::Value::to_string);
        if found.name == "ops" && defaults.is_some_and(|list| list.contains("kernels") || list.contains("tract")) {
            wrong.push("kernels must not be a default feature of ops".to_string());
        }
    }
    passes(&wrong);
}

#[test]
fn no_import_cycles() {
    let mut wrong = Vec::new();
    for found in Crate::all() {
        for cycle in imports::cycles(&found) {
            wrong.push(format!("{}: {}", found.name, cycle.join(" -> ")));
        }
    }
    passes(&wrong);
}

#[test]
fn one_public_type_of_a_name_in_a_crate() {
    let mut wrong = Vec::new();
    for found in Crate::all() {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for module in &found.modules {
            for name in items::public_types(&module.file) {
                places.entry(name).or_default().push(module.shown());
            }
        }
        for (name, places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
            wrong.push(format!("{}: {name} in {}", found.name, places.join(", ")));
        }
    }
    passes(&wrong);
}

#[test]
fn functions_fit_a_screen() {
    let mut wrong = Vec::new();
    for found in Crate::all() {
        for module in &found.modules {
            for (name, lines) in items::functions(&module.file) {
                if lines > MOST_FUNCTION_LINES {
                    wrong.push(format!("{}: `{name}` has {lines} lines", module.shown()));
                }
            }
        }
    }
    passes(&wrong);
}

#[test]
fn every_file_says_what_lives_in_it() {
    let without: Vec<String> = source::texts()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| format!("{}: no `//!` head", path.display()))
        .collect();
    passes(&without);
}

#[test]
fn files_are_one_idea_long() {
    let long: Vec<String> = source::texts()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    passes(&long);
}

#[test]
fn one_word_a_thing() {
    let mut wrong = Vec::new();
    for (path, text) in source::texts() {
        for (number, line) in text.lines().enumerate() {
            for (word, excuses) in BANNED {
                let words = line.split(|c: char| !c.is_alphanumeric());
                let is_onnx = *word == "node"
                    && ["crates/onnx/", "crates/ort_ep/"].iter().any(|folder| path.to_string_lossy().contains(folder));
                let hit = !is_onnx && words.into_iter().any(|w| w == *word || w.strip_suffix('s') == Some(word));
                if hit && !excuses.iter().any(|e| line.contains(e) || text.contains(&format!("use {e}"))) {
                    wrong.push(format!("{}:{}: `{word}`", path.display(), number + 1));
                }
            }
        }
    }
    passes(&wrong);
}

/// Crates whose texts other interfaces than the command line show: they name options by `option_text`, not by flags.
const LIBRARIES: &[&str] =
    &["agent", "engine", "graph", "memory", "onnx", "ops", "ort_ep", "plan", "profile", "relay", "session", "values"];

/// Arguments of other programs, and flags of verbs that are named where no interface shows the text.
const FLAGS_IN_LIBRARIES: &[&str] = &[
    "--version",
    "--gpu-architecture",
    "--ptxas-options",
    "memory place MODEL --fuse",
    "rpc-server",
    "--threads {threads}",
    "llama-cli",
    "--fit",
    "--tensor-split",
];

#[test]
fn only_the_command_line_knows_flags() {
    let mut wrong = Vec::new();
    for (path, text) in source::texts() {
        let shown = path.display().to_string();
        if !LIBRARIES.iter().any(|name| shown.contains(&format!("crates/{name}/src/"))) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let is_flag = |at: usize| {
                let (before, after) = (line[..at].chars().next_back(), line[at + 2..].chars().next());
                before != Some('-') && after.is_some_and(|c| c.is_ascii_lowercase())
            };
            let has_flag = line.match_indices("--").any(|(at, _)| is_flag(at));
            if has_flag && !FLAGS_IN_LIBRARIES.iter().any(|excuse| line.contains(excuse)) {
                wrong.push(format!("{shown}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    passes(&wrong);
}

#[test]
fn nothing_is_left_to_do() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX", "TODO"];
    let mut wrong = Vec::new();
    for (path, text) in source::texts() {
        for mark in marks.iter().filter(|mark| text.contains(**mark)) {
            wrong.push(format!("{}: {mark}", path.display()));
        }
    }
    passes(&wrong);
}

/// Structs whose fields are columns or keys of a file format that docs/formats.md describes.
const FORMATS: &[(&str, &str)] = &[
    ("crates/profile/src/row.rs", "ProfileRow"),
    ("crates/profile/src/calibration.rs", "CalibrationRow"),
    ("crates/plan/src/plan_file/file.rs", "Plan"),
    ("crates/plan/src/plan_file/file.rs", "GroupPlan"),
    ("crates/report/src/onnx_parts.rs", "PartsManifest"),
    ("crates/report/src/onnx_parts.rs", "PartFile"),
    ("crates/plan/src/plan_file/file.rs", "DevicePlan"),
    ("crates/plan/src/plan_file/file.rs", "Transfer"),
    ("crates/plan/src/plan_file/table.rs", "PlanRow"),
    ("crates/plan/src/what_if/change.rs", "ChangeRow"),
    ("crates/agent/src/results/table.rs", "RunRow"),
    ("crates/agent/src/results/energy.rs", "ServerEnergy"),
    ("crates/agent/src/results/energy.rs", "EnergyOfSource"),
    ("crates/agent/src/results/server_load.rs", "ServerLoad"),
    ("crates/agent/src/results/file.rs", "RunResult"),
    ("crates/agent/src/results/file.rs", "RunAbout"),
    ("crates/report/src/comparison/mod.rs", "ComparisonRow"),
    ("crates/session/src/run/whole_model.rs", "ModelLatency"),
    ("crates/session/src/devices.rs", "DeviceRow"),
    ("crates/session/src/devices.rs", "LinkOfDevices"),
];

#[test]
fn formats_are_documented() {
    let docs = fs::read_to_string(root().join("docs/formats.md")).unwrap();
    let mut wrong = Vec::new();
    for (file, name) in FORMATS {
        let fields = items::serialised_fields(Path::new(file), name);
        assert!(!fields.is_empty(), "{file} has no struct {name}");
        for field in fields.iter().filter(|field| !docs.contains(&format!("`{field}`"))) {
            wrong.push(format!("docs/formats.md does not mention `{field}` of {name}"));
        }
    }
    passes(&wrong);
}

#[test]
fn what_is_referred_to_is_there() {
    let verbs = references::verbs();
    let sources = source::texts().into_iter().map(|(path, text)| (path.display().to_string(), text));
    let mut wrong = Vec::new();
    for (path, text) in references::documents() {
        wrong.extend(references::broken_links(&path, &text));
        wrong.extend(references::missing_files(&path, &text));
        wrong.extend(references::missing_sections(&path, &text));
        wrong.extend(references::unknown_verbs(&path, &text, &verbs));
    }
    for (path, text) in sources {
        wrong.extend(references::missing_files(&path, &text));
        wrong.extend(references::missing_sections(&path, &text));
        wrong.extend(references::unknown_verbs(&path, &text, &verbs));
    }
    passes(&wrong);
}
