//! Concatenation elision: which concatenations to compute in place, by hill climbing on the peak.
//!
//! An elided concatenation needs no copy, but all of its result is allocated from its first operand on. Whether that
//! lowers the peak depends on the order and on everything else that is live, so candidates are evaluated.

use std::collections::HashSet;

use crate::{OrderError, StorageRules, bound, concat_slots::concats, lifetimes};
use edgecut_graph::{Graph, OperatorId, units::Bytes};

/// Evaluations for a graph of one operator; inversely proportional to the number of operators.
const EVALUATIONS: usize = 1_000_000;

/// The concatenations whose elision lowers the peak in `order`, or leaves the peak and lowers the bytes in use summed
/// over the steps.
///
/// Starts from the better of all and none, and flips one concatenation at a time, the largest first.
///
/// # Errors
/// If `order` is not a topological order, or a size is unknown.
pub(crate) fn select_elided(
    graph: &Graph,
    order: &[OperatorId],
    rules: &StorageRules<'_>,
) -> Result<HashSet<OperatorId>, OrderError> {
    let mut all = concats(graph, rules);
    let size = |id: &OperatorId| graph.operator(*id).outputs.iter().filter_map(|t| graph.tensor(*t).ty.bytes()).sum();
    all.sort_by_key(|id| std::cmp::Reverse::<Bytes>(size(id)));
    let cost =
        |elided: &HashSet<OperatorId>| rules.eliding(&|id| elided.contains(&id), |rules| cost(graph, order, rules));
    let mut best = (cost(&HashSet::new())?, HashSet::new());
    let everything: HashSet<OperatorId> = all.iter().copied().collect();
    let with_all = cost(&everything)?;
    if with_all < best.0 {
        best = (with_all, everything);
    }
    let mut evaluations = EVALUATIONS / order.len().max(1);
    loop {
        let before = best.0;
        for id in &all {
            let mut other = best.1.clone();
            if !other.remove(id) {
                other.insert(*id);
            }
            let found = cost(&other)?;
            if found < best.0 {
                best = (found, other);
            }
            evaluations = evaluations.saturating_sub(1);
            if evaluations == 0 {
                return Ok(best.1);
            }
        }
        if best.0 == before {
            return Ok(best.1);
        }
    }
}

/// Peak, and bytes in use summed over the steps.
fn cost(graph: &Graph, order: &[OperatorId], rules: &StorageRules<'_>) -> Result<(Bytes, u128), OrderError> {
    let buffers = lifetimes(graph, order, rules)?.buffers;
    let sum = buffers.iter().map(|buffer| u128::from(buffer.upper - buffer.lower) * u128::from(buffer.size.0)).sum();
    Ok((bound::peak(&buffers).bytes, sum))
}
