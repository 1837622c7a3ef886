//! Constraints on memory: parameters, and the largest working set of a device.

use microlp::{ComparisonOp, Variable};

use super::builder::{ProgramBuilder, SLACK};
use crate::{judge::bound::footprint, problem::GroupId};

impl ProgramBuilder<'_> {
    /// Constraints on the memory of every device: below its limit and below `peak`.
    pub(super) fn memories(&mut self, peak: Option<Variable>) {
        let problem = self.problem;
        let mut users: Vec<Vec<GroupId>> = vec![Vec::new(); problem.parameters.len()];
        for group in problem.group_ids() {
            for parameter in &problem.group(group).parameters {
                users[parameter.0 as usize].push(group);
            }
        }
        users.iter_mut().for_each(|users| users.dedup());
        // At the end the sink holds all results; views may share the storage of what they view.
        let results = problem.tensors.iter().filter(|tensor| tensor.is_output && tensor.view_of.is_none());
        let results: f64 = results.map(|tensor| tensor.bytes.0 as f64).sum();
        for device in problem.device_ids() {
            let floor = if device == problem.sink { results / self.bytes } else { 0.0 };
            let largest = self.program.add_var(0.0, (floor, f64::INFINITY));
            let mut held = vec![(largest, 1.0)];
            let place = |builder: &ProgramBuilder<'_>, group: GroupId| {
                let places = builder.places[group.0 as usize].iter();
                places.clone().find(|(at, _)| *at == device).map(|(_, x)| *x)
            };
            for group in problem.group_ids() {
                let Some((x, cost)) = place(self, group).zip(problem.cost(group, device)) else { continue };
                held.push((x, cost.held.0 as f64 / self.bytes));
                let need = footprint::working_set(problem, group, device).map_or(0, |need| need.0) as f64 / self.bytes;
                if need > floor {
                    self.at_least(vec![(largest, 1.0), (x, -need)], 0.0);
                }
            }
            for (bytes, users) in problem.parameters.iter().zip(&users).filter(|(bytes, _)| bytes.0 > 0) {
                let users: Vec<Variable> = users.iter().filter_map(|user| place(self, *user)).collect();
                let here = match users.as_slice() {
                    [] => continue,
                    [user] => *user,
                    users => {
                        let here = self.variable();
                        for user in users {
                            self.at_least(vec![(here, 1.0), (*user, -1.0)], 0.0);
                        }
                        here
                    }
                };
                held.push((here, bytes.0 as f64 / self.bytes));
            }
            if let Some(limit) = problem.device(device).memory {
                self.row(held.clone(), ComparisonOp::Le, limit.0 as f64 / self.bytes * SLACK);
            }
            if let Some(peak) = peak {
                held.iter_mut().for_each(|(_, factor)| *factor = -*factor);
                held.push((peak, 1.0));
                self.at_least(held, 0.0);
            }
        }
    }
}
