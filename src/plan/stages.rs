//! A plan cut into stages: runs of operators on one device that need nothing from elsewhere once they began.
//!
//! A device that works, waits for another and works again has several stages. They form a DAG and are given
//! in an order in which they can run one after the other.

use std::collections::{BTreeMap, BTreeSet};

use super::{DeviceId, Plan};
use crate::graph::{Graph, OperatorId, Part};

/// What one device computes in one go.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub device: DeviceId,
    pub part: Part,
}

/// A plan that does not fit the graph it is said to be of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan places operator {operator}, but the model has {operators}: it was made for another model")]
pub struct ForeignPlan {
    operator: u32,
    operators: usize,
}

/// Cuts `graph` into the stages of `plan`; each device has as few as merging its stages in order gives.
///
/// # Errors
/// If the plan names operators that the graph does not have.
pub fn stages(plan: &Plan, graph: &Graph) -> Result<Vec<Stage>, ForeignPlan> {
    let operators = graph.operators().len();
    let mut devices = vec![plan.source; operators];
    for group in &plan.groups {
        for id in &group.operators {
            let device = devices.get_mut(id.0 as usize).ok_or(ForeignPlan { operator: id.0, operators })?;
            *device = group.strategy.devices().next().unwrap_or(plan.source);
        }
    }
    let cut = Cut::of(graph, &devices);
    let stages = cut.in_order().into_iter().map(|stage| {
        let operators = &cut.operators[&stage];
        let device = operators.first().map_or(plan.source, |id| devices[id.0 as usize]);
        Stage { device, part: Part::cut(graph, operators) }
    });
    Ok(stages.collect())
}

/// Stages, each known by the first operator that came into it, and which needs which.
struct Cut {
    operators: BTreeMap<OperatorId, Vec<OperatorId>>,
    needed_by: BTreeMap<OperatorId, BTreeSet<OperatorId>>,
}

impl Cut {
    fn of(graph: &Graph, devices: &[DeviceId]) -> Cut {
        // The level of an operator is how many times work changed devices before it, at most. Stages of one level
        // need nothing of each other, so the levels of a device are stages.
        let mut level: Vec<u32> = Vec::with_capacity(devices.len());
        let mut first: BTreeMap<(DeviceId, u32), OperatorId> = BTreeMap::new();
        let mut cut = Cut { operators: BTreeMap::new(), needed_by: BTreeMap::new() };
        for (id, operator) in graph.operators() {
            let device = devices[id.0 as usize];
            let producers = || operator.operands().filter_map(|tensor| graph.producer(tensor));
            let after = producers().map(|p| level[p.0 as usize] + u32::from(devices[p.0 as usize] != device));
            let here = after.max().unwrap_or(0);
            level.push(here);
            let stage = *first.entry((device, here)).or_insert(id);
            cut.operators.entry(stage).or_default().push(id);
            cut.needed_by.entry(stage).or_default();
            for producer in producers() {
                let other = first[&(devices[producer.0 as usize], level[producer.0 as usize])];
                if other != stage {
                    cut.needed_by.entry(other).or_default().insert(stage);
                }
            }
        }
        let mut last: BTreeMap<DeviceId, OperatorId> = BTreeMap::new();
        for ((device, _), stage) in first {
            match last.get(&device).copied() {
                Some(before) if cut.can_merge(before, stage) => cut.merge(before, stage),
                _ => {
                    last.insert(device, stage);
                }
            }
        }
        cut
    }

    /// Whether two stages may become one: no third stage stands between them.
    fn can_merge(&self, a: OperatorId, b: OperatorId) -> bool {
        !self.detour(a, b) && !self.detour(b, a)
    }

    /// Whether `to` needs `from` by way of other stages.
    fn detour(&self, from: OperatorId, to: OperatorId) -> bool {
        let mut pending: Vec<OperatorId> = self.needed_by[&from].iter().copied().filter(|next| *next != to).collect();
        let mut seen: BTreeSet<OperatorId> = pending.iter().copied().collect();
        while let Some(stage) = pending.pop() {
            for next in &self.needed_by[&stage] {
                if *next == to {
                    return true;
                }
                if seen.insert(*next) {
                    pending.push(*next);
                }
            }
        }
        false
    }

