//! Constraints on times: starts, the finish, and the loads of devices and links.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, Variable};

use super::builder::ProgramBuilder;
use crate::problem::{DeviceId, GroupId, TensorIndex};

/// The flows of a tensor, by sender and receiver: for each reader the variable of the fraction that is sent, `None` where
/// it is constant 1.
type Flows = BTreeMap<(DeviceId, DeviceId), Vec<Option<Variable>>>;

impl ProgramBuilder<'_> {
    /// Constraints on starts and the finish, and on the loads of devices and links.
    pub(super) fn times(&mut self, latency: Option<(Variable, &[Variable])>, interval: Option<Variable>) {
        let problem = self.problem;
        if latency.is_none() && interval.is_none() {
            return;
        }
        if let Some((finish, starts)) = latency {
            for group in problem.group_ids() {
                let row = [(finish, 1.0), (starts[group.0 as usize], -1.0)].into_iter();
                self.at_least(row.chain(self.group_time(group, -1.0)).collect(), 0.0);
            }
        }
        let mut link_terms: Vec<(Vec<(Variable, f64)>, f64)> = vec![(Vec::new(), 0.0); problem.links.len()];
        for (tensor, readers) in problem.tensor_ids().zip(problem.consumers()) {
            let sent = match problem.tensor(tensor).producer {
                None => self.input_flows(tensor, &readers, latency),
                Some(producer) => self.tensor_flows(tensor, producer, &readers, latency),
            };
            if interval.is_none() {
                continue;
            }
            for ((from, to), parts) in sent {
                let Some((link, time)) = self.transfer(tensor, from, to) else { continue };
                let (terms, constant) = &mut link_terms[link.0 as usize];
                match (parts.iter().any(Option::is_none), parts.as_slice()) {
                    (true, _) => *constant += time,
                    (false, [Some(part)]) => terms.push((*part, -time)),
                    (false, _) => {
                        let all = self.variable();
                        terms.push((all, -time));
                        for part in parts.into_iter().flatten() {
                            self.at_least(vec![(all, 1.0), (part, -1.0)], 0.0);
                        }
                    }
                }
            }
        }
        let Some(interval) = interval else { return };
        for (mut terms, constant) in link_terms {
            terms.push((interval, 1.0));
            self.at_least(terms, constant);
        }
        for device in problem.device_ids() {
            let mut terms = vec![(interval, 1.0)];
            for group in problem.group_ids() {
                let here = self.places[group.0 as usize].iter().find(|(at, _)| *at == device);
                let time = problem.cost(group, device).map_or(0.0, |cost| cost.time.0 / self.time);
                terms.extend(here.map(|(_, x)| (*x, -time)));
            }
            self.at_least(terms, 0.0);
        }
    }

    /// Constraints on the readers of an input; returns its flows, as [`ProgramBuilder::tensor_flows`].
    fn input_flows(
        &mut self,
        tensor: TensorIndex,
        readers: &[GroupId],
        latency: Option<(Variable, &[Variable])>,
    ) -> Flows {
        let (source, sink) = (self.problem.source, self.problem.sink);
        let mut sent = Flows::new();
        for reader in readers {
            let mut row: Vec<(Variable, f64)> = Vec::new();
            for (device, x) in &self.places[reader.0 as usize] {
                if let Some((_, time)) = self.transfer(tensor, source, *device) {
                    sent.entry((source, *device)).or_default().push(Some(*x));
                    row.push((*x, -time));
                }
            }
            if let Some((_, starts)) = latency.filter(|_| !row.is_empty()) {
                row.push((starts[reader.0 as usize], 1.0));
                self.at_least(row, 0.0);
            }
        }
        if let Some((_, time)) = self.transfer(tensor, source, sink).filter(|_| self.problem.tensor(tensor).is_output) {
            sent.entry((source, sink)).or_default().push(None);
            if let Some((finish, _)) = latency {
                self.at_least(vec![(finish, 1.0)], time);
            }
        }
        sent
    }

    /// Constraints on the readers of a tensor and on the finish; returns its flows.
    fn tensor_flows(
        &mut self,
        tensor: TensorIndex,
        producer: GroupId,
        readers: &[GroupId],
        latency: Option<(Variable, &[Variable])>,
    ) -> Flows {
        let mut sent = Flows::new();
        let from = self.places[producer.0 as usize].clone();
        for reader in readers {
            let to = self.places[reader.0 as usize].clone();
            let mut row: Vec<(Variable, f64)> = Vec::new();
            let is_free = |d: &DeviceId| to.iter().all(|(e, _)| self.transfer(tensor, *d, *e).is_none());
            if !from.iter().all(|(d, _)| is_free(d)) {
                let flows: Vec<Vec<Variable>> =
                    from.iter().map(|_| to.iter().map(|_| self.variable()).collect()).collect();
                for ((d, x), flows) in from.iter().zip(&flows) {
                    let out = flows.iter().map(|flow| (*flow, 1.0)).chain([(*x, -1.0)]).collect();
                    self.row(out, ComparisonOp::Eq, 0.0);
                    for ((e, _), flow) in to.iter().zip(flows) {
                        if let Some((_, time)) = self.transfer(tensor, *d, *e) {
                            sent.entry((*d, *e)).or_default().push(Some(*flow));
                            row.push((*flow, -time));
                        }
                    }
                }
                for (at, (_, x)) in to.iter().enumerate() {
                    let into = flows.iter().map(|flows| (flows[at], 1.0)).chain([(*x, -1.0)]).collect();
                    self.row(into, ComparisonOp::Eq, 0.0);
                }
            }
            if let Some((_, starts)) = latency {
                row.extend([(starts[reader.0 as usize], 1.0), (starts[producer.0 as usize], -1.0)]);
                row.extend(self.group_time(producer, -1.0));
                self.at_least(row, 0.0);
            }
        }
        if self.problem.tensor(tensor).is_output {
            let mut row: Vec<(Variable, f64)> = Vec::new();
            for (device, x) in &from {
                if let Some((_, time)) = self.transfer(tensor, *device, self.problem.sink) {
                    sent.entry((*device, self.problem.sink)).or_default().push(Some(*x));
                    row.push((*x, -time));
                }
            }
            if let Some((finish, starts)) = latency {
                row.extend([(finish, 1.0), (starts[producer.0 as usize], -1.0)]);
                row.extend(self.group_time(producer, -1.0));
                self.at_least(row, 0.0);
            }
        }
        sent
    }
}
