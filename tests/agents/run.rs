//! Plans executed on agents, in this process but over real sockets: whatever the placement, the outputs are those of
//! one device.

use std::collections::BTreeMap;

use crate::common::{Agents, add, chain, inputs, on_one_device, plan};
use edgecut::{
    agent::{
        client::Fleet,
        deployment::{Deployment, Output},
        results::{Activity, ActivityTime, Outcome, record::Record},
    },
    graph::{DType, Graph, Origin, TensorData, TensorType},
    plan::{DeviceId, Plan, Stop},
    session::run::{DeployOptions, ExecuteOptions, RunError, deploy, execute},
    units::{Bytes, Micros},
    values::seeded,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

fn options(in_flight: u32) -> DeployOptions {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    DeployOptions { session: format!("test-{number}"), ..DeployOptions::new(in_flight, &BTreeMap::new()) }
}

/// Deploys and runs on the agents of the cluster.
async fn run(agents: &Agents, graph: &Graph, plan: &Plan, in_flight: u32) -> (Deployment, Result<Record, RunError>) {
    let deployment = deploy(graph, plan, &agents.cluster, &options(in_flight)).unwrap();
    let fleet = Fleet::connect(&agents.cluster).await.unwrap();
    let players: Vec<_> = deployment.setups.iter().map(|s| fleet.agent(&s.server).unwrap().unwrap().clone()).collect();
    let all = inputs(graph);
    let inputs: Vec<TensorData> = deployment.terminals.inputs.iter().map(|id| all[id].clone()).collect();
    let how = ExecuteOptions { repeat: 4, in_flight, expected: Micros(1000.0), progress: &|_| {}, stop: Stop::never() };
    let record = execute(&deployment, &players, &inputs, &BTreeMap::new(), &how).await;
    (deployment, record)
}

/// The model's outputs as the sink gave them.
fn outputs(graph: &Graph, deployment: &Deployment, record: &Record) -> Vec<TensorData> {
    let of = |output: &Output| match output {
        Output::Sink(index) => record.sink_values[*index as usize].clone(),
        Output::Parameter(id) => seeded(&graph.tensor(*id).name, &graph.tensor(*id).ty).unwrap(),
    };
    deployment.terminals.outputs.iter().map(of).collect()
}

/// A graph of additions, products and others over random earlier tensors, and a random placement of it.
fn graphs() -> impl Strategy<Value = (Graph, Vec<usize>, (u32, u32))> {
    let operator = (0..4usize, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3usize, any::<bool>());
    (prop::collection::vec(operator, 1..14), (0..3u32, 0..3u32)).prop_map(|(operators, ends)| {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[3, 50]);
        let mut tensors = vec![
            graph.add_tensor("x", ty.clone(), Origin::Input),
            graph.add_tensor("y", ty.clone(), Origin::Input),
            graph.add_tensor("w", ty.clone(), Origin::Parameter),
        ];
        let mut places = Vec::new();
        for (kind, a, b, place, is_output) in operators {
            let (a, b) = (*a.get(&tensors), *b.get(&tensors));
            let made = match kind {
                0 => add(&mut graph, "add", &[a, b]),
                1 => add(&mut graph, "multiply", &[a, b]),
                2 => add(&mut graph, "nn.relu", &[a]),
                _ => add(&mut graph, "negative", &[a]),
            };
            places.push(place);
            tensors.push(made);
            if is_output {
                graph.outputs.push(made);
            }
        }
        // Inputs and parameters may be returned as they are.
        graph.outputs.push(tensors[tensors.len() - 1]);
        graph.outputs.push(tensors[places.len() % 3]);
        (graph, places, ends)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_placement_of_any_graph_gives_the_outputs_of_one_device() {
    let agents = Agents::start(3, None).await;
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
        let outcome = runner.run(&graphs(), |(graph, places, (source, sink))| {
            let mut plan = plan(&graph, &agents.cluster, &places);
            (plan.source, plan.sink) = (DeviceId(source), DeviceId(sink));
            for in_flight in [1, 3] {
                let (deployment, record) = runtime.block_on(run(&agents, &graph, &plan, in_flight));
                let record = record.map_err(|e| TestCaseError::fail(e.to_string()))?;
                prop_assert_eq!(outputs(&graph, &deployment, &record), on_one_device(&graph));
                prop_assert_eq!(record.latencies.len(), 4);
                let outcome = Outcome::of(&plan, &deployment, &record).unwrap();
                prop_assert_eq!(outcome.breakdown.is_some(), in_flight == 1);
                for device in &plan.devices {
                    let name = device.device_name().to_string();
                    let breakdown = outcome.breakdown.iter().flat_map(|breakdown| &breakdown.times);
                    let times: Vec<&ActivityTime> = breakdown.filter(|time| time.device == name).collect();
                    let sum: f64 = times.iter().map(|time| time.time_us.0).sum();
                    let latency = outcome.breakdown.as_ref().map_or(0.0, |breakdown| breakdown.latency_us.0);
                    prop_assert!(times.is_empty() || (sum / latency - 1.0).abs() < 1e-9, "{name}: {sum} of {latency}");
                    let is_computing = times.iter().any(|time| time.activity == Activity::Computing);
                    // What nothing reads is not computed.
                    prop_assert!(!is_computing || !device.order.is_empty(), "{times:?}");
                    prop_assert!(times.iter().all(|time| time.peer != name), "{times:?}");
                }
                for server in record.measured.values() {
                    prop_assert_eq!(server.len(), 4);
                }
            }
            Ok(())
        });
        outcome.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tensors_of_many_megabytes_go_from_agent_to_agent() {
    let agents = Agents::start(2, None).await;
    let graph = chain(4, 5 << 20);
    let plan = plan(&graph, &agents.cluster, &[0, 1, 0, 1]);
    let (deployment, record) = run(&agents, &graph, &plan, 1).await;
    let record = record.unwrap();
    assert_eq!(outputs(&graph, &deployment, &record), on_one_device(&graph));
    let times = Outcome::of(&plan, &deployment, &record).unwrap().breakdown.unwrap().times;
    let peers = |device: &str, activity| -> Vec<String> {
        let of = times.iter().filter(|time| time.device == device && time.activity == activity);
        of.map(|time| time.peer.clone()).collect()
    };
    for (device, peer) in [("s0/cpu", "s1/cpu"), ("s1/cpu", "s0/cpu")] {
        assert_eq!(peers(device, Activity::Transfer), [peer], "{times:?}");
        assert_eq!(peers(device, Activity::Waiting), [peer], "{times:?}");
    }
    // The result goes back to the first, which is the sink.
    assert_eq!(["s0/cpu", "s1/cpu"].map(|device| peers(device, Activity::Done).len()), [0, 1], "{times:?}");
    let tensor = Bytes(20 << 20);
    for server in ["s0", "s1"] {
        let last = record.measured[server].last().unwrap();
        let memory = &last.memory[0];
        // Two weights; the operand, which the sum overwrites or not.
        assert!((2 * tensor.0..2 * tensor.0 + (1 << 20)).contains(&memory.parameters.0), "{memory:?}");
        assert!(memory.peak >= memory.parameters + tensor, "{memory:?}");
        assert!(memory.loading >= memory.parameters, "{memory:?}");
        assert!(memory.peak.0 <= memory.parameters.0 + 2 * tensor.0 + (1 << 20), "{memory:?}");
        assert!(last.transfers.iter().all(|t| t.start >= t.ready && t.end >= t.start));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_does_not_fit_is_refused_with_what_is_missing() {
    let agents = Agents::start(2, Some(Bytes(10 << 20))).await;
    let graph = chain(4, 1 << 20);
    // Three weights of 4 MiB, and an activation of as much.
    let plan = plan(&graph, &agents.cluster, &[0, 1, 1, 1]);
    let error = run(&agents, &graph, &plan, 1).await.1.unwrap_err().to_string();
    for part in
        ["agent s1", "device cpu", "needs 16.0 MiB", "parameters 12.0 MiB", "limit is 10.0 MiB", "6.0 MiB short"]
    {
        assert!(error.contains(part), "{error}");
    }
    // Nothing stays behind: a partition that fits is taken at once.
    let graph = chain(2, 1 << 10);
    let plan = crate::common::plan(&graph, &agents.cluster, &[0, 1]);
    run(&agents, &graph, &plan, 1).await.1.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_without_a_kernel_is_refused_by_name() {
    let agents = Agents::start(2, None).await;
    let mut graph = chain(2, 16);
    graph.operator_mut(edgecut::graph::OperatorId(1)).name = "nn.unheard_of".into();
    let plan = plan(&graph, &agents.cluster, &[0, 1]);
    let error = run(&agents, &graph, &plan, 1).await.1.unwrap_err().to_string();
    assert!(error.contains("agent s1") && error.contains("nn.unheard_of"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_measured_both_ways() {
    let agents = Agents::start(2, None).await;
    let fleet = Fleet::connect(&agents.cluster).await.unwrap();
    let mut known = edgecut::agent::LinkTable::default();
    let links = fleet.links(&agents.cluster, &mut known, |_, _| {}).await.unwrap();
    let ends: Vec<_> = links.iter().map(|l| (l.from.as_str(), l.to.as_str())).collect();
    assert_eq!(ends, [("s0", "s1"), ("s1", "s0")]);
    assert!(links.iter().all(|l| l.cost.rate.0 > 1.0 && l.cost.latency.0 < 1e6), "{links:?}");
    assert!(known.rows.iter().all(|row| row.largest_bytes >= Bytes(4096) && row.n > 8), "{known:?}");
    // What is known is not measured again.
    let again = fleet.links(&agents.cluster, &mut known, |_, _| panic!("measured again")).await.unwrap();
    assert_eq!(again, links);
}
