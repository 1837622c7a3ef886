//! A server with a processor and a GPU behind a link of its own, and the plan for both.

use edgecut::{
    graph::{Granularity, Graph, LinkCost, OperatorId},
    plan::{
        Candidate, DeviceId, Goal, Instance, Plan, PlanRequest,
        assemble::Network,
        check, divided,
        file::ModelRef,
        problem::{Cost, Device, Link, LinkId},
        search::Options,
        split::{SplitOptions, solve},
        transfer_format::Coding,
    },
    profile::items,
    units::{Bytes, Micros},
};

/// A GPU next to a CPU: its memory, and the link to it.
pub struct Card {
    pub memory: Option<Bytes>,
    /// Of a transfer either way: what each takes, and each of its bytes.
    pub latency: Micros,
    pub per_byte: f64,
}

pub const CPU: DeviceId = DeviceId(0);
pub const GPU: DeviceId = DeviceId(1);

impl Card {
    /// The plan of least latency for the operators of `graph`, checked; `costs` are by operator and device. A shard takes its
    /// share of its operator's time.
    pub fn planned(&self, graph: &Graph, costs: Vec<Vec<Option<Cost>>>, budget: u64) -> (Candidate, Plan) {
        let device = |name: &str, memory| Device {
            server: "box".into(),
            name: name.into(),
            address: None,
            memory,
            ..Device::default()
        };
        let way = |name: &str| Link {
            name: name.into(),
            cost: LinkCost::per_byte(self.latency, self.per_byte),
            overhead: Micros::ZERO,
            coding: Coding::default(),
        };
        let items = items(graph, Granularity::Op);
        let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
        let names = items.iter().map(|item| item.name.clone()).collect();
        let network = Network {
            devices: vec![device("cpu", None), device("gpu0", self.memory)],
            links: vec![way("there"), way("back")],
            routes: vec![None, Some(LinkId(0)), Some(LinkId(1)), None],
            source: CPU,
            sink: CPU,
        };
        let search = Options { budget: Some(budget), cut_off: None, ..Options::default() };
        let instance = Instance::new(SplitOptions::of(graph, &groups), names, costs, network);
        let request = PlanRequest::new(instance, Goal { search, ..Goal::default() });
        let answer = solve(&request, None).unwrap();
        let made = in_file(graph, &answer, Granularity::Op);
        (answer, made)
    }
}

/// An answer for `graph` as a plan file has it, checked.
pub fn in_file(graph: &Graph, answer: &Candidate, granularity: Granularity) -> Plan {
    let mut made = Plan::new(&answer.expanded.problem, &answer.solution, ModelRef::default(), granularity, 0);
    made.splits = answer.splits.clone();
    check::plan(&answer.expanded.problem, &made).unwrap();
    assert_eq!(divided(graph, &[], &made.splits).unwrap().graph, answer.expanded.graph);
    made
}
