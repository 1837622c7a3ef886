//! Kinds of files. An error names the kind of a file only if the file cannot be read as what is expected.

use std::{fmt, path::Path};

use crate::{Error, error::Message, located::Located};
use edgecut_interop::{ort_memory::is_ort_memory, ort_profile::is_ort_profile};
use edgecut_onnx::is_onnx;
use edgecut_plan::{Plan, file::PlanFileError};

/// A kind of file that edgecut reads or writes. As text: what the file is, and which option or verb accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Relay text.
    Relay,
    Params,
    Npz,
    /// A library of patterns.
    Patterns,
    /// Any other TOML, such as a cluster file, even with errors.
    Toml,
    Plan,
    /// The rows of a plan.
    PlanRows,
    /// Pareto-optimal plans.
    Front,
    /// Results of a run.
    Results,
    /// The manifest of exported modules.
    Manifest,
    /// An execution trace.
    Trace,
    /// A graph dump of TVM.
    Dump,
    Onnx,
    /// A binary file, with a description.
    Binary(&'static str),
    /// A device-placement problem.
    Workload,
    /// A graph for memory scheduling.
    Graph,
    Profile,
    /// A profile of EOP.
    Eop,
    /// A profile of a session of ONNX Runtime.
    OrtProfile,
    /// Statistics of memory of a session of ONNX Runtime.
    OrtMemory,
    Links,
    /// Buffers for memory packing.
    Buffers,
    /// JSON of an unknown kind.
    Json,
    /// CSV of an unknown kind.
    Csv,
}

impl FileKind {
    /// Whether only the encoding of the file is known.
    fn is_vague(self) -> bool {
        matches!(self, FileKind::Json | FileKind::Csv)
    }

    /// What was expected, for the message that a file is something else.
    fn wanted(self) -> &'static str {
        match self {
            FileKind::Npz => "an .npz file, as `numpy.savez` writes them",
            FileKind::Toml => "a cluster file",
            FileKind::Patterns => "a library of patterns",
            FileKind::Plan => "a plan, as `edgecut plan` writes them",
            FileKind::Workload => "a workload",
            FileKind::Graph => "a graph to be scheduled: DLMO's, MAGIS's, or bare tensors and operators",
            FileKind::Profile => "a profile",
            FileKind::Links => "a table of links",
            FileKind::Buffers => "a table of buffers",
            _ => "what is expected here",
        }
    }
}

/// What is expected instead of a file of an unknown kind.
const MODELS: &str = "expected an ONNX model, or Relay text as `mod.astext()` prints it";

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Relay => "this is Relay text; give it as the model",
            FileKind::Params => "this is a parameter file; name a model, and this file with option `params`",
            FileKind::Npz => "this is an .npz or another zip archive; name a model, and contents of its inputs with option `inputs`",
            FileKind::Patterns => "this is TOML, a library of patterns; `edgecut memory place` takes one for fusing",
            FileKind::Toml => "this is TOML; name a model, and a cluster file with option `cluster`",
            FileKind::Plan => "this is a plan; `edgecut run` and `edgecut export` take one",
            FileKind::PlanRows => "this is CSV, the rows of a plan; the .json file of the same name is the plan",
            FileKind::Front => "this is CSV, a front of plans; `edgecut report` takes it",
            FileKind::Results => "these are results of a run; `edgecut report` and `edgecut compare` take them",
            FileKind::Manifest => {
                "this is the manifest.json of exported modules; each .relay file in its folder is a model"
            }
            FileKind::Trace => {
                "this is an execution trace; `edgecut profile` imports one of TVM's debug executor, with its graph dump in \
                 the same folder"
            }
            FileKind::Dump => {
                "this is a graph dump of TVM's, which has times of kernels but no kernels to run; `edgecut plan` \
                 and `edgecut profile` take it, with its execution trace in the same folder"
            }
            FileKind::Onnx => "this is an ONNX model; give it as the model",
            FileKind::Binary(what) => {
                return write!(f, "this is {what}; {MODELS}");
            }
            FileKind::Workload => "this is a device-placement workload; `edgecut workload` takes it",
            FileKind::Graph => "this is a graph to be scheduled in memory; `memory schedule` takes it",
            FileKind::Profile => "this is CSV, a profile; name a model, and this file with option `profile`",
            FileKind::Eop => {
                "this is CSV, a profile of EOP's; `edgecut plan` and `edgecut profile` take it together with its Relay module"
            }
            FileKind::OrtProfile => "this is a profile of ONNX Runtime's; `edgecut plan` and `edgecut profile` take it together with its model",
            FileKind::OrtMemory => {
                "these are statistics of memory of ONNX Runtime's; `edgecut profile` takes them together with their model"
            }
            FileKind::Links => "this is CSV, a table of measured links; option `links` takes it",
            FileKind::Buffers => "this is CSV, buffers to be packed; `memory pack` takes it",
            FileKind::Json => return write!(f, "this is JSON; {MODELS}"),
            FileKind::Csv => return write!(f, "this is CSV; {MODELS}"),
        })
    }
}

