//! `inspect --format csv`: a row for every operator of the text, those without operands included.

use std::{fs, path::Path, time::Duration};

use crate::common::process::{edgecut, within};

/// The operators in the CSV of a model whose `main` has one input `%x` of two elements and the body `body`.
fn operators(folder: &Path, body: &str, more: &str) -> Vec<String> {
    let text = format!("#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(2), float32]) {{\n{body}\n}}\n{more}");
    fs::write(folder.join("m.relay"), text).unwrap();
    let mut command = edgecut(folder);
    command.args(["inspect", "m.relay", "--format", "csv"]);
    let output = within(Duration::from_secs(60), command);
    assert!(output.status.success(), "{body}: {}", String::from_utf8_lossy(&output.stderr));
    let mut rows = csv::Reader::from_reader(output.stdout.as_slice());
    rows.records().map(|row| row.unwrap()[1].to_string()).collect()
}

const ZEROS: &str = "let %z = zeros(shape=[2], dtype=\"float32\");";
const PLUS: &str = "fn (%a: Tensor[(2), float32], %b: Tensor[(2), float32]) -> Tensor[(2), float32] { add(%a, %b) }";

#[test]
fn operators_without_operands_are_rows() {
    let folder = tempfile::tempdir().unwrap();
    let fused = PLUS.replace(") ->", ", Primitive=1) ->");
    let global = format!("def @f{}", PLUS.strip_prefix("fn ").unwrap());
    for (body, more, expected) in [
        // A-normal form.
        (format!("{ZEROS} let %r = add(%x, %z); %r"), "", vec!["zeros", "add"]),
        (format!("{ZEROS} let %r = nn.relu(%x); %r"), "", vec!["zeros", "nn.relu"]),
        (format!("{ZEROS} let %t = (%z, %x); let %p = %t.0; let %r = add(%p, %x); %r"), "", vec!["zeros", "add"]),
        (format!("{ZEROS} let %o = ones(shape=[], dtype=\"float32\"); add(%z, %o)"), "", vec!["zeros", "ones", "add"]),
        ("let %f = full(1f, shape=[2], dtype=\"float32\"); add(%x, %f)".into(), "", vec!["full", "add"]),
        ("let %a = arange(0f, 2f, 1f, dtype=\"float32\"); add(%x, %a)".into(), "", vec!["arange", "add"]),
        // Functions.
        (format!("{ZEROS} let %f = {PLUS}; let %r = %f(%x, %z); %r"), "", vec!["zeros", "add"]),
        (format!("{ZEROS} let %f = {fused}; let %r = %f(%x, %z); %r"), "", vec!["zeros", "add"]),
        (format!("{ZEROS} let %r = @f(%x, %z); %r"), &global, vec!["zeros", "add"]),
        // Branches: only scalars can be conditions and counters.
        (format!("{ZEROS} let %c = True; if (%c) {{ add(%x, %z) }} else {{ %x }}"), "", vec!["zeros", "add"]),
        // A-normal form: nothing is folded, even if a function is called in place.
        (format!("{ZEROS} let %t = (%z, %x); let %p = %t.0; let %r = {PLUS}(%p, %x); %r"), "", vec!["zeros", "add"]),
        // Otherwise a program that calls a function in place is compiled after partial evaluation, which folds constants.
        (format!("{ZEROS} %0 = {PLUS}; %1 = nn.relu(%x); %0(%1, %z)"), "", vec!["nn.relu", "add"]),
        // Graph form.
        ("%0 = ones(shape=[2], dtype=\"float32\"); add(%x, %0)".into(), "", vec!["ones", "add"]),
    ] {
        assert_eq!(operators(folder.path(), &body, more), expected, "{body}");
    }
}
