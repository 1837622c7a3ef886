//! Placing the tensors of a graph in an arena: lifetimes and offsets for an order, and the order with the smallest arena.

use std::collections::HashSet;

use crate::{
    ArenaError, OrderError, PackOptions, Packing, Placement, StorageRules,
    check::{self, contents},
    concat_elision::select_elided,
    concat_slots::concats,
    lifetimes,
    lower::{LoweredGraph, lower},
    order::min_peak_order,
    pack,
};
use edgecut_graph::{
    Graph, OperatorId,
    units::{Bytes, Micros},
};

/// Beam width of the order search: sets of operators kept on each level.
const WIDTH: usize = 400;

/// A graph placed in program order and in the best order found.
#[derive(Debug)]
pub struct PlacementResult {
    /// Without concatenation elision.
    pub program_order: Placement,
    pub best: Placement,
    /// Lower bound on the peak over all orders, under the same storage rules.
    pub bound: Bytes,
}

impl PlacementResult {
    /// How far the best arena is above the lower of its bounds, as a fraction of the bound.
    pub fn gap(&self) -> f64 {
        let bound = self.bound.min(self.best.packing.bound);
        if bound.0 == 0 { 0.0 } else { self.best.packing.height.0 as f64 / bound.0 as f64 - 1.0 }
    }
}

