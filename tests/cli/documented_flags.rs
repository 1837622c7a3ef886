//! Flags that the documents name exist: of the verb that stands before them, else of some verb.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::command_line::{VERBS, edgecut, flags};

/// Programs whose lines are not edgecut's, and flags of theirs that stand alone.
const FOREIGN_PROGRAMS: &[&str] = &["cargo", "maturin", "cluster/gpu.sh"];
const FOREIGN_FLAGS: &[&str] = &["--features", "--split-mode", "--tensor-split"];

/// By verb: the flags of its help.
fn known() -> BTreeMap<&'static str, BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let of_verb = |verb: &&'static str| {
        let (_, help, _) = edgecut(folder.path(), &format!("{verb} --help"));
        (*verb, flags(&help).iter().flat_map(|(flag, _)| named(flag)).collect())
    };
    VERBS.iter().map(of_verb).collect()
}

/// The flags that `code` names.
fn named(code: &str) -> Vec<String> {
    let words = code.split(|c: char| c.is_whitespace() || "'\"[](),;".contains(c));
    let flag = |word: &str| {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len());
        word[..end].to_string()
    };
    // Dashes alone are a rule of a table.
    let is_flag = |flag: &String| flag.contains(|c: char| c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("--")).map(flag).filter(is_flag).collect()
}

/// The pieces of code of a document, each with the number of the line where its paragraph begins: what stands between
/// backticks, and the lines of blocks, without their comments.
fn code(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut paragraph, mut begin, mut in_block) = (Vec::new(), String::new(), 0, false);
    for (number, line) in text.lines().chain([""]).enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || (!in_block && line.trim().is_empty()) {
            let spans = paragraph.split('`').skip(1).step_by(2).map(|span| (begin, span.to_string()));
            found.extend(spans);
            paragraph.clear();
            in_block ^= is_fence;
        } else if in_block {
            let line = line.split(" # ").next().unwrap_or_default();
            begin = if paragraph.is_empty() { number + 1 } else { begin };
            paragraph += line.trim_end_matches('\\');
            if !line.ends_with('\\') {
                found.push((begin, std::mem::take(&mut paragraph)));
            }
        } else {
            begin = if paragraph.is_empty() { number + 1 } else { begin };
            paragraph = paragraph + line + " ";
        }
    }
    found
}

/// The verb that `code` is a call of.
fn verb(code: &str) -> Option<&'static str> {
    let call = code.rsplit_once("edgecut ").map_or(code, |(_, call)| call);
    let words: Vec<&str> = call.split_whitespace().collect();
    let is_called =
        |verb: &&&str| words.iter().zip(verb.split(' ')).filter(|(a, b)| **a == *b).count() == verb.split(' ').count();
    VERBS.iter().find(is_called).copied()
}

#[test]
fn flags_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = names.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let known = known();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for path in documents.chain([root.join("README.md")]) {
        for (line, code) in code(&fs::read_to_string(&path).unwrap()) {
            if code.split_whitespace().any(|word| FOREIGN_PROGRAMS.contains(&word)) {
                continue;
            }
            let verb = verb(&code);
            for flag in named(&code).into_iter().filter(|flag| !FOREIGN_FLAGS.contains(&flag.as_str())) {
                let is_known = match verb {
                    Some(verb) => known[verb].contains(&flag),
                    None => known.values().any(|flags| flags.contains(&flag)),
                };
                checked += 1;
                if !is_known {
                    wrong.push(format!(
                        "{}:{line}: {} has no {flag}: `{code}`",
                        path.display(),
                        verb.unwrap_or("edgecut")
                    ));
                }
            }
        }
    }
    assert!(checked > 50, "{checked}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn code_is_found_in_spans_and_blocks() {
    let text = "Say `plan --like P\n--move M`, `x`.\n\n```sh\nedgecut run p.json \\\n  --repeat 2 # --not\n```\n";
    let found: Vec<(usize, String)> = code(text);
    let want = ["plan --like P --move M", "x", "edgecut run p.json   --repeat 2"];
    assert_eq!(found.iter().map(|(_, code)| code.as_str()).collect::<Vec<_>>(), want);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 1, 5]);
    assert_eq!(named("--limit=40% -x '--pin' a--b --"), ["--limit", "--pin"]);
    let verbs = ["edgecut memory place M --fuse", "run --throughput", "edgecut ... --cluster C"].map(verb);
    assert_eq!(verbs, [Some("memory place"), Some("run"), None]);
}
