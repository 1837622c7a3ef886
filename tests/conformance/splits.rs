//! The law of splitting: an operator's shards, put together, are the operator. Over every operator case and every
//! axis that its operators can be split along, in halves, in random fractions and in overlapping tiles, on the CPU engine.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use edgecut::{
    graph::{Graph, Operator, OperatorId, TensorData},
    ops::{
        passes::{
            axes::{axes, replica_axis},
            shard::SplitError,
            shard_graph::{Sharding, shard_graph},
        },
        split::{Join, PackedAxis, SplitAxis},
    },
};
use libtest_mimic::Trial;

use crate::{cases, cases::Case, operators::ENGINE, trial};

pub fn trials() -> impl Iterator<Item = Trial> {
    let law = |case: Case| trial(format!("splits/{}/{}", case.family, case.name), move || check(&case));
    let cuts = trial("splits: fractions make cuts of the whole axis".to_string(), || {
        fractions_make_cuts_of_the_whole_axis();
        Ok(())
    });
    cases::all().into_iter().filter(|case| case.read().is_ok_and(|(graph, _)| splits(&graph))).map(law).chain([cuts])
}

/// Whether an operator of the graph has an axis that it can be split along.
fn splits(graph: &Graph) -> bool {
    graph.operators().any(|(_, operator)| !axes(graph, operator).is_empty())
}

/// Splits every operator of the case along each of its axes, in several ways, and compares the results with the unsplit ones.
fn check(case: &Case) -> Result<(), String> {
    let (graph, tensors) = case.read()?;
    let mut rng = fastrand::Rng::with_seed(u64::from(crc32fast::hash(case.name.as_bytes())));
    let mut outputs: Option<Vec<TensorData>> = None;
    for (id, operator) in graph.operators() {
        let all = axes(&graph, operator).into_iter().chain(replica_axis(&graph, operator));
        for (number, axis) in all.enumerate() {
            let axis = &axis;
            for sharding in shardings((&graph, operator), (number, axis), &mut rng) {
                let label = format!("{} {axis:?} as {sharding:?}", operator.name);
                let divisions = with_producers(&graph, id, sharding);
                let split = match shard_graph(&graph, &[], &divisions) {
                    Ok(split) => split,
                    // A shard that lies in the padding alone.
                    Err(SplitError::Empty { .. }) => continue,
                    Err(why) => return Err(format!("{label}: {why}")),
                };
                if outputs.is_none() {
                    outputs = Some(cases::compute(&*ENGINE, &graph, &tensors)?);
                }
                let want = outputs.as_deref().unwrap_or_default();
                let mut split = split.graph;
                if axis.join == Join::Replicated {
                    return_second_replicas(&graph, operator, &mut split)?;
                }
                let run = AssertUnwindSafe(|| cases::compute(&*ENGINE, &split, &tensors));
                let got = catch_unwind(run).unwrap_or_else(|_| Err("panicked".into()));
                got.and_then(|got| got.iter().zip(want).try_for_each(|(got, want)| case.compare(got, want)))
                    .map_err(|why| format!("{label}: {why}"))?;
            }
        }
    }
    Ok(())
}

/// Replaces outputs of the model that `operator` computes by those of its second replica in `split`: the first ones are returned anyway.
fn return_second_replicas(graph: &Graph, operator: &Operator, split: &mut Graph) -> Result<(), String> {
    for (at, output) in graph.outputs.iter().enumerate().filter(|(_, output)| operator.outputs.contains(output)) {
        let name = format!("{}[replica 2]", graph.tensor(*output).name);
        let replica = split.tensors().find(|(_, tensor)| tensor.name == name).map(|(id, _)| id);
        split.outputs[at] = replica.ok_or_else(|| format!("no tensor {name}"))?;
    }
    Ok(())
}

/// `sharding` of an operator and, as long as it carries on partial sums, of what makes them.
fn with_producers(graph: &Graph, id: OperatorId, sharding: Sharding) -> BTreeMap<OperatorId, Sharding> {
    let mut divisions = BTreeMap::from([(id, sharding.clone())]);
    let (mut at, mut number) = (id, sharding.axis);
    while let Some(carried) = axes(graph, graph.operator(at)).get(number).and_then(|axis| axis.carried) {
        let tensor = graph.operator(at).operands().nth(carried.operand).expect("an operand");
        (at, number) = (graph.producer(tensor).expect("a sum"), carried.axis);
        divisions.insert(at, Sharding { axis: number, ..sharding.clone() });
    }
    divisions
}

/// Halves, random fractions, and those as tiles that overlap by some positions; or two replicas.
pub fn shardings(
    (graph, operator): (&Graph, &Operator),
    (number, axis): (usize, &SplitAxis),
    rng: &mut fastrand::Rng,
) -> Vec<Sharding> {
    if axis.join == Join::Replicated {
        return vec![Sharding::replicated(number, 2)];
    }
    let mut found = Vec::new();
    for fractions in [vec![0.5, 0.5], vec![rng.f64(), rng.f64(), rng.f64()]] {
        let mut cuts = axis.cuts(&fractions);
        cuts.dedup();
        if cuts.len() >= 3 {
            found.push(Sharding::disjoint(number, cuts));
        }
    }
    let mut tiled = found.last().cloned().into_iter().collect::<Vec<_>>();
    for sharding in &mut tiled {
        sharding.tiles = sharding.ranges();
        for tile in &mut sharding.tiles {
            tile.start = tile.start.saturating_sub(axis.grain * rng.u64(0..3));
            tile.end = (tile.end + axis.grain * rng.u64(0..3)).min(axis.size);
        }
    }
    tiled.retain(|sharding| axis.join != Join::Sum && sharding.fits(axis));
    found.extend(tiled);
    // Units of two parts, of which the first shard has one.
    let unit = [3, 2].iter().find(|units| axis.size.is_multiple_of(**units)).map(|units| axis.size / units);
    let packed = unit.filter(|unit| *unit > 1).and_then(|unit| PackedAxis::new(&[unit - 1, 1]));
    if let Some((packed, unit)) = packed.zip(unit).filter(|(packed, _)| axis.supports_packed(graph, operator, packed)) {
        let units = Sharding::disjoint(number, vec![0, unit, axis.size]);
        found.push(Sharding { packed: Some(packed), ..units });
    }
    found
}

fn fractions_make_cuts_of_the_whole_axis() {
    let cases = cases::all();
    let mut rng = fastrand::Rng::with_seed(7);
    let graphs = cases.iter().step_by(20).filter_map(|case| case.read().ok());
    for graph in graphs.map(|(graph, _)| graph) {
        for axis in graph.operators().flat_map(|(_, operator)| axes(&graph, operator)) {
            let fractions: Vec<f64> = (0..rng.usize(1..6)).map(|_| rng.f64()).collect();
            assert!(are_cuts(&axis, &axis.cuts(&fractions), fractions.len()), "{axis:?} {fractions:?}");
        }
    }
}

fn are_cuts(axis: &SplitAxis, cuts: &[u64], shards: usize) -> bool {
    let inner = &cuts[..cuts.len() - 1];
    cuts.len() == shards + 1
        && cuts.windows(2).all(|w| w[0] <= w[1])
        && (cuts[0], cuts[shards]) == (0, axis.size)
        && inner.iter().all(|cut| cut % axis.grain == 0 || *cut == axis.size)
}
