//! Fuzz targets: invariants of the readers of untrusted files, one function per format.
//!
//! A target receives the bytes of a file and panics if an invariant is violated; the first invariant is that the library
//! itself does not panic. `fuzz/` runs the targets with libFuzzer, `tests/fuzz.rs` runs them on mutated files.

use std::{collections::BTreeSet, io::Cursor, path::Path, sync::LazyLock};

use edgecut_engine::{Engine, EngineError, TractEngine};
use edgecut_onnx as onnx;
use edgecut_ops::passes::retype::BindDim;
use edgecut_relay as relay;
use edgecut_relay::{Fault, ImportError, ImportOptions, Params, ParseMode};
use edgecut_values::{read_npz_from, seeded};

/// An invariant of all files of one format.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const BODIES: [(&str, Body); 5] =
    [("text", text), ("metadata", metadata), ("params", params), ("npz", npz), ("onnx", onnx)];

/// Relay text is imported, or rejected with a location inside the file; parsed text can be printed and parsed again.
pub fn text(bytes: &[u8]) {
    for mode in [ParseMode::Tolerant, ParseMode::Strict] {
        match relay::import("file", bytes, &ImportOptions { mode, ..ImportOptions::default() }) {
            Ok(import) => {
                let printed = relay::print::print_graph(&import.graph);
                let again = relay::import("printed", printed.as_bytes(), &ImportOptions::default());
                assert!(again.is_ok(), "a graph's own text is refused: {:?}\n{printed}", again.err());
            }
            Err(error) => located(&error, bytes),
        }
    }
    if let Ok(module) = relay::parse("file", bytes, ParseMode::Tolerant) {
        let printed = relay::print::print(&module);
        let again = relay::parse("printed", printed.as_bytes(), ParseMode::Tolerant);
        // As in TVM, a graph variable that leaves the scope of its operands parses, although it is meaningless.
        let meant = !matches!(&again, Err(error) if matches!(error.fault, Fault::Undefined { .. }));
        assert!(!meant || again.is_ok(), "a module's own text is refused: {:?}\n{printed}", again.err());
    }
}

/// A module that refers to constants and attribute objects; the metadata section under test is appended.
const REFERRING: &[u8] = br#"#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  %0 = add(%x, meta[relay.Constant][0]);
  %1 = nn.avg_pool2d_grad(%0, %0, meta[relay.attrs.AvgPool2DAttrs][0]);
  %2 = cumsum(%1, meta[relay.attrs.ScanopAttrs][0]);
  %3 = arange(meta[relay.Constant][1], meta[relay.Constant][2], meta[relay.Constant][3], start=meta[relay.Constant][1]);
  %4 = split(%2, indices_or_sections=meta[runtime.BoxInt][0]);
  (%3, %4.0, meta[relay.Constant][4])
}
#[metadata]
"#;

/// A metadata section resolves the references of the text, or is rejected with a location inside the file.
pub fn metadata(bytes: &[u8]) {
    let file = [REFERRING, bytes].concat();
    if let Err(error) = relay::import("file", &file, &ImportOptions::default()) {
        located(&error, &file);
    }
}

/// A `.params` file that was read is written with the same content.
pub fn params(bytes: &[u8]) {
    if let Ok(params) = Params::read("file", bytes.to_vec()) {
        let again = Params::read("written", params.write());
        let names = |params: &Params| -> BTreeSet<String> { params.iter().map(|(name, _)| name.to_string()).collect() };
        assert!(again.as_ref().is_ok_and(|again| names(again) == names(&params)), "{again:?}");
    }
}

/// An `.npz` archive is read or rejected.
pub fn npz(bytes: &[u8]) {
    if let Ok(tensors) = read_npz_from(Path::new("file.npz"), Cursor::new(bytes)) {
        assert!(tensors.values().all(|tensor| tensor.ty().bytes().is_some_and(|n| n.0 == tensor.bytes().len() as u64)));
    }
}

/// Computes conditions and shape arithmetic of ONNX models, as the command line does.
static ENGINE: LazyLock<Option<TractEngine>> = LazyLock::new(|| TractEngine::new(1).ok());

/// An ONNX model is imported, or rejected with a message of bounded length; what is imported can be printed as Relay text,
/// and holds only tensors whose content fills their type.
pub fn onnx(bytes: &[u8]) {
    let evaluate = |graph: &edgecut_graph::Graph, given: &onnx::Content<'_>| {
        let content = |id| {
            let tensor = graph.tensor(id);
            let generated = || seeded(&tensor.name, &tensor.ty).map_err(|error| EngineError::Other(error.to_string()));
            given(&tensor.name).map_or_else(generated, Ok)
        };
        let engine = ENGINE.as_ref().ok_or("no engine")?;
        engine.evaluate(graph, &content).map_err(|error| error.to_string())
    };
    let options =
        onnx::ImportOptions { evaluate: &evaluate, bind_dims: &[BindDim::All(2)], given: &|_| None, folder: None };
    match onnx::import("file", bytes::Bytes::copy_from_slice(bytes), &options) {
        Ok(imported) => {
            relay::print::print_graph(&imported.graph);
            let json = serde_json::to_string(&imported.graph);
            assert!(json.is_ok_and(|json| serde_json::from_str::<edgecut_graph::Graph>(&json).is_ok()));
        }
        Err(error) => assert!(error.to_string().len() < 10_000, "{error}"),
    }
}

/// Asserts that the location of an error is inside the file.
fn located(error: &ImportError, bytes: &[u8]) {
    let lines = memchr::memchr_iter(b'\n', bytes).count() + 1;
    if let Some(spot) = &error.spot {
        assert!(spot.line as usize <= lines, "{error}: the file has {lines} lines");
        assert!(spot.column as usize <= bytes.len() + 1, "{error}");
        assert!(spot.excerpt.is_char_boundary(spot.at) && spot.at <= spot.excerpt.len(), "{error}");
        assert!(spot.at + spot.len <= spot.excerpt.len() + 1, "{error}");
    }
    assert!(!error.to_string().contains("report this file"), "{error}");
}