/// The kind of a file, if it is known. Relay text is not detected.
pub fn detect(bytes: &[u8]) -> Option<FileKind> {
    const PARAMS: [u8; 8] = 0xF7E5_8D4F_0504_9CB7_u64.to_le_bytes();
    if bytes.starts_with(&PARAMS) {
        return Some(FileKind::Params);
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Some(FileKind::Npz);
    }
    if is_json_object(bytes) {
        return Some(json(bytes));
    }
    if let Some((_, what)) = SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature)) {
        return Some(FileKind::Binary(what));
    }
    if is_onnx(bytes) {
        return Some(FileKind::Onnx);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => {
            return bytes.iter().take(BEGINNING).any(|byte| *byte == 0).then_some(FileKind::Binary("a binary file"));
        }
    };
    if is_ort_profile(text) {
        return Some(FileKind::OrtProfile);
    }
    if is_ort_memory(text) {
        return Some(FileKind::OrtMemory);
    }
    if text.parse::<toml::Table>().is_ok_and(|table| !table.is_empty()) {
        return Some(if text.contains("[[pattern]]") { FileKind::Patterns } else { FileKind::Toml });
    }
    csv(text.lines().next()?)
}

/// Signatures of files that are not models, with descriptions.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xFF\xD8\xFF", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"\x7FELF", "a program or a shared library, such as a compiled TVM module"),
    (b"\x1F\x8B", "a gzip archive: unpack it first"),
    (b"\x28\xB5\x2F\xFD", "a zstd archive: unpack it first"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
];
/// Number of leading bytes that are searched for a zero byte, which marks a binary file.
const BEGINNING: usize = 4096;

/// Like [`of`], for a file that should not be a model. Also detects Relay text.
pub(crate) fn detect_any(bytes: &[u8]) -> Option<FileKind> {
    let is_relay = |text: &str| text.contains("def @main") || text.trim_start().starts_with("#[version");
    let relay = std::str::from_utf8(bytes).is_ok_and(is_relay);
    detect(bytes).or(relay.then_some(FileKind::Relay))
}

/// The kind of a file that is not `wanted`, if naming it helps.
pub fn mismatch(bytes: &[u8], wanted: FileKind) -> Option<FileKind> {
    detect_any(bytes).filter(|kind| *kind != wanted && !kind.is_vague())
}

/// The error for `bytes`, the content of the file at `path`, which cannot be read as `wanted`. It names the kind of the
/// file if that helps; otherwise it contains `error`.
pub(crate) fn mismatch_error(path: &Path, bytes: &[u8], wanted: FileKind, error: impl fmt::Display) -> Error {
    let name = path.display();
    Error::BadInput(Message::from(match mismatch(bytes, wanted) {
        Some(kind) => format!("{name}: not {}: {kind}", wanted.wanted()),
        None if wanted == FileKind::Toml && is_json_object(bytes) => {
            format!("{name}: not {}: this is JSON", wanted.wanted())
        }
        None => format!("{name}: {error}"),
    }))
}

/// The error for the file at `path`, which cannot be read as a plan.
pub(crate) fn plan_error(path: &Path, bytes: &[u8], error: PlanFileError) -> Error {
    match error {
        PlanFileError::Version { .. }
        | PlanFileError::Inconsistent(_)
        | PlanFileError::Several { .. }
        | PlanFileError::NotChosen { .. } => Error::bad_input(Located::new(path, error)),
        _ => mismatch_error(path, bytes, FileKind::Plan, format!("not {}: {error}", FileKind::Plan.wanted())),
    }
}

/// Whether the file is a plan, of any version.
pub(crate) fn is_plan(bytes: &[u8]) -> bool {
    matches!(Plan::from_json(bytes), Ok(_) | Err(PlanFileError::Version { .. } | PlanFileError::Several { .. }))
}

/// Whether a JSON object is a results file of `edgecut run --output`.
pub(crate) fn is_file_of_results(bytes: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    value.get("version").is_some() && value.get("runs").is_some_and(serde_json::Value::is_array)
}

/// The kind of a JSON object, by its keys.
fn json(bytes: &[u8]) -> FileKind {
    if is_plan(bytes) {
        return FileKind::Plan;
    }
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let has = |names: &[&str]| names.iter().all(|name| value.get(name).is_some());
    let text = String::from_utf8_lossy(bytes);
    let is_dump = text.contains("\"arg_nodes\""); // JSON of TVM's
    if has(&["modules", "outputs", "blake3"]) {
        FileKind::Manifest
    } else if has(&["predicted_latency_us", "latency", "groups"]) || is_file_of_results(bytes) {
        FileKind::Results
    } else if text.contains("\"traceEvents\"") {
        FileKind::Trace
    } else if is_dump {
        FileKind::Dump
    } else if has(&["maxFPGAs"]) {
        FileKind::Workload
    } else if has(&["data", "code"]) || has(&["ops", "cost_model"]) || has(&["ops", "tensors"]) {
        FileKind::Graph
    } else {
        FileKind::Json
    }
}

