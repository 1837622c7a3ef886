//! The discrete-event simulation of a task graph, by which all plans are compared.
//!
//! A device runs its tasks one at a time in plan order; a directed link carries one transfer at a time, first come first
//! served; devices and links overlap freely. Inputs start on the source, results must arrive at the sink. A transfer is
//! requested when its tensor is produced. Between servers it takes time of a device that computes meanwhile: the task that
//! runs on the sender when it begins, or on the receiver when it ends, ends later by the device's [`Handling`]. Of transfers
//! requested at the same instant the one of the lower tensor goes first, then the one to the lower device.

use std::collections::BinaryHeap;

use super::{
    Problem,
    problem::{DeviceId, Handling, HandlingCost},
    task_graph::{Replica, ReplicaId, ReplicaOrigin, TaskGraph, TaskId},
    timed_event::TimedEvent,
};
use edgecut_graph::units::{Bytes, Micros};

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

/// Events; those of one instant happen in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finish(TaskId),
    Arrive(ReplicaId),
    /// A link takes its next transfer.
    Serve(u32),
}

/// The state of the simulation.
struct Simulation<'a> {
    problem: &'a Problem,
    graph: &'a TaskGraph,
    timeline: Timeline,
    events: BinaryHeap<TimedEvent<Event>>,
    /// By task: inputs that have not arrived.
    missing: Vec<u32>,
    /// By device: the position of the next task in its sequence.
    next: Vec<usize>,
    busy: Vec<bool>,
    /// By device: what transfers have taken of the task that is running, which it still has to make up for.
    owed: Vec<f64>,
    /// By link: waiting transfers, by time of request, tensor, receiver.
    queues: Vec<BinaryHeap<TimedEvent<(u32, u32, ReplicaId)>>>,
    link_busy: Vec<bool>,
}

