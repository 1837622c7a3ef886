//! Where the tensors of a graph lie: lifetimes and offsets for an order, and the order for which that is least.

use std::collections::HashSet;

use super::{
    Lifetimes, Options, OrderError, Packing, Sharing, bound,
    check::{self, contents},
    joined, lifetimes,
    lower::{Lowered, lower},
    order::least_peak,
    pack,
};
use crate::{
    graph::{Graph, OperatorId},
    units::{Bytes, Micros},
};

/// Sets that the search for an order looks at on each level.
const WIDTH: usize = 400;

/// A graph in one order, with its arena.
#[derive(Debug, Clone)]
pub struct Placed {
    pub order: Vec<OperatorId>,
    /// Of the operators that may join in place those that do.
    pub joined: HashSet<OperatorId>,
    pub lifetimes: Lifetimes,
    pub packing: Packing,
}

/// A graph in program order and in the best order found.
#[derive(Debug)]
pub struct Placements {
    /// Nothing joined in place.
    pub program_order: Placed,
    pub best: Placed,
    /// No order has a lower peak, under the same rules for views, work in place and joins in place.
    pub bound: Bytes,
}

/// Why tensors cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Arena(#[from] super::ArenaError),
    #[error("a packing does not pass its check: {0}")]
    Check(#[from] check::Flaw),
    #[error("a placement does not pass its check: {0}")]
    Contents(#[from] contents::Flaw),
}

/// Lifetimes and offsets when the operators run in `order`.
///
/// # Errors
/// If the order is none, a size is not known, or the packing does not pass its checks.
pub fn place(
    graph: &Graph,
    order: Vec<OperatorId>,
    sharing: &Sharing<'_>,
    options: &Options,
) -> Result<Placed, PlaceError> {
    let lifetimes = lifetimes(graph, &order, sharing)?;
    let packing = pack(&lifetimes.buffers, options)?;
    check::packing(&lifetimes.buffers, &packing)?;
    let joined = joined::joins(graph, sharing).into_iter().collect();
    let placed = Placed { joined, order, lifetimes, packing };
    contents::contents(graph, sharing, &placed)?;
    Ok(placed)
}

/// Places a graph in program order and in orders of least peak, where it pays with concatenations whose operands are made
/// in place, and keeps what has the smallest arena: a lower peak that packs worse is not better.
///
/// # Errors
/// As [`place`].
pub fn best(graph: &Graph, sharing: &Sharing<'_>, options: &Options) -> Result<Placements, PlaceError> {
    let apart = HashSet::new();
    let program_order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    let least = |sharing: &Sharing<'_>| {
        let lowered: Lowered = lower(graph, sharing, &|_| Micros(1.0))?;
        let ordered = least_peak(&lowered.program, &lowered.reuse, WIDTH);
        Ok::<_, OrderError>((lowered.order(graph, sharing, &ordered.order), Bytes(ordered.bound)))
    };
    let before = joined::only(sharing, &apart, |sharing| place(graph, program_order.clone(), sharing, options))?;
    let (ordered, mut bound) = joined::only(sharing, &apart, least)?;
    let mut best = before.clone();
    let mut try_with = |order: &[OperatorId], joined: &HashSet<OperatorId>| -> Result<(), PlaceError> {
        let tried = joined::only(sharing, joined, |sharing| match lifetimes(graph, order, sharing)?.peak() {
            // No packing of it is better.
            peak if peak > best.packing.height => Ok(None),
            _ => place(graph, order.to_vec(), sharing, options).map(Some),
        })?;
        let size = |placed: &Placed| (placed.packing.height, placed.lifetimes.peak());
        if let Some(tried) = tried.filter(|tried| size(tried) < size(&best)) {
            best = tried;
        }
        Ok(())
    };
    try_with(&ordered, &apart)?;
    if !joined::joins(graph, sharing).is_empty() {
        let (in_place, lower) = least(sharing)?;
        bound = bound.min(lower);
        for order in [&in_place, &ordered, &program_order] {
            try_with(order, &joined::chosen(graph, order, sharing)?)?;
        }
    }
    let bound = bound.min(best.lifetimes.peak()).min(before.lifetimes.peak());
    Ok(Placements { program_order: before, best, bound })
}

