//! The parser cases: what TVM accepts and refuses, how it prints what it accepted, and what edgecut reads beyond that.
//!
//! Each line of `data/parser-cases.jsonl` is one case: the text, whether TVM v0.14 accepts it, how TVM prints it
//! without type comments, and whether tolerant mode reads it although TVM does not.

use edgecut::relay::{self, Fault, ImportError, ImportOptions, ParseMode};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    id: String,
    entry: Entry,
    input: String,
    ok: bool,
    printed: Option<String>,
    #[serde(default)]
    tolerant: bool,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Entry {
    /// An expression.
    Expr,
    /// Definitions, which TVM also types; the header is put in front.
    Module,
    /// A file as it is.
    File,
}

/// Cases in which TVM's answer is a defect by the format's description, and what edgecut does instead.
const DEFECTS: &[(&str, &str)] = &[
    ("E058", "a let that is the value of a let is printed bare, which no parser can read; here it is in parentheses"),
    ("E154", "reshape counts a -1 behind a -2 at the wrong place; here it is the dimension that is left"),
];

const HEADER: &str = "#[version = \"0.0.5\"]\n";

fn is_defect(case: &Case) -> bool {
    DEFECTS.iter().any(|(id, _)| *id == case.id)
}

impl Case {
    fn text(&self) -> String {
        match self.entry {
            Entry::Module => format!("{HEADER}{}", self.input),
            Entry::Expr | Entry::File => self.input.clone(),
        }
    }

