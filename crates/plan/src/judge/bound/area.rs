//! The area bound: the linear relaxation of minimum makespan on unrelated machines.
//!
//! The linear program that assigns fractions of groups to devices and minimises the largest load is bounded from below
//! by its dual: for all device weights w that sum to 1, the largest load is at least Σ over groups of the smallest w ·
//! time. Weights are found by multiplicative updates (Arora, Hazan & Kale 2012); every iterate is a bound, the best is
//! kept.

use crate::problem::Problem;
use edgecut_graph::units::Micros;

const STEPS: usize = 200;
/// Limit on groups × devices × steps, so that the bound stays cheap on large problems.
const MAX_WORK: usize = 20_000_000;

/// Lower bound on the largest load, with indivisible groups.
pub fn interval(problem: &Problem) -> Micros {
    let fastest = problem.groups.iter().map(|group| min(group.costs.iter().flatten().map(|c| c.time.0)));
    let largest = fastest.fold(0.0, f64::max);
    Micros(largest.max(spread(problem)))
}

/// Lower bound on the largest load in microseconds, with divisible groups; infinite if no device supports some group.
pub fn spread(problem: &Problem) -> f64 {
    let devices = problem.devices.len();
    let mut weights = vec![1.0 / devices as f64; devices];
    let mut best: f64 = 0.0;
    let steps = STEPS.min(1 + MAX_WORK / (1 + problem.groups.len() * devices));
    for step in 0..steps {
        let mut loads = vec![0.0; devices];
        let mut value = 0.0;
        for group in &problem.groups {
            let priced = group.costs.iter().enumerate().filter_map(|(d, cost)| Some((d, cost.as_ref()?.time.0)));
            let cheapest = priced.min_by(|a, b| (a.1 * weights[a.0]).total_cmp(&(b.1 * weights[b.0])));
            let Some((device, time)) = cheapest else { return f64::INFINITY };
            loads[device] += time;
            value += time * weights[device];
        }
        best = best.max(value);
        let top = loads.iter().copied().fold(0.0, f64::max);
        if top <= 0.0 {
            break;
        }
        let step_size = 1.0 / (1.0 + step as f64).sqrt();
        for (weight, load) in weights.iter_mut().zip(&loads) {
            *weight *= (step_size * load / top).exp();
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    // Rounding in the sum must not lift the bound above what a plan can reach.
    best * (1.0 - 1e-9)
}

fn min(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}
