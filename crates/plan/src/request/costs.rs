//! What a shard costs, given what the whole costs. While it computes, its device draws the power of the whole group.

use std::collections::BTreeMap;

use crate::problem::{Cost, DeviceId};
use edgecut_graph::{
    Graph, Operator, OperatorId, Origin, TensorId,
    units::{Bytes, Micros},
};

/// A shard of a group as operators of the split graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shard {
    /// All of them, in program order.
    pub operators: Vec<OperatorId>,
    /// Those that only slice and join.
    pub copies: Vec<OperatorId>,
    /// Which part of the whole's work it is: of the positions along the axis.
    pub share: f64,
    /// The axis that it is cut along, as the plan file numbers it.
    pub axis: usize,
    /// Number of the group that it is of; `None` for slices and joins that are of none.
    pub group: Option<usize>,
}

/// The rule for shards that were not measured: launching takes the same, the rest is in proportion, and slices and joins
/// move their bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportional {
    /// What starting any operator takes.
    pub launch: Micros,
    /// Microseconds to copy one byte.
    pub per_byte: f64,
}

impl Default for Proportional {
    /// A microsecond, and 5 GB/s: a slow memory's deadline, so that copies are not taken for free.
    fn default() -> Proportional {
        Proportional { launch: Micros(1.0), per_byte: 2e-4 }
    }
}

impl Proportional {
    /// What such a share of an operator takes, all of which takes `whole`.
    pub fn part(&self, whole: Micros, share: f64) -> Micros {
        let fixed = self.launch.0.min(whole.0);
        Micros(fixed + (whole.0 - fixed) * share)
    }

    /// What copying so much takes.
    pub fn copying(&self, bytes: Bytes) -> Micros {
        Micros(bytes.0 as f64 * self.per_byte)
    }
}

impl Proportional {
    fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>> {
        let copied = self.copying(copied_bytes(graph, shard));
        let cost = |whole: &Option<Cost>| {
            let whole = (*whole)?;
            let time = self.part(whole.time, shard.share) + copied;
            let workspace = Bytes((whole.workspace.0 as f64 * shard.share) as u64);
            Some(Cost { time, workspace, ..whole })
        };
        whole.iter().map(cost).collect()
    }

    fn rate(whole: Cost) -> f64 {
        1.0 / whole.time.0.max(f64::MIN_POSITIVE)
    }
}

/// What shards cost: as measured, and on straight lines between and below the measurements. A device and group of which no
/// shard is known along an axis follow [estimates](ShardCosts::add_estimated) for any axis, else the rule. Shards of a sum cost
/// the same, although the first one may compute a bias or a residual sum too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShardCosts {
    pub rule: Proportional,
    /// By device, group and axis; `None` is an estimate for all of them. Ascending by share.
    samples: BTreeMap<(DeviceId, usize, Option<usize>), Vec<Sample>>,
}

/// One shard, without its slices and joins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    share: f64,
    is_measured: bool,
    /// What its slices and joins wrote when it was measured.
    copied: Bytes,
    cost: Cost,
}

/// Shares that differ by less are the same.
pub(crate) const SAME_SHARE: f64 = 1e-9;

impl Sample {
    fn is(&self, share: f64, copied: Bytes) -> bool {
        (self.share - share).abs() <= SAME_SHARE && self.copied == copied
    }
}

impl ShardCosts {
    pub fn new(rule: Proportional) -> ShardCosts {
        ShardCosts { rule, samples: BTreeMap::new() }
    }

    /// Adds that a `share` of `group`, cut along `axis`, was measured on `device` at `cost`, with slices and joins that
    /// wrote `copied`. In which order samples are added does not matter.
    pub fn add_measured(&mut self, device: DeviceId, group: usize, axis: usize, share: f64, copied: Bytes, cost: Cost) {
        self.insert((device, group, Some(axis)), share, true, copied, cost);
    }

    /// Adds an estimate of what a `share` of `group` costs on `device`: cut along any axis, if `axis` is `None`. Where the
    /// same is known already, that stays.
    pub fn add_estimated(
        &mut self,
        device: DeviceId,
        group: usize,
        axis: Option<usize>,
        share: f64,
        copied: Bytes,
        cost: Cost,
    ) {
        if !self.samples.get(&(device, group, axis)).is_some_and(|known| known.iter().any(|s| s.is(share, copied))) {
            self.insert((device, group, axis), share, false, copied, cost);
        }
    }

    /// Adds a shard as [`ShardCosts::add_measured`] does. If it was measured before only its time is replaced: profiles measure
    /// memory better.
    pub fn retime(&mut self, device: DeviceId, group: usize, axis: usize, share: f64, copied: Bytes, cost: Cost) {
        let known = self.samples.get(&(device, group, Some(axis))).and_then(|s| s.iter().find(|s| s.is(share, copied)));
        let cost = known.map_or(cost, |known| Cost { time: cost.time, ..known.cost });
        self.add_measured(device, group, axis, share, copied, cost);
    }