    /// Parses, and types as TVM does where it does; a program that no fixed graph holds is still well typed.
    fn read(&self, mode: ParseMode) -> Result<(), ImportError> {
        let text = self.text();
        relay::parse(&self.id, text.as_bytes(), mode)?;
        let typed = self.entry != Entry::Expr && self.input.contains("def @main(");
        if typed {
            let options = ImportOptions { mode, ..ImportOptions::default() };
            match relay::import(&self.id, text.as_bytes(), &options) {
                Ok(_) => {}
                Err(error) if matches!(error.fault, Fault::ControlFlow { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn cases() -> Vec<Case> {
    include_str!("../data/parser-cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Fails with all of `wrong`, one a line.
fn report(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn strict_mode_accepts_and_refuses_as_tvm_does() {
    let (mut wrong, mut accepted, mut refused) = (Vec::new(), 0, 0);
    for case in cases().iter().filter(|case| !is_defect(case)) {
        if case.ok {
            accepted += 1
        } else {
            refused += 1
        }
        match case.read(ParseMode::Strict) {
            Ok(()) if !case.ok => wrong.push(format!("{} is accepted: {}", case.id, case.input)),
            Err(error) if case.ok => wrong.push(format!("{} {}: {error}", case.id, case.input)),
            Err(error) if error.spot.is_none() => wrong.push(format!("{}: no place: {error}", case.id)),
            _ => {}
        }
    }
    println!("strict: {accepted} accepted and {refused} refused as by TVM; {} defects of TVM:", DEFECTS.len());
    DEFECTS.iter().for_each(|(id, why)| println!("  {id}: {why}"));
    report(wrong);
}

#[test]
fn tolerant_mode_reads_what_tvm_reads_and_more() {
    let (mut wrong, mut read, mut more) = (Vec::new(), 0, 0);
    for case in cases().iter().filter(|case| case.ok || case.tolerant) {
        if case.ok {
            read += 1
        } else {
            more += 1
        }
        if let Err(error) = case.read(ParseMode::Tolerant) {
            wrong.push(format!("{} {}: {error}", case.id, case.input));
        }
    }
    println!("tolerant: {read} cases that TVM reads, {more} that it does not");
    report(wrong);
}

/// Floats as TVM prints them: it keeps six digits.
fn six_digits(text: &str) -> String {
    text.replace("0.088388346f", "0.0883883f")
}

/// What TVM's type inference refuses in addition to the cases: annotations that the value does not have.
#[test]
fn strict_mode_holds_programs_to_their_annotations() {
    for (text, ok) in [
        ("def @main(%x: int32) -> int32 { let %y: int32 = %x; %y }", true),
        ("def @main(%x: int32) -> float32 { %x }", false),
        ("def @main(%x: int32) { let %y: float32 = %x; %y }", false),
        ("def @f(%a: Tensor[(2), int8]) { %a }\ndef @main(%x: Tensor[(3), int8]) { @f(%x) }", false),
        ("def @f(%a: Tensor[(?), int8]) { %a }\ndef @main(%x: Tensor[(3), int8]) { @f(%x) }", true),
        ("def @f(%a: int8) -> int32 { %a }\ndef @main(%x: int8) { @f(%x) }", false),
        ("def @f[A](%a: A) -> A { %a }\ndef @main(%x: int8) -> int8 { @f(%x) }", true),
        ("def @main(%x: (int8, bool)) -> (int8, int8) { %x }", false),
        ("def @main(%x: Tensor[(2i64, 3), int8]) -> Tensor[(2, 3i64), int8] { %x }", true),
    ] {
        let text = format!("{HEADER}{text}");
        let import = |mode| relay::import("text", text.as_bytes(), &ImportOptions { mode, ..ImportOptions::default() });
        assert_eq!(import(ParseMode::Strict).is_ok(), ok, "{text}: {:?}", import(ParseMode::Strict).err());
        let tolerant = import(ParseMode::Tolerant).unwrap();
        assert!(ok || !tolerant.checks.mismatches.is_empty(), "{text}");
    }
}

#[test]
fn accepted_cases_print_as_tvm_prints_them() {
    let mut wrong = Vec::new();
    for case in cases() {
        let Some(want) = case.printed.as_ref().filter(|_| case.ok && !is_defect(&case)) else { continue };
        // TVM prints modules with inferred types: its text, read again, must print the same.
        let text = if case.entry == Entry::Expr { case.input.clone() } else { format!("{HEADER}{want}") };
        let got = relay::parse(&case.id, text.as_bytes(), ParseMode::Strict).map(|module| relay::print::print(&module));
        let got = got.map(|text| six_digits(text.strip_prefix(HEADER).unwrap_or(&text)).trim().to_string());
        match got {
            Ok(got) if got == want.trim() => {}
            Ok(got) => wrong.push(format!("{} {}\n  got:\n{got}\n  want:\n{want}", case.id, case.input)),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    report(wrong);
}

#[test]
fn typed_cases_have_the_types_that_tvm_infers() {
    let mut wrong = Vec::new();
    for case in cases().iter().filter(|case| case.ok && case.entry != Entry::Expr && case.input.contains("def @main("))
    {
        let Some(printed) = &case.printed else { continue };
        let import = |text: &str| relay::import(&case.id, text.as_bytes(), &ImportOptions::default());
        match (import(&case.text()), import(printed)) {
            (Ok(ours), Ok(theirs)) => {
                if let Some(disagreement) = theirs.checks.mismatches.first() {
                    wrong.push(format!("{}: {disagreement:?}", case.id));
                }
                let types = |import: &relay::Import| -> Vec<String> {
                    import.graph.tensors().map(|(_, tensor)| tensor.ty.to_string()).collect()
                };
                if types(&ours) != types(&theirs) {
                    wrong.push(format!("{}: {:?} but TVM has {:?}", case.id, types(&ours), types(&theirs)));
                }
            }
            (Err(error), _) | (_, Err(error)) if matches!(error.fault, Fault::ControlFlow { .. }) => {}
            (Err(error), _) | (_, Err(error)) => wrong.push(error.to_string()),
        }
    }
    report(wrong);
}

#[test]
fn printing_is_a_fixed_point_of_every_accepted_case() {
    let mut wrong = Vec::new();
    for case in cases().iter().filter(|case| case.ok || case.tolerant) {
        let once = relay::print::print(&relay::parse(&case.id, case.text().as_bytes(), ParseMode::Tolerant).unwrap());
        match relay::parse(&case.id, once.as_bytes(), ParseMode::Tolerant) {
            Ok(module) => {
                let twice = relay::print::print(&module);
                if once != twice {
                    wrong.push(format!("{}:\n{once}\n--- again:\n{twice}", case.id));
                }
            }
            Err(error) => wrong.push(format!("{error}\n{once}")),
        }
    }
    report(wrong);
}
