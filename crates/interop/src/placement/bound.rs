//! Lower bounds on both objectives of a placement workload.

use super::{PlacementWorkload, bundles::Bundles, cut, path};

/// A bound on the largest load, and the argument that gives it.
pub fn largest_load(problem: &Bundles) -> (f64, &'static str) {
    let single = problem.bundles.iter().map(|b| {
        let cpu = if problem.cpus > 0 { b.cpu_time } else { f64::INFINITY };
        cpu.min(if problem.fits_accelerator(b) { b.accelerator_time } else { f64::INFINITY })
    });
    let single = (single.fold(0.0, f64::max), "the largest bundle of operators");
    let spread = (spread(problem), "all work and memory spread evenly");
    let cut = (cut::largest_load(problem), "what cuts a bundle of operators off from the rest");
    [spread, single, cut].into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap_or(spread)
}

/// The linear program "fractions of bundles on accelerators and CPUs, within time and memory", by its dual.
///
/// With prices 1 on CPU time, t on accelerator time and m on bytes, all work costs at least
/// Σ min(cpu, t·time + m·size), and devices that are busy for at most T can pay
/// cpus·T + accelerators·(t·T + m·memory). So T is at least the quotient of what is left; any prices give a bound.
fn spread(problem: &Bundles) -> f64 {
    let (accelerators, cpus) = (problem.accelerators as f64, problem.cpus as f64);
    let bound = |time_price: f64, size_price: f64| {
        let cost = |b: &super::bundles::Bundle| {
            let usable = b.on_accelerator && problem.accelerators > 0;
            let accelerator =
                if usable { time_price * b.accelerator_time + size_price * b.size } else { f64::INFINITY };
            accelerator.min(if problem.cpus > 0 { b.cpu_time } else { f64::INFINITY })
        };
        let work: f64 = problem.bundles.iter().map(cost).sum();
        let payers = cpus + accelerators * time_price;
        let spare = work - accelerators * size_price * problem.memory;
        if payers > 0.0 && spare.is_finite() { spare / payers } else { 0.0 }
    };
    // The quotient of a concave function and a linear one has one hill: golden sections, one inside the other.
    let speed = ratio(problem, |b| b.accelerator_time);
    let worth = ratio(problem, |b| b.size);
    maximum(&|t| maximum(&|m| bound(t * speed, m * worth))) * (1.0 - 1e-9)
}

/// CPU time by unit of `what`, the largest over the bundles: the price above which nothing would be bought.
fn ratio(problem: &Bundles, what: impl Fn(&super::bundles::Bundle) -> f64) -> f64 {
    let ratios = problem.bundles.iter().filter(|b| what(b) > 0.0).map(|b| b.cpu_time / what(b));
    ratios.fold(0.0, f64::max)
}

/// The maximum over [0, 1] of a function with one hill, about.
fn maximum(of: &dyn Fn(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let (mut low, mut high) = (0.0, 1.0);
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_a, mut at_b) = (of(a), of(b));
    let mut best = at_a.max(at_b).max(of(0.0)).max(of(1.0));
    for _ in 0..40 {
        if at_a < at_b {
            (low, a, at_a) = (a, b, at_b);
            b = low + GOLDEN * (high - low);
            at_b = of(b);
            best = best.max(at_b);
        } else {
            (high, b, at_b) = (b, a, at_a);
            a = high - GOLDEN * (high - low);
            at_a = of(a);
            best = best.max(at_a);
        }
    }
    best
}

/// A bound on the latency, and the argument that gives it.
pub fn latency(workload: &PlacementWorkload, problem: &Bundles) -> (f64, &'static str) {
    (path::latency(workload, problem, 0), "the slowest path of operators, with its transfers and all memory")
}
