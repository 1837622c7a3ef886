//! Plans with split operators executed on agents, over real sockets: shards compute at the same time, halos go from
//! agent to agent, and the outputs are those of one device. So are those of plans that compute in parts to keep a limit on
//! memory, and of plans for a stream.

use std::collections::BTreeMap;

use crate::common::{Agents, chain, inputs, on_one_device};
use edgecut::{
    agent::{
        client::Fleet,
        deployment::Output,
        protocol::setup::EnforcedLimit,
        results::{Difference, Outcome, Tolerance, TransferCost, record::Record},
    },
    graph::{Granularity, Graph, LinkCost, OperatorId, TensorData},
    plan::{
        Candidate, DeviceId, Goal, Instance, NoPlan, Plan, PlanRequest, Stop, TransferFormat,
        assemble::Network,
        check,
        constrained::with_schedules,
        divided,
        file::ModelRef,
        planned_graph,
        problem::{Cost, Device, Link, LinkId, Objective},
        schedule::apply_schedules,
        search::Options,
        split::{SplitOptions, solve},
        transfer_format::Coding,
    },
    profile::{Item, items},
    relay::{ImportOptions, import},
    session::run::{DeployOptions, ExecuteOptions, RunError, deploy, execute},
    units::{Bytes, Micros},
};

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

/// Of seven tensors of one size, five are live at once, but no operator reads or writes more than three.
const NESTED: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(64, 1024), float32]) {
  %0 = nn.softmax(%x);
  %1 = nn.softmax(%0);
  %2 = nn.softmax(%1);
  %3 = add(%2, %1);
  %4 = add(%3, %0);
  add(%4, %x)
}
"#;

/// The agents as devices of these speeds, in FLOPs a microsecond, behind fast links.
fn network(agents: &Agents) -> Network {
    let servers = &agents.cluster.servers;
    let n = servers.len();
    let device = |name: &str| Device {
        server: name.into(),
        name: "cpu".into(),
        address: None,
        memory: None,
        ..Device::default()
    };
    let link = |name: String| Link {
        name,
        cost: LinkCost::per_byte(Micros(10.0), 1e-3),
        overhead: Micros::ZERO,
        coding: Coding::default(),
    };
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
    planned_with(graph, agents, speeds, TransferFormat::Exact)
}

