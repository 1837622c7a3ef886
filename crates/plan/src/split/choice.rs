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
    /// How shards of later groups get the halos that they read of this one's result.
    pub halo: Halo,
}

/// How a shard gets its halo: what it reads of an operand beyond the share on its own device.
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