/// Why the tensors of a graph cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("the packing fails its check: {0}")]
    Check(#[from] check::PackingViolation),
    #[error("the placement fails its check: {0}")]
    Contents(#[from] contents::ContentViolation),
}

/// Lifetimes and offsets when the operators run in `order`.
///
/// # Errors
/// If the order is not topological, a size is unknown, or the packing fails its checks.
pub fn place(
    graph: &Graph,
    order: Vec<OperatorId>,
    rules: &StorageRules<'_>,
    options: &PackOptions,
) -> Result<Placement, PlaceError> {
    let lifetimes = lifetimes(graph, &order, rules)?;
    let packing: Packing = pack(&lifetimes.buffers, options)?;
    check::packing(&lifetimes.buffers, &packing)?;
    let elided = concats(graph, rules).into_iter().collect();
    let placement = Placement { order, elided, lifetimes, packing };
    contents::contents(graph, rules, &placement)?;
    Ok(placement)
}

/// Places a graph in program order and in orders of minimum peak, with concatenation elision where it pays, and keeps
/// the placement with the smallest arena: an order with a lower peak may pack worse.
///
/// # Errors
/// As [`place`].
pub fn best_placement(
    graph: &Graph,
    rules: &StorageRules<'_>,
    options: &PackOptions,
) -> Result<PlacementResult, PlaceError> {
    let none = HashSet::new();
    let program_order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    let min_peak = |rules: &StorageRules<'_>| {
        let lowered: LoweredGraph = lower(graph, rules, &|_| Micros(1.0))?;
        let found = min_peak_order(&lowered.program, &lowered.alias, WIDTH);
        Ok::<_, OrderError>((lowered.order(graph, rules, &found.order), found.bound))
    };
    let before = rules.eliding(&|_| false, |rules| place(graph, program_order.clone(), rules, options))?;
    let (ordered, mut bound) = rules.eliding(&|_| false, min_peak)?;
    let mut best = before.clone();
    let mut try_with = |order: &[OperatorId], elided: &HashSet<OperatorId>| -> Result<(), PlaceError> {
        let tried =
            rules.eliding(&|id| elided.contains(&id), |rules| match lifetimes(graph, order, rules)?.peak() {
                // No packing is below the peak.
                peak if peak > best.packing.height => Ok(None),
                _ => place(graph, order.to_vec(), rules, options).map(Some),
            })?;
        let size = |placement: &Placement| (placement.packing.height, placement.lifetimes.peak());
        if let Some(tried) = tried.filter(|tried| size(tried) < size(&best)) {
            best = tried;
        }
        Ok(())
    };
    try_with(&ordered, &none)?;
    if !concats(graph, rules).is_empty() {
        let (with_elision, lower) = min_peak(rules)?;
        bound = bound.min(lower);
        for order in [&with_elision, &ordered, &program_order] {
            try_with(order, &select_elided(graph, order, rules)?)?;
        }
    }
    let bound = bound.min(best.lifetimes.peak()).min(before.lifetimes.peak());
    Ok(PlacementResult { program_order: before, best, bound })
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Alias, DType, Operator, Origin, TensorId, TensorType};

    /// A random graph of `own`, `map` (in place), `view` and `join`; a tensor that no operator reads is a result.
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
            let operator = Operator::new(name, operands);
            graph.add_operator(operator, &[TensorType::of(DType::U8, &[bytes])]);
        }
        let consumers = graph.consumers();
        graph.outputs =
            graph.tensors().map(|(id, _)| id).filter(|id| consumers[id.0 as usize].is_empty() && id.0 > 1).collect();
        graph
    }

    fn with_rules<T>(graph: &Graph, with: impl FnOnce(&StorageRules<'_>) -> T) -> T {
        let alias = |id: OperatorId| match graph.operator(id).name.as_str() {
            "view" => Alias::View,
            "map" => Alias::InPlace,
            "join" => Alias::Concat,
            _ => Alias::Never,
        };
        with(&StorageRules { alias: &alias, workspace: &|_| Bytes::ZERO, align: 1 })
    }

    /// The least peak over all orders and all choices of what to join in place.
    fn brute_force(graph: &Graph, rules: &StorageRules<'_>, order: &mut Vec<OperatorId>) -> Bytes {
        let is_made = |t: TensorId| graph.producer(t).is_none_or(|producer| order.contains(&producer));
        let is_ready = |id: &OperatorId| !order.contains(id) && graph.operator(*id).operands().all(is_made);
        let ready: Vec<OperatorId> = graph.operators().map(|(id, _)| id).filter(is_ready).collect();
        if ready.is_empty() {
            let joins: Vec<OperatorId> =
                order.iter().copied().filter(|id| (rules.alias)(*id) == Alias::Concat).collect();
            let peak = |chosen: u32| {
                let chosen: HashSet<OperatorId> =
                    joins.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, id)| *id).collect();
                rules.eliding(&|id| chosen.contains(&id), |rules| lifetimes(graph, order, rules).unwrap().peak())
            };
            return (0..1 << joins.len()).map(peak).min().unwrap();
        }
        let mut best = Bytes(u64::MAX);
        for id in ready {
            order.push(id);
            best = best.min(brute_force(graph, rules, order));
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
            with_rules(&graph, |rules| {
                // Placing checks contents.
                let options = PackOptions { effort: 10_000, ..PackOptions::default() };
                let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
                place(&graph, order, rules, &options).unwrap();
                let found = best_placement(&graph, rules, &options).unwrap();
                joined += found.best.elided.len();
                assert!(found.best.packing.height <= found.program_order.packing.height);
                if is_small {
                    let least = brute_force(&graph, rules, &mut Vec::new());
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
            let operator = Operator::new(name, operands.iter().copied());
            let id = graph.add_operator(operator, &[ty(bytes)]);
            graph.operator(id).outputs[0]
        };
        let branches = [add(&mut graph, "own", &[x], 10), add(&mut graph, "own", &[x], 10)];
        let joined = add(&mut graph, "join", &branches, 20);
        let result = add(&mut graph, "own", &[joined], 1);
        graph.outputs.push(result);
        with_rules(&graph, |rules| {
            let found = best_placement(&graph, rules, &PackOptions::default()).unwrap();
            assert_eq!(found.program_order.packing.height, Bytes(40));
            assert_eq!((found.best.packing.height, found.bound), (Bytes(21), Bytes(21)));
            let place = |tensor: TensorId| found.best.lifetimes.offset[tensor.0 as usize];
            assert_eq!(branches.map(place), [Bytes(0), Bytes(10)]);
        });
    }

    #[test]
    fn what_is_overwritten_is_noticed() {
        let mut rng = fastrand::Rng::with_seed(8);
        let graph = graph(&mut rng, 20);
        with_rules(&graph, |rules| {
            let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
            let mut placed = place(&graph, order, rules, &PackOptions::default()).unwrap();
            placed.packing.offsets.fill(Bytes::ZERO);
            assert!(contents::contents(&graph, rules, &placed).is_err());
        });
    }
}