impl Placed {
    /// Memory in use over the steps of the order.
    pub fn loads(&self) -> Vec<bound::Load> {
        bound::loads(&self.lifetimes.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        graph::{Arg, Attrs, DType, Operator, Origin, TensorId, TensorType},
        memory::Reuse,
    };

    /// A random graph of `own`, `map` (in place), `view` and `join`; what nobody reads is a result.
    fn graph(rng: &mut fastrand::Rng, operators: usize) -> Graph {
        let mut graph = Graph::new();
        graph.add_tensor("x", TensorType::of(DType::U8, &[rng.u64(1..4)]), Origin::Input);
        graph.add_tensor("w", TensorType::of(DType::U8, &[2]), Origin::Parameter);
        for _ in 0..operators {
            let tensors = graph.tensors().len() as u32;
            let size = |graph: &Graph, tensor| graph.tensor(tensor).ty.bytes().unwrap().0;
            let first = TensorId(rng.u32(0..tensors));
            let (name, operands, bytes) = match rng.u8(0..4) {
                0 => ("own", vec![first], rng.u64(1..5)),
                1 => ("map", vec![first], size(&graph, first)),
                2 => ("view", vec![first], size(&graph, first)),
                _ => {
                    let many: Vec<TensorId> = (0..rng.u32(1..4)).map(|_| TensorId(rng.u32(0..tensors))).collect();
                    let bytes = many.iter().map(|t| size(&graph, *t)).sum();
                    ("join", many, bytes)
                }
            };
            let operator = Operator {
                name: name.into(),
                attrs: Attrs::new(),
                args: operands.into_iter().map(Arg::Tensor).collect(),
                outputs: Vec::new(),
                tuple_result: false,
                label: None,
                place: None,
            };
            graph.add_operator(operator, &[TensorType::of(DType::U8, &[bytes])]);
        }
        let consumers = graph.consumers();
        graph.outputs =
            graph.tensors().map(|(id, _)| id).filter(|id| consumers[id.0 as usize].is_empty() && id.0 > 1).collect();
        graph
    }

    fn with_rules<T>(graph: &Graph, with: impl FnOnce(&Sharing<'_>) -> T) -> T {
        let reuse = |id: OperatorId| match graph.operator(id).name.as_str() {
            "view" => Reuse::View,
            "map" => Reuse::InPlace,
            "join" => Reuse::Join,
            _ => Reuse::Never,
        };
        with(&Sharing { reuse: &reuse, workspace: &|_| Bytes::ZERO, align: 1 })
    }

    /// The least peak over all orders and all choices of what to join in place.
    fn brute_force(graph: &Graph, sharing: &Sharing<'_>, order: &mut Vec<OperatorId>) -> Bytes {
        let is_made = |t: TensorId| graph.producer(t).is_none_or(|producer| order.contains(&producer));
        let is_ready = |id: &OperatorId| !order.contains(id) && graph.operator(*id).operands().all(is_made);
        let ready: Vec<OperatorId> = graph.operators().map(|(id, _)| id).filter(is_ready).collect();
        if ready.is_empty() {
            let joins: Vec<OperatorId> =
                order.iter().copied().filter(|id| (sharing.reuse)(*id) == Reuse::Join).collect();
            let peak = |chosen: u32| {
                let chosen =
                    joins.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, id)| *id).collect();
                joined::only(sharing, &chosen, |sharing| lifetimes(graph, order, sharing).unwrap().peak())
            };
            return (0..1 << joins.len()).map(peak).min().unwrap();
        }
        let mut best = Bytes(u64::MAX);
        for id in ready {
            order.push(id);
            best = best.min(brute_force(graph, sharing, order));
            order.pop();
        }
        best
    }

    #[test]
    fn tensors_lie_where_they_are_read() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut joined = 0;
        for round in 0..200 {
            let is_small = round < 150;
            let graph = graph(&mut rng, if is_small { 6 } else { 40 });
            with_rules(&graph, |sharing| {
                // Placing checks contents.
                let options = Options { effort: 10_000, ..Options::default() };
                let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
                place(&graph, order, sharing, &options).unwrap();
                let found = best(&graph, sharing, &options).unwrap();
                joined += found.best.joined.len();
                assert!(found.best.packing.height <= found.program_order.packing.height);
                if is_small {
                    let least = brute_force(&graph, sharing, &mut Vec::new());
                    assert!(found.bound <= least, "{} > {least}: {graph:?}", found.bound);
                }
            });
        }
        assert!(joined > 100);
    }

    #[test]
    fn branches_are_made_where_they_are_joined() {
        let mut graph = Graph::new();
        let ty = |bytes| TensorType::of(DType::U8, &[bytes]);
        let x = graph.add_tensor("x", ty(1), Origin::Input);
        let add = |graph: &mut Graph, name: &str, operands: &[TensorId], bytes| {
            let args = operands.iter().copied().map(Arg::Tensor).collect();
            let (name, attrs, outputs) = (name.into(), Attrs::new(), Vec::new());
            let operator = Operator { name, attrs, args, outputs, tuple_result: false, label: None, place: None };
            let id = graph.add_operator(operator, &[ty(bytes)]);
            graph.operator(id).outputs[0]
        };
        let branches = [add(&mut graph, "own", &[x], 10), add(&mut graph, "own", &[x], 10)];
        let joined = add(&mut graph, "join", &branches, 20);
        let result = add(&mut graph, "own", &[joined], 1);
        graph.outputs.push(result);
        with_rules(&graph, |sharing| {
            let found = best(&graph, sharing, &Options::default()).unwrap();
            assert_eq!(found.program_order.packing.height, Bytes(40));
            assert_eq!((found.best.packing.height, found.bound), (Bytes(21), Bytes(21)));
            let place = |tensor: TensorId| found.best.lifetimes.place[tensor.0 as usize];
            assert_eq!(branches.map(place), [Bytes(0), Bytes(10)]);
        });
    }

    #[test]
    fn what_is_overwritten_is_noticed() {
        let mut rng = fastrand::Rng::with_seed(8);
        let graph = graph(&mut rng, 20);
        with_rules(&graph, |sharing| {
            let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
            let mut placed = place(&graph, order, sharing, &Options::default()).unwrap();
            placed.packing.offsets.fill(Bytes::ZERO);
            assert!(contents::contents(&graph, sharing, &placed).is_err());
        });
    }
}
