//! Lower bound on throughput by minimum cuts.
//!
//! The load of an accelerator is the time of its bundles plus the transfers over its boundary. The minimum load of any set
//! that contains a given bundle is a minimum cut: each net has two auxiliary vertices, one that is cut if the source is
//! inside and a reader outside, and one for the reverse. Memory limits are relaxed.

use petgraph::{
    algo::dinics,
    graph::{DiGraph, NodeIndex},
};

use super::bundles::Bundles;

/// Bundles for which a cut is computed, the most loaded first, and vertices of all their graphs together.
const CUTS: usize = 64;
const VERTICES: usize = 200_000;
/// Capacities are whole numbers: the load of all bundles on one device is about this.
const WHOLE: f64 = 1e12;

/// No placement's largest load is less.
pub fn largest_load(problem: &Bundles) -> f64 {
    let usable = |b: usize| problem.accelerators > 0 && problem.allows(b, 0);
    let on_cpu = |b: usize| if problem.cpus > 0 { problem.bundles[b].cpu_time } else { f64::INFINITY };
    let nets = |b: usize| problem.bundles[b].makes.iter().chain(&problem.bundles[b].reads);
    // A bundle by itself: no cut is larger.
    let alone = |b: usize| problem.bundles[b].accelerator_time + nets(b).map(|n| problem.nets[*n].cost).sum::<f64>();
    let most = |b: usize| if usable(b) { on_cpu(b).min(alone(b)) } else { on_cpu(b) };
    let mut bundles: Vec<(usize, f64)> = (0..problem.bundles.len()).map(|b| (b, most(b))).collect();
    bundles.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let cuts = CUTS.min(VERTICES / (1 + problem.bundles.len() + 2 * problem.nets.len()));
    let mut best = 0.0f64;
    for (bundle, most) in bundles.into_iter().take(cuts) {
        if most <= best {
            break;
        }
        best = best.max(if usable(bundle) { on_cpu(bundle).min(least_load(problem, bundle)) } else { most });
    }
    best * (1.0 - 1e-9)
}

/// The least load of an accelerator that has `bundle`, whatever else it has.
fn least_load(problem: &Bundles, bundle: usize) -> f64 {
    let times = problem.bundles.iter().map(|b| b.accelerator_time);
    let all: f64 = times.chain(problem.nets.iter().map(|net| net.cost)).sum();
    if all <= 0.0 {
        return 0.0;
    }
    let scale = WHOLE / all;
    let endless = (4.0 * WHOLE) as u64;
    // Rounded down, so that the cut is a bound.
    let capacity = |time: f64| (time * scale) as u64;
    let mut graph: DiGraph<(), u64> = DiGraph::with_capacity(problem.bundles.len() + 2 * problem.nets.len() + 1, 0);
    let vertices: Vec<NodeIndex> = problem.bundles.iter().map(|_| graph.add_node(())).collect();
    let outside = graph.add_node(());
    for (index, other) in problem.bundles.iter().enumerate().filter(|(index, _)| *index != bundle) {
        let time = if problem.allows(index, 0) { capacity(other.accelerator_time) } else { endless };
        graph.add_edge(vertices[index], outside, time);
    }
    for net in problem.nets.iter().filter(|net| net.cost > 0.0) {
        let (sent, fetched) = (graph.add_node(()), graph.add_node(()));
        graph.add_edge(vertices[net.source], sent, capacity(net.cost));
        graph.add_edge(fetched, vertices[net.source], capacity(net.cost));
        for reader in &net.readers {
            graph.add_edge(sent, vertices[*reader], endless);
            graph.add_edge(vertices[*reader], fetched, endless);
        }
    }
    let (flow, _) = dinics(&graph, vertices[bundle], outside);
    problem.bundles[bundle].accelerator_time + flow as f64 / scale
}
