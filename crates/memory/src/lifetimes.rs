//! Lifetimes of a graph's tensors in a given operator order.
//!
//! A *storage* is one buffer that several tensors share: a tensor with its views, with the results that overwrite it in
//! place, and with the operands of an elided concatenation. Parameters have no storage here: they stay allocated for as
//! long as the model is loaded.

use std::collections::{HashMap, HashSet};

use crate::{
    Buffer, OrderError, StorageRules, bound,
    concat_slots::{ConcatSlot, concat_slots},
};
use edgecut_graph::{Alias, Graph, OperatorId, Origin, TensorId, units::Bytes};

/// Buffers over the steps of an order: step `i` is its `i`-th operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetimes {
    /// One for each storage, then one for each workspace.
    pub buffers: Vec<Buffer>,
    /// The storage of each tensor; `None` for parameters and views of them.
    pub storage: Vec<Option<usize>>,
    /// The offset of each tensor in its storage.
    pub offset: Vec<Bytes>,
    /// The operators that need a workspace, each with its buffer.
    pub workspace: Vec<(OperatorId, usize)>,
}

/// Lifetimes of all tensors of `graph` when its operators run in `order`.
///
/// A tensor is live from its producer's step to the end of its last consumer's. Inputs are live from step 0, outputs of
/// the model to one step after the last operator. A result that may be computed in place takes over the storage of an
/// operand of the same size that has its last use here. The storage of an elided concatenation is allocated as a whole
/// with the first operand that is produced in it.
///
/// # Errors
/// If `order` is not a topological order of all operators, or a tensor's size is unknown.
pub fn lifetimes(graph: &Graph, order: &[OperatorId], rules: &StorageRules<'_>) -> Result<Lifetimes, OrderError> {
    if order.len() != graph.operators().len() {
        return Err(OrderError::Count { found: order.len(), expected: graph.operators().len() });
    }
    let mut allocator = StorageAllocator::new(graph, order, rules);
    for input in graph.inputs() {
        let upper = allocator.last_use[input.0 as usize].map_or(0, |last| last as u64 + 1);
        allocator.allocate(input, Buffer::new(0, upper, size(graph, input)?));
    }
    for (step, &id) in order.iter().enumerate() {
        allocator.check_order(id)?;
        allocator.run(step, id)?;
    }
    let mut found = allocator.found;
    for (step, &id) in (0u64..).zip(order) {
        let bytes = (rules.workspace)(id);
        if bytes > Bytes::ZERO {
            found.workspace.push((id, found.buffers.len()));
            found.buffers.push(Buffer::new(step, step + 1, bytes).align(rules.align));
        }
    }
    Ok(found)
}

impl Lifetimes {
    /// The peak load of one step, parameters excluded.
    pub fn peak(&self) -> Bytes {
        bound::peak(&self.buffers).bytes
    }
}

/// State while the operators of an order are stepped through.
struct StorageAllocator<'a> {
    graph: &'a Graph,
    rules: &'a StorageRules<'a>,
    found: Lifetimes,
    slots: HashMap<TensorId, ConcatSlot>,
    /// The results of elided concatenations that lie in no other one's.
    elided: HashSet<TensorId>,
    /// Storages in which several live tensors lie next to each other.
    shared: HashSet<usize>,
    last_use: Vec<Option<usize>>,
    consumers: Vec<usize>,
    produced: Vec<bool>,
}

