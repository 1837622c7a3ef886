//! How one operator is split into shards.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::split::{Join, PackedAxis, SplitAxis};

/// How one operator is split into shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharding {
    /// Index into the operator's [`axes`](crate::passes::axes::axes).
    pub axis: usize,
    /// Shard boundaries in ascending order, from 0 to the size of the axis, or to the number of replicas.
    pub cuts: Vec<u64>,
    /// What each shard computes: all between its boundaries and, of its neighbours' shares, what shards of later operators
    /// need and would otherwise receive (fused tiles: Zhao et al., DeepThings, TCAD 2018). Empty if no shard computes more
    /// than its share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiles: Vec<Range<u64>>,
    /// If the axis is packed: cuts are in interleaved order, at multiples of the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedAxis>,
    /// The device of each shard, as the caller numbers devices. Where replicas or overlapping tiles offer a choice, a shard reads
    /// from its own device. If empty, shards of the same index are on the same device.
    #[serde(skip)]
    pub homes: Vec<u32>,
}

impl Sharding {
    /// Shards that compute nothing twice.
    pub fn disjoint(axis: usize, cuts: Vec<u64>) -> Sharding {
        Sharding { axis, cuts, tiles: Vec::new(), packed: None, homes: Vec::new() }
    }

    /// So many replicas; `axis` is the number of that of [replicas](SplitAxis::of_replicas).
    pub fn replicated(axis: usize, replicas: u64) -> Sharding {
        Sharding::disjoint(axis, (0..=replicas).collect())
    }

    /// What each shard computes.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        match self.tiles.is_empty() {
            true => self.cuts.windows(2).map(|w| w[0]..w[1]).collect(),
            false => self.tiles.clone(),
        }
    }

    /// Whether the boundaries are on the grain of `axis`, and the tiles are as many, contain the shares, and differ.
    pub fn fits(&self, axis: &SplitAxis) -> bool {
        let cuts = &self.cuts;
        if axis.join == Join::Replicated {
            let replicas = cuts.len().saturating_sub(1) as u64;
            let plain = Sharding { homes: self.homes.clone(), ..Sharding::replicated(self.axis, replicas.max(2)) };
            return replicas <= axis.size && *self == plain;
        }
        let on_grain = |at: &u64| at.is_multiple_of(axis.grain) || *at == axis.size;
        let ascending = cuts.windows(2).all(|w| w[0] < w[1]);
        let ends = cuts.first() == Some(&0) && cuts.last() == Some(&axis.size);
        let contains = |(tile, share): (&Range<u64>, &[u64])| tile.start <= share[0] && share[1] <= tile.end;
        let tiles = self.tiles.is_empty()
            || axis.join != Join::Sum
                && self.tiles.len() + 1 == cuts.len()
                && self.tiles.iter().zip(cuts.windows(2)).all(contains)
                && self.tiles.iter().all(|tile| on_grain(&tile.start) && on_grain(&tile.end) && tile.end <= axis.size)
                && self.tiles.windows(2).all(|w| w[0].start <= w[1].start && w[0].end <= w[1].end && w[0] != w[1]);
        let is_of_units = |packed: &PackedAxis| {
            self.tiles.is_empty()
                && axis.size.is_multiple_of(packed.unit())
                && cuts.iter().all(|at| at.is_multiple_of(packed.unit()))
        };
        ascending && ends && cuts.iter().all(on_grain) && tiles && self.packed.as_ref().is_none_or(is_of_units)
    }
}
