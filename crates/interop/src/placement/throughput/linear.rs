//! Contiguous splits of topological orders, one segment per device: optimal for each order, by dynamic programming.

use fastrand::Rng;

use super::candidate::ThroughputCandidate;
use crate::placement::{PlacementWorkload, bundles::Bundles, order::order, segment::Segments};

/// Orders that are tried in addition to the file's own.
const ORDERS: usize = 24;
/// The best few become starts of the annealing.
const KEPT: usize = 4;
/// Limit on the table cells filled over all orders.
const CELLS: usize = 400_000_000;

/// The best cuts of several orders, the best first.
pub fn search(
    workload: &PlacementWorkload,
    problem: &Bundles,
    seed: u64,
    late: &dyn Fn() -> bool,
) -> Vec<ThroughputCandidate> {
    let mut rng = Rng::with_seed(seed);
    let count = problem.bundles.len();
    let cells = (count * count * (problem.accelerators + 1) * (problem.cpus.min(2) + 1)).max(1);
    let mut found: Vec<ThroughputCandidate> = Vec::new();
    // Of an order of too many bundles not even one table is made.
    let orders = if cells > CELLS { 0 } else { 1 + ORDERS.min(CELLS / cells) };
    for round in 0..orders {
        if round > 0 && late() {
            break;
        }
        let order = order(workload, problem, round, &mut rng);
        found.extend(cut(problem, &order).map(|device| ThroughputCandidate::of(problem, device)));
    }
    found.sort_by(ThroughputCandidate::cmp_quality);
    found.dedup();
    found.truncate(KEPT);
    found
}

/// The best contiguous cuts of `order`; `None` if no cuts keep within memory and support.
fn cut(problem: &Bundles, order: &[usize]) -> Option<Vec<usize>> {
    let count = order.len();
    // More CPUs than two gain little in a cut, and cost tables.
    let (accelerators, cpus) = (problem.accelerators, problem.cpus.min(2));
    let loads = Segments::new(problem, order);
    let at = |a: usize, c: usize, end: usize| (a * (cpus + 1) + c) * (count + 1) + end;
    let mut best = vec![f64::INFINITY; (accelerators + 1) * (cpus + 1) * (count + 1)];
    let mut from = vec![(0u32, false); best.len()];
    for a in 0..=accelerators {
        for c in 0..=cpus {
            best[at(a, c, 0)] = 0.0;
            for end in 1..=count {
                let mut top = f64::INFINITY;
                for start in (0..end).rev() {
                    if a > 0 {
                        let value = best[at(a - 1, c, start)].max(loads.accelerator(start, end));
                        if value < top {
                            top = value;
                            from[at(a, c, end)] = (start as u32, true);
                        }
                    }
                    if c > 0 {
                        let value = best[at(a, c - 1, start)].max(loads.cpu(start, end));
                        if value < top {
                            top = value;
                            from[at(a, c, end)] = (start as u32, false);
                        }
                    }
                }
                best[at(a, c, end)] = top;
            }
        }
    }
    if !best[at(accelerators, cpus, count)].is_finite() {
        return None;
    }
    let mut device = vec![0; count];
    let (mut a, mut c, mut end) = (accelerators, cpus, count);
    while end > 0 {
        let (start, accelerated) = from[at(a, c, end)];
        let here = if accelerated {
            a -= 1;
            a
        } else {
            c -= 1;
            problem.accelerators + c
        };
        order[start as usize..end].iter().for_each(|bundle| device[*bundle] = here);
        end = start as usize;
    }
    Some(device)
}
