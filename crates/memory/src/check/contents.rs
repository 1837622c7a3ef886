//! Checker of placements by symbolic execution: every operator writes its results over the byte ranges at their
//! offsets, and every operand must be intact when it is read.

use std::collections::{BTreeMap, HashMap};

use crate::{Placement, StorageRules};
use edgecut_graph::{Alias, Graph, OperatorId, Origin, TensorId};

/// What is wrong with a placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentViolation {
    #[error("`{tensor}` is overwritten before `{reader}` reads it")]
    Lost { tensor: String, reader: String },
    #[error("`{operator}` overwrites part of `{tensor}` while it reads it")]
    Torn { tensor: String, operator: String },
}

/// A slice of a tensor: the tensor, the offset in it, and the length.
type Piece = (TensorId, u64, u64);

/// Checks a placement of `graph`. The content of a view is its operand's, the content of an elided concatenation its
/// operands' in order.
///
/// # Errors
/// With the first tensor that is overwritten before its last use.
pub fn contents(graph: &Graph, rules: &StorageRules<'_>, placement: &Placement) -> Result<(), ContentViolation> {
    let name = |tensor: TensorId| graph.tensor(tensor).name.to_string();
    let mut memory = ByteMap::default();
    let mut pieces: HashMap<TensorId, Vec<Piece>> = HashMap::new();
    let mut last_use = vec![0; graph.tensors().len()];
    for (step, &id) in placement.order.iter().enumerate() {
        graph.operator(id).operands().for_each(|operand| last_use[operand.0 as usize] = step);
    }
    graph.outputs.iter().for_each(|output| last_use[output.0 as usize] = usize::MAX);
    for input in graph.inputs() {
        let content = vec![(input, 0, bytes(graph, input))];
        let buffer = placement.lifetimes.storage[input.0 as usize].map(|index| placement.lifetimes.buffers[index]);
        // Inputs without readers are not written.
        let is_read = buffer.is_some_and(|buffer| buffer.lower < buffer.upper);
        memory.write(range(graph, placement, input).filter(|_| is_read), &content);
        pieces.insert(input, content);
    }
    for (step, &id) in placement.order.iter().enumerate() {
        let operator = graph.operator(id);
        for operand in operator.operands() {
            let Some((from, to)) = range(graph, placement, operand) else { continue };
            if pieces.get(&operand).is_none_or(|content| !memory.holds(from, to, content)) {
                return Err(ContentViolation::Lost { tensor: name(operand), reader: operator.name.to_string() });
            }
        }
        for &output in &operator.outputs {
            let content = content(graph, rules, &pieces, id, output);
            let place = range(graph, placement, output);
            let moves = place.is_some_and(|(from, to)| !memory.holds(from, to, &content));
            let is_torn = |operand: &TensorId| match (place, range(graph, placement, *operand)) {
                // An operand at the same offset is read before it is overwritten.
                (Some(new), Some(old)) => moves && new.0 != old.0 && new.0 < old.1 && old.0 < new.1,
                _ => false,
            };
            // Operands that are already in their slot of the result are not copied.
            let is_concat = (rules.alias)(id) == Alias::Concat;
            if let Some(torn) = operator.operands().find(|operand| !is_concat && is_torn(operand)) {
                return Err(ContentViolation::Torn { tensor: name(torn), operator: operator.name.to_string() });
            }
            memory.write(place, &content);
            pieces.insert(output, content);
        }
        // The lists of pieces grow with each nested concatenation.
        for operand in operator.operands().filter(|operand| last_use[operand.0 as usize] == step) {
            pieces.remove(&operand);
        }
    }
    for &output in &graph.outputs {
        let Some((from, to)) = range(graph, placement, output) else { continue };
        if pieces.get(&output).is_none_or(|content| !memory.holds(from, to, content)) {
            return Err(ContentViolation::Lost { tensor: name(output), reader: "the caller".to_string() });
        }
    }
    Ok(())
}

/// The content of an output: new bytes, or those of its operands.
fn content(
    graph: &Graph,
    rules: &StorageRules<'_>,
    pieces: &HashMap<TensorId, Vec<Piece>>,
    id: OperatorId,
    output: TensorId,
) -> Vec<Piece> {
    let own = || vec![(output, 0, bytes(graph, output))];
    let of = |tensor: TensorId| match graph.tensor(tensor).origin {
        Origin::Parameter | Origin::Constant(_) => vec![(tensor, 0, bytes(graph, tensor))],
        _ => pieces.get(&tensor).cloned().unwrap_or_default(),
    };
    let operator = graph.operator(id);
    match (rules.alias)(id) {
        Alias::View => operator.operands().next().map_or_else(own, of),
        Alias::Concat => operator.operands().flat_map(of).collect(),
        Alias::InPlace | Alias::InPlaceFirst | Alias::Never => own(),
    }
}

/// The byte range of a tensor; `None` for parameters and views of them.
fn range(graph: &Graph, placement: &Placement, tensor: TensorId) -> Option<(u64, u64)> {
    let storage = placement.lifetimes.storage[tensor.0 as usize]?;
    let from = placement.packing.offsets[storage].0 + placement.lifetimes.offset[tensor.0 as usize].0;
    Some((from, from + bytes(graph, tensor)))
}

fn bytes(graph: &Graph, tensor: TensorId) -> u64 {
    graph.tensor(tensor).ty.bytes().unwrap_or_default().0
}

/// Contents of the arena: from the first byte of each range to its end, its tensor, and the offset in that.
#[derive(Default)]
struct ByteMap {
    ranges: BTreeMap<u64, (u64, TensorId, u64)>,
}

impl ByteMap {
    fn write(&mut self, place: Option<(u64, u64)>, content: &[Piece]) {
        let Some((mut at, to)) = place else { return };
        self.clear(at, to);
        for &(tensor, first, long) in content.iter().filter(|piece| piece.2 > 0) {
            self.ranges.insert(at, (at + long, tensor, first));
            at += long;
        }
    }

    /// Removes the contents of a range.
    fn clear(&mut self, from: u64, to: u64) {
        let before = self.ranges.range(..from).next_back().map(|(start, range)| (*start, *range));
        let touched: Vec<_> = before.into_iter().chain(self.ranges.range(from..to).map(|(s, r)| (*s, *r))).collect();
        for (start, (end, tensor, first)) in touched.into_iter().filter(|(_, range)| range.0 > from && from < to) {
            self.ranges.remove(&start);
            if start < from {
                self.ranges.insert(start, (from, tensor, first));
            }
            if end > to {
                self.ranges.insert(to, (end, tensor, first + (to - start)));
            }
        }
    }

    fn holds(&self, mut at: u64, to: u64, content: &[Piece]) -> bool {
        for &(tensor, first, long) in content {
            let (mut first, end) = (first, at + long);
            while at < end {
                let Some((start, (until, of, begin))) = self.ranges.range(..=at).next_back() else { return false };
                if *until <= at || *of != tensor || begin + (at - start) != first {
                    return false;
                }
                let next = end.min(*until);
                first += next - at;
                at = next;
            }
        }
        at == to
    }
}
