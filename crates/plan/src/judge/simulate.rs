//! The simulated run of a task graph: its timeline, and the loads of devices and links.

use super::{
    event_loop::{EventLoop, TaskTables},
    task_graph::{ReplicaId, ReplicaOrigin, TaskGraph, TaskId},
};
use crate::problem::{DeviceId, LinkId, Problem, TensorIndex};
use edgecut_graph::units::Micros;

/// The times of one run of a task graph on an otherwise idle cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// By task.
    pub starts: Vec<Micros>,
    pub finishes: Vec<Micros>,
    /// By replica: when its transfer begins to occupy the link, or when its producer starts.
    pub births: Vec<Micros>,
    /// By replica: when it can be read.
    pub arrivals: Vec<Micros>,
    /// When the last event happens.
    pub makespan: Micros,
}

/// The busy times per result, which limit the throughput.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loads {
    pub devices: Vec<Micros>,
    pub links: Vec<Micros>,
}

/// A task graph, and the times of its run.
struct Run<'a> {
    problem: &'a Problem,
    graph: &'a TaskGraph,
    timeline: Timeline,
}

/// Runs `graph` once.
///
/// A graph made by [`TaskGraph::new`] always runs to completion, because its sequences follow one topological order.
pub fn simulate(problem: &Problem, graph: &TaskGraph) -> Timeline {
    let never = Micros(f64::INFINITY);
    let timeline = Timeline {
        starts: vec![never; graph.tasks.len()],
        finishes: vec![never; graph.tasks.len()],
        births: vec![never; graph.replicas.len()],
        arrivals: vec![never; graph.replicas.len()],
        makespan: Micros::ZERO,
    };
    let mut run = Run { problem, graph, timeline };
    let mut events = EventLoop::new(problem.devices.len(), problem.links.len());
    events.missing.extend(graph.tasks.iter().map(|task| task.inputs.len() as u32));
    let inputs = (0u32..).map(ReplicaId).zip(&graph.replicas).filter(|(_, r)| r.origin == ReplicaOrigin::Input);
    events.start(&mut run, inputs.map(|(replica, _)| replica));
    run.timeline.makespan = Micros(events.run(&mut run, f64::INFINITY).unwrap_or(f64::INFINITY));
    run.timeline
}

/// The load of every device and link: how long it is busy for one result.
pub fn loads(problem: &Problem, graph: &TaskGraph) -> Loads {
    let mut loads =
        Loads { devices: vec![Micros::ZERO; problem.devices.len()], links: vec![Micros::ZERO; problem.links.len()] };
    for task in &graph.tasks {
        loads.devices[task.device.0 as usize] += task.cost.time;
    }
    for replica in &graph.replicas {
        if let ReplicaOrigin::Transfer { link: Some(link), from } = replica.origin {
            let (sent, carrier) = (problem.tensor(replica.tensor), problem.link(link));
            let bytes = carrier.carried_bytes(sent);
            loads.links[link.0 as usize] += carrier.time(sent);
            let (sender, receiver) = (graph.replica(from).device, replica.device);
            loads.devices[sender.0 as usize] += problem.handling(sender, receiver).sending.time(bytes);
            loads.devices[receiver.0 as usize] += problem.handling(receiver, sender).receiving.time(bytes);
        }
    }
    loads
}

impl Loads {
    /// The largest load: the initiation interval, the time between results when inputs are pipelined.
    pub fn interval(&self) -> Micros {
        self.devices.iter().chain(&self.links).fold(Micros::ZERO, |a, b| a.max(*b))
    }
}

