//! Whether a placed graph finds its tensors where they lie: memory is gone through byte range by byte range, every operator
//! writing its results over what was there, and every operand must still be there when it is read.

use std::collections::{BTreeMap, HashMap};

use crate::{
    graph::{Graph, OperatorId, Origin, TensorId},
    memory::{Reuse, Sharing, place::Placed},
};

/// What is wrong with a placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("`{tensor}` is not where it lies any more when `{reader}` reads it")]
    Lost { tensor: String, reader: String },
    #[error("`{operator}` writes over a part of `{tensor}` while it reads it")]
    Torn { tensor: String, operator: String },
}

/// Bytes of one tensor: which one, from where in it, how many.
type Piece = (TensorId, u64, u64);

/// Checks `placed`, an order of `graph` with its buffers and their offsets. Views show what they are views of, and what
/// joins is its operands one after the other.
///
/// # Errors
/// With the first tensor that is overwritten too early.
pub fn contents(graph: &Graph, sharing: &Sharing<'_>, placed: &Placed) -> Result<(), Flaw> {
    let name = |tensor: TensorId| graph.tensor(tensor).name.to_string();
    let mut memory = Memory::default();
    let mut pieces: HashMap<TensorId, Vec<Piece>> = HashMap::new();
    for input in graph.inputs() {
        let content = vec![(input, 0, bytes(graph, input))];
        let buffer = placed.lifetimes.storage[input.0 as usize].map(|index| placed.lifetimes.buffers[index]);
        // What nobody reads is not handed in.
        let is_read = buffer.is_some_and(|buffer| buffer.lower < buffer.upper);
        memory.write(range(graph, placed, input).filter(|_| is_read), &content);
        pieces.insert(input, content);
    }
    for &id in &placed.order {
        let operator = graph.operator(id);
        for operand in operator.operands() {
            let Some((from, to)) = range(graph, placed, operand) else { continue };
            if pieces.get(&operand).is_none_or(|content| !memory.holds(from, to, content)) {
                return Err(Flaw::Lost { tensor: name(operand), reader: operator.name.to_string() });
            }
        }
        for &output in &operator.outputs {
            let content = content(graph, sharing, &pieces, id, output);
            let place = range(graph, placed, output);
            let moves = place.is_some_and(|(from, to)| !memory.holds(from, to, &content));
            let is_torn = |operand: &TensorId| match (place, range(graph, placed, *operand)) {
                // Written over from its first byte on, it is read before.
                (Some(new), Some(old)) => moves && new.0 != old.0 && new.0 < old.1 && old.0 < new.1,
                _ => false,
            };
            // An operand that already lies in its place of the result is not touched.
            let joins = (sharing.reuse)(id) == Reuse::Join;
            if let Some(torn) = operator.operands().find(|operand| !joins && is_torn(operand)) {
                return Err(Flaw::Torn { tensor: name(torn), operator: operator.name.to_string() });
            }
            memory.write(place, &content);
            pieces.insert(output, content);
        }
    }
    for &output in &graph.outputs {
        let Some((from, to)) = range(graph, placed, output) else { continue };
        if pieces.get(&output).is_none_or(|content| !memory.holds(from, to, content)) {
            return Err(Flaw::Lost { tensor: name(output), reader: "the caller".to_string() });
        }
    }
    Ok(())
}

/// What an output is: new bytes, or those of others.
fn content(
    graph: &Graph,
    sharing: &Sharing<'_>,
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
    match (sharing.reuse)(id) {
        Reuse::View => operator.operands().next().map_or_else(own, of),
        Reuse::Join => operator.operands().flat_map(of).collect(),
        Reuse::InPlace | Reuse::First | Reuse::Never => own(),
    }
}

/// Where a tensor lies; `None` for parameters and views of them.
fn range(graph: &Graph, placed: &Placed, tensor: TensorId) -> Option<(u64, u64)> {
    let storage = placed.lifetimes.storage[tensor.0 as usize]?;
    let from = placed.packing.offsets[storage].0 + placed.lifetimes.place[tensor.0 as usize].0;
    Some((from, from + bytes(graph, tensor)))
}

fn bytes(graph: &Graph, tensor: TensorId) -> u64 {
    graph.tensor(tensor).ty.bytes().unwrap_or_default().0
}

/// What lies where: for the first byte of each range its end, and the tensor's byte that it is.
#[derive(Default)]
struct Memory {
    ranges: BTreeMap<u64, (u64, TensorId, u64)>,
}

impl Memory {
    fn write(&mut self, place: Option<(u64, u64)>, content: &[Piece]) {
        let Some((mut at, to)) = place else { return };
        self.clear(at, to);
        for &(tensor, first, long) in content.iter().filter(|piece| piece.2 > 0) {
            self.ranges.insert(at, (at + long, tensor, first));
            at += long;
        }
    }

    /// Forgets what lies between.
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
