//! First fit: each buffer in turn goes to the lowest place that is free of the rivals placed before it.
//!
//! What matters is the order. Tried here: the orders of TVM (size), TFLite Micro (size), Aidge (lifetime),
//! MiniMalloc (area, width, the load around the buffer) and their mixtures.

use std::cmp::Reverse;

use super::problem::Problem;

/// What a static order looks at, the larger the earlier.
struct Traits {
    size: u64,
    width: u64,
    area: u128,
    /// The highest sum of sizes while the buffer lives: a buffer at a tight step comes first.
    load: u64,
    lower: u64,
}

type Key = fn(&Traits) -> (u128, u128, u128);

const ORDERS: &[Key] = &[
    |t| (t.size.into(), t.width.into(), t.lower.into()),
    |t| (t.area, t.size.into(), 0),
    |t| (t.width.into(), t.size.into(), 0),
    |t| (t.width.into(), t.area, t.load.into()),
    |t| (t.load.into(), t.area, t.width.into()),
    |t| (t.load.into(), t.width.into(), t.size.into()),
    |t| (t.load.into(), t.size.into(), t.width.into()),
    |t| (Reverse(t.lower).0.into(), t.size.into(), 0),
    |t| (u128::from(u64::MAX - t.lower), t.size.into(), 0),
    |t| (u128::from(t.size).pow(2).saturating_mul(t.width.into()), 0, 0),
];

/// The best of all orders; stops as soon as `bound` is reached.
pub(super) fn portfolio(problem: &Problem<'_>, bound: u64) -> Vec<u64> {
    let traits = traits(problem);
    let mut best: Option<(u64, Vec<u64>)> = None;
    for key in ORDERS {
        let mut order: Vec<u32> = (0..problem.buffers.len() as u32).collect();
        order.sort_by_key(|&i| (Reverse(key(&traits[i as usize])), i));
        let offsets = place(problem, &order);
        let height = problem.height(&offsets);
        if best.as_ref().is_none_or(|(lowest, _)| height < *lowest) {
            best = Some((height, offsets));
        }
        if best.as_ref().is_some_and(|(lowest, _)| *lowest <= bound) {
            break;
        }
    }
    best.map(|(_, offsets)| offsets).unwrap_or_default()
}

/// Places the buffers first fit in `order`, those with a given offset before all others.
pub(super) fn place(problem: &Problem<'_>, order: &[u32]) -> Vec<u64> {
    const NOWHERE: u64 = u64::MAX;
    let mut offsets: Vec<u64> = problem.buffers.iter().map(|b| b.fixed.map_or(NOWHERE, |f| f.0)).collect();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &index in order {
        let index = index as usize;
        let buffer = &problem.buffers[index];
        if buffer.fixed.is_some() {
            continue;
        }
        taken.clear();
        let placed = problem.rivals(index).iter().map(|&r| r as usize).filter(|&r| offsets[r] != NOWHERE);
        taken.extend(placed.map(|r| (offsets[r], offsets[r] + problem.buffers[r].size.0)));
        taken.sort_unstable();
        let mut at = 0;
        for &(start, end) in &taken {
            if start >= at + buffer.size.0 {
                break;
            }
            at = at.max(end.next_multiple_of(buffer.align));
        }
        offsets[index] = at;
    }
    offsets
}

fn traits(problem: &Problem<'_>) -> Vec<Traits> {
    let loads = crate::memory::bound::loads(problem.buffers);
    problem
        .buffers
        .iter()
        .map(|b| {
            let from = loads.partition_point(|l| l.from < b.lower);
            let load = loads[from..].iter().take_while(|l| l.from < b.upper).map(|l| l.bytes.0).max().unwrap_or(0);
            let width = b.upper - b.lower;
            Traits { size: b.size.0, width, area: u128::from(b.size.0) * u128::from(width), load, lower: b.lower }
        })
        .collect()
}
