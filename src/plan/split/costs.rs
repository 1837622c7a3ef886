//! What a shard costs, given what the whole costs.

use crate::{
    graph::{Graph, OperatorId, Origin},
    plan::problem::Cost,
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
}

/// Where the costs of shards come from: measurements, a fitted model, or a rule.
pub trait ShardCosts {
    /// The cost of `shard` on each device, where the whole group costs `whole`; `None` where it cannot run.
    fn costs(&self, graph: &Graph, shard: &Shard, whole: &[Option<Cost>]) -> Vec<Option<Cost>>;
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
}

/// The bytes that a shard's slices and joins write; slices of weights are made once, when it is loaded.
pub fn copied_bytes(graph: &Graph, shard: &Shard) -> Bytes {
    let moves = shard.copies.iter().map(|id| graph.operator(*id)).filter(|operator| {
        let weight = |t| matches!(graph.tensor(t).origin, Origin::Parameter | Origin::Constant(_));
        !operator.operands().all(weight)
    });
    moves.flat_map(|operator| &operator.outputs).filter_map(|t| graph.tensor(*t).ty.bytes()).sum()
}
