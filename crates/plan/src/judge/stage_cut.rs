//! Where a device's groups are cut into stages: consecutive groups between two communications, loaded and run as one.
//!
//! A stage begins with a group that receives a tensor of another device that no earlier group of its device needed, and
//! ends with a group that sends one. So a stage receives all that it needs before it begins and sends only when it has
//! ended, and the stages of all devices can run one after the other.

use std::ops::Range;

/// How a group communicates with other devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// It reads a tensor of another device that no group before it on its own device reads.
    pub receives: bool,
    /// Another device needs what it makes.
    pub sends: bool,
}

/// Cuts the groups of a device, in its order, into stages.
pub fn cut(exchanges: impl IntoIterator<Item = Exchange>) -> Vec<Range<usize>> {
    let mut stages: Vec<Range<usize>> = Vec::new();
    let mut is_closed = true;
    for (index, exchange) in exchanges.into_iter().enumerate() {
        match stages.last_mut() {
            Some(stage) if !is_closed && !exchange.receives => stage.end = index + 1,
            _ => stages.push(index..index + 1),
        }
        is_closed = exchange.sends;
    }
    stages
}
