//! Fuzz targets: invariants of the readers of untrusted files, one function per format.
//!
//! A target receives the bytes of a file and panics if an invariant is violated; the first invariant is that the library
//! itself does not panic. `fuzz/` runs the targets with libFuzzer, `tests/fuzz.rs` runs them on mutated files.

mod external;

pub use external::external;

use std::{collections::BTreeSet, io::Cursor, path::Path, sync::LazyLock};

use edgecut_agent::{
    Cluster,
    protocol::{
        recorded,
        setup::{EnforcedLimit, Partition, Setup, Stage, Step, Value, ValueId},
    },
    server::receive_recorded,
};
use edgecut_engine::{Engine, EngineError, TractEngine};
use edgecut_graph::{DType, Graph, Operator, OperatorId, Origin, TensorType, units::Bytes};
use edgecut_onnx as onnx;
use edgecut_ops::passes::retype::BindDim;
use edgecut_plan::{PlanSet, planned_graph};
use edgecut_relay as relay;
use edgecut_relay::{Fault, ImportError, ImportOptions, Params, ParseMode};
use edgecut_session::run::{DeployOptions, deploy};
use edgecut_values::{NpzArchive, seeded};

/// An invariant of all files of one format.
pub type Body = fn(&[u8]);

/// The targets by name.
pub const BODIES: [(&str, Body); 11] = [
    ("text", text),
    ("metadata", metadata),
    ("params", params),
    ("npz", npz),
    ("onnx", onnx),
    ("external", external),
    ("plan", plan),
    ("cluster", cluster),
    ("commands", commands),
    ("task", task),
    ("transfer", transfer),
];

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

/// An `.npz` archive is read or rejected; an array is what its header announces.
pub fn npz(bytes: &[u8]) {
    let Ok(mut archive) = NpzArchive::new(Path::new("file.npz"), Cursor::new(bytes)) else { return };
    let types: Vec<(String, TensorType)> = archive.types().map(|(name, ty)| (name.to_string(), ty)).collect();
    for (name, ty) in types {
        if let Ok(tensor) = archive.read(&name) {
            assert!(tensor.ty() == ty && ty.bytes().is_some_and(|n| n.0 == tensor.bytes().len() as u64));
        }
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
    let options = onnx::ImportOptions { bind_dims: &[BindDim::All(2)], ..onnx::ImportOptions::new(&evaluate) };
    match onnx::import("file", bytes::Bytes::copy_from_slice(bytes), &options) {
        Ok(imported) => {
            relay::print::print_graph(&imported.graph);
            let json = serde_json::to_string(&imported.graph);
            assert!(json.is_ok_and(|json| serde_json::from_str::<edgecut_graph::Graph>(&json).is_ok()));
        }
        Err(error) => assert!(error.to_string().len() < 10_000, "{error}"),
    }
}

/// A small model, for plans of it.
pub const MODEL: &str = "def @main(%x: Tensor[(4, 8), float32], %w: Tensor[(8, 8), float32]) {
  %0 = nn.dense(%x, %w, units=8);
  %1 = nn.relu(%0);
  %2 = nn.dense(%1, %w, units=8);
  nn.softmax(%2)
}";

/// Two servers, for plans of the model.
const SERVERS: &str = "[[server]]\nname = \"a\"\naddress = \"h:1\"\n[[server]]\nname = \"b\"\naddress = \"h:2\"\n";

static SUBJECT: LazyLock<Option<(Graph, Cluster)>> = LazyLock::new(|| {
    let graph = relay::import("model", MODEL.as_bytes(), &ImportOptions::default()).ok()?.graph;
    Some((graph, Cluster::parse(SERVERS, Path::new("")).ok()?))
});

/// A plan file is read or rejected; what was read round-trips, and each plan is deployed or rejected.
pub fn plan(bytes: &[u8]) {
    let Ok(plans) = PlanSet::from_json(bytes) else { return };
    let written = plans.to_json().map(|json| PlanSet::from_json(json.as_bytes()).is_ok_and(|again| again == plans));
    assert!(matches!(written, Ok(true)), "{written:?}");
    let Some((graph, cluster)) = &*SUBJECT else { return };
    for plan in plans.plans() {
        let Ok(graph) = planned_graph(graph, plan) else { continue };
        if let Ok(deployment) = deploy(&graph, plan, cluster, &DeployOptions::new(1, &Default::default())) {
            assert!(deployment.setups.iter().all(|setup| setup.check().is_ok()));
        }
    }
}

/// A cluster file is parsed or rejected, with a position in it.
pub fn cluster(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match Cluster::parse(text, Path::new("")) {
        Ok(cluster) => assert!(!cluster.servers.is_empty() && cluster.server(&cluster.source).is_some()),
        Err(error) => assert!(error.span.is_none_or(|span| text.get(span).is_some()), "outside of the text"),
    }
}

/// The largest document of the sequences.
const LIMIT: Bytes = Bytes(1 << 20);

/// A run's commands are reassembled or refused.
pub fn commands(bytes: &[u8]) {
    recorded::read_commands(bytes, LIMIT);
}

/// Profile tasks are reassembled or refused.
pub fn task(bytes: &[u8]) {
    recorded::read_tasks(bytes, LIMIT);
}

/// Values of a peer are received or refused.
pub fn transfer(bytes: &[u8]) {
    receive_recorded(receiver(), bytes);
}

/// A server that computes value 1 from value 0, which a peer sends; at most two inferences are in flight.
pub fn receiver() -> Setup {
    let ty = TensorType::of(DType::F32, &[4]);
    let mut graph = Graph::new();
    let x = graph.add_tensor("x", ty.clone(), Origin::Input);
    let relu = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
    graph.outputs = vec![graph.operator(relu).outputs[0]];
    let stage = Stage {
        name: "relu".to_string(),
        graph,
        steps: vec![Step { group: 0, operators: vec![OperatorId(0)] }],
        operands: vec![ValueId(0)],
        results: vec![ValueId(1)],
    };
    let partition = Partition {
        device: "cpu".into(),
        memory: None,
        enforced: EnforcedLimit::default(),
        threads: None,
        engine: None,
        activations: LIMIT,
        stages: vec![stage],
    };
    Setup {
        session: "s".to_string(),
        server: "a".into(),
        peers: vec![],
        senders: vec![],
        values: ["x", "y"].map(|name| Value { name: name.into(), ty: ty.clone(), phase: Default::default() }).to_vec(),
        partitions: vec![partition],
        sends: vec![],
        source: None,
        sink: None,
        states: vec![],
        in_flight: 2,
        wait: None,
        is_shared: false,
        streamed: vec![],
        reported: Default::default(),
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
