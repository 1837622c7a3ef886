//! Plans with split operators executed on agents, over real sockets: shards compute at the same time, halos go from
//! agent to agent, and the outputs are those of one device.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Agents, inputs, on_one_device};
use edgecut::{
    agent::fleet::Fleet,
    graph::{Granularity, Graph, OperatorId, TensorData},
    plan::{
        DeviceId, Plan,
        assemble::Network,
        check,
        file::ModelRef,
        problem::{Cost, Device, Link, LinkId, Objective, Targets},
        search::Options,
        split::{Proportional, Task, Ways, divided, plan},
    },
    profile::items,
    relay::{ImportOptions, import},
    run::{DeployOptions, RunOptions, deploy, deploy::Output, execute},
    units::{Bytes, Micros},
};

#[global_allocator]
static ALLOCATOR: edgecut::engine::CountingAllocator = edgecut::engine::CountingAllocator;

const MODEL: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 48, 48), float32], %w1: Tensor[(16, 3, 3, 3), float32], %w2: Tensor[(16, 16, 3, 3), float32],
          %w3: Tensor[(16, 16, 3, 3), float32], %d: Tensor[(10, 2304), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2]);
  %3 = nn.conv2d(%2, %w2, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %4 = add(%3, %2);
  %5 = nn.conv2d(%4, %w3, strides=[2, 2], padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %6 = nn.batch_flatten(%5);
  nn.dense(%6, %d, units=10)
}
"#;

/// The agents as devices of these speeds, in FLOPs a microsecond, behind fast links.
fn network(agents: &Agents) -> Network {
    let servers = &agents.cluster.servers;
    let n = servers.len();
    let device = |name: &str| Device { server: name.into(), name: "cpu".into(), address: None, memory: None };
    let link = |name: String| Link { name, latency: Micros(10.0), per_byte: 1e-3 };
    let route = |i: usize| (i / n != i % n).then_some(LinkId(i as u32));
    Network {
        devices: servers.iter().map(|server| device(&server.name)).collect(),
        links: (0..n * n).map(|i| link(format!("{} to {}", i / n, i % n))).collect(),
        routes: (0..n * n).map(route).collect(),
        source: DeviceId(0),
        sink: DeviceId(0),
    }
}

/// A plan with splits for devices of these speeds, in FLOPs a microsecond, and the graph that it is of.
fn planned(graph: &Graph, agents: &Agents, speeds: &[f64]) -> (Plan, Graph) {
    let items = items(graph, Granularity::Fused);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let cost = |flops: u64, speed: &f64| {
        Some(Cost { time: Micros(1.0 + flops as f64 / speed), workspace: Bytes(1024), held: Bytes::ZERO })
    };
    let task = Task {
        ways: Ways::of(graph, &groups),
        names: items.iter().map(|item| item.name.clone()).collect(),
        costs: items.iter().map(|item| speeds.iter().map(|speed| cost(item.flops, speed)).collect()).collect(),
        network: network(agents),
        objective: Objective::Latency,
        targets: Targets::default(),
        shards: &Proportional::default(),
    };
    let answer = plan(&task, &Options { budget: Some(1_000), cut_off: None, ..Options::default() }).unwrap();
    let model = ModelRef::default();
    let mut plan = Plan::new(&answer.expanded.problem, &answer.solution, model, Granularity::Fused, 0);
    plan.splits = answer.splits;
    check::plan(&answer.expanded.problem, &plan).unwrap();
    let split = divided(graph, &plan.splits).unwrap();
    (plan, split)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_plans_give_the_outputs_of_one_device() {
    let graph = import("model", MODEL.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let want = on_one_device(&graph);
    for speeds in [vec![1000.0, 1000.0], vec![1000.0, 600.0, 300.0]] {
        let agents = Agents::start(speeds.len(), None).await;
        let (plan, split) = planned(&graph, &agents, &speeds);
        assert!(plan.splits.iter().all(|split| split.devices.len() == speeds.len()), "{:?}", plan.splits);
        assert!(!plan.splits.is_empty());
        for in_flight in [1, 2] {
            let session = format!("split-{}-{in_flight}", speeds.len());
            let options = DeployOptions { session, in_flight, streamed: BTreeSet::new() };
            let deployment = deploy(&split, &plan, &agents.cluster, &options).unwrap();
            let fleet = Fleet::reach(&agents.cluster).await.unwrap();
            let players: Vec<_> =
                deployment.setups.iter().map(|s| fleet.agent(&s.server).unwrap().unwrap().clone()).collect();
            let all = inputs(&split);
            let inputs: Vec<TensorData> = deployment.inputs.iter().map(|id| all[id].clone()).collect();
            let how = RunOptions { repeat: 3, in_flight, expected: Micros(1000.0) };
            let record = execute(&deployment, &players, &inputs, &BTreeMap::new(), &how).await.unwrap();
            let [Output::Sink(index)] = deployment.outputs[..] else { panic!("one output at the sink") };
            let found = record.sink_values[index as usize].to_f64s().unwrap();
            let scale = want[0].to_f64s().unwrap();
            assert!(found.iter().zip(&scale).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())));
            assert_eq!(record.latencies.len(), 3);
            for measured in record.measured.values().flatten() {
                assert!(!measured.stages.is_empty(), "every agent computes shards");
            }
        }
    }
}
