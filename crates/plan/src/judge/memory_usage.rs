//! Memory of every device over one simulated run: parameters, live tensors and workspaces.
//!
//! A tensor is live on a device from its producer's start, or the start of its transfer to the device, to the end of its
//! last local use or departure. Views share the storage of what they view. Inputs are live from the start, results on the
//! sink to the end. Lifetimes are half open: an allocation that ends at an instant does not overlap one that begins then.

use super::{
    simulate::Timeline,
    task_graph::{ReplicaId, ReplicaOrigin, TaskGraph},
};
use crate::problem::{DeviceId, Problem};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory as memory;
use edgecut_memory::{ArenaError, Buffer, Packing};

/// The memory of one device over one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryUsage {
    /// Parameters, each once, and what the engine holds in addition to them.
    pub parameters: Bytes,
    /// Peak of the sum of parameters, live tensors and workspace.
    pub load: Bytes,
    /// The first instant of the peak.
    pub peak_at: Micros,
    /// The largest workspace of any task.
    pub workspace: Bytes,
    /// Tensors and workspaces with their lifetimes.
    pub allocations: Vec<Allocation>,
}

/// Memory that is in use from `from` until `to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allocation {
    pub from: Micros,
    pub to: Micros,
    pub bytes: Bytes,
}

/// Alignment of offsets in an arena: that of vector units, which engines request from their allocators.
pub const ALIGNMENT: u64 = 64;

/// The memory usage of every device, in the problem's order.
pub fn memory_usage(problem: &Problem, graph: &TaskGraph, timeline: &Timeline) -> Vec<MemoryUsage> {
    let mut devices: Vec<MemoryUsage> = problem.device_ids().map(|d| parameters(problem, graph, d)).collect();
    let ends = last_uses(graph, timeline);
    for ((replica, from), to) in graph.replicas.iter().zip(&timeline.births).zip(&ends) {
        if replica.view_of.is_none() {
            let allocation = Allocation { from: *from, to: *to, bytes: replica.bytes };
            devices[replica.device.0 as usize].allocations.push(allocation);
        }
    }
    for (task, (from, to)) in graph.tasks.iter().zip(timeline.starts.iter().zip(&timeline.finishes)) {
        let usage = &mut devices[task.device.0 as usize];
        usage.workspace = usage.workspace.max(task.cost.workspace);
        usage.allocations.push(Allocation { from: *from, to: *to, bytes: task.cost.workspace });
    }
    for usage in &mut devices {
        usage.allocations.retain(|a| a.bytes > Bytes::ZERO && a.from < a.to);
        (usage.load, usage.peak_at) = peak(&usage.allocations);
        usage.load += usage.parameters;
    }
    devices
}

impl MemoryUsage {
    /// Packs tensors and workspaces into one arena. The device must have the arena's height plus the parameters.
    ///
    /// # Errors
    /// If the sizes together do not fit in 63 bits.
    pub fn pack(&self) -> Result<Packing, ArenaError> {
        let mut instants: Vec<f64> = self.allocations.iter().flat_map(|a| [a.from.0, a.to.0]).collect();
        instants.sort_by(f64::total_cmp);
        instants.dedup();
        let step = |time: Micros| instants.partition_point(|t| *t < time.0) as u64;
        let buffer = |a: &Allocation| Buffer::new(step(a.from), step(a.to), a.bytes).align(ALIGNMENT);
        let buffers: Vec<Buffer> = self.allocations.iter().map(buffer).collect();
        memory::pack(&buffers, &memory::PackOptions::default())
    }
}

/// The parameters of a device; nothing else is counted yet.
fn parameters(problem: &Problem, graph: &TaskGraph, device: DeviceId) -> MemoryUsage {
    let mut counted = vec![false; problem.parameters.len()];
    let mut usage = MemoryUsage::default();
    for task in graph.sequences[device.0 as usize].iter().map(|id| graph.task(*id)) {
        usage.parameters += task.cost.held;
        for parameter in &problem.group(task.group).parameters {
            if !std::mem::replace(&mut counted[parameter.0 as usize], true) {
                usage.parameters += problem.parameters[parameter.0 as usize];
            }
        }
    }
    usage
}

