//! The law of splitting: an operator's shards, put together, are the operator. Over every operator case and every
//! axis that its operators can be split along, in halves and in random fractions, on the CPU engine.
//!
//! `EDGECUT_CASES=conv cargo test --test splits -- --nocapture` checks the families or cases whose name contains `conv`.

mod cases;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

use edgecut::{
    engine::CpuEngine,
    graph::TensorData,
    ops::{
        shard::{self, SplitError},
        sharded::{Division, sharded},
        split::SplitAxis,
    },
};

/// What was found over all cases.
#[derive(Default)]
struct Found {
    checked: usize,
    /// Operators with at least one axis, and without.
    split: BTreeSet<String>,
    whole: BTreeSet<String>,
    /// Shards that lie in the padding alone.
    empty: usize,
    wrong: Vec<String>,
}

#[test]
fn shards_put_together_equal_the_whole() {
    let Some(cases) = cases::all() else { return };
    let wanted = std::env::var("EDGECUT_CASES").unwrap_or_default();
    let engine = CpuEngine::new(1).unwrap();
    let mut found = Found::default();
    for case in cases {
        let name = format!("{}/{}", case.family, case.name);
        if name.contains(&wanted) {
            check(&case, &name, &engine, &mut found);
        }
    }
    let Found { checked, split, whole, empty, wrong } = found;
    let never: Vec<&String> = whole.difference(&split).collect();
    eprintln!("{checked} (case, axis, fractions) triples of {} operators checked, {empty} empty", split.len());
    eprintln!("never split: {never:?}");
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 0);
}

fn check(case: &cases::Case, name: &str, engine: &CpuEngine, found: &mut Found) {
    // Cases that no graph holds are for the test of operators to judge.
    let Ok((graph, tensors)) = case.read() else { return };
    let mut rng = fastrand::Rng::with_seed(u64::from(crc32fast::hash(name.as_bytes())));
    let mut outputs: Option<Vec<TensorData>> = None;
    for (id, operator) in graph.operators() {
        let axes = shard::axes(&graph, operator);
        let kinds = if axes.is_empty() { &mut found.whole } else { &mut found.split };
        kinds.insert(operator.name.to_string());
        for (number, axis) in axes.iter().enumerate() {
            for fractions in [vec![0.5, 0.5], vec![rng.f64(), rng.f64(), rng.f64()]] {
                let mut cuts = axis.cuts(&fractions);
                cuts.dedup();
                if cuts.len() < 3 {
                    continue;
                }
                let label = format!("{name} {} {axis:?} at {cuts:?}", operator.name);
                let divisions = BTreeMap::from([(id, Division { axis: number, cuts })]);
                let split = match sharded(&graph, &divisions) {
                    Ok(split) => split,
                    Err(SplitError::Empty { .. }) => {
                        found.empty += 1;
                        continue;
                    }
                    Err(why) => {
                        found.wrong.push(format!("{label}: {why}"));
                        continue;
                    }
                };
                if outputs.is_none() {
                    outputs = cases::compute(engine, &graph, &tensors).ok();
                }
                let Some(want) = &outputs else { return };
                found.checked += 1;
                let run = AssertUnwindSafe(|| cases::compute(engine, &split.graph, &tensors));
                let result = catch_unwind(run).unwrap_or_else(|_| Err("panicked".into()));
                let equal =
                    result.and_then(|got| got.iter().zip(want).try_for_each(|(got, want)| case.compare(got, want)));
                if let Err(why) = equal {
                    found.wrong.push(format!("{label}: {why}"));
                }
            }
        }
    }
}

#[test]
fn fractions_make_cuts_of_the_whole_axis() {
    let Some(cases) = cases::all() else { return };
    let mut rng = fastrand::Rng::with_seed(7);
    let graphs = cases.iter().step_by(20).filter_map(|case| case.read().ok());
    for graph in graphs.map(|(graph, _)| graph) {
        for axis in graph.operators().flat_map(|(_, operator)| shard::axes(&graph, operator)) {
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
