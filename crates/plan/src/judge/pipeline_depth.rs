//! Pipeline depth: the number of inputs in flight that a stream of results needs, and the memory that queued inputs hold.
//!
//! A device alternates between stages of different inputs. Between two stages, where a tensor arrives from another device
//! or is sent to one, an input may be queued with everything it still needs there. The worst case is counted: all inputs
//! but one are queued where that takes the most memory, since chance decides which of several equally loaded devices they
//! queue at. Inputs of a model with states are each of another sequence, which has its own states.

use super::stage_cut::{Exchange, cut};
use super::{
    evaluation::Evaluation,
    memory_usage::ALIGNMENT,
    task_graph::{ReplicaId, ReplicaOrigin, TaskGraph, TaskId},
};
use crate::problem::{Objective, Problem, Targets};
use edgecut_graph::units::Bytes;

/// Inputs in flight for each device that takes part: one that it computes and one that is ready.
pub const INPUTS_PER_DEVICE: u32 = 2;
/// Upper limit on the inputs in flight.
pub const MAX_IN_FLIGHT: u32 = 64;

/// Whether a plan for these goals serves a stream of inputs.
pub fn is_stream(objective: Objective, targets: &Targets) -> bool {
    objective == Objective::Throughput || targets.throughput.is_some()
}

/// The number of inputs in flight that keeps the busiest device or link busy: [`INPUTS_PER_DEVICE`], and at least as many
/// as start between an input and its result.
pub fn desired(evaluation: &Evaluation) -> u32 {
    let used = evaluation.task_graph.sequences.iter().filter(|tasks| !tasks.is_empty()).count() as u32;
    let between = evaluation.latency().0 / evaluation.loads.interval().0.max(f64::MIN_POSITIVE);
    (INPUTS_PER_DEVICE * used.max(1)).max(between.min(f64::from(MAX_IN_FLIGHT)).ceil() as u32 + 1).min(MAX_IN_FLIGHT)
}

/// By device: the most that one queued input holds there, the states of its sequence included.
pub fn waiting_memory(problem: &Problem, evaluation: &Evaluation) -> Vec<Bytes> {
    let graph = &evaluation.task_graph;
    let of_device = |(device, tasks): (usize, &Vec<TaskId>)| {
        let states = problem.states_of(tasks.iter().map(|task| graph.task(*task).group));
        // What is queued holds one content of each: the last one, or the next.
        waiting_on(evaluation, device) + Bytes(states.0 / 2)
    };
    graph.sequences.iter().enumerate().map(of_device).collect()
}

/// By device: the arena for `count` inputs in flight, where one alone takes `single` and holds `waiting` while it is
/// queued.
pub fn reserved_memory(single: &[Bytes], waiting: &[Bytes], count: u32) -> Vec<Bytes> {
    single.iter().zip(waiting).map(|(single, waiting)| *single + queued_memory(*waiting, count)).collect()
}

/// What the queued ones of `count` inputs in flight hold together, each holding `waiting`.
pub fn queued_memory(waiting: Bytes, count: u32) -> Bytes {
    Bytes(waiting.0.next_multiple_of(ALIGNMENT).saturating_mul(u64::from(count.saturating_sub(1))))
}