/// The same with this format between servers.
fn planned_with(graph: &Graph, agents: &Agents, speeds: &[f64], format: TransferFormat) -> (Plan, Graph) {
    let items = items(graph, Granularity::Fused);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let cost = |flops: u64, speed: &f64| {
        Some(Cost { time: Micros(1.0 + flops as f64 / speed), workspace: Bytes(1024), ..Cost::default() })
    };
    let names = items.iter().map(|item| item.name.clone()).collect();
    let costs = items.iter().map(|item| speeds.iter().map(|speed| cost(item.flops, speed)).collect()).collect();
    let mut network = network(agents);
    network.set_transfer_format(format);
    let instance = Instance::new(SplitOptions::of(graph, &groups), names, costs, network);
    let request = PlanRequest::new(instance, Goal { search: search(1_000), ..Goal::default() });
    let answer = solve(&request, None).unwrap();
    let model = ModelRef::default();
    let mut plan = Plan::new(&answer.expanded.problem, &answer.solution, model, Granularity::Fused, 0);
    plan.splits = answer.splits;
    check::plan(&answer.expanded.problem, &plan).unwrap();
    let split = divided(graph, &[], &plan.splits).unwrap();
    (plan, split.graph)
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
            let options = DeployOptions { session, ..DeployOptions::new(in_flight, &BTreeMap::new()) };
            let deployment = deploy(&split, &plan, &agents.cluster, &options).unwrap();
            let fleet = Fleet::connect(&agents.cluster).await.unwrap();
            let players: Vec<_> =
                deployment.setups.iter().map(|s| fleet.agent(&s.server).unwrap().unwrap().clone()).collect();
            let all = inputs(&split);
            let inputs: Vec<TensorData> = deployment.terminals.inputs.iter().map(|id| all[id].clone()).collect();
            let how = ExecuteOptions {
                repeat: 3,
                in_flight,
                expected: Micros(1000.0),
                progress: &|_| {},
                stop: Stop::never(),
            };
            let record = execute(&deployment, &players, &inputs, &BTreeMap::new(), &how).await.unwrap();
            let [Output::Sink(index)] = deployment.terminals.outputs[..] else { panic!("one output at the sink") };
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activations_cross_links_in_fewer_bits_and_inputs_and_outputs_as_they_are() {
    let graph = import("model", MODEL.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let want = on_one_device(&graph);
    let agents = Agents::start(2, None).await;
    let mut errors = Vec::new();
    for (format, smaller, tolerance) in [(TransferFormat::F16, 2.0, 1e-3), (TransferFormat::Int8, 3.2, 0.05)] {
        let (plan, split) = planned_with(&graph, &agents, &[1000.0, 1000.0], format);
        assert!(!plan.splits.is_empty() && plan.transfer == format);
        let options = DeployOptions { session: format.to_string(), ..DeployOptions::new(1, &BTreeMap::new()) };
        let deployment = deploy(&split, &plan, &agents.cluster, &options).unwrap();
        let fleet = Fleet::connect(&agents.cluster).await.unwrap();
        let players: Vec<_> =
            deployment.setups.iter().map(|s| fleet.agent(&s.server).unwrap().unwrap().clone()).collect();
        let all = inputs(&split);
        let inputs: Vec<TensorData> = deployment.terminals.inputs.iter().map(|id| all[id].clone()).collect();
        let how = ExecuteOptions {
            repeat: 2,
            in_flight: 1,
            expected: Micros(1000.0),
            progress: &|_| {},
            stop: Stop::never(),
        };
        let record = execute(&deployment, &players, &inputs, &BTreeMap::new(), &how).await.unwrap();

        let outcome = Outcome::of(&plan, &deployment, &record).unwrap();
        let (converted, exact): (Vec<_>, Vec<_>) = outcome.transfers.iter().partition(|t| t.format == format);
        assert!(exact.iter().all(|t| t.format.is_exact() && t.sent_bytes == t.bytes));
        assert!(exact.iter().any(|t| t.tensor.starts_with('x')), "a slice of the input crosses: {exact:?}");
        let sum = |of: fn(&TransferCost) -> Bytes| converted.iter().map(|t| of(t)).sum::<Bytes>().0 as f64;
        let (bytes, sent) = (sum(|t| t.bytes), sum(|t| t.sent_bytes));
        assert!(bytes > 0.0 && bytes / sent >= smaller, "{bytes} sent as {sent}");
        let total: Bytes = outcome.transfers.iter().map(|t| t.sent_bytes).sum();
        assert_eq!(Some(total), plan.predicted.sent_bytes);

        let [Output::Sink(index)] = deployment.terminals.outputs[..] else { panic!("one output at the sink") };
        let difference =
            Difference::between(&record.sink_values[index as usize..=index as usize], &want, Tolerance::Rounding);
        assert!(difference.is_finite() && difference.largest_relative < tolerance, "{}", difference.errors());
        errors.push(difference.mean);
    }
    assert!(0.0 < errors[0] && errors[0] < errors[1], "{errors:?}");
}

/// A model whose widest tensors take 4 MiB each, and little else.
const WIDE: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4, 128, 128), float32], %w1: Tensor[(64, 4, 1, 1), float32], %w2: Tensor[(8, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w1, channels=64, kernel_size=[1, 1]);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[3, 3], strides=[4, 4], padding=[1, 1, 1, 1]);
  %3 = nn.conv2d(%2, %w2, channels=8, kernel_size=[1, 1]);
  tanh(%3)
}
"#;

fn search(budget: u64) -> Options {
    Options { budget: Some(budget), cut_off: None, ..Options::default() }
}

/// The request to plan for agents of one speed with `memory` each.
fn request<'a>(
    options: SplitOptions<'a>,
    items: &[Item],
    agents: &Agents,
    memory: Bytes,
    objective: Objective,
    budget: u64,
) -> PlanRequest<'a> {
    let mut network = network(agents);
    network.devices.iter_mut().for_each(|device| device.memory = Some(memory));
    let cost = |item: &Item| {
        let time = Micros(1.0 + item.flops as f64 / 1000.0 + item.bytes.0 as f64 * 1e-3);
        Some(Cost { time, workspace: Bytes(256 << 10), ..Cost::default() })
    };
    let names = items.iter().map(|item| item.name.clone()).collect();
    let costs = items.iter().map(|item| vec![cost(item); network.devices.len()]).collect();
    let goal = Goal { objective, search: search(budget), ..Goal::default() };
    PlanRequest::new(Instance::new(options, names, costs, network), goal)
}

