//! The plan and its problem, with what the checks of all aspects look up.

use std::collections::HashMap;

use super::violation::Violation;
use crate::{
    plan_file::file::{Plan, Transfer},
    problem::{GroupId, Problem},
};

/// A plan whose groups are all placed.
pub(super) struct Checker<'a> {
    pub(super) problem: &'a Problem,
    pub(super) plan: &'a Plan,
    /// By group: its device.
    pub(super) homes: Vec<usize>,
    /// By tensor: the groups that read it.
    pub(super) readers: Vec<Vec<usize>>,
}

/// By tensor and device that received it: the start and the end of the transfer.
pub(super) type Arrivals = HashMap<(usize, usize), (f64, f64)>;

impl<'a> Checker<'a> {
    /// Checks that every group is on one device that can run it.
    pub(super) fn new(problem: &'a Problem, plan: &'a Plan) -> Result<Checker<'a>, Violation> {
        let counts = [
            ("groups", plan.groups.len(), problem.groups.len()),
            ("devices", plan.devices.len(), problem.devices.len()),
        ];
        for (what, found, expected) in counts {
            if found != expected {
                return Err(Violation::Count { what, found, expected });
            }
        }
        let mut listed = vec![Vec::new(); plan.groups.len()];
        for (device, entry) in plan.devices.iter().enumerate() {
            for group in &entry.order {
                match listed.get_mut(group.0 as usize) {
                    Some(places) => places.push(device),
                    None => return Err(Violation::Misplaced(group.0.to_string())),
                }
            }
        }
        let mut homes = Vec::new();
        for (index, (group, places)) in plan.groups.iter().zip(&listed).enumerate() {
            let device = group.device;
            let able = problem.groups[index].costs.get(device.0 as usize).is_some_and(|c| c.is_some());
            if !able || *places != [device.0 as usize] {
                return Err(Violation::Misplaced(group.name.clone()));
            }
            homes.push(device.0 as usize);
        }
        let mut readers = vec![Vec::new(); problem.tensors.len()];
        for (index, group) in problem.groups.iter().enumerate() {
            group.inputs.iter().for_each(|t| readers[t.0 as usize].push(index));
        }
        Ok(Checker { problem, plan, homes, readers })
    }

    /// The device that produces a tensor, or the source for inputs.
    pub(super) fn home(&self, tensor: usize) -> usize {
        let producer = self.problem.tensors[tensor].producer;
        producer.map_or(self.problem.source.0 as usize, |p| self.homes[p.0 as usize])
    }

    /// When a tensor is produced, or 0 for inputs.
    pub(super) fn produced(&self, tensor: usize) -> f64 {
        let producer = self.problem.tensors[tensor].producer;
        producer.map_or(0.0, |p| self.finish(p))
    }

    pub(super) fn finish(&self, group: GroupId) -> f64 {
        let group = &self.plan.groups[group.0 as usize];
        group.start_us.0 + group.time_us.0
    }

    /// The link of a transfer; `None` where it is free.
    pub(super) fn link(&self, transfer: &Transfer) -> Option<usize> {
        let at = transfer.from.0 as usize * self.problem.devices.len() + transfer.to.0 as usize;
        self.problem.routes[at].map(|link| link.0 as usize)
    }
}