/// The most that one queued input holds on `device`, over all borders between stages.
fn waiting_on(evaluation: &Evaluation, device: usize) -> Bytes {
    let (graph, timeline) = (&evaluation.task_graph, &evaluation.timeline);
    let sequence = &graph.sequences[device];
    let count = sequence.len();
    let mut position = vec![None; graph.tasks.len()];
    for (index, task) in sequence.iter().enumerate() {
        position[task.0 as usize] = Some(index);
    }
    // Border i is before task i, the last one after all tasks. By replica: the last border at which it is held.
    let mut until: Vec<usize> = vec![0; graph.replicas.len()];
    for (index, replica) in graph.replicas.iter().enumerate().rev() {
        if replica.device.0 as usize != device {
            continue;
        }
        let read = replica.readers.iter().filter_map(|task| position[task.0 as usize]).max().unwrap_or(0);
        let produced = match replica.origin {
            ReplicaOrigin::Task(task) => position[task.0 as usize].map_or(0, |at| at + 1),
            ReplicaOrigin::Input | ReplicaOrigin::Transfer { .. } => 0,
        };
        let sent_at = replica.copies.iter().map(|copy| timeline.arrivals[copy.0 as usize].0).fold(0.0, f64::max);
        let begun = sequence.iter().take_while(|task| timeline.starts[task.0 as usize].0 < sent_at).count();
        let sent = if replica.copies.is_empty() { 0 } else { begun.saturating_sub(1).max(produced) };
        let result = if replica.is_result { count } else { 0 };
        until[index] = until[index].max(read).max(sent).max(result);
        // A view follows what it views, so one backward pass propagates chains of views to their roots.
        if let Some(ReplicaId(root)) = replica.view_of {
            until[root as usize] = until[root as usize].max(until[index]);
        }
    }
    let mut change = vec![0i128; count + 2];
    for (replica, until) in graph.replicas.iter().zip(until) {
        let from = match replica.origin {
            ReplicaOrigin::Task(task) => position[task.0 as usize].map(|at| at + 1),
            ReplicaOrigin::Input | ReplicaOrigin::Transfer { .. } => Some(0),
        };
        let Some(from) =
            from.filter(|from| replica.device.0 as usize == device && replica.view_of.is_none() && *from <= until)
        else {
            continue;
        };
        change[from] += i128::from(replica.bytes.0);
        change[until + 1] -= i128::from(replica.bytes.0);
    }
    // An input waits between stages, before the first one and after the last one.
    let mut is_border = vec![false; count + 1];
    (is_border[0], is_border[count]) = (true, true);
    cut(exchanges(graph, device)).iter().for_each(|stage| is_border[stage.start] = true);
    let (mut held, mut most) = (0i128, 0i128);
    for (change, is_border) in change.iter().zip(is_border) {
        held += change;
        if is_border {
            most = most.max(held);
        }
    }
    Bytes(u64::try_from(most).unwrap_or(0))
}

/// What the groups of a device exchange with other devices, in its order.
pub(crate) fn exchanges(graph: &TaskGraph, device: usize) -> Vec<Exchange> {
    let exchange = |id: &TaskId| {
        let task = graph.task(*id);
        let is_new = |replica: &ReplicaId| {
            let replica = graph.replica(*replica);
            matches!(replica.origin, ReplicaOrigin::Transfer { .. }) && replica.readers.first() == Some(id)
        };
        let is_sent = |replica: &ReplicaId| !graph.replica(*replica).copies.is_empty();
        Exchange { receives: task.inputs.iter().any(is_new), sends: task.outputs.iter().any(is_sent) }
    };
    graph.sequences[device].iter().map(exchange).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_problems::{hand_made, placement};

    #[test]
    fn queued_inputs_hold_aligned_memory() {
        for (waiting, count, want) in [(100, 0, 0), (100, 1, 0), (100, 2, 128), (128, 4, 384), (0, 9, 0)] {
            assert_eq!(queued_memory(Bytes(waiting), count), Bytes(want), "{waiting} bytes, {count} in flight");
        }
        let single = [Bytes(1000), Bytes(10)];
        assert_eq!(reserved_memory(&single, &[Bytes(64), Bytes(0)], 3), [Bytes(1128), Bytes(10)]);
    }

    #[test]
    fn two_inputs_per_device_or_as_many_as_overlap() {
        let problem = hand_made(&[(&[0], 5.0), (&[1], 7.0)]);
        // One device: latency 12, interval 12. Two: latency 52, interval 20, so 3 start before a result, plus one.
        for (devices, want) in [([0, 0], 2), ([0, 1], 4)] {
            let evaluation = Evaluation::of(&problem, placement(&devices)).unwrap();
            assert_eq!(desired(&evaluation), want, "{devices:?}");
        }
    }
}
