//! Which bytes each tensor of a graph occupies, from when to when, in a given order.
//!
//! A *storage* is one range of bytes that several tensors use: a tensor with its views, with the results
//! that overwrite it in place, and with the operands that are made inside it because it joins them. Parameters have no
//! storage here: they are held apart for as long as the device has the model.

use std::collections::{HashMap, HashSet};

use super::{
    Buffer, bound,
    joined::{self, Place},
};
use crate::{
    graph::{Graph, OperatorId, Origin, TensorId},
    units::Bytes,
};

/// What the lifetimes of a graph's tensors depend on besides the order.
pub struct Sharing<'a> {
    /// How an operator's output may share an operand's bytes: `ops` knows.
    pub reuse: &'a dyn Fn(OperatorId) -> Reuse,
    /// Bytes an operator needs only while it runs.
    pub workspace: &'a dyn Fn(OperatorId) -> Bytes,
    /// What every offset must be a multiple of.
    pub align: u64,
}

/// How an operator's output may use an operand's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Not at all.
    Never,
    /// It is the first operand's bytes under another shape.
    View,
    /// It may overwrite any operand of its size that dies with the operator.
    InPlace,
    /// It may overwrite its first operand, if that is large enough and nobody else reads it.
    First,
    /// Its operands, one after the other, are it: they may be made there.
    Join,
}

/// Buffers over the steps of an order: step `i` is the `i`-th operator of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetimes {
    /// First one for each storage, then one for each workspace.
    pub buffers: Vec<Buffer>,
    /// For each tensor the buffer it lies in; `None` for parameters and views of them.
    pub storage: Vec<Option<usize>>,
    /// For each tensor where in its buffer it begins.
    pub place: Vec<Bytes>,
    /// For each operator that needs a workspace, the operator and its buffer.
    pub workspace: Vec<(OperatorId, usize)>,
}

/// Why an order has no lifetimes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the order has {found} operators, the graph has {expected}")]
    Count { found: usize, expected: usize },
    #[error("operator {operator} stands before its operand `{tensor}` is made, or twice, in the order")]
    NotTopological { operator: String, tensor: String },
    #[error("the size of tensor `{tensor}` is not known: its shape has a dimension that is bound only at run time")]
    UnknownSize { tensor: String },
}

