//! What several tests of agents share: agents on free ports, graphs made of few operators, plans made by hand.

#![allow(dead_code)]

pub mod card;
pub mod problems;
pub mod process;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use edgecut::{
    agent::{
        Cluster, Shutdown,
        server::{Host, HostOptions, OfferedGpus, serve},
    },
    engine::{Engine, EngineError, TractEngine},
    graph::{DType, Graph, Operator, OperatorId, Origin, TensorData, TensorId, TensorType},
    plan::{
        DeviceId, GroupId, Plan, TransferFormat,
        file::{Bound, DevicePlan, Granularity, GroupPlan, MemoryPlan, ModelRef, Predicted, VERSION},
        problem::{Objective, Targets},
    },
    units::{Bytes, Micros},
    values::seeded,
};

/// A file or folder of the conformance data next to the checkout. Tests that need it are ignored where it is absent.
pub fn shared(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    assert!(path.exists(), "{} is missing", path.display());
    path
}

/// Agents in this process, each behind a socket of its own.
pub struct Agents {
    pub cluster: Cluster,
    pub hosts: Vec<Arc<Host>>,
    shutdown: Shutdown,
}

impl Agents {
    /// Starts `count` agents called `s0`, `s1`, …, with one thread each and `memory` if given.
    pub async fn start(count: usize, memory: Option<Bytes>) -> Agents {
        let shutdown = Shutdown::new();
        let (mut text, mut hosts) = (String::new(), Vec::new());
        for index in 0..count {
            let name = format!("s{index}");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            text += &format!("[[server]]\nname = \"{name}\"\naddress = \"{address}\"\n");
            let options = HostOptions {
                name: name.into(),
                threads: Some(1),
                memory,
                gpus: OfferedGpus::None,
                ..HostOptions::default()
            };
            let host = Host::start(options, shutdown.child()).unwrap();
            hosts.push(host.clone());
            tokio::spawn(async move { serve(listener, host).await.unwrap() });
        }
        let cluster = Cluster::parse(&text, Path::new("")).unwrap();
        Agents { cluster, hosts, shutdown }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// An operator without attributes.
pub fn operator(name: &str, args: &[TensorId]) -> Operator {
    Operator::new(name, args.iter().copied())
}

/// Adds an element-wise operator and returns its result.
pub fn add(graph: &mut Graph, name: &str, args: &[TensorId]) -> TensorId {
    let ty = graph.tensor(args[0]).ty.clone();
    let id = graph.add_operator(operator(name, args), &[ty]);
    graph.operator(id).outputs[0]
}

/// `length` additions of parameters, one after the other, on a tensor of `elements` floats.
pub fn chain(length: usize, elements: u64) -> Graph {
    let mut graph = Graph::new();
    let ty = TensorType::of(DType::F32, &[1, elements]);
    let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
    for index in 0..length {
        let weight = graph.add_tensor(format!("w{index}"), ty.clone(), Origin::Parameter);
        at = add(&mut graph, "add", &[at, weight]);
    }
    graph.outputs.push(at);
    graph
}

/// A plan with one group an operator, operator `i` on server `device_of[i]`, source and sink on the first.
pub fn plan(graph: &Graph, cluster: &Cluster, device_of: &[usize]) -> Plan {
    let devices = cluster.servers.iter().enumerate().map(|(index, server)| DevicePlan {
        server: server.name.to_string(),
        device: "cpu".into(),
        address: None,
        threads: None,
        engine: None,
        hardware: None,
        memory_limit_bytes: None,
        order: (0u32..).zip(device_of).filter(|(_, d)| **d == index).map(|(i, _)| GroupId(i)).collect(),
        busy_us: Micros::ZERO,
        idle_w: None,
        memory: MemoryPlan::default(),
    });
    let groups = graph.operators().map(|(id, operator)| GroupPlan {
        id: Some(id.0),
        part: String::new(),
        layer: String::new(),
        name: format!("{}_{}", operator.name, id.0),
        operators: vec![id],
        device: DeviceId(device_of[id.0 as usize] as u32),
        time_us: Micros(1.0),
        start_us: Micros::ZERO,
        workspace_bytes: Bytes::ZERO,
        energy_j: None,
        source: Default::default(),
    });
    Plan {
        version: VERSION,
        model: ModelRef::default(),
        cluster: None,
        granularity: Granularity::Op,
        objective: Objective::Latency,
        targets: Targets::default(),
        rules: Vec::new(),
        seed: 0,
        predicted: Predicted {
            latency_us: Micros(1.0),
            interval_us: Micros(1.0),
            in_flight: 1,
            throughput_per_s: 1.0,
            peak_bytes: Bytes::ZERO,
            transfer_bytes: None,
            sent_bytes: None,
            energy_j: None,
        },
        bound: Bound { value: 0.0, by: String::new() },
        gap: 0.0,
        source: DeviceId(0),
        sink: DeviceId(0),
        devices: devices.collect(),
        in_flight: None,
        transfer: TransferFormat::Exact,
        splits: Vec::new(),
        states: Vec::new(),
        prefill: None,
        schedules: Vec::new(),
        groups: groups.collect(),
        transfers: Vec::new(),
        notes: Vec::new(),
    }
}

/// The generated inputs of a graph, by tensor.
pub fn inputs(graph: &Graph) -> BTreeMap<TensorId, TensorData> {
    let one = |id: TensorId| (id, seeded(&graph.tensor(id).name, &graph.tensor(id).ty).unwrap());
    graph.inputs().map(one).collect()
}

/// The outputs of a graph run operator by operator on one engine, everything generated.
pub fn on_one_device(graph: &Graph) -> Vec<TensorData> {
    let engine = TractEngine::new(1).unwrap();
    let steps: Vec<Vec<OperatorId>> = graph.operators().map(|(id, _)| vec![id]).collect();
    let parameter = |id: TensorId| {
        let tensor = graph.tensor(id);
        seeded(&tensor.name, &tensor.ty).map_err(|e| EngineError::Other(e.to_string()))
    };
    let mut loaded = engine.load_steps(graph, &steps, &parameter).unwrap();
    let inputs: Vec<TensorData> = inputs(graph).into_values().collect();
    loaded.run_in_steps(inputs, &mut |_, _| {}).unwrap()
}
