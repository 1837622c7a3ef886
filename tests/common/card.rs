//! A server with a processor and a graphics card behind a link of its own, and the plan for both.

use edgecut::{
    graph::{Granularity, Graph, OperatorId},
    plan::{
        DeviceId, Plan,
        assemble::Network,
        check,
        file::ModelRef,
        problem::{Cost, Device, Link, LinkId, Objective, Targets},
        search::Options,
        split::{Answer, Proportional, Task, Ways, divided, plan},
    },
    profile::items,
    units::{Bytes, Micros},
};

/// A card beside a processor: what it has of memory, and the link to it.
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
    pub fn planned(&self, graph: &Graph, costs: Vec<Vec<Option<Cost>>>, budget: u64) -> (Answer, Plan) {
        let device = |name: &str, memory| Device { server: "box".into(), name: name.into(), address: None, memory };
        let way = |name: &str| Link { name: name.into(), latency: self.latency, per_byte: self.per_byte };
        let items = items(graph, Granularity::Op);
        let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
        let task = Task {
            ways: Ways::of(graph, &groups),
            names: items.iter().map(|item| item.name.clone()).collect(),
            costs,
            network: Network {
                devices: vec![device("cpu", None), device("gpu0", self.memory)],
                links: vec![way("there"), way("back")],
                routes: vec![None, Some(LinkId(0)), Some(LinkId(1)), None],
                source: CPU,
                sink: CPU,
            },
            objective: Objective::Latency,
            targets: Targets::default(),
            shards: &Proportional::default(),
        };
        let options = Options { budget: Some(budget), cut_off: None, ..Options::default() };
        let answer = plan(&task, &options).unwrap();
        let made = in_file(graph, &answer, Granularity::Op);
        (answer, made)
    }
}

/// An answer for `graph` as a plan file has it, checked.
pub fn in_file(graph: &Graph, answer: &Answer, granularity: Granularity) -> Plan {
    let mut made = Plan::new(&answer.expanded.problem, &answer.solution, ModelRef::default(), granularity, 0);
    made.splits = answer.splits.clone();
    check::plan(&answer.expanded.problem, &made).unwrap();
    assert_eq!(divided(graph, &made.splits).unwrap(), answer.expanded.graph);
    made
}
