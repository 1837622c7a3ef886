//! References from docs, comments and messages to files, sections and verbs of this repository.

use std::{collections::BTreeSet, fs, path::Path};

use crate::source::root;

/// Folders of the repository whose files are named in sources too; `src/…` there is also what other projects call theirs.
const NAMED_IN_SOURCES: &[&str] = &["docs/", "crates/", "tests/", "cluster/"];

/// Folders of the repository whose files are named in documents.
const NAMED_IN_DOCUMENTS: &[&str] =
    &["docs/", "crates/", "tests/", "cluster/", "src/", "models/", "benches/", "fuzz/", "proto/", "python/", ".ci/"];

/// The documents: at the root, in docs/ and with the test data. The changelog tells of what is gone.
pub fn documents() -> Vec<(String, String)> {
    let mut paths: Vec<String> = vec!["tests/data/README.md".into()];
    for folder in ["", "docs/"] {
        let names = fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        paths.extend(names.filter(|n| n.ends_with(".md") && n != "CHANGELOG.md").map(|n| format!("{folder}{n}")));
    }
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// Whether a line is within a block of code, line by line.
fn fenced(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut within = false;
    text.lines().enumerate().map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        within ^= fence;
        (number + 1, line, within || fence)
    })
}

/// The headings of a document.
fn headings(text: &str) -> Vec<&str> {
    let heading = |line: &str| line.starts_with('#').then_some(line.trim_start_matches('#').trim().len());
    fenced(text)
        .filter(|(_, _, code)| !code)
        .filter_map(|(_, line, _)| heading(line).map(|length| &line[line.len() - length..]))
        .collect()
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Links of a document that lead nowhere: `[text](path#anchor)`, relative to the document.
pub fn broken_links(path: &str, text: &str) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut wrong = Vec::new();
    for (number, line, _) in fenced(text).filter(|(_, _, code)| !code) {
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if target.contains("://") {
                continue;
            }
            let (file, section) =
                target.split_once('#').map_or((target, None), |(file, section)| (file, Some(section)));
            let file = if file.is_empty() { root().join(path) } else { root().join(folder).join(file) };
            let found = match (fs::read_to_string(&file), section) {
                (Ok(linked), Some(section)) => headings(&linked).iter().any(|heading| anchor(heading) == section),
                (Err(_), Some(_)) => false,
                (_, None) => file.exists(),
            };
            if !found {
                wrong.push(format!("{path}:{number}: the link `{target}` leads nowhere"));
            }
        }
    }
    wrong
}

/// Whether a path is that of a file or folder here, or of a module of a crate: `session/pilot`.
fn is_there(path: &str) -> bool {
    let module = path.split_once('/').map(|(name, rest)| format!("crates/{name}/src/{rest}"));
    let module = module.iter().flat_map(|module| [module.clone(), format!("{module}.rs")]);
    module.chain([path.to_string()]).any(|path| root().join(path).exists())
}

/// Paths of this repository that a text names and that are not there. Capitals stand for any name, as in `docs/NAME.md`.
pub fn missing_files(path: &str, text: &str) -> Vec<String> {
    let folders = if path.ends_with(".md") { NAMED_IN_DOCUMENTS } else { NAMED_IN_SOURCES };
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let of_a_path = |c: char| c.is_alphanumeric() || "./_-{},*…".contains(c);
        for word in line.split(|c| !of_a_path(c)).map(|word| word.trim_end_matches(['.', ',', '/', '-'])) {
            let is_named = folders.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len());
            let stands_for_any =
                word.contains(['{', '*', '…']) || word.chars().any(char::is_uppercase) && !is_there(word);
            if is_named && !stands_for_any && !is_there(word) {
                wrong.push(format!("{path}:{number}: `{word}` is not there"));
            }
        }
    }
    wrong
}

