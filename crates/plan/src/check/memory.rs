//! Memory: parameters, peak load and arena of every device.

use std::collections::HashSet;

use super::{
    checker::{Arrivals, Checker},
    violation::{Violation, figure},
};
use crate::problem::{GroupId, TensorIndex};
use edgecut_graph::units::Bytes;

impl Checker<'_> {
    /// Parameters, peak load, workspace and arena of every device.
    pub(super) fn memory(&self, arrivals: &Arrivals) -> Result<(), Violation> {
        let mut highest = 0;
        for (device, entry) in self.plan.devices.iter().enumerate() {
            let groups: Vec<usize> = entry.order.iter().map(|g| g.0 as usize).collect();
            let (mut parameters, mut workspace, mut seen) = (0u64, 0u64, HashSet::new());
            for group in &groups {
                let cost = self.problem.groups[*group].costs[device].unwrap_or_default();
                parameters += cost.held.0;
                workspace = workspace.max(cost.workspace.0);
                for p in self.problem.groups[*group].parameters.iter().filter(|p| seen.insert(p.0)) {
                    parameters += self.problem.parameters[p.0 as usize].0;
                }
            }
            let load = parameters + self.peak(device, &groups, arrivals);
            highest = highest.max(load);
            let name = entry.device_name();
            figure(format!("the parameters on {name}"), entry.memory.parameter_bytes.0 as f64, parameters as f64)?;
            figure(format!("the workspace on {name}"), entry.memory.workspace_bytes.0 as f64, workspace as f64)?;
            figure(format!("the peak load of {name}"), entry.memory.load_bytes.0 as f64, load as f64)?;
            // Of a stream, each input that is queued holds the states of its sequence.
            let queued = u64::from(self.plan.in_flight.unwrap_or(1).saturating_sub(1));
            let states = Bytes((entry.memory.state_bytes.0 / 2).saturating_mul(queued));
            if entry.memory.parameter_bytes + entry.memory.arena_bytes < entry.memory.load_bytes + states {
                let (stated, real) = (entry.memory.arena_bytes.0 as f64, (load - parameters + states.0) as f64);
                return Err(Violation::Figure { what: format!("the arena of {name}"), stated, real });
            }
        }
        figure("the largest peak".into(), self.plan.predicted.peak_bytes.0 as f64, highest as f64)
    }

    /// The peak of live tensors and workspaces on a device.
    fn peak(&self, device: usize, groups: &[usize], arrivals: &Arrivals) -> u64 {
        let mut changes: Vec<(f64, i128)> = Vec::new();
        let mut live = |from: f64, to: f64, bytes: Bytes| {
            if from < to {
                changes.push((from, i128::from(bytes.0)));
                changes.push((to, -i128::from(bytes.0)));
            }
        };
        for group in groups {
            let plan = &self.plan.groups[*group];
            let workspace = self.problem.groups[*group].costs[device].unwrap_or_default().workspace;
            live(plan.start_us.0, plan.start_us.0 + plan.time_us.0, workspace);
        }
        for (index, tensor) in self.problem.tensors.iter().enumerate() {
            let home = self.home(index) == device;
            if home && tensor.view_of.is_some() {
                continue;
            }
            let born = match arrivals.get(&(index, device)) {
                Some((start, _)) => *start,
                None if !home => continue,
                None => tensor.producer.map_or(0.0, |p| self.plan.groups[p.0 as usize].start_us.0),
            };
            live(born, self.last_use(index, device, arrivals), tensor.bytes);
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut now, mut top) = (0i128, 0i128);
        for (_, change) in changes {
            now += change;
            top = top.max(now);
        }
        u64::try_from(top).unwrap_or(0)
    }

    /// When the storage of a tensor on a device is used last, by the tensor or a view of it.
    fn last_use(&self, tensor: usize, device: usize, arrivals: &Arrivals) -> f64 {
        let (mut last, mut open) = (0.0f64, vec![tensor]);
        while let Some(at) = open.pop() {
            let home = self.home(at) == device;
            if self.problem.tensors[at].is_output && self.problem.sink.0 as usize == device {
                return f64::INFINITY;
            }
            if home {
                last = last.max(self.produced(at));
                let sent = (0..self.plan.devices.len()).filter_map(|to| arrivals.get(&(at, to)));
                last = sent.fold(last, |last, (_, end)| last.max(*end));
            }
            for reader in self.readers[at].iter().filter(|g| self.homes[**g] == device) {
                last = last.max(self.finish(GroupId(*reader as u32)));
                let views = self.problem.groups[*reader].outputs.iter();
                open.extend(
                    views
                        .filter(|v| self.problem.tensor(**v).view_of == Some(TensorIndex(at as u32)))
                        .map(|v| v.0 as usize),
                );
            }
        }
        last
    }
}
