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
}

/// The groups that are split, by number.
pub type Choices = BTreeMap<usize, Choice>;