    /// Makes all that is known of `device` slower by `factor`.
    pub fn scale(&mut self, device: DeviceId, factor: f64) {
        for (_, samples) in self.samples.iter_mut().filter(|((of, ..), _)| *of == device) {
            for sample in samples {
                sample.cost.time = Micros(sample.cost.time.0 * factor);
            }
        }
    }

    fn insert(
        &mut self,
        key: (DeviceId, usize, Option<usize>),
        share: f64,
        is_measured: bool,
        copied: Bytes,
        cost: Cost,
    ) {
        let time = Micros((cost.time.0 - self.copying(copied).0).max(0.0));
        let samples = self.samples.entry(key).or_default();
        samples.retain(|s| !s.is(share, copied));
        samples.push(Sample { share, is_measured, copied, cost: Cost { time, ..cost } });
        samples.sort_by(|a, b| a.share.total_cmp(&b.share).then(a.copied.cmp(&b.copied)));
    }

    /// Whether this very shard was measured on `device`, with slices and joins as large as its own.
    pub fn is_measured(&self, graph: &Graph, device: DeviceId, shard: &Shard) -> bool {
        let copied = copied_bytes(graph, shard);
        let group = shard.group.and_then(|group| self.samples.get(&(device, group, Some(shard.axis))));
        group.is_some_and(|samples| samples.iter().any(|s| s.is_measured && s.is(shard.share, copied)))
    }

    /// The time of slices and joins that write so much.
    fn copying(&self, copied: Bytes) -> Micros {
        Micros(copied.0 as f64 * self.rule.per_byte)
    }

    /// What is known of shards of a group along an axis, else along any.
    fn of(&self, device: DeviceId, group: usize, axis: usize) -> Option<&[Sample]> {
        let of = |axis| self.samples.get(&(device, group, axis)).map(Vec::as_slice);
        of(Some(axis)).or_else(|| of(None))
    }

    /// The cost of a share without its slices and joins, which write `copied`; `whole` is what all of it costs.
    fn between(&self, samples: &[Sample], whole: Cost, share: f64, copied: Bytes) -> Cost {
        let same = |s: &&Sample| (s.share - share).abs() <= SAME_SHARE;
        if let Some(exact) = samples.iter().filter(same).find(|s| s.copied == copied) {
            return Cost { power: whole.power, ..exact.cost };
        }
        // Of samples of one share the one with the least copying says the most about computing.
        let end = |share: f64, cost: Cost| Sample { share, is_measured: false, copied: Bytes::ZERO, cost };
        let first = end(0.0, Cost { time: self.rule.launch, ..Cost::default() });
        let last = end(1.0, whole);
        let above = samples.iter().copied().chain([last]).find(|s| s.share >= share - SAME_SHARE).unwrap_or(last);
        let least = |below: f64| samples.iter().copied().find(|s| (s.share - below).abs() <= SAME_SHARE);
        let below = samples.iter().rev().find(|s| s.share < above.share - SAME_SHARE).and_then(|s| least(s.share));
        let below = below.unwrap_or(first);
        let part = ((share - below.share) / (above.share - below.share)).clamp(0.0, 1.0);
        let line = |a: f64, b: f64| a + (b - a) * part;
        let bytes = |a: Bytes, b: Bytes| Bytes(line(a.0 as f64, b.0 as f64) as u64);
        Cost {
            time: Micros(line(below.cost.time.0, above.cost.time.0)),
            workspace: bytes(below.cost.workspace, above.cost.workspace),
            held: above.cost.held,
            power: whole.power,
        }
    }
}

impl ShardCosts {
    /// The cost of `shard` on each device, where the whole group costs `whole`; `None` where it cannot run.
    pub fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>> {
        let mut costs = self.rule.costs(graph, shard, whole);
        let Some(group) = shard.group else { return costs };
        let copied = copied_bytes(graph, shard);
        for (device, (cost, whole)) in (0u32..).map(DeviceId).zip(costs.iter_mut().zip(whole)) {
            if let (Some(samples), Some(whole)) = (self.of(device, group, shard.axis), whole) {
                let known = self.between(samples, *whole, shard.share, copied);
                *cost = Some(Cost { time: known.time + self.copying(copied), ..known });
            }
        }
        costs
    }

    /// The largest share of group number `group` per microsecond on `device`, whatever the share, where all of it costs
    /// `whole`: what bounds are made of. On a line that does not begin below zero, one of its ends has the highest rate.
    pub fn rate(&self, group: usize, device: DeviceId, whole: Cost) -> f64 {
        let all = self.samples.range((device, group, None)..=(device, group, Some(usize::MAX)));
        let rates = all.flat_map(|(_, s)| s).map(|s| s.share / s.cost.time.0.max(f64::MIN_POSITIVE));
        rates.fold(Proportional::rate(whole), f64::max)
    }
}

