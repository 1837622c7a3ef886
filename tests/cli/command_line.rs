//! The command line as a whole: help screens that fit a terminal, flags that have no effect, completions, manual pages.

use std::path::Path;

use crate::common::process::program;

/// Runs `edgecut` with the words of `line`; its exit code, stdout and stderr.
pub fn edgecut(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let mut command = program();
    command.args(line.split_whitespace()).current_dir(folder).env("NO_COLOR", "1").env_remove("COLUMNS");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Every verb with flags.
pub const VERBS: &[&str] = &[
    "agent",
    "cluster check",
    "cluster discover",
    "cluster init",
    "cluster revoke",
    "completions",
    "devices",
    "export",
    "inspect",
    "man",
    "memory liveness",
    "memory pack",
    "memory place",
    "memory schedule",
    "operators",
    "plan",
    "profile",
    // Before the verb that it is one of: calls are of the first that they match.
    "report costs",
    "compare",
    "report",
    "run",
    "workload",
];

#[test]
fn help_fits_one_screen() {
    let folder = tempfile::tempdir().unwrap();
    for verb in VERBS.iter().chain(&["", "cluster", "memory"]) {
        let (code, help, _) = edgecut(folder.path(), &format!("{verb} -h"));
        assert_eq!(code, Some(0), "{verb}");
        let lines = help.lines().count();
        assert!(lines <= 40, "{verb}: {lines} lines\n{help}");
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{verb}: {widest:?} columns\n{help}");
    }
}

/// The flags that `help` lists, each with its description.
pub fn flags(help: &str) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = Vec::new();
    let (mut column, mut in_arguments) = (0, false);
    for line in help.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if line.ends_with(':') && indent == 0 {
            in_arguments = !line.starts_with("Usage");
        } else if in_arguments && text.starts_with('-') && (indent == 2 || indent == 6) {
            let (flag, rest) = text.split_once("  ").unwrap_or((text, ""));
            flags.push((flag.to_string(), rest.trim().to_string()));
            column = indent;
        } else if let Some((_, description)) = flags.last_mut().filter(|_| indent > column) {
            *description += text;
        }
    }
    flags
}

#[test]
fn every_flag_is_documented_under_a_heading() {
    let folder = tempfile::tempdir().unwrap();
    for verb in VERBS {
        let (_, help, _) = edgecut(folder.path(), &format!("{verb} --help"));
        let (_, short, _) = edgecut(folder.path(), &format!("{verb} -h"));
        let flags = flags(&help);
        assert!(flags.iter().any(|(flag, _)| flag.contains("--help")), "{verb}\n{help}");
        for (flag, description) in &flags {
            assert!(description.len() > 8, "{verb} {flag}: `{description}`\n{help}");
        }
        // What does not fit a screen is grouped.
        let headings = short.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).count();
        assert!(flags.len() <= 10 || headings >= 4, "{verb}: {} flags, {headings} headings\n{short}", flags.len());
    }
}

#[test]
fn flags_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("m.relay", "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }");
    write("dlmo.json", "{\"data\": [], \"code\": [], \"outputs\": []}");
    write(
        "net.json",
        "{\"tensors\": [{\"id\": 0, \"size\": 4, \"kind\": \"input\"}, {\"id\": 1, \"size\": 4, \"kind\": \"output\"}], \
         \"ops\": [{\"name\": \"a\", \"ins\": [0], \"outs\": [1], \"elementwise\": true}]}",
    );
    write("buffers.csv", "id,lower,upper,size\n0,0,2,8\n");
    write("fwd.py", "def forward(self, p0: \"f32[2]\"):\n    return (p0,)\n");
    for (line, message) in [
        ("memory schedule dlmo.json --run", "--run has no effect with a graph of DLMO or MAGIS"),
        (
            "memory schedule dlmo.json --params p --align 8 --cluster c.toml",
            "--params, --align, --cluster have no effect with a graph of DLMO or MAGIS",
        ),
        (
            "memory schedule net.json --profile p.csv --run",
            "--profile, --run have no effect with a network of bare tensors",
        ),
        ("memory schedule m.relay --seeds 3 --limit 50%", "--seeds has no effect with a model"),
        ("memory schedule --configs list --run --seeds 2", "--run, --seeds have no effect with --configs"),
        ("memory place net.json --bind-dim 8", "--bind-dim has no effect with a network of bare tensors"),
        ("memory liveness net.json --inputs i.npz", "--inputs has no effect with a network of bare tensors"),
        (
            "memory liveness --trace fwd.py --in-place first --effort 2",
            "--in-place, --effort have no effect with --trace",
        ),
        ("run m.relay --trace t.json", "--trace has no effect with a model"),
        ("run m.relay --no-check --throughput", "--throughput, --no-check have no effect with a model"),
        // Excluded by the flags' definitions.
        ("memory schedule m.relay --limit 50% --slowdown 2", "cannot be used with"),
        ("memory schedule m.relay --pareto --run", "cannot be used with"),
        ("memory schedule m.relay --configs list", "cannot be used with"),
        ("memory schedule", "required arguments were not provided"),
        ("memory schedule m.relay --limit 1024", "`1024` is not a size"),
        ("memory pack buffers.csv --capacity 1024", "`1024` is not a size"),
        ("agent --name a/b", "an agent cannot be called `a/b`"),
        ("agent --dilate 0.5", "`0.5` is not a factor of time dilation: expected a number from 1 to 1000"),
        ("agent --dilate NaN", "`NaN` is not a factor of time dilation"),
        ("memory schedule m.relay --slowdown 0.5", "`0.5` is not a factor of 1 or more"),
        ("memory pack buffers.csv --minimize --capacity 1KiB", "cannot be used with"),
        ("memory pack buffers.csv --pool sram --capacity 1KiB", "cannot be used with"),
        ("memory pack buffers.csv --run", "unexpected argument '--run'"),
        ("memory place m.relay --limit 50%", "unexpected argument '--limit'"),
        ("memory place m.relay --link 1GB/s", "required arguments were not provided"),
        ("memory liveness m.relay --trace fwd.py", "cannot be used with"),
        ("memory liveness", "required arguments were not provided"),
        ("memory liveness m.relay --backward b.py", "--backward has no effect with a model"),
        ("workload w.json --memory 8MiB", "unexpected argument '--memory'"),
    ] {
        let (code, _, message_of) = edgecut(folder.path(), line);
        let said = message_of.replace(['│', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains(message), "{line}: `{message}` is not in: {said}");
    }
}

#[test]
fn completions_and_manual_pages_cover_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = edgecut(folder.path(), &format!("completions {shell}"));
        assert_eq!(code, Some(0), "{shell}");
        for word in ["schedule", "--slowdown", "workload"] {
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: no {word}");
        }
    }
    assert_eq!(edgecut(folder.path(), "completions tcl").0, Some(2));
    let (code, page, _) = edgecut(folder.path(), "man");
    assert_eq!((code, page.contains(".TH edgecut 1")), (Some(0), true), "{page}");
    assert_eq!(edgecut(folder.path(), "man --output pages").0, Some(0));
    for verb in VERBS {
        let name = format!("pages/edgecut-{}.1", verb.replace(' ', "-"));
        let page = std::fs::read_to_string(folder.path().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME"), "{name}: {page}");
    }
}
