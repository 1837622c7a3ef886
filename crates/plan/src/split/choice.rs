//! How groups are split.

use std::collections::BTreeMap;

use crate::problem::DeviceId;

/// How one group is split.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Number of one of the group's split options.
    pub option: usize,
    /// What each of the devices gets; they need not sum to 1.
    pub fractions: Vec<f64>,
    pub devices: Vec<DeviceId>,
    /// Where shards of later groups get the halos from that they read of this one's result.
    pub halo: Halo,
}

/// Where a shard gets the positions of an operand from that other shards have the share of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Halo {
    /// From the shards whose share they are.
    #[default]
    Exchanged,
    /// The shard on the same device computes them too: overlapping tiles, nothing is sent.
    Recomputed,
}

/// The groups that are split, by number.
pub type Choices = BTreeMap<usize, Choice>;