/// The bytes that a shard's slices and joins write; slices of weights are made once, when it is loaded.
pub fn copied_bytes(graph: &Graph, shard: &Shard) -> Bytes {
    let moves = shard.copies.iter().map(|id| graph.operator(*id)).filter(|operator| !is_of_weights(graph, operator));
    moves.flat_map(|operator| &operator.outputs).filter_map(|t| graph.tensor(*t).ty.bytes()).sum()
}

/// Whether `operator` reads weights or slices of weights alone, so that it is computed once, when it is loaded.
pub fn is_of_weights(graph: &Graph, operator: &Operator) -> bool {
    let is_weight = |t: TensorId| matches!(graph.tensor(t).origin, Origin::Parameter | Origin::Constant(_));
    let is_slice = |id: OperatorId| {
        let operator = graph.operator(id);
        operator.name == "strided_slice" && operator.operands().all(is_weight)
    };
    operator.operands().all(|t| is_weight(t) || graph.producer(t).is_some_and(is_slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Watts;

    #[test]
    fn shards_cost_what_was_measured_and_lines_between() {
        let cost = |time: f64| Cost { time: Micros(time), workspace: Bytes(100), ..Cost::default() };
        let mut shards = ShardCosts::new(Proportional { launch: Micros(2.0), per_byte: 0.0 });
        let graph = Graph::new();
        let shard = |share: f64| Shard { share, group: Some(3), ..Shard::default() };
        let time = |shards: &ShardCosts, share: f64| {
            shards.costs(&graph, &shard(share), &[Some(cost(102.0)), None])[0].unwrap().time.0
        };
        assert!((time(&shards, 0.5) - 52.0).abs() < 1e-9, "the rule");
        shards.add_estimated(DeviceId(0), 3, None, 0.5, Bytes::ZERO, cost(82.0));
        assert!((time(&shards, 0.5) - 82.0).abs() < 1e-9, "the estimate");
        shards.add_estimated(DeviceId(0), 3, Some(0), 0.5, Bytes::ZERO, cost(72.0));
        assert!((time(&shards, 0.5) - 72.0).abs() < 1e-9, "the estimate along the axis");
        assert!(!shards.is_measured(&graph, DeviceId(0), &shard(0.5)));
        shards.add_measured(DeviceId(0), 3, 0, 0.5, Bytes::ZERO, cost(62.0));
        shards.add_measured(DeviceId(0), 3, 0, 0.5, Bytes(64), cost(70.0));
        shards.add_measured(DeviceId(0), 3, 1, 0.5, Bytes::ZERO, cost(1.0));
        shards.add_estimated(DeviceId(0), 3, Some(0), 0.5, Bytes::ZERO, cost(72.0));
        for (share, want) in [(0.5, 62.0), (0.75, 82.0), (0.25, 32.0), (1.0, 102.0)] {
            assert!((time(&shards, share) - want).abs() < 1e-9, "{share}");
        }
        assert!(shards.is_measured(&graph, DeviceId(0), &shard(0.5)));
        assert!(!shards.is_measured(&graph, DeviceId(0), &shard(0.75)));
        assert_eq!(shards.costs(&graph, &shard(0.5), &[Some(cost(102.0)), None])[1], None);
        let other = Cost { workspace: Bytes(7), ..cost(65.0) };
        for (share, workspace) in [(0.5, Bytes(100)), (0.6, Bytes(7))] {
            shards.retime(DeviceId(0), 3, 0, share, Bytes::ZERO, other);
            let now = shards.costs(&graph, &shard(share), &[Some(cost(102.0))])[0].unwrap();
            assert_eq!((now.time, now.workspace), (Micros(65.0), workspace), "{share}");
        }
    }

    #[test]
    fn shards_draw_the_power_of_their_group() {
        let cost = |time: f64, power: f64| Cost { time: Micros(time), power: Watts(power), ..Cost::default() };
        let graph = Graph::new();
        let power = |shards: &ShardCosts, share: f64| {
            let shard = Shard { share, group: Some(0), ..Shard::default() };
            shards.costs(&graph, &shard, &[Some(cost(100.0, 7.0))])[0].unwrap().power
        };
        let mut shards = ShardCosts::default();
        assert_eq!(power(&shards, 0.5), Watts(7.0), "by the rule");
        shards.add_measured(DeviceId(0), 0, 0, 0.5, Bytes::ZERO, cost(60.0, 3.0));
        for share in [0.5, 0.25, 0.75, 1.0] {
            assert_eq!(power(&shards, share), Watts(7.0), "{share}");
        }
    }
}
