//! Chains-on-chains partitioning: contiguous segments of program order with balanced loads, for pipelines.
//!
//! For a largest load T, greedy probing finds how far a set of devices gets with one segment each, as long as T and the
//! memory limits allow; bisection finds the smallest T that reaches the end. With few devices all orders of devices are
//! tried by dynamic programming over sets, with many only the one by speed.

use super::session::Session;
use crate::problem::{DeviceId, Objective, Problem, placement::Placement};
use edgecut_graph::units::Bytes;

/// Limit on the devices for the search over all sets of them.
const MAX_DEVICES_FOR_SETS: usize = 10;
const BISECTIONS: usize = 40;

/// Offers the partitions that bisection finds.
pub(super) fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.objective != Objective::Throughput || problem.groups.is_empty() || session.is_over() {
        return;
    }
    let partitioner = Partitioner::new(problem);
    let (mut low, mut high) = (session.bound.value, partitioner.upper_bound());
    for _ in 0..BISECTIONS {
        if session.is_over() {
            break;
        }
        let middle = (low + high) / 2.0;
        match partitioner.partition(middle) {
            Some(devices) => {
                high = middle;
                let order = problem.group_ids().collect();
                let _impossible_is_skipped = session.offer(&Placement { devices, order });
            }
            None => low = middle,
        }
    }
}

struct Partitioner<'a> {
    problem: &'a Problem,
    /// By device: prefix sums of the times; infinite from the first group that it cannot run.
    times: Vec<Vec<f64>>,
    /// Prefix sums of the parameters.
    parameters: Vec<Bytes>,
    /// By position: the time of all tensors that cross it on the slowest link.
    crossing: Vec<f64>,
}

impl<'a> Partitioner<'a> {
    fn new(problem: &'a Problem) -> Partitioner<'a> {
        let sums = |device: DeviceId| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            for group in problem.group_ids() {
                sum += problem.cost(group, device).map_or(f64::INFINITY, |c| c.time.0);
                sums.push(sum);
            }
            sums
        };
        let mut parameters = vec![Bytes::ZERO];
        for group in &problem.groups {
            let own: Bytes = group.parameters.iter().map(|p| problem.parameters[p.0 as usize]).sum();
            parameters.push(parameters.last().copied().unwrap_or_default() + own);
        }
        let mut crossing = vec![0.0; problem.groups.len() + 1];
        for (tensor, readers) in problem.tensors.iter().zip(problem.consumers()) {
            let (Some(from), Some(to)) = (tensor.producer, readers.last()) else { continue };
            let slowest = problem.links.iter().map(|link| link.time(tensor).0).fold(0.0, f64::max);
            crossing[from.0 as usize + 1..=to.0 as usize].iter_mut().for_each(|c| *c += slowest);
        }
        Partitioner { problem, times: problem.device_ids().map(sums).collect(), parameters, crossing }
    }

    /// An upper bound on the largest load: everything on the slowest device that can run it.
    fn upper_bound(&self) -> f64 {
        let ends = self.times.iter().filter_map(|sums| sums.last().copied()).filter(|t| t.is_finite());
        ends.fold(0.0, f64::max).max(1.0)
    }

    /// The device of every group such that no segment has a load above `limit`.
    fn partition(&self, limit: f64) -> Option<Vec<DeviceId>> {
        let devices = self.problem.devices.len();
        let segments = if devices <= MAX_DEVICES_FOR_SETS {
            self.partition_by_sets(limit)?
        } else {
            self.partition_by_speed(limit)?
        };
        let mut placed = Vec::with_capacity(self.problem.groups.len());
        for (end, device) in segments {
            placed.resize(end, device);
        }
        Some(placed)
    }

    fn partition_by_sets(&self, limit: f64) -> Option<Vec<(usize, DeviceId)>> {
        let (devices, end) = (self.problem.devices.len(), self.problem.groups.len());
        // By set: how far it gets, and with which device last.
        let mut reach: Vec<(usize, usize)> = vec![(0, 0); 1 << devices];
        for set in 1usize..1 << devices {
            for device in (0..devices).filter(|d| set >> d & 1 == 1) {
                let to = self.furthest(reach[set & !(1 << device)].0, device, limit);
                if to > reach[set].0 {
                    reach[set] = (to, device);
                }
            }
            if reach[set].0 == end {
                let mut segments = Vec::new();
                let mut left = set;
                while reach[left].0 > 0 {
                    let (to, device) = reach[left];
                    segments.push((to, DeviceId(device as u32)));
                    left &= !(1 << device);
                }
                segments.reverse();
                return Some(segments);
            }
        }
        None
    }

    fn partition_by_speed(&self, limit: f64) -> Option<Vec<(usize, DeviceId)>> {
        let mut by_speed: Vec<usize> = (0..self.problem.devices.len()).collect();
        let whole = |d: &usize| self.times[*d].last().copied().unwrap_or(0.0);
        by_speed.sort_by(|a, b| whole(a).total_cmp(&whole(b)).then(a.cmp(b)));
        let (mut at, mut segments) = (0, Vec::new());
        for device in by_speed {
            let to = self.furthest(at, device, limit);
            if to > at {
                segments.push((to, DeviceId(device as u32)));
                at = to;
            }
        }
        (at == self.problem.groups.len()).then_some(segments)
    }

    /// The end of the longest segment from `start` on `device` that ends where the tensors that cross fit into `limit`.
    fn furthest(&self, start: usize, device: usize, limit: f64) -> usize {
        let sums = &self.times[device];
        let memory = self.problem.devices[device].memory.unwrap_or(Bytes(u64::MAX));
        let fits =
            |to: &usize| sums[*to] - sums[start] <= limit && self.parameters[*to] - self.parameters[start] <= memory;
        let ends: Vec<usize> = (start..sums.len()).take_while(fits).collect();
        let cuttable = |to: &&usize| self.crossing[**to] <= limit || **to == self.problem.groups.len();
        ends.iter().rev().find(cuttable).copied().unwrap_or(start)
    }
}