/// Sections that a text names and that are not there: `docs/formats.md, "Trace"`, `"Trace" in docs/formats.md`.
pub fn missing_sections(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // A sentence may go on in the next line of a comment.
    let joined = text.replace(['\n', '`', '\\'], " ").replace("///", " ").replace("//!", " ").replace("//", " ");
    let joined = joined.split_whitespace().collect::<Vec<_>>().join(" ");
    for (at, _) in joined.match_indices(".md") {
        let file =
            joined[..at].rsplit(|c: char| !(c.is_alphanumeric() || "/_-.".contains(c))).next().unwrap_or_default();
        let file = format!("{file}.md");
        let (before, after) = (&joined[..at + 3 - file.len()], &joined[at + 3..]);
        let behind = [", \"", " (\"", " \""].iter().find_map(|open| after.strip_prefix(open)?.split('"').next());
        let ahead = before.strip_suffix("\" in ").and_then(|text| text.rsplit('"').next());
        let Ok(document) = fs::read_to_string(root().join(&file)) else { continue };
        for section in behind.into_iter().chain(ahead) {
            if !headings(&document).iter().any(|heading| heading.replace('`', "").starts_with(section)) {
                wrong.push(format!("{path}: {file} has no section \"{section}\""));
            }
        }
    }
    wrong
}

/// The verbs of the command line, from its `enum Verb`.
pub fn verbs() -> BTreeSet<String> {
    let file = syn::parse_file(&fs::read_to_string(root().join("crates/cli/src/lib.rs")).unwrap()).unwrap();
    let verbs = file.items.into_iter().find_map(|item| match item {
        syn::Item::Enum(item) if item.ident == "Verb" => Some(item.variants),
        _ => None,
    });
    let verbs = verbs.expect("crates/cli/src/lib.rs has an enum Verb");
    verbs.iter().map(|verb| renamed(verb).unwrap_or_else(|| verb.ident.to_string().to_lowercase())).collect()
}

/// The name that `#[command(name = "…")]` gives.
fn renamed(verb: &syn::Variant) -> Option<String> {
    let mut name = None;
    for attribute in verb.attrs.iter().filter(|attribute| attribute.path().is_ident("command")) {
        // Other keys end the parsing.
        let _ = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
            }
            Ok(())
        });
    }
    name
}

/// Commands in backticks or blocks of code whose verb does not exist.
pub fn unknown_verbs(path: &str, text: &str, verbs: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (at, begin) in ["`edgecut ", "$ edgecut "]
            .iter()
            .flat_map(|begin| line.match_indices(begin).map(|(at, found)| (at, found.len())).collect::<Vec<_>>())
        {
            let verb: String = line[at + begin..].chars().take_while(|c| c.is_ascii_lowercase()).collect();
            if !verb.is_empty() && verb != "help" && !verbs.contains(&verb) {
                wrong.push(format!("{path}:{number}: `edgecut {verb}` is no command"));
            }
        }
    }
    wrong
}

#[test]
fn references_are_followed() {
    let text = "# One\n## Two: `x.csv`\n```\n# no heading\n```\n";
    assert_eq!(headings(text), ["One", "Two: `x.csv`"]);
    assert_eq!(anchor("A cluster in a box"), "a-cluster-in-a-box");
    assert_eq!(anchor("Run: `edgecut run plan.json --format csv`"), "run-edgecut-run-planjson---format-csv");
    assert_eq!(broken_links("docs/x.md", "[a](operations.md#certificates) [b](https://a.b/c)").len(), 0);
    assert_eq!(broken_links("docs/x.md", "[a](cluster.md#nothing)\n[b](gone.md)").len(), 2);
    assert_eq!(missing_files("x.rs", "see docs/gpu.md, crates/plan and docs/NAME.md; session/pilot").len(), 0);
    assert_eq!(missing_files("x.rs", "see docs/gone.md").len(), 1);
    assert_eq!(
        missing_sections("x.rs", "`docs/cluster.md`, \"Agents\"; \"Certificates\" in docs/operations.md").len(),
        0
    );
    assert_eq!(missing_sections("x.rs", "// see docs/cluster.md,\n// \"Nothing\"").len(), 1);
    let verbs = verbs();
    assert!(unknown_verbs("x.md", "`edgecut plan M`", &verbs).is_empty());
    assert_eq!(unknown_verbs("x.md", "`edgecut fly M`", &verbs).len(), 1);
}