fn groups(items: &[Item]) -> Vec<Vec<OperatorId>> {
    items.iter().map(|item| item.operators.clone()).collect()
}

fn written(answer: &Candidate) -> Plan {
    Plan::new(&answer.expanded.problem, &answer.solution, ModelRef::default(), Granularity::Fused, 0)
}

/// Runs a plan on the agents that it was made for.
async fn run(agents: &Agents, graph: &Graph, plan: &Plan, in_flight: u32, session: &str) -> (Record, Vec<f64>) {
    let options = DeployOptions { session: session.to_string(), ..DeployOptions::new(in_flight, &BTreeMap::new()) };
    try_run(agents, graph, plan, &options).await.unwrap()
}

async fn try_run(
    agents: &Agents,
    graph: &Graph,
    plan: &Plan,
    options: &DeployOptions,
) -> Result<(Record, Vec<f64>), RunError> {
    let in_flight = options.in_flight;
    let deployment = deploy(graph, plan, &agents.cluster, options).unwrap();
    let fleet = Fleet::connect(&agents.cluster).await.unwrap();
    let players: Vec<_> = deployment.setups.iter().map(|s| fleet.agent(&s.server).unwrap().unwrap().clone()).collect();
    let all = inputs(graph);
    let inputs: Vec<TensorData> = deployment.terminals.inputs.iter().map(|id| all[id].clone()).collect();
    let how =
        ExecuteOptions { repeat: 12, in_flight, expected: Micros(1000.0), progress: &|_| {}, stop: Stop::never() };
    let record = execute(&deployment, &players, &inputs, &BTreeMap::new(), &how).await?;
    let [Output::Sink(index)] = deployment.terminals.outputs[..] else { panic!("one output at the sink") };
    let found = record.sink_values[index as usize].to_f64s().unwrap();
    Ok((record, found))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_the_plans_limit_by_an_exchanged_tensor_ends_pilot_runs_alone() {
    let graph = import("model", NESTED.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let items = items(&graph, Granularity::Op);
    let groups = groups(&items);
    let want = on_one_device(&graph)[0].to_f64s().unwrap();
    let agents = Agents::start(1, None).await;
    let none = SplitOptions::none(&graph, &groups);
    let planned = request(none, &items, &agents, Bytes(1 << 30), Objective::Latency, 200);
    let mut plan = written(&solve(&planned, None).unwrap());
    let (record, _) = run(&agents, &graph, &plan, 1, "within").await;
    let peak = record.measured.values().flatten().flat_map(|run| &run.memory).map(|memory| memory.peak).max().unwrap();
    let device = &mut plan.devices[0];
    device.memory_limit_bytes = Some(peak - Bytes(1));
    // A prediction at which the agent admits the plan.
    device.memory.load_bytes = device.memory.parameter_bytes;
    for enforced in [EnforcedLimit::Plan, EnforcedLimit::PlanWithTransfers] {
        let options = DeployOptions { enforced, ..DeployOptions::new(1, &BTreeMap::new()) };
        match (try_run(&agents, &graph, &plan, &options).await, enforced) {
            (Err(error), EnforcedLimit::Plan) => {
                let (_, message, shortfall) = error.memory().expect("it is of memory");
                assert!(message.contains("used"), "{message}");
                assert_eq!(shortfall.map(|shortfall| shortfall.bytes), Some(Bytes(1)));
            }
            (found, EnforcedLimit::PlanWithTransfers) => assert_eq!(found.unwrap().1, want),
            (Ok(_), EnforcedLimit::Plan) => panic!("it took more than the limit"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_for_a_device_is_computed_in_parts_within_its_limit() {
    let graph = import("model", WIDE.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let items = items(&graph, Granularity::Fused);
    let groups = groups(&items);
    let (want, limit) = (on_one_device(&graph)[0].to_f64s().unwrap(), Bytes(3 << 20));
    for servers in [1, 2] {
        let agents = Agents::start(servers, Some(limit)).await;
        let request = request(SplitOptions::none(&graph, &groups), &items, &agents, limit, Objective::Latency, 200);
        assert!(matches!(solve(&request, None), Err(NoPlan::Targets { .. })), "as a whole it is too much");
        let found = with_schedules(&request).expect("in parts it is not");
        // With other times it is the same plan.
        let latency = |answer: &Candidate| answer.solution.evaluation.latency();
        for factor in [2.0, 0.4] {
            let wanted = Micros(factor * latency(&found).0);
            let other = found.retimed(&BTreeMap::new(), wanted, |evaluation| evaluation.latency()).unwrap();
            assert!((latency(&other).0 / wanted.0 - 1.0).abs() < 1e-6, "{} of {wanted}", latency(&other));
            assert!(other.solution.gap() >= found.solution.gap() - 1e-9, "a faster machine proves nothing");
            assert_eq!(other.solution.evaluation.placement, found.solution.evaluation.placement);
        }
        let mut plan = written(&found);
        plan.schedules.clone_from(&found.schedules);
        check::plan(&found.expanded.problem, &plan).unwrap();
        assert!(found.schedules.iter().any(|schedule| !schedule.segments.is_empty()), "{:?}", found.schedules);
        let plan = Plan::from_json(plan.to_json().unwrap().as_bytes()).unwrap();
        // The graph follows from the model and the plan file.
        let parts = planned_graph(&graph, &plan).unwrap();
        assert_eq!(parts, found.expanded.graph);
        let (record, found) = run(&agents, &parts, &plan, 1, &format!("fitted-{servers}")).await;
        assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs())));
        for measured in record.measured.values().flatten() {
            assert!(measured.memory.iter().all(|memory| memory.peak <= limit), "{:?}", measured.memory);
        }
        let mut other = plan.schedules.clone();
        other[0].steps.pop();
        assert!(apply_schedules(&graph, &other).is_err(), "a schedule that leaves something out is none");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_a_plan_with_schedules_are_of_its_graph() {
    let graph = import("model", WIDE.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let items = items(&graph, Granularity::Fused);
    let groups = groups(&items);
    let agents = Agents::start(2, None).await;
    let mut shards = 0;
    for limit in [Bytes(2 << 20), Bytes(3 << 20), Bytes(4 << 20)] {
        let request = request(SplitOptions::of(&graph, &groups), &items, &agents, limit, Objective::Latency, 200);
        let Some(found) = with_schedules(&request) else { continue };
        let expanded = &found.expanded;
        for (id, shard) in &expanded.shards {
            assert_eq!(shard.operators, expanded.problem.group(*id).operators);
            assert!(shard.copies.iter().all(|id| shard.operators.contains(id)));
            // They slice and join in this graph, too.
            let is_copy = |id: &OperatorId| {
                ["strided_slice", "concatenate"].contains(&expanded.graph.operator(*id).name.as_str())
            };
            assert!(shard.copies.iter().all(is_copy), "{shard:?}");
            shards += 1;
        }
    }
    assert!(shards > 0, "no plan splits anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_under_way_are_counted_where_a_stream_is_planned() {
    let graph = chain(6, 1 << 16);
    let items = items(&graph, Granularity::Op);
    let groups = groups(&items);
    let want = on_one_device(&graph)[0].to_f64s().unwrap();
    let mut counts = Vec::new();
    for (number, limit) in [Bytes(64 << 20), Bytes(5 << 20), Bytes(5 << 19)].into_iter().enumerate() {
        let agents = Agents::start(2, Some(limit)).await;
        let request = request(SplitOptions::none(&graph, &groups), &items, &agents, limit, Objective::Throughput, 300);
        let answer = solve(&request, None).unwrap();
        let plan = written(&answer);
        check::plan(&answer.expanded.problem, &plan).unwrap();
        let count = plan.in_flight.expect("it is planned for a stream");
        assert!(plan.devices.iter().all(|d| d.memory.parameter_bytes + d.memory.arena_bytes <= limit));
        let (record, found) = run(&agents, &graph, &plan, count, &format!("stream-{number}")).await;
        assert_eq!(found, want);
        for measured in record.measured.values().flatten() {
            assert!(measured.memory.iter().all(|memory| memory.peak <= limit), "{:?}", measured.memory);
        }
        counts.push(count);
    }
    assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]) && counts[0] > counts[2], "{counts:?}");
}