/// By replica: when its storage is free again; uses of a view count for what it views.
fn last_uses(graph: &TaskGraph, timeline: &Timeline) -> Vec<Micros> {
    let mut ends: Vec<Micros> = Vec::with_capacity(graph.replicas.len());
    for replica in &graph.replicas {
        let produced = match replica.origin {
            ReplicaOrigin::Task(task) => timeline.finishes[task.0 as usize],
            ReplicaOrigin::Input | ReplicaOrigin::Transfer { .. } => Micros::ZERO,
        };
        let read = replica.readers.iter().map(|task| timeline.finishes[task.0 as usize]);
        let sent = replica.copies.iter().map(|copy| timeline.arrivals[copy.0 as usize]);
        let last = read.chain(sent).fold(produced, Micros::max);
        ends.push(if replica.is_result { Micros(f64::INFINITY) } else { last });
    }
    // A view follows what it views, so one backward pass propagates chains of views to their roots.
    for (index, replica) in graph.replicas.iter().enumerate().rev() {
        if let Some(ReplicaId(root)) = replica.view_of {
            ends[root as usize] = ends[root as usize].max(ends[index]);
        }
    }
    ends
}

/// The largest sum of allocations at one instant, and the first such instant.
fn peak(allocations: &[Allocation]) -> (Bytes, Micros) {
    let mut events: Vec<(f64, bool, u64)> = Vec::with_capacity(allocations.len() * 2);
    for allocation in allocations {
        events.push((allocation.from.0, true, allocation.bytes.0));
        events.push((allocation.to.0, false, allocation.bytes.0));
    }
    events.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut top, mut at) = (0u64, 0u64, 0.0);
    for (time, begins, bytes) in events {
        now = if begins { now.saturating_add(bytes) } else { now.saturating_sub(bytes) };
        if now > top {
            (top, at) = (now, time);
        }
    }
    (Bytes(top), Micros(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::simulate::simulate,
        problem::{ParameterId, TensorIndex},
        test_problems::{hand_made, placement},
    };

    fn usage(problem: &Problem, devices: &[u32]) -> Vec<MemoryUsage> {
        let graph = TaskGraph::new(problem, &placement(devices)).unwrap();
        memory_usage(problem, &graph, &simulate(problem, &graph))
    }

    #[test]
    fn loads_count_what_is_live_together() {
        let chain = hand_made(&[(&[0], 5.0), (&[1], 7.0), (&[2], 1.0)]);
        let mut with_workspace = chain.clone();
        with_workspace.groups[1].costs[0].as_mut().unwrap().workspace = Bytes(50);
        let mut with_view = chain.clone();
        with_view.tensors[2].view_of = Some(TensorIndex(1));
        for (what, problem, devices, loads, peak_at) in [
            // Operand and output of each group.
            ("one device", &chain, [0, 0, 0], [200, 0], 0.0),
            ("workspace", &with_workspace, [0, 0, 0], [250, 0], 5.0),
            ("view", &with_view, [0, 0, 0], [200, 0], 0.0),
            // A replica is live from the start of its transfer, and the sender keeps its own until the end.
            ("two devices", &chain, [0, 1, 0], [200, 200], 0.0),
        ] {
            let usage = usage(problem, &devices);
            assert_eq!(usage.iter().map(|u| u.load.0).collect::<Vec<_>>(), loads, "{what}");
            assert_eq!(usage[0].peak_at, Micros(peak_at), "{what}");
            for device in &usage {
                assert!(device.pack().unwrap().height + device.parameters >= device.load, "{what}");
            }
        }
    }

    #[test]
    fn shared_parameters_count_once_per_device() {
        let mut problem = hand_made(&[(&[0], 5.0), (&[1], 7.0)]);
        problem.parameters = vec![Bytes(1000), Bytes(30)];
        problem.groups[0].parameters = vec![ParameterId(0)];
        problem.groups[1].parameters = vec![ParameterId(0), ParameterId(1)];
        problem.groups[1].costs[0].as_mut().unwrap().held = Bytes(7);
        for (devices, parameters) in [([0, 0], [1037, 0]), ([0, 1], [1000, 1030]), ([1, 0], [1037, 1000])] {
            let usage = usage(&problem, &devices);
            assert_eq!(usage.iter().map(|u| u.parameters.0).collect::<Vec<_>>(), parameters, "{devices:?}");
        }
    }
}
