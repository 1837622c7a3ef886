//! Disjunctive constraints: the order of groups on one device.

use microlp::Variable;

use super::builder::ProgramBuilder;
use crate::problem::{DeviceId, GroupId};

/// Whether one group precedes another on their common device.
pub(super) struct Precedence {
    pub(super) first: GroupId,
    pub(super) second: GroupId,
    pub(super) variable: Variable,
}

impl ProgramBuilder<'_> {
    /// Disjunctive constraints between independent groups on one device; nothing ends after `horizon`.
    pub(super) fn precedences(&mut self, starts: &[Variable], horizon: f64) -> Vec<Precedence> {
        let problem = self.problem;
        // By group: its ancestors.
        let mut ancestors = vec![vec![false; problem.groups.len()]; problem.groups.len()];
        for group in problem.group_ids() {
            for producer in problem.group(group).inputs.iter().filter_map(|t| problem.tensor(*t).producer) {
                let inherited = ancestors[producer.0 as usize].clone();
                let own = &mut ancestors[group.0 as usize];
                own[producer.0 as usize] = true;
                own.iter_mut().zip(inherited).for_each(|(own, inherited)| *own |= inherited);
            }
        }
        let mut precedences = Vec::new();
        for second in problem.group_ids() {
            for first in (0..second.0).map(GroupId).filter(|first| !ancestors[second.0 as usize][first.0 as usize]) {
                let (one, other) = (&self.places[first.0 as usize], &self.places[second.0 as usize]);
                let same = |(d, x): &(DeviceId, Variable)| other.iter().find(|(e, _)| e == d).map(|(_, y)| (*x, *y));
                let common: Vec<(Variable, Variable)> = one.iter().filter_map(same).collect();
                if common.is_empty() {
                    continue;
                }
                let [ahead, behind] = [self.program.add_binary_var(0.0), self.program.add_binary_var(0.0)];
                for (x, y) in common {
                    self.at_least(vec![(ahead, 1.0), (behind, 1.0), (x, -1.0), (y, -1.0)], -1.0);
                }
                for (first, second, variable) in [(first, second, ahead), (second, first, behind)] {
                    let row =
                        [(starts[second.0 as usize], 1.0), (starts[first.0 as usize], -1.0), (variable, -horizon)];
                    self.at_least(row.into_iter().chain(self.group_time(first, -1.0)).collect(), -horizon);
                    precedences.push(Precedence { first, second, variable });
                }
            }
        }
        precedences
    }
}
