//! The steps of a schedule and what a schedule costs.

use super::schedule_decision::ReadIndex;
use crate::program::{OperatorIndex, ValueIndex};
use edgecut_graph::units::{Bytes, Micros};

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleStep {
    Run(OperatorIndex),
    /// Copies a value to the host.
    Store(ValueIndex),
    /// Copies a value back to the device.
    Load(ValueIndex),
}

/// Peak and time of a schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduleCost {
    pub peak: Bytes,
    pub time: Micros,
    /// Bytes above the limit, summed over the steps.
    pub overload: f64,
}

/// One access to a value by a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub step: u32,
    pub value: ValueIndex,
    /// The read of the decision's order; [`NO_READ`](super::schedule_decision::NO_READ) if the value is written, copied,
    /// or read by a recomputation.
    pub read: ReadIndex,
    /// Whether the value is written.
    pub written: bool,
}
