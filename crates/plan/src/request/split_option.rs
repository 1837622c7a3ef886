//! One way to split a group: along an axis of its last operator, with what shards read and what their results are.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use edgecut_graph::TensorId;
use edgecut_ops::split::{PackedAxis, ShardedAxis};

/// One option to split a group: along an axis of its last operator.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitOption {
    /// Number of the axis among those of the last operator.
    pub axis: usize,
    /// How the shards' results represent the group's.
    pub layout: ResultLayout,
    /// Positions along the axis, and what shards' ends are multiples of; or the maximum number of replicas.
    pub size: u64,
    pub grain: u64,
    /// What shards need of each tensor that comes from other groups.
    pub reads: Vec<(TensorId, Need)>,
}

/// By tensor and axis: the numbers of positions that shards' ends are multiples of.
pub(super) type Grains = HashMap<(TensorId, usize), BTreeSet<u64>>;

/// How the results of shards represent that of the group (split, partial and broadcast in OneFlow's SBP).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultLayout {
    /// Each a range of this axis.
    Split(ShardedAxis),
    /// Partial sums.
    Partial,
    /// Each all of it.
    Replicated,
}

impl ResultLayout {
    /// The packed axis along which the shards are ranges, if it is one.
    pub fn packed(&self) -> Option<&PackedAxis> {
        match self {
            ResultLayout::Split(side) => side.packed.as_ref(),
            ResultLayout::Partial | ResultLayout::Replicated => None,
        }
    }
}

impl SplitOption {
    /// Whether each shard is a replica of the group.
    pub(crate) fn is_replicated(&self) -> bool {
        self.layout == ResultLayout::Replicated
    }

    /// Whether there can be `count` shards.
    pub(crate) fn can_have_shards(&self, count: usize) -> bool {
        self.size / self.grain >= count as u64
    }

    /// The smallest fraction of a shard.
    pub(crate) fn least_fraction(&self) -> f64 {
        match self.layout {
            ResultLayout::Replicated => f64::MIN_POSITIVE,
            ResultLayout::Split(_) | ResultLayout::Partial => 0.5 * self.grain as f64 / self.size as f64,
        }
    }

    /// Which part of the group's work is that of a shard of this range.
    pub(crate) fn share(&self, range: &Range<u64>) -> f64 {
        match self.layout {
            ResultLayout::Replicated => 1.0,
            ResultLayout::Split(_) | ResultLayout::Partial => (range.end - range.start) as f64 / self.size as f64,
        }
    }
}

/// What the shards of a group need of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Each a part of it, along this axis.
    Part(ShardedAxis),
    /// Each all of it.
    Whole,
    /// The first one all of it, the others nothing.
    First,
}

/// What a shard reads of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    Nothing,
    Whole,
    /// A range of an axis.
    Range(ShardedAxis, Range<u64>),
}

impl Read {
    /// Reads what `other` reads too.
    pub(super) fn extend(&mut self, other: Read) {
        match (&mut *self, other) {
            (_, Read::Nothing) => {}
            (Read::Nothing, other) => *self = other,
            (Read::Range(axis, range), Read::Range(along, other)) if *axis == along => {
                *range = range.start.min(other.start)..range.end.max(other.end);
            }
            _ => *self = Read::Whole,
        }
    }
}
