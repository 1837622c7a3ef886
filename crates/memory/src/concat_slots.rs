//! Where the operands of elided concatenations lie: an operand that is produced directly at its offset in the
//! concatenated result need not be copied there.

use std::collections::HashMap;

use crate::StorageRules;
use edgecut_graph::{Alias, Graph, OperatorId, TensorId, units::Bytes};

/// The slice of a concatenated result in which a tensor is produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConcatSlot {
    /// The outermost concatenated tensor: one that is not itself an operand of an elided concatenation.
    pub within: TensorId,
    pub offset: Bytes,
    /// Whether a later operator overwrites the slice.
    pub is_overwritten: bool,
}

/// The slots of all tensors that are produced in place of an elided concatenation's result.
///
/// An operand has a slot if it is the result of an operator and its offset is aligned. The tensors that it overwrites in
/// place or views share the slot, as long as they have no other consumer. All remaining operands are copied; so are
/// operands with further consumers where the concatenated result is overwritten.
pub(crate) fn concat_slots(graph: &Graph, rules: &StorageRules<'_>) -> HashMap<TensorId, ConcatSlot> {
    let mut slots: HashMap<TensorId, ConcatSlot> = HashMap::new();
    let concats: Vec<OperatorId> = concats(graph, rules);
    if concats.is_empty() {
        return slots;
    }
    let consumers: Vec<usize> = graph.consumers().iter().map(Vec::len).collect();
    let bytes = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or_default();
    // In reverse, so that the outermost of nested concatenations comes first.
    for operator in concats.into_iter().rev().map(|id| graph.operator(id)) {
        let Some(&result) = operator.outputs.first() else { continue };
        let own = ConcatSlot { within: result, offset: Bytes::ZERO, is_overwritten: false };
        let whole = slots.get(&result).copied().unwrap_or(own);
        let mut offset = whole.offset;
        for operand in operator.operands() {
            let slot = ConcatSlot { offset, ..whole };
            offset += bytes(operand);
            let has_one_consumer = consumers[operand.0 as usize] == 1 && !graph.outputs.contains(&operand);
            if slot.offset.0.is_multiple_of(rules.align)
                && (has_one_consumer || !slot.is_overwritten)
                && let Some(chain) = storage_chain(graph, rules, &consumers, operand)
                && !chain.iter().any(|tensor| slots.contains_key(tensor))
            {
                let beneath = ConcatSlot { is_overwritten: true, ..slot };
                slots.extend(chain.iter().map(|tensor| (*tensor, if *tensor == operand { slot } else { beneath })));
            }
        }
    }
    slots
}

/// The operators that may be elided concatenations, in program order.
pub(crate) fn concats(graph: &Graph, rules: &StorageRules<'_>) -> Vec<OperatorId> {
    graph.operators().map(|(id, _)| id).filter(|id| (rules.alias)(*id) == Alias::Concat).collect()
}

/// A tensor and the tensors that it overwrites or views, transitively; `None` if no operator produces it, or if it views
/// a tensor with other consumers.
fn storage_chain(
    graph: &Graph,
    rules: &StorageRules<'_>,
    consumers: &[usize],
    tensor: TensorId,
) -> Option<Vec<TensorId>> {
    let mut chain = vec![tensor];
    let mut producer = graph.producer(tensor)?;
    loop {
        let last = chain[chain.len() - 1];
        let (operator, size) = (graph.operator(producer), graph.tensor(last).ty.bytes());
        let is_exclusive = |t: &TensorId| {
            let is_produced = graph.producer(*t).is_some() && !graph.outputs.contains(t);
            is_produced && consumers[t.0 as usize] == 1 && graph.tensor(*t).ty.bytes() == size
        };
        let mut operands = operator.operands();
        let before = match (rules.alias)(producer) {
            Alias::View => Some(operands.next().filter(is_exclusive)?),
            Alias::InPlace => operands.find(is_exclusive),
            Alias::InPlaceFirst => operands.next().filter(is_exclusive),
            Alias::Never | Alias::Concat => None,
        };
        let Some((before, maker)) = before.and_then(|before| Some((before, graph.producer(before)?))) else {
            return Some(chain);
        };
        chain.push(before);
        producer = maker;
    }
}
