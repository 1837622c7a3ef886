//! The area bound: all work must be done by somebody.
//!
//! The linear program "fractions of groups on devices, least largest load" is bounded from below by its dual:
//! for any weights w on the devices that sum to 1, the largest load is at least
//! Σ over groups of the least w · time. Weights are sought by multiplicative updates (Arora, Hazan & Kale 2012);
//! every step's value is a bound, the best is kept.

use crate::plan::Problem;
use crate::units::Micros;

const STEPS: usize = 200;

/// No plan has a smaller largest load.
pub fn interval(problem: &Problem) -> Micros {
    let single = problem.groups.iter().map(|group| least(group.costs.iter().flatten().map(|c| c.time.0)));
    let largest = single.fold(0.0, f64::max);
    Micros(largest.max(spread(problem)))
}

/// The largest load of all work spread at will, fractions of groups on any device.
pub fn spread(problem: &Problem) -> f64 {
    let devices = problem.devices.len();
    let mut weights = vec![1.0 / devices as f64; devices];
    let mut best: f64 = 0.0;
    // Smaller steps where there is more to sum, so that a scale run stays a scale run.
    let steps = STEPS.min(1 + 20_000_000 / (1 + problem.groups.len() * devices));
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
        let pace = 1.0 / (1.0 + step as f64).sqrt();
        for (weight, load) in weights.iter_mut().zip(&loads) {
            *weight *= (pace * load / top).exp();
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    // Rounding in the sum must not push the bound above what a plan can reach.
    best * (1.0 - 1e-9)
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}