/// Lifetimes of all tensors of `graph` when its operators run in `order`.
///
/// A tensor lives from its producer's step to the end of its last consumer's; inputs live from step 0, what the
/// model returns lives until it is handed out, one step after the last operator. An operator that may work in place takes over the bytes of an operand that
/// dies with it and has the same size. What is made inside a joined tensor takes the bytes of all of it from then on.
///
/// # Errors
/// If `order` is no topological order of all operators, or a tensor's size is not known.
pub fn lifetimes(graph: &Graph, order: &[OperatorId], sharing: &Sharing<'_>) -> Result<Lifetimes, OrderError> {
    let steps = order.len();
    if steps != graph.operators().len() {
        return Err(OrderError::Count { found: steps, expected: graph.operators().len() });
    }
    let tensors = graph.tensors().len();
    let mut found = Lifetimes {
        buffers: Vec::new(),
        storage: vec![None; tensors],
        place: vec![Bytes::ZERO; tensors],
        workspace: Vec::new(),
    };
    let places = joined::places(graph, sharing);
    let joined: HashSet<TensorId> = places.values().map(|place| place.within).collect();
    // Buffers in which tensors lie beside each other.
    let mut shared: HashSet<usize> = HashSet::new();
    let last_use = last_uses(graph, order, sharing, &places);
    let readers: Vec<usize> = graph.consumers().iter().map(Vec::len).collect();
    let mut made: Vec<bool> =
        graph.tensors().map(|(_, tensor)| !matches!(tensor.origin, Origin::Operator { .. })).collect();
    for input in graph.inputs() {
        let upper = last_use[input.0 as usize].map_or(0, |last| last as u64 + 1);
        found.give(input, Buffer::new(0, upper, size(graph, input)?).align(sharing.align));
    }
    for (step, &id) in order.iter().enumerate() {
        let operator = graph.operator(id);
        let early = operator.operands().find(|t| !made[t.0 as usize]);
        if let Some(tensor) = early.or_else(|| operator.outputs.iter().copied().find(|t| made[t.0 as usize])) {
            let (operator, tensor) = (operator.name.to_string(), graph.tensor(tensor).name.to_string());
            return Err(OrderError::NotTopological { operator, tensor });
        }
        let reuse = (sharing.reuse)(id);
        let mut dying: Vec<usize> = operator
            .operands()
            .filter_map(|t| found.storage[t.0 as usize])
            .filter(|&s| found.buffers[s].upper == step as u64 + 1)
            .filter(|s| !shared.contains(s) || found.spans(graph, id, *s))
            .collect();
        for &output in &operator.outputs {
            made[output.0 as usize] = true;
            let bytes = size(graph, output)?;
            let upper = last_use[output.0 as usize].map_or(step, |last| last.max(step)) as u64 + 1;
            if reuse == Reuse::View {
                // A view of a parameter is as free as the parameter.
                let source = operator.operands().next();
                if let Some((source, storage)) = source.and_then(|t| Some((t, found.storage[t.0 as usize]?))) {
                    found.place[output.0 as usize] = found.place[source.0 as usize];
                    found.join(output, storage, upper);
                }
                continue;
            }
            let own =
                joined.contains(&output).then_some(Place { within: output, at: Bytes::ZERO, is_overwritten: false });
            if let Some(Place { within, at, .. }) = places.get(&output).copied().or(own) {
                let upper = last_use[within.0 as usize].map_or(step, |last| last.max(step)) as u64 + 1;
                if found.storage[within.0 as usize].is_none() {
                    shared.insert(found.buffers.len());
                    found.give(within, Buffer::new(step as u64, upper, size(graph, within)?).align(sharing.align));
                }
                found.storage[output.0 as usize] = found.storage[within.0 as usize];
                found.place[output.0 as usize] = at;
                continue;
            }
            let over = match reuse {
                Reuse::InPlace => dying.iter().position(|&s| found.buffers[s].size == bytes),
                Reuse::First => operator.operands().next().filter(|t| readers[t.0 as usize] == 1).and_then(|first| {
                    let storage = found.storage[first.0 as usize]?;
                    dying.iter().position(|&s| s == storage && found.buffers[s].size >= bytes)
                }),
                Reuse::Never | Reuse::View | Reuse::Join => None,
            };
            match over {
                Some(place) => {
                    let storage = dying.swap_remove(place);
                    dying.retain(|s| *s != storage);
                    found.join(output, storage, upper);
                }
                None => found.give(output, Buffer::new(step as u64, upper, bytes).align(sharing.align)),
            }
        }
    }
    for (step, &id) in (0u64..).zip(order) {
        let bytes = (sharing.workspace)(id);
        if bytes > Bytes::ZERO {
            found.workspace.push((id, found.buffers.len()));
            found.buffers.push(Buffer::new(step, step + 1, bytes).align(sharing.align));
        }
    }
    Ok(found)
}

impl Lifetimes {
    /// The largest load of one step, parameters not counted.
    pub fn peak(&self) -> Bytes {
        bound::peak(&self.buffers).bytes
    }

    /// Whether all that an operator reads of a buffer is all of it.
    fn spans(&self, graph: &Graph, operator: OperatorId, storage: usize) -> bool {
        let inside = |t: &TensorId| self.storage[t.0 as usize] == Some(storage);
        let all = |t: TensorId| graph.tensor(t).ty.bytes() == Some(self.buffers[storage].size);
        graph.operator(operator).operands().filter(inside).all(all)
    }