impl TaskTables for Run<'_> {
    type Task = TaskId;
    type Replica = ReplicaId;

    fn problem(&self) -> &Problem {
        self.problem
    }

    fn sequence(&self, device: DeviceId) -> &[TaskId] {
        &self.graph.sequences[device.0 as usize]
    }

    fn task(&self, task: TaskId) -> (DeviceId, f64) {
        let task = self.graph.task(task);
        (task.device, task.cost.time.0)
    }

    fn outputs(&self, task: TaskId) -> impl Iterator<Item = ReplicaId> {
        self.graph.task(task).outputs.iter().copied()
    }

    fn replica(&self, replica: ReplicaId) -> (TensorIndex, [DeviceId; 2]) {
        let replica = self.graph.replica(replica);
        let sender = match replica.origin {
            ReplicaOrigin::Transfer { from, .. } => self.graph.replica(from).device,
            _ => replica.device,
        };
        (replica.tensor, [replica.device, sender])
    }

    fn readers(&self, replica: ReplicaId) -> impl Iterator<Item = TaskId> {
        self.graph.replica(replica).readers.iter().copied()
    }

    fn copies(&self, replica: ReplicaId) -> impl Iterator<Item = (ReplicaId, DeviceId, Option<LinkId>)> {
        let copies = self.graph.replica(replica).copies.iter().map(|copy| (*copy, self.graph.replica(*copy)));
        copies.map(|(id, copy)| (id, copy.device, copy.origin.link()))
    }

    fn record_task(&mut self, task: TaskId, start: f64, finish: f64) {
        self.timeline.starts[task.0 as usize] = Micros(start);
        self.timeline.finishes[task.0 as usize] = Micros(finish);
        for output in &self.graph.task(task).outputs {
            self.timeline.births[output.0 as usize] = Micros(start);
            self.timeline.arrivals[output.0 as usize] = Micros(finish);
        }
    }

    fn record_departure(&mut self, replica: ReplicaId, now: f64) {
        self.timeline.births[replica.0 as usize] = Micros(now);
    }

    fn record_arrival(&mut self, replica: ReplicaId, now: f64) -> Option<LinkId> {
        let link = self.graph.replica(replica).origin.link();
        if link.is_none() {
            self.timeline.births[replica.0 as usize] = Micros(now);
        }
        self.timeline.arrivals[replica.0 as usize] = Micros(now);
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_problems::{hand_made, handling, placement};

    /// Starts by task, makespan and interval; a transfer takes 20 us.
    #[test]
    fn devices_and_links_run_one_thing_at_a_time() {
        let chain: &[(&[u32], f64)] = &[(&[0], 5.0), (&[1], 7.0)];
        let join: &[(&[u32], f64)] = &[(&[0], 5.0), (&[0], 7.0), (&[1, 2], 3.0)];
        for (groups, devices, starts, makespan, interval) in [
            (chain, &[0, 0][..], &[0.0, 5.0][..], 12.0, 12.0),
            // The operand and the result cross a link.
            (chain, &[0, 1], &[0.0, 25.0], 52.0, 20.0),
            // The input is sent once.
            (chain, &[1, 1], &[20.0, 25.0], 52.0, 20.0),
            // The second operand waits for the link until 25.
            (join, &[0, 0, 1], &[0.0, 5.0, 45.0], 68.0, 40.0),
            // Both devices work at the same time.
            (join, &[0, 1, 0], &[0.0, 20.0, 47.0], 50.0, 20.0),
        ] {
            let problem = hand_made(groups);
            let graph = TaskGraph::new(&problem, &placement(devices)).unwrap();
            let timeline = simulate(&problem, &graph);
            assert_eq!(timeline.starts, starts.iter().copied().map(Micros).collect::<Vec<_>>(), "{devices:?}");
            assert_eq!((timeline.makespan, loads(&problem, &graph).interval()), (Micros(makespan), Micros(interval)));
        }
    }

    /// Sending takes 2 us of a device that computes, receiving 1; loads have all of it.
    #[test]
    fn transfers_take_time_of_devices_that_compute() {
        let apart: &[(&[u32], f64)] = &[(&[0], 5.0), (&[0], 60.0), (&[1], 7.0)];
        for (devices, finishes, loads_of) in [
            // Group 1 runs while a tensor leaves and a result comes back; the other device waits for both of its ends.
            (&[0, 0, 1][..], &[5.0, 68.0, 32.0][..], [68.0, 10.0]),
            // The same with the input.
            (&[1, 0, 1], &[25.0, 63.0, 32.0], [63.0, 15.0]),
        ] {
            let mut problem = hand_made(apart);
            problem.devices.iter_mut().for_each(|device| device.handling = handling(2.0, 0.0));
            let graph = TaskGraph::new(&problem, &placement(devices)).unwrap();
            let timeline = simulate(&problem, &graph);
            let expected: Vec<Micros> = finishes.iter().copied().map(Micros).collect();
            let found = loads(&problem, &graph).devices;
            assert_eq!(
                (timeline.finishes, found.iter().map(|l| l.0).collect::<Vec<_>>()),
                (expected, loads_of.to_vec()),
                "{devices:?}"
            );
        }
    }

    #[test]
    fn of_simultaneous_requests_the_lower_tensor_goes_first() {
        // Two inputs of one group are requested at 0, when both inputs of the model are available.
        let mut problem = hand_made(&[(&[0], 0.0), (&[0], 0.0), (&[1, 2], 1.0)]);
        problem.tensors[1].bytes = edgecut_graph::units::Bytes(1000);
        let graph = TaskGraph::new(&problem, &placement(&[0, 0, 1])).unwrap();
        let timeline = simulate(&problem, &graph);
        let transfer =
            |tensor: u32| graph.replicas.iter().position(|r| r.tensor.0 == tensor && r.device.0 == 1).unwrap();
        assert_eq!(timeline.births[transfer(1)], Micros(0.0));
        assert_eq!(timeline.births[transfer(2)], Micros(110.0));
    }
}
