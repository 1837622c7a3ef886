//! Contiguous stretches of program order with equal loads: what a pipeline wants.
//!
//! For a largest load T it is easy to say how far a set of devices gets, each with one stretch that is as long as
//! T and its memory allow; the least T that reaches the end is found by bisection. With few devices every order of
//! theirs is tried (dynamic programming over sets), with many only the fast ones first.

use super::{Session, Whole};
use crate::plan::{DeviceId, Problem, problem::Objective};

/// Up to this many devices all sets are tried.
const FEW: usize = 10;
const BISECTIONS: usize = 40;

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.objective != Objective::Throughput || problem.groups.is_empty() || session.is_over() {
        return;
    }
    let stretches = Stretches::new(problem);
    let (mut low, mut high) = (session.bound.value, stretches.total());
    for _ in 0..BISECTIONS {
        if session.is_over() {
            break;
        }
        let middle = (low + high) / 2.0;
        match stretches.cover(middle) {
            Some(devices) => {
                high = middle;
                let _impossible_is_skipped = session.offer(&Whole { devices, order: problem.group_ids().collect() });
            }
            None => low = middle,
        }
    }
}

struct Stretches<'a> {
    problem: &'a Problem,
    /// By device: sums of times up to each place; infinite from the first group that it cannot run.
    times: Vec<Vec<f64>>,
    /// Sums of parameter bytes up to each place.
    parameters: Vec<u64>,
    /// By place: the time that the tensors crossing it take on the slowest link.
    crossing: Vec<f64>,
}

impl<'a> Stretches<'a> {
    fn new(problem: &'a Problem) -> Stretches<'a> {
        let sums = |device: DeviceId| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            for group in problem.group_ids() {
                sum += problem.cost(group, device).map_or(f64::INFINITY, |c| c.time.0);
                sums.push(sum);
            }
            sums
        };
        let mut parameters = vec![0u64];
        for group in &problem.groups {
            let own: u64 = group.parameters.iter().map(|p| problem.parameters[p.0 as usize].0).sum();
            parameters.push(parameters.last().copied().unwrap_or(0).saturating_add(own));
        }
        let mut crossing = vec![0.0; problem.groups.len() + 1];
        for (tensor, readers) in problem.tensors.iter().zip(problem.consumers()) {
            let (Some(from), Some(to)) = (tensor.producer, readers.last()) else { continue };
            let slowest = problem.links.iter().map(|link| link.time(tensor.bytes).0).fold(0.0, f64::max);
            crossing[from.0 as usize + 1..=to.0 as usize].iter_mut().for_each(|c| *c += slowest);
        }
        Stretches { problem, times: problem.device_ids().map(sums).collect(), parameters, crossing }
    }

    /// A largest load that is surely enough: everything on the one device that can do it slowest.
    fn total(&self) -> f64 {
        let ends = self.times.iter().filter_map(|sums| sums.last().copied()).filter(|t| t.is_finite());
        ends.fold(0.0, f64::max).max(1.0)
    }

    /// A device for every group such that no stretch is longer than `limit`.
    fn cover(&self, limit: f64) -> Option<Vec<DeviceId>> {
        let devices = self.problem.devices.len();
        let stretches = if devices <= FEW { self.cover_by_sets(limit)? } else { self.cover_in_order(limit)? };
        let mut placed = Vec::with_capacity(self.problem.groups.len());
        for (end, device) in stretches {
            placed.resize(end, device);
        }
        Some(placed)
    }

    fn cover_by_sets(&self, limit: f64) -> Option<Vec<(usize, DeviceId)>> {
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
                let mut stretches = Vec::new();
                let mut left = set;
                while reach[left].0 > 0 {
                    let (to, device) = reach[left];
                    stretches.push((to, DeviceId(device as u32)));
                    left &= !(1 << device);
                }
                stretches.reverse();
                return Some(stretches);
            }
        }
        None
    }

    fn cover_in_order(&self, limit: f64) -> Option<Vec<(usize, DeviceId)>> {
        let mut fast_first: Vec<usize> = (0..self.problem.devices.len()).collect();
        let whole = |d: &usize| self.times[*d].last().copied().unwrap_or(0.0);
        fast_first.sort_by(|a, b| whole(a).total_cmp(&whole(b)).then(a.cmp(b)));
        let (mut at, mut stretches) = (0, Vec::new());
        for device in fast_first {
            let to = self.furthest(at, device, limit);
            if to > at {
                stretches.push((to, DeviceId(device as u32)));
                at = to;
            }
        }
        (at == self.problem.groups.len()).then_some(stretches)
    }

    /// The end of the longest stretch from `start` on `device` that ends where few bytes cross.
    fn furthest(&self, start: usize, device: usize, limit: f64) -> usize {
        let sums = &self.times[device];
        let memory = self.problem.devices[device].memory.map_or(u64::MAX, |m| m.0);
        let fits =
            |to: &usize| sums[*to] - sums[start] <= limit && self.parameters[*to] - self.parameters[start] <= memory;
        let places: Vec<usize> = (start..sums.len()).take_while(fits).collect();
        let cuttable = |to: &&usize| self.crossing[**to] <= limit || **to == self.problem.groups.len();
        places.iter().rev().find(cuttable).copied().unwrap_or(start)
    }
}