impl<'a> StorageAllocator<'a> {
    fn new(graph: &'a Graph, order: &[OperatorId], rules: &'a StorageRules<'a>) -> StorageAllocator<'a> {
        let tensors = graph.tensors().len();
        let slots = concat_slots(graph, rules);
        StorageAllocator {
            graph,
            rules,
            found: Lifetimes {
                buffers: Vec::new(),
                storage: vec![None; tensors],
                offset: vec![Bytes::ZERO; tensors],
                workspace: Vec::new(),
            },
            elided: slots.values().map(|slot| slot.within).collect(),
            shared: HashSet::new(),
            last_use: last_uses(graph, order, rules, &slots),
            slots,
            consumers: graph.consumers().iter().map(Vec::len).collect(),
            produced: graph.tensors().map(|(_, t)| !matches!(t.origin, Origin::Operator { .. })).collect(),
        }
    }

    /// Refuses an operator that comes before one of its operands, or a second time.
    fn check_order(&self, id: OperatorId) -> Result<(), OrderError> {
        let operator = self.graph.operator(id);
        let early = operator.operands().find(|t| !self.produced[t.0 as usize]);
        let wrong = early.or_else(|| operator.outputs.iter().copied().find(|t| self.produced[t.0 as usize]));
        wrong.map_or(Ok(()), |tensor| {
            let (operator, tensor) = (operator.name.to_string(), self.graph.tensor(tensor).name.to_string());
            Err(OrderError::NotTopological { operator, tensor })
        })
    }

    /// Assigns storage to the results of an operator.
    fn run(&mut self, step: usize, id: OperatorId) -> Result<(), OrderError> {
        let operator = self.graph.operator(id);
        let alias = (self.rules.alias)(id);
        let mut dying: Vec<usize> = operator
            .operands()
            .filter_map(|t| self.found.storage[t.0 as usize])
            .filter(|&s| self.found.buffers[s].upper == step as u64 + 1)
            .filter(|s| !self.shared.contains(s) || self.reads_all(id, *s))
            .collect();
        for &output in &operator.outputs {
            self.produced[output.0 as usize] = true;
            let bytes = size(self.graph, output)?;
            let upper = self.upper(output, step);
            if alias == Alias::View {
                // A view of a parameter has no storage, like the parameter.
                let source = operator.operands().next();
                if let Some((source, storage)) = source.and_then(|t| Some((t, self.found.storage[t.0 as usize]?))) {
                    self.found.offset[output.0 as usize] = self.found.offset[source.0 as usize];
                    self.share(output, storage, upper);
                }
                continue;
            }
            if let Some(slot) = self.slot(output) {
                self.allocate_in(slot, output, step)?;
                continue;
            }
            let over = match alias {
                Alias::InPlace => dying.iter().position(|&s| self.found.buffers[s].size == bytes),
                Alias::InPlaceFirst => {
                    let first = operator.operands().next().filter(|t| self.consumers[t.0 as usize] == 1);
                    first.and_then(|first| self.found.storage[first.0 as usize]).and_then(|storage| {
                        dying.iter().position(|&s| s == storage && self.found.buffers[s].size >= bytes)
                    })
                }
                Alias::Never | Alias::View | Alias::Concat => None,
            };
            match over {
                Some(at) => {
                    let storage = dying.swap_remove(at);
                    dying.retain(|s| *s != storage);
                    self.share(output, storage, upper);
                }
                None => self.allocate(output, Buffer::new(step as u64, upper, bytes)),
            }
        }
        Ok(())
    }

    /// The step after the last use of a tensor that is produced at `step`.
    fn upper(&self, tensor: TensorId, step: usize) -> u64 {
        self.last_use[tensor.0 as usize].map_or(step, |last| last.max(step)) as u64 + 1
    }

    /// The slice of a concatenated result in which a tensor is produced; the whole for the result itself.
    fn slot(&self, tensor: TensorId) -> Option<ConcatSlot> {
        let whole = || ConcatSlot { within: tensor, offset: Bytes::ZERO, is_overwritten: false };
        self.slots.get(&tensor).copied().or_else(|| self.elided.contains(&tensor).then(whole))
    }

    fn allocate_in(&mut self, slot: ConcatSlot, tensor: TensorId, step: usize) -> Result<(), OrderError> {
        let within = slot.within.0 as usize;
        if self.found.storage[within].is_none() {
            self.shared.insert(self.found.buffers.len());
            let upper = self.upper(slot.within, step);
            self.allocate(slot.within, Buffer::new(step as u64, upper, size(self.graph, slot.within)?));
        }
        self.found.storage[tensor.0 as usize] = self.found.storage[within];
        self.found.offset[tensor.0 as usize] = slot.offset;
        Ok(())
    }

    /// Whether every operand that an operator has in a storage is all of that storage.
    fn reads_all(&self, operator: OperatorId, storage: usize) -> bool {
        let inside = |t: &TensorId| self.found.storage[t.0 as usize] == Some(storage);
        let all = |t: TensorId| self.graph.tensor(t).ty.bytes() == Some(self.found.buffers[storage].size);
        self.graph.operator(operator).operands().filter(inside).all(all)
    }

    fn allocate(&mut self, tensor: TensorId, buffer: Buffer) {
        self.found.storage[tensor.0 as usize] = Some(self.found.buffers.len());
        self.found.buffers.push(buffer.align(self.rules.align));
    }

    fn share(&mut self, tensor: TensorId, storage: usize, upper: u64) {
        self.found.storage[tensor.0 as usize] = Some(storage);
        let buffer = &mut self.found.buffers[storage];
        buffer.upper = buffer.upper.max(upper);
    }
}

/// The last step at which each tensor or a view of it is read; the number of steps for outputs of the model. A
/// concatenated tensor is in use as long as any tensor produced in it is.
fn last_uses(
    graph: &Graph,
    order: &[OperatorId],
    rules: &StorageRules<'_>,
    slots: &HashMap<TensorId, ConcatSlot>,
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
        if (rules.alias)(id) == Alias::View
            && let Some(source) = operator.operands().next()
        {
            let views = operator.outputs.iter().filter_map(|t| last[t.0 as usize]).max();
            let entry = &mut last[source.0 as usize];
            *entry = (*entry).max(views);
        }
    }
    for (inside, slot) in slots {
        let used = last[inside.0 as usize];
        let entry = &mut last[slot.within.0 as usize];
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
    use edgecut_graph::{Arg, DType, Operator, TensorType};

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
            let operator = Operator::new(name, args);
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
        let alias = |id| match graph.operator(id).name.as_str() {
            "view" => Alias::View,
            "in_place" => Alias::InPlace,
            _ => Alias::Never,
        };
        let workspace = |id: OperatorId| if id.0 == 3 { Bytes(5) } else { Bytes::ZERO };
        let rules = StorageRules { alias: &alias, workspace: &workspace, align: 1 };
        let found = lifetimes(&graph, &order, &rules).unwrap();
        assert_eq!(found.storage, [Some(0), Some(1), Some(1), Some(1), Some(2)]);
        let spans: Vec<_> = found.buffers.iter().map(|b| (b.lower, b.upper, b.size.0)).collect();
        assert_eq!(spans, [(0, 4, 16), (0, 4, 16), (3, 5, 16), (3, 4, 5)]);
        assert_eq!(found.peak(), Bytes(53));
        let backwards: Vec<OperatorId> = order.iter().rev().copied().collect();
        assert!(matches!(lifetimes(&graph, &backwards, &rules), Err(OrderError::NotTopological { .. })));
        assert!(matches!(lifetimes(&graph, &order[1..], &rules), Err(OrderError::Count { .. })));
    }
}