    fn give(&mut self, tensor: TensorId, buffer: Buffer) {
        self.storage[tensor.0 as usize] = Some(self.buffers.len());
        self.buffers.push(buffer);
    }

    fn join(&mut self, tensor: TensorId, storage: usize, upper: u64) {
        self.storage[tensor.0 as usize] = Some(storage);
        let buffer = &mut self.buffers[storage];
        buffer.upper = buffer.upper.max(upper);
    }
}

/// For each tensor the last step at which it or a view of it is read; what the model returns is handed out at a
/// step after the last operator's. A joined tensor is read as long as anything inside it is.
fn last_uses(
    graph: &Graph,
    order: &[OperatorId],
    sharing: &Sharing<'_>,
    places: &HashMap<TensorId, Place>,
) -> Vec<Option<usize>> {
    let mut last: Vec<Option<usize>> = vec![None; graph.tensors().len()];
    for output in &graph.outputs {
        last[output.0 as usize] = Some(order.len());
    }
    for (step, &id) in order.iter().enumerate() {
        for operand in graph.operator(id).operands() {
            let entry = &mut last[operand.0 as usize];
            *entry = (*entry).max(Some(step));
        }
    }
    for &id in order.iter().rev() {
        let operator = graph.operator(id);
        if (sharing.reuse)(id) == Reuse::View
            && let Some(source) = operator.operands().next()
        {
            let views = operator.outputs.iter().filter_map(|t| last[t.0 as usize]).max();
            let entry = &mut last[source.0 as usize];
            *entry = (*entry).max(views);
        }
    }
    for (inside, place) in places {
        let used = last[inside.0 as usize];
        let entry = &mut last[place.within.0 as usize];
        *entry = (*entry).max(used);
    }
    last
}

fn size(graph: &Graph, tensor: TensorId) -> Result<Bytes, OrderError> {
    let tensor = graph.tensor(tensor);
    tensor.ty.bytes().ok_or_else(|| OrderError::UnknownSize { tensor: tensor.name.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Arg, Attrs, DType, Operator, TensorType};

    /// x → a (own) → b (view of a) → c (in place) → d (own, reads c and x), with 16 bytes each.
    fn graph() -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let mut last = x;
        for name in ["own", "view", "in_place", "own"] {
            let mut args = vec![Arg::Tensor(last)];
            if graph.operators().len() == 3 {
                args.push(Arg::Tensor(x));
            }
            let operator = Operator {
                name: name.into(),
                attrs: Attrs::new(),
                args,
                outputs: Vec::new(),
                tuple_result: false,
                label: None,
                place: None,
            };
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        graph.outputs.push(last);
        graph
    }

    #[test]
    fn views_and_results_in_place_share_a_storage() {
        let graph = graph();
        let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
        let reuse = |id| match graph.operator(id).name.as_str() {
            "view" => Reuse::View,
            "in_place" => Reuse::InPlace,
            _ => Reuse::Never,
        };
        let workspace = |id: OperatorId| if id.0 == 3 { Bytes(5) } else { Bytes::ZERO };
        let sharing = Sharing { reuse: &reuse, workspace: &workspace, align: 1 };
        let found = lifetimes(&graph, &order, &sharing).unwrap();
        assert_eq!(found.storage, [Some(0), Some(1), Some(1), Some(1), Some(2)]);
        let spans: Vec<_> = found.buffers.iter().map(|b| (b.lower, b.upper, b.size.0)).collect();
        assert_eq!(spans, [(0, 4, 16), (0, 4, 16), (3, 5, 16), (3, 4, 5)]);
        assert_eq!(found.peak(), Bytes(53));
        let backwards: Vec<OperatorId> = order.iter().rev().copied().collect();
        assert!(matches!(lifetimes(&graph, &backwards, &sharing), Err(OrderError::NotTopological { .. })));
        assert!(matches!(lifetimes(&graph, &order[1..], &sharing), Err(OrderError::Count { .. })));
    }
}