/// Runs `graph` once.
///
/// A graph made by [`TaskGraph::new`] always runs to completion, because its sequences follow one topological order.
pub fn simulate(problem: &Problem, graph: &TaskGraph) -> Timeline {
    let never = Micros(f64::INFINITY);
    let mut sim = Simulation {
        problem,
        graph,
        timeline: Timeline {
            starts: vec![never; graph.tasks.len()],
            finishes: vec![never; graph.tasks.len()],
            births: vec![never; graph.replicas.len()],
            arrivals: vec![never; graph.replicas.len()],
            makespan: Micros::ZERO,
        },
        events: BinaryHeap::new(),
        missing: graph.tasks.iter().map(|task| task.inputs.len() as u32).collect(),
        next: vec![0; problem.devices.len()],
        busy: vec![false; problem.devices.len()],
        owed: vec![0.0; problem.devices.len()],
        queues: vec![BinaryHeap::new(); problem.links.len()],
        link_busy: vec![false; problem.links.len()],
    };
    let inputs = (0u32..).map(ReplicaId).zip(&graph.replicas).filter(|(_, r)| r.origin == ReplicaOrigin::Input);
    for (replica, _) in inputs {
        sim.timeline.births[replica.0 as usize] = Micros::ZERO;
        sim.events.push(TimedEvent(0.0, Event::Arrive(replica)));
    }
    for device in 0..problem.devices.len() {
        sim.start_next(device, 0.0);
    }
    while let Some(TimedEvent(now, event)) = sim.events.pop() {
        sim.timeline.makespan = Micros(now);
        match event {
            Event::Finish(task) => sim.finish(task, now),
            Event::Arrive(replica) => {
                if let ReplicaOrigin::Transfer { link: Some(link), from } = graph.replica(replica).origin {
                    let Replica { device, tensor, .. } = graph.replica(replica);
                    let bytes = problem.link(link).carried_bytes(problem.tensor(*tensor));
                    sim.owe([*device, graph.replica(from).device], bytes, |handling| handling.receiving);
                    sim.link_busy[link.0 as usize] = false;
                    sim.events.push(TimedEvent(now, Event::Serve(link.0)));
                }
                sim.arrive(replica, now);
            }
            Event::Serve(link) => sim.serve(link as usize, now),
        }
    }
    sim.timeline
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

/// The end of a task from `start` to `end` that takes `owed` longer. It is the rounded sum of the start and a time, so that a
/// plan, which states those two, implies this very instant: of `end + owed` that may not be so.
pub(crate) fn prolonged(start: f64, end: f64, owed: f64) -> f64 {
    start + ((end - start) + owed)
}

impl Loads {
    /// The largest load: the initiation interval, the time between results when inputs are pipelined.
    pub fn interval(&self) -> Micros {
        self.devices.iter().chain(&self.links).fold(Micros::ZERO, |a, b| a.max(*b))
    }
}

impl Simulation<'_> {
    /// Starts the next task of an idle device if its inputs have arrived.
    fn start_next(&mut self, device: usize, now: f64) {
        let Some(&id) = self.graph.sequences[device].get(self.next[device]) else { return };
        if self.busy[device] || self.missing[id.0 as usize] > 0 {
            return;
        }
        self.busy[device] = true;
        self.next[device] += 1;
        let graph = self.graph;
        let task = graph.task(id);
        let finish = now + task.cost.time.0;
        self.timeline.starts[id.0 as usize] = Micros(now);
        self.timeline.finishes[id.0 as usize] = Micros(finish);
        for output in &task.outputs {
            self.timeline.births[output.0 as usize] = Micros(now);
        }
        self.events.push(TimedEvent(finish, Event::Finish(id)));
    }

    fn finish(&mut self, id: TaskId, now: f64) {
        let graph = self.graph;
        let task = graph.task(id);
        let owed = std::mem::take(&mut self.owed[task.device.0 as usize]);
        if owed > 0.0 {
            let later = prolonged(self.timeline.starts[id.0 as usize].0, now, owed);
            self.timeline.finishes[id.0 as usize] = Micros(later);
            self.events.push(TimedEvent(later, Event::Finish(id)));
            return;
        }
        self.busy[task.device.0 as usize] = false;
        for &output in &task.outputs {
            self.arrive(output, now);
        }
        self.start_next(task.device.0 as usize, now);
    }

    fn arrive(&mut self, id: ReplicaId, now: f64) {
        self.timeline.arrivals[id.0 as usize] = Micros(now);
        let graph = self.graph;
        let replica = graph.replica(id);
        for reader in &replica.readers {
            self.missing[reader.0 as usize] -= 1;
        }
        for &copy in &replica.copies {
            let target = graph.replica(copy);
            match target.origin {
                ReplicaOrigin::Transfer { link: Some(link), .. } => {
                    self.queues[link.0 as usize].push(TimedEvent(now, (target.tensor.0, target.device.0, copy)));
                    if !self.link_busy[link.0 as usize] {
                        self.events.push(TimedEvent(now, Event::Serve(link.0)));
                    }
                }
                _ => {
                    self.timeline.births[copy.0 as usize] = Micros(now);
                    self.events.push(TimedEvent(now, Event::Arrive(copy)));
                }
            }
        }
        self.start_next(replica.device.0 as usize, now);
    }

    /// A transfer of `bytes` between a device and another one takes time of the first, if that computes.
    fn owe(&mut self, [device, other]: [DeviceId; 2], bytes: Bytes, end: impl Fn(Handling) -> HandlingCost) {
        if self.busy[device.0 as usize] {
            self.owed[device.0 as usize] += end(self.problem.handling(device, other)).time(bytes).0;
        }
    }

    /// Starts the next transfer of an idle link.
    fn serve(&mut self, link: usize, now: f64) {
        if self.link_busy[link] {
            return;
        }
        let Some(TimedEvent(_, (.., replica))) = self.queues[link].pop() else { return };
        self.link_busy[link] = true;
        let (graph, problem) = (self.graph, self.problem);
        let (sent, carrier) = (problem.tensor(graph.replica(replica).tensor), &problem.links[link]);
        if let ReplicaOrigin::Transfer { from, .. } = graph.replica(replica).origin {
            let ends = [graph.replica(from).device, graph.replica(replica).device];
            self.owe(ends, carrier.carried_bytes(sent), |handling| handling.sending);
        }
        let end = now + carrier.time(sent).0;
        self.timeline.births[replica.0 as usize] = Micros(now);
        self.events.push(TimedEvent(end, Event::Arrive(replica)));
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
