//! The repository's own rules: which module may know which, a head on every file, words and sizes.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What each top-level module may name with `crate::…`. A missing arrow is the rule; see ARCHITECTURE.md.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("statistics", &["units"]),
    ("graph", &["units"]),
    ("files", &[]),
    ("values", &["files", "graph", "units"]),
    ("ops", &["graph", "units"]),
    ("relay", &["graph", "ops", "units", "values"]),
    ("engine", &["graph", "ops", "statistics", "units", "values"]),
    ("memory", &["graph", "ops", "units"]),
    ("plan", &["graph", "memory", "ops", "units"]),
    ("profile", &["engine", "files", "graph", "ops", "statistics", "units", "values"]),
    ("cluster", &["units"]),
    (
        "agent",
        &["cluster", "engine", "files", "graph", "ops", "plan", "profile", "relay", "statistics", "units", "values"],
    ),
    (
        "run",
        &["agent", "cluster", "engine", "graph", "ops", "plan", "profile", "relay", "statistics", "units", "values"],
    ),
    ("fuzz", &["relay", "values"]),
    ("report", &["graph", "memory", "plan", "profile", "relay", "units"]),
];

/// Longest file that is still one idea.
const MOST_LINES: usize = 600;

/// Words with one meaning too many, and what excuses a line: the foreign format or library that forces them.
const BANNED: &[(&str, &[&str])] = &[(
    "node",
    &["node_limit", "nodes_solved", "tract", "Node", "json", "JSON", "serde", "petgraph", "digraph", "shape=box"],
)];

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut folders) = (Vec::new(), vec![root]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

/// `src/graph/part.rs` and `src/graph.rs` are both of module `graph`.
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_string()
}

/// The top-level modules that a file names by `crate::x` or in `use crate::{x, y::z}`.
fn known(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, marker) in text.match_indices("crate::") {
        if text[..at].ends_with('$') {
            continue;
        }
        let rest = &text[at + marker.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            continue;
        };
        let (mut depth, mut path) = (1, String::new());
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && c == ',') {
                found.push(path.split("::").next().unwrap_or_default().trim().to_string());
                path.clear();
            } else {
                path.push(c);
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[test]
fn arrows_point_down_only() {
    let mut wrong = Vec::new();
    let names: Vec<&str> = MAY_KNOW.iter().map(|m| m.0).collect();
    for (path, text) in sources() {
        let here = module(&path);
        if ["main", "lib", "cli"].contains(&here.as_str()) {
            continue;
        }
        let Some((_, allowed)) = MAY_KNOW.iter().find(|m| m.0 == here) else {
            wrong.push(format!("{}: module `{here}` has no line in MAY_KNOW", path.display()));
            continue;
        };
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for other in known(code) {
            if other == "cli" {
                wrong.push(format!("{}: `{here}` must not know the command line", path.display()));
            } else if names.contains(&other.as_str()) && other != here && !allowed.contains(&other.as_str()) {
                wrong.push(format!("{}: `{here}` must not know `{other}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_lives_in_it() {
    let without: Vec<_> = sources().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|s| s.0).collect();
    assert!(without.is_empty(), "no `//!` head: {without:?}");
}

#[test]
fn files_are_one_idea_long() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:?}");
}

#[test]
fn one_word_a_thing() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            for (word, excuses) in BANNED {
                let words = line.split(|c: char| !c.is_alphanumeric());
                let hit = words.into_iter().any(|w| w == *word || w.strip_suffix('s') == Some(word));
                if hit && !excuses.iter().any(|e| line.contains(e) || text.contains(&format!("use {e}"))) {
                    wrong.push(format!("{}:{}: `{word}`", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_left_to_do() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX", "TODO"];
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for mark in marks {
            if text.contains(mark) {
                wrong.push(format!("{}: {mark}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
