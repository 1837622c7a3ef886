//! Contiguous stretches of a topological order, one after another: on CPUs or as a block of an accelerator.
//!
//! For each order the best cuts by dynamic programming, as if each stretch waited for the one before it. That
//! overestimates what could run side by side, which the evaluation and the annealing then find.

use fastrand::Rng;

use super::Candidate;
use crate::plan::workload::{Workload, finish::Finish, load::Bundles, order::order, stretch::Stretches};

const ORDERS: usize = 24;
const KEPT: usize = 4;
/// Cells of the tables that may be filled in all.
const CELLS: usize = 300_000_000;

/// The best cuts of several orders with every number of blocks, the best first.
pub fn search(workload: &Workload, problem: &Bundles, seed: u64, late: &dyn Fn() -> bool) -> Vec<Candidate> {
    let mut rng = Rng::with_seed(seed);
    let mut finish = Finish::new(workload, problem);
    let count = problem.bundles.len();
    let mut found: Vec<Candidate> = Vec::new();
    if problem.cpus > 0 {
        found.push(Candidate::of(&mut finish, problem, vec![problem.accelerators; count]));
    }
    let cells = (count * count * (problem.accelerators + 1)).max(1);
    for round in 0..=ORDERS.min(CELLS / cells) {
        if round > 0 && late() {
            break;
        }
        let order = order(workload, problem, round, &mut rng);
        for device in cuts(problem, &order) {
            found.push(Candidate::of(&mut finish, problem, device));
        }
    }
    found.sort_by(|a, b| a.over.total_cmp(&b.over).then(a.finish.total_cmp(&b.finish)));
    found.dedup();
    found.truncate(KEPT);
    found
}

/// The best cuts of `order` with 0, 1, … blocks.
fn cuts(problem: &Bundles, order: &[usize]) -> Vec<Vec<usize>> {
    let (count, accelerators) = (order.len(), problem.accelerators);
    let stretches = Stretches::new(problem, order);
    let chains = if problem.cpus > 0 { chains(problem, order) } else { vec![f64::INFINITY; count * count] };
    let mut best = vec![vec![f64::INFINITY; count + 1]; accelerators + 1];
    let mut from = vec![vec![(0usize, false); count + 1]; accelerators + 1];
    for blocks in 0..=accelerators {
        best[blocks][0] = 0.0;
        for end in 1..=count {
            for start in 0..end {
                let on_cpu = best[blocks][start] + chains[start * count + end - 1];
                let as_block = if blocks > 0 {
                    best[blocks - 1][start] + stretches.accelerator(start, end)
                } else {
                    f64::INFINITY
                };
                let (value, accelerated) = if as_block < on_cpu { (as_block, true) } else { (on_cpu, false) };
                if value < best[blocks][end] {
                    best[blocks][end] = value;
                    from[blocks][end] = (start, accelerated);
                }
            }
        }
    }
    let finite = (0..=accelerators).filter(|blocks| best[*blocks][count].is_finite());
    finite
        .map(|mut blocks| {
            let mut device = vec![accelerators; count];
            let mut end = count;
            while end > 0 {
                let (start, accelerated) = from[blocks][end];
                if accelerated {
                    blocks -= 1;
                    order[start..end].iter().for_each(|bundle| device[*bundle] = blocks);
                }
                end = start;
            }
            device
        })
        .collect()
}

/// The longest chain of CPU times in every stretch, row-major by start, column end − 1.
fn chains(problem: &Bundles, order: &[usize]) -> Vec<f64> {
    let count = order.len();
    let mut place = vec![0; count];
    order.iter().enumerate().for_each(|(at, bundle)| place[*bundle] = at);
    let sources: Vec<Vec<usize>> = order
        .iter()
        .map(|bundle| problem.bundles[*bundle].reads.iter().map(|net| place[problem.nets[*net].source]).collect())
        .collect();
    let mut chains = vec![0.0; count * count];
    let mut depth = vec![0.0f64; count];
    for start in 0..count {
        let mut longest = 0.0f64;
        for end in start..count {
            let before =
                sources[end].iter().filter(|s| (start..end).contains(*s)).map(|s| depth[*s]).fold(0.0, f64::max);
            depth[end] = before + problem.bundles[order[end]].cpu_time;
            longest = longest.max(depth[end]);
            chains[start * count + end] = longest;
        }
    }
    chains
}