/// The kind of a table, by its header.
fn csv(header: &str) -> Option<FileKind> {
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-. ".contains(&b));
    let columns: Vec<&str> = header.split(',').collect();
    let has = |names: &[&str]| names.iter().all(|name| columns.iter().any(|column| column.trim() == *name));
    if columns.len() < 2 || !columns.iter().all(|name| is_name(name)) {
        return None;
    }
    Some(if has(&["signature", "time_us_median"]) {
        FileKind::Profile
    } else if has(&["from", "to", "bytes_per_us"]) {
        FileKind::Links
    } else if has(&["latency_us", "interval_us", "peak_bytes"]) {
        FileKind::Front
    } else if has(&["kind", "start_us", "to_device"]) {
        FileKind::PlanRows
    } else if has(&["lower", "upper", "size"]) {
        FileKind::Buffers
    } else if has(&["a_name"]) {
        FileKind::Eop
    } else {
        FileKind::Csv
    })
}

/// Whether the file begins like a JSON object. A block `{ … }` of Relay text begins with an expression instead.
pub fn is_json_object(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    text.strip_prefix(b"{").is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_are_distinguished() {
        for (bytes, part) in [
            (&b"PK\x03\x04...."[..], "zip"),
            (b"\xb7\x9c\x04\x05\x4f\x8d\xe5\xf7....", "parameter"),
            (b" {\"version\": 1}", "JSON"),
            (b"{}", "JSON"),
            (b"{\"version\": 1, \"blake3\": \"\", \"modules\": [], \"outputs\": []}", "manifest.json"),
            (b"{\"arg_nodes\": []}", "graph dump"), // JSON of TVM's
            (b"{\"maxFPGAs\": 1}", "edgecut workload"),
            (b"{\"data\": [], \"code\": []}", "memory schedule"),
            (b"[[server]]\nname = \"edge\"\n", "option `cluster`"),
            (b"[[pattern]]\nname = \"Linear\"\n", "for fusing"),
            (b"kind,time_us\n1,2\n", "this is CSV; expected"),
            (b"{\"latency\": {}, \"predicted_latency_us\": 1, \"groups\": []}", "results of a run"),
            (b"latency_us,interval_us,peak_bytes,devices,splits\n", "a front of plans"),
            (b"id,lower,upper,size\n", "memory pack"),
            (b"from,from_address,to,to_address,latency_us,bytes_per_us\n", "option `links`"),
            (b"server,signature,time_us_median\n", "option `profile`"),
            (b"a_name,forward_fw_mean_time\n", "EOP"),
            (b"[{\"cat\": \"Session\", \"name\": \"session_initialization\"}]", "profile of ONNX Runtime's"),
            (
                b"#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations\n",
                "memory of ONNX Runtime's",
            ),
            (b"\x08\x08\x12\x07pytorch", "ONNX"),
            (b"\x89PNG\r\n\x1a\n", "PNG image"),
            (b"\x7FELF\x02\0\xFF", "shared library"),
            (b"\xFF\0\x01", "a binary file"),
        ] {
            assert!(detect(bytes).is_some_and(|kind| kind.to_string().contains(part)), "{part}: {:?}", detect(bytes));
        }
        for text in ["", "hello", "def @main(%x: int32) {\n  add(%x, 1)\n}", "{ let %x = 1; %x }", "add(1, 2)"] {
            assert_eq!(detect(text.as_bytes()), None, "{text}");
        }
        assert_eq!(detect_any(b"def @main(%x: int32) { add(%x, 1) }"), Some(FileKind::Relay));
    }

    #[test]
    fn an_error_in_a_file_of_the_right_kind_is_kept() {
        for (bytes, wanted, message) in [
            (&b"{\"maxFPGAs\": 1}"[..], FileKind::Workload, "f: no edges"),
            (b"from,from_address,to,to_address,latency_us,bytes_per_us\n", FileKind::Links, "f: no edges"),
            (b"{\"a\": 1}", FileKind::Workload, "f: no edges"),
            (b"{\"maxFPGAs\": 1}", FileKind::Graph, "f: not a graph to be scheduled: DLMO's"),
            (b"id,lower,upper,size\n", FileKind::Profile, "f: not a profile: this is CSV, buffers"),
        ] {
            let Error::BadInput(report) = mismatch_error(Path::new("f"), bytes, wanted, "no edges") else { panic!() };
            assert!(report.to_string().starts_with(message), "{report}");
        }
    }
}