    /// Moves everything of `from` into `into`.
    fn merge(&mut self, into: OperatorId, from: OperatorId) {
        let operators = self.operators.remove(&from).unwrap_or_default();
        self.operators.entry(into).or_default().extend(operators);
        let needed_by = self.needed_by.remove(&from).unwrap_or_default();
        self.needed_by.entry(into).or_default().extend(needed_by);
        for (stage, needed_by) in &mut self.needed_by {
            if needed_by.remove(&from) {
                needed_by.insert(into);
            }
            needed_by.remove(stage);
        }
    }

    /// The stages so that each comes after those it needs, otherwise by their first operators.
    fn in_order(&self) -> Vec<OperatorId> {
        let mut waiting_for: BTreeMap<OperatorId, usize> = self.operators.keys().map(|stage| (*stage, 0)).collect();
        for needed_by in self.needed_by.values() {
            for stage in needed_by {
                *waiting_for.entry(*stage).or_default() += 1;
            }
        }
        let mut ready: BTreeSet<OperatorId> =
            waiting_for.iter().filter(|(_, count)| **count == 0).map(|(stage, _)| *stage).collect();
        let mut order = Vec::new();
        while let Some(stage) = ready.pop_first() {
            order.push(stage);
            for next in &self.needed_by[&stage] {
                if let Some(count) = waiting_for.get_mut(next) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(*next);
                    }
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Arg, Attrs, DType, Operator, Origin, TensorId, TensorType};

    /// A graph in which operator `i` reads the outputs of the operators in `needs[i]`, or the input.
    fn graph(needs: &[&[u32]]) -> Graph {
        let ty = TensorType::of(DType::F32, &[1]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        for needs in needs {
            let of = |id: &u32| Arg::Tensor(graph.operator(OperatorId(*id)).outputs[0]);
            let args: Vec<Arg> = if needs.is_empty() { vec![Arg::Tensor(x)] } else { needs.iter().map(of).collect() };
            let operator = Operator {
                name: "nn.relu".into(),
                attrs: Attrs::new(),
                args,
                outputs: Vec::new(),
                tuple_result: false,
                label: None,
                place: None,
            };
            graph.add_operator(operator, std::slice::from_ref(&ty));
        }
        let last = TensorId(graph.tensors().len() as u32 - 1);
        graph.outputs.push(last);
        graph
    }

    fn cut(needs: &[&[u32]], devices: &[u32]) -> Vec<Vec<u32>> {
        let devices: Vec<DeviceId> = devices.iter().map(|d| DeviceId(*d)).collect();
        let cut = Cut::of(&graph(needs), &devices);
        cut.in_order().iter().map(|stage| cut.operators[stage].iter().map(|id| id.0).collect()).collect()
    }

    #[test]
    fn a_device_that_waits_in_the_middle_has_two_stages() {
        assert_eq!(cut(&[&[], &[0], &[1]], &[0, 1, 0]), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn stages_that_nothing_separates_are_one() {
        // Operator 1 could start before operator 0 is done, but nothing is lost if it waits.
        assert_eq!(cut(&[&[], &[], &[0, 1]], &[0, 1, 1]), [vec![0], vec![1, 2]]);
    }

    #[test]
    fn every_stage_comes_after_what_it_needs() {
        let needs: &[&[u32]] = &[&[], &[0], &[], &[1, 2], &[2], &[3, 4]];
        for code in 0..64u32 {
            let devices: Vec<u32> = (0..6).map(|i| code >> i & 1).collect();
            let stages = cut(needs, &devices);
            let stage_of = |id: u32| stages.iter().position(|stage| stage.contains(&id)).unwrap();
            for (id, needs) in (0..).zip(needs) {
                assert!(needs.iter().all(|n| stage_of(*n) <= stage_of(id)), "{devices:?}: {stages:?}");
            }
            assert_eq!(stages.iter().map(Vec::len).sum::<usize>(), 6);
            assert!(stages.iter().all(|s| s.iter().all(|id| devices[*id as usize] == devices[s[0] as usize])));
        }
    }
}
