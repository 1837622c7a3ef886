//! What a shard costs, given what the whole costs.

use std::collections::BTreeMap;

use crate::{
    graph::{Graph, OperatorId, Origin},
    plan::{DeviceId, problem::Cost},
    units::{Bytes, Micros},
};

/// A shard of a group as operators of the split graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shard {
    /// All of them, in program order.
    pub operators: Vec<OperatorId>,
    /// Those that only slice and join.
    pub copies: Vec<OperatorId>,
    /// About which part of the whole's work it is.
    pub share: f64,
    /// Number of the group that it is of; `None` for slices and joins that are of none.
    pub group: Option<usize>,
}

/// Where the costs of shards come from: measurements, a fitted model, or a rule.
pub trait ShardCosts {
    /// The cost of `shard` on each device, where the whole group costs `whole`; `None` where it cannot run.
    fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>>;

    /// The most of group number `group` that `device` gets done in a microsecond, whatever the share, where all of it
    /// takes `whole`. What bounds are made of.
    fn rate(&self, group: usize, device: DeviceId, whole: Cost) -> f64;
}

/// The rule for shards that nobody measured: launching takes the same, the rest is in proportion, and slices and joins
/// move their bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportional {
    /// What starting any operator takes.
    pub launch: Micros,
    /// Microseconds to copy one byte.
    pub per_byte: f64,
}

impl Default for Proportional {
    /// A microsecond, and 5 GB/s: a slow memory's pace, so that copies are not taken for free.
    fn default() -> Proportional {
        Proportional { launch: Micros(1.0), per_byte: 2e-4 }
    }
}

impl ShardCosts for Proportional {
    fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>> {
        let copied = Micros(copied_bytes(graph, shard).0 as f64 * self.per_byte);
        let cost = |whole: &Option<Cost>| {
            let whole = (*whole)?;
            let fixed = self.launch.0.min(whole.time.0);
            let time = Micros(fixed + (whole.time.0 - fixed) * shard.share) + copied;
            let workspace = Bytes((whole.workspace.0 as f64 * shard.share) as u64);
            Some(Cost { time, workspace, held: whole.held })
        };
        whole.iter().map(cost).collect()
    }

    fn rate(&self, _group: usize, _device: DeviceId, whole: Cost) -> f64 {
        1.0 / whole.time.0.max(f64::MIN_POSITIVE)
    }
}

/// What was measured of shards, and between and below the measurements straight lines; a device and group of which
/// no shard was measured follow the rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampled {
    pub rule: Proportional,
    points: BTreeMap<(DeviceId, usize), Vec<Sample>>,
}

/// One measured shard, without its slices and joins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    share: f64,
    cost: Cost,
}

impl Sampled {
    pub fn new(rule: Proportional) -> Sampled {
        Sampled { rule, points: BTreeMap::new() }
    }

    /// Adds that `shard` of `graph`, with its slices and joins, was measured on `device` at `cost`.
    pub fn add(&mut self, graph: &Graph, device: DeviceId, shard: &Shard, cost: Cost) {
        let Some(group) = shard.group else { return };
        let copied = copied_bytes(graph, shard).0 as f64 * self.rule.per_byte;
        let time = Micros((cost.time.0 - copied).max(0.0));
        let points = self.points.entry((device, group)).or_default();
        points.retain(|point| (point.share - shard.share).abs() > 1e-9);
        points.push(Sample { share: shard.share, cost: Cost { time, ..cost } });
        points.sort_by(|a, b| a.share.total_cmp(&b.share));
    }

    /// The cost of a share of a group of which shards were measured on this device.
    fn between(&self, points: &[Sample], whole: Cost, share: f64) -> Cost {
        let first = Sample { share: 0.0, cost: Cost { time: self.rule.launch, ..Cost::default() } };
        let last = Sample { share: 1.0, cost: whole };
        let above = points.iter().copied().chain([last]).find(|point| point.share >= share - 1e-9).unwrap_or(last);
        let below =
            points.iter().rev().copied().chain([first]).find(|point| point.share < above.share).unwrap_or(first);
        let part = ((share - below.share) / (above.share - below.share)).clamp(0.0, 1.0);
        let line = |a: f64, b: f64| a + (b - a) * part;
        let bytes = |a: Bytes, b: Bytes| Bytes(line(a.0 as f64, b.0 as f64) as u64);
        Cost {
            time: Micros(line(below.cost.time.0, above.cost.time.0)),
            workspace: bytes(below.cost.workspace, above.cost.workspace),
            held: above.cost.held,
        }
    }
}

impl ShardCosts for Sampled {
    fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>> {
        let mut costs = self.rule.costs(graph, shard, whole);
        let Some(group) = shard.group else { return costs };
        let copied = Micros(copied_bytes(graph, shard).0 as f64 * self.rule.per_byte);
        for (device, (cost, whole)) in (0u32..).map(DeviceId).zip(costs.iter_mut().zip(whole)) {
            if let (Some(points), Some(whole)) = (self.points.get(&(device, group)), whole) {
                let known = self.between(points, *whole, shard.share);
                *cost = Some(Cost { time: known.time + copied, ..known });
            }
        }
        costs
    }

    /// On a line that does not begin below zero, one of its ends has the highest rate.
    fn rate(&self, group: usize, device: DeviceId, whole: Cost) -> f64 {
        let points = self.points.get(&(device, group)).into_iter().flatten();
        let rates = points.map(|point| point.share / point.cost.time.0.max(f64::MIN_POSITIVE));
        rates.fold(self.rule.rate(group, device, whole), f64::max)
    }
}

/// The bytes that a shard's slices and joins write; slices of weights are made once, when it is loaded.
pub fn copied_bytes(graph: &Graph, shard: &Shard) -> Bytes {
    let moves = shard.copies.iter().map(|id| graph.operator(*id)).filter(|operator| {
        let weight = |t| matches!(graph.tensor(t).origin, Origin::Parameter | Origin::Constant(_));
        !operator.operands().all(weight)
    });
    moves.flat_map(|operator| &operator.outputs).filter_map(|t| graph.tensor(*t).ty.bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cost_what_was_measured_and_lines_between() {
        let cost = |time: f64| Cost { time: Micros(time), workspace: Bytes(100), held: Bytes::ZERO };
        let mut sampled = Sampled::new(Proportional { launch: Micros(2.0), per_byte: 0.0 });
        let graph = Graph::new();
        let shard = |share: f64| Shard { share, group: Some(3), ..Shard::default() };
        let time = |sampled: &Sampled, share: f64| {
            sampled.costs(&graph, &shard(share), &[Some(cost(102.0)), None])[0].unwrap().time.0
        };
        assert!((time(&sampled, 0.5) - 52.0).abs() < 1e-9, "the rule");
        sampled.add(&graph, DeviceId(0), &shard(0.5), cost(62.0));
        for (share, want) in [(0.5, 62.0), (0.75, 82.0), (0.25, 32.0), (1.0, 102.0)] {
            assert!((time(&sampled, share) - want).abs() < 1e-9, "{share}");
        }
        assert_eq!(sampled.costs(&graph, &shard(0.5), &[Some(cost(102.0)), None])[1], None);
    }
}
