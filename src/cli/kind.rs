//! What kind of file stands where another one should: told only when the file cannot be read as what was wanted.

use std::path::Path;

use miette::Report;

use super::{Failure, cluster::Located};
use crate::plan::{Plan, file::PlanFileError};

/// What the file is and which flag or verb wants it, if it is of a kind that edgecut knows besides Relay text.
pub fn of(bytes: &[u8]) -> Option<&'static str> {
    const PARAMS: [u8; 8] = 0xF7E5_8D4F_0504_9CB7_u64.to_le_bytes();
    if bytes.starts_with(&PARAMS) {
        return Some("this is a parameter file; name a model, and this file with --params");
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Some("this is an .npz or another zip archive; name a model, and contents of its inputs with --inputs");
    }
    if is_json_object(bytes) {
        return Some(json(bytes));
    }
    let text = std::str::from_utf8(bytes).ok()?;
    if text.parse::<toml::Table>().is_ok_and(|table| !table.is_empty()) {
        return Some(match text.contains("[[pattern]]") {
            true => "this is TOML, a library of patterns; `memory --fuse` takes one",
            false => "this is TOML; name a model, and a cluster file with --cluster",
        });
    }
    csv(text.lines().next()?)
}

/// The same of a file that is wanted for something else than a model: a Relay module is told too.
pub fn besides(bytes: &[u8]) -> Option<&'static str> {
    let is_relay = |text: &str| text.contains("def @main") || text.trim_start().starts_with("#[version");
    let relay = std::str::from_utf8(bytes).is_ok_and(is_relay);
    of(bytes).or(relay.then_some("this is Relay text: it stands as the MODEL, without a flag"))
}

/// The failure of reading `bytes`, the file at `path`, as `wanted`: what it is instead, else the `error`.
pub fn instead(path: &Path, bytes: &[u8], wanted: &str, error: impl std::fmt::Display) -> Failure {
    let name = path.display();
    Failure::BadInput(Report::msg(match besides(bytes) {
        Some(kind) if !kind.contains(UNKNOWN) => format!("{name}: not {wanted}: {kind}"),
        _ => format!("{name}: {error}"),
    }))
}

/// The failure of reading the file at `path` as a plan.
pub fn no_plan(path: &Path, bytes: &[u8], error: PlanFileError) -> Failure {
    match error {
        PlanFileError::Version { .. } | PlanFileError::Inconsistent(_) => Failure::bad_input(Located::new(path, error)),
        _ => instead(path, bytes, "a plan, as `edgecut plan` writes them", error),
    }
}

/// What is said of text that could be anything.
const UNKNOWN: &str = "expected Relay text";

/// What a JSON object is, by the names in it.
fn json(bytes: &[u8]) -> &'static str {
    if Plan::from_json(bytes).is_ok() {
        return "this is a plan; `edgecut run` and `edgecut export` take one";
    }
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let has = |names: &[&str]| names.iter().all(|name| value.get(name).is_some());
    let text = String::from_utf8_lossy(bytes);
    let is_dump = text.contains("\"arg_nodes\""); // JSON of TVM's
    if has(&["modules", "outputs", "blake3"]) {
        "this is the manifest.json of exported modules; each .relay file beside it is a model"
    } else if text.contains("\"traceEvents\"") {
        "this is an execution trace; of TVM's debug executor, `plan --workload` and `profile --import` take it with its \
         graph dump beside it"
    } else if is_dump {
        "this is a graph dump of TVM's, which says how long kernels took and has none to run: `plan` and \
         `profile --import` take it, with its execution trace beside it"
    } else if has(&["maxFPGAs"]) {
        "this is a device-placement workload; `plan --workload` takes it"
    } else if has(&["data", "code"]) || has(&["ops", "cost_model"]) || has(&["ops", "tensors"]) {
        "this is a graph to be scheduled in memory; `memory --graph` takes it"
    } else {
        "this is JSON; expected Relay text, as `mod.astext()` prints it"
    }
}

/// What a table is, by its header.
fn csv(header: &str) -> Option<&'static str> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-. ".contains(&b));
    let columns: Vec<&str> = header.split(',').collect();
    let has = |names: &[&str]| names.iter().all(|name| columns.iter().any(|column| column.trim() == *name));
    if columns.len() < 2 || !columns.iter().all(|name| is_name(name)) {
        return None;
    }
    Some(if has(&["signature", "time_us_median"]) {
        "this is CSV, a profile; name a model, and this file with --profile"
    } else if has(&["from", "to", "bytes_per_us"]) {
        "this is CSV, a table of measured links; --links takes it"
    } else if has(&["kind", "start_us", "to_device"]) {
        "this is CSV, the rows of a plan; the .json beside it is the plan"
    } else if has(&["lower", "upper", "size"]) {
        "this is CSV, buffers to be packed; `memory --arena` takes it"
    } else if has(&["a_name"]) {
        "this is CSV, a profile of EOP's; `plan --profile` and `profile --import` take it beside its Relay module"
    } else {
        "this is CSV; expected Relay text, as `mod.astext()` prints it"
    })
}

/// Whether the file begins as a JSON object does, and no Relay text: a block `{ … }` begins with an expression.
pub fn is_json_object(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    text.strip_prefix(b"{").is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_are_told_apart() {
        for (bytes, part) in [
            (&b"PK\x03\x04...."[..], "zip"),
            (b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7....", "parameter"),
            (b" {\"version\": 1}", "JSON"),
            (b"{}", "JSON"),
            (b"{\"version\": 1, \"blake3\": \"\", \"modules\": [], \"outputs\": []}", "manifest.json"),
            (b"{\"arg_nodes\": []}", "graph dump"), // JSON of TVM's
            (b"{\"maxFPGAs\": 1}", "--workload"),
            (b"{\"data\": [], \"code\": []}", "memory --graph"),
            (b"[[server]]\nname = \"edge\"\n", "--cluster"),
            (b"[[pattern]]\nname = \"Linear\"\n", "--fuse"),
            (b"kind,time_us\n1,2\n", "this is CSV; expected"),
            (b"id,lower,upper,size\n", "--arena"),
            (b"from,from_address,to,to_address,latency_us,bytes_per_us\n", "--links"),
            (b"server,signature,time_us_median\n", "--profile"),
            (b"a_name,forward_fw_mean_time\n", "EOP"),
        ] {
            assert!(of(bytes).is_some_and(|kind| kind.contains(part)), "{part}: {:?}", of(bytes));
        }
        for text in ["", "hello", "def @main(%x: int32) {\n  add(%x, 1)\n}", "{ let %x = 1; %x }", "add(1, 2)"] {
            assert_eq!(of(text.as_bytes()), None, "{text}");
        }
        assert!(besides(b"def @main(%x: int32) { add(%x, 1) }").is_some_and(|kind| kind.contains("MODEL")));
    }
}
