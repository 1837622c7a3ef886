//! Concatenations that move nothing: which tensors are made where a concatenation's result will be, and which
//! concatenations to do that for.
//!
//! A result holds its operands one after the other, so they can be made there. Then its bytes are taken from the first of
//! them on, but never twice. Whether that pays depends on the order and on everything else that lives, so it is tried.

use std::collections::{HashMap, HashSet};

use super::{OrderError, Reuse, Sharing, bound, lifetimes};
use crate::{
    graph::{Graph, OperatorId, TensorId},
    units::Bytes,
};

/// Lifetimes are worked out so often to choose concatenations, for a graph of one operator; for others less often.
const TRIALS: usize = 1_000_000;

/// A place in the bytes of another tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The result of a concatenation that lies in no other one's.
    pub within: TensorId,
    pub at: Bytes,
    /// Whether something else is made there later.
    pub is_overwritten: bool,
}

/// Where the tensors are made that lie in results of those operators that [join](Reuse::Join) in place.
///
/// An operand lies there if an operator makes it and if its place suits the alignment; so does what it is made over, or
/// a view of, as long as nobody else reads that. All other operands are copied: also those that others read too, where the
/// result itself is overwritten.
pub(super) fn places(graph: &Graph, sharing: &Sharing<'_>) -> HashMap<TensorId, Place> {
    let mut places: HashMap<TensorId, Place> = HashMap::new();
    let joins: Vec<OperatorId> = joins(graph, sharing);
    if joins.is_empty() {
        return places;
    }
    let readers: Vec<usize> = graph.consumers().iter().map(Vec::len).collect();
    let bytes = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or_default();
    // A concatenation of concatenations is met before they are.
    for operator in joins.into_iter().rev().map(|id| graph.operator(id)) {
        let Some(&result) = operator.outputs.first() else { continue };
        let own = Place { within: result, at: Bytes::ZERO, is_overwritten: false };
        let whole = places.get(&result).copied().unwrap_or(own);
        let mut at = whole.at;
        for operand in operator.operands() {
            let place = Place { at, ..whole };
            at += bytes(operand);
            let is_read_here = readers[operand.0 as usize] == 1 && !graph.outputs.contains(&operand);
            if place.at.0.is_multiple_of(sharing.align)
                && (is_read_here || !place.is_overwritten)
                && let Some(chain) = chain(graph, sharing, &readers, operand)
                && !chain.iter().any(|tensor| places.contains_key(tensor))
            {
                let beneath = Place { is_overwritten: true, ..place };
                places.extend(chain.iter().map(|tensor| (*tensor, if *tensor == operand { place } else { beneath })));
            }
        }
    }
    places
}

/// The operators that may join in place, in program order.
pub(super) fn joins(graph: &Graph, sharing: &Sharing<'_>) -> Vec<OperatorId> {
    graph.operators().map(|(id, _)| id).filter(|id| (sharing.reuse)(*id) == Reuse::Join).collect()
}

/// A tensor with all that it is made over, or a view of, step by step; `None` if it is not made by an operator, or shows
/// what others read too.
fn chain(graph: &Graph, sharing: &Sharing<'_>, readers: &[usize], tensor: TensorId) -> Option<Vec<TensorId>> {
    let mut chain = vec![tensor];
    let mut producer = graph.producer(tensor)?;
    loop {
        let last = chain[chain.len() - 1];
        let (operator, size) = (graph.operator(producer), graph.tensor(last).ty.bytes());
        let is_alone = |t: &TensorId| {
            let is_made = graph.producer(*t).is_some() && !graph.outputs.contains(t);
            is_made && readers[t.0 as usize] == 1 && graph.tensor(*t).ty.bytes() == size
        };
        let mut operands = operator.operands();
        let before = match (sharing.reuse)(producer) {
            Reuse::View => Some(operands.next().filter(is_alone)?),
            Reuse::InPlace => operands.find(is_alone),
            Reuse::First => operands.next().filter(is_alone),
            Reuse::Never | Reuse::Join => None,
        };
        let Some((before, maker)) = before.and_then(|before| Some((before, graph.producer(before)?))) else {
            return Some(chain);
        };
        chain.push(before);
        producer = maker;
    }
}

/// The concatenations for which it pays in `order`: with them the peak is lower, or the sum over the steps.
///
/// Climbs from the better one of all and none, one concatenation at a time, the largest first.
///
/// # Errors
/// If `order` is none, or a size is not known.
pub(super) fn chosen(
    graph: &Graph,
    order: &[OperatorId],
    sharing: &Sharing<'_>,
) -> Result<HashSet<OperatorId>, OrderError> {
    let mut all = joins(graph, sharing);
    let size = |id: &OperatorId| graph.operator(*id).outputs.iter().filter_map(|t| graph.tensor(*t).ty.bytes()).sum();
    all.sort_by_key(|id| std::cmp::Reverse::<Bytes>(size(id)));
    let cost = |chosen: &HashSet<OperatorId>| only(sharing, chosen, |sharing| cost(graph, order, sharing));
    let mut best = (cost(&HashSet::new())?, HashSet::new());
    let everything: HashSet<OperatorId> = all.iter().copied().collect();
    let with_all = cost(&everything)?;
    if with_all < best.0 {
        best = (with_all, everything);
    }
    let mut trials = TRIALS / order.len().max(1);
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
            trials = trials.saturating_sub(1);
            if trials == 0 {
                return Ok(best.1);
            }
        }
        if best.0 == before {
            return Ok(best.1);
        }
    }
}

/// Peak, and bytes in use summed over the steps.
fn cost(graph: &Graph, order: &[OperatorId], sharing: &Sharing<'_>) -> Result<(Bytes, u128), OrderError> {
    let buffers = lifetimes(graph, order, sharing)?.buffers;
    let sum = buffers.iter().map(|buffer| u128::from(buffer.upper - buffer.lower) * u128::from(buffer.size.0)).sum();
    Ok((bound::peak(&buffers).bytes, sum))
}

/// Calls `with` with the same rules, but for concatenations that are not among `chosen`: those copy.
pub(super) fn only<T>(sharing: &Sharing<'_>, chosen: &HashSet<OperatorId>, with: impl FnOnce(&Sharing<'_>) -> T) -> T {
    let reuse = |id: OperatorId| match (sharing.reuse)(id) {
        Reuse::Join if !chosen.contains(&id) => Reuse::Never,
        reuse => reuse,
    };
    with(&Sharing { reuse: &reuse, workspace: sharing.workspace, align: sharing.align })
}
