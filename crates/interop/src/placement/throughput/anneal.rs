//! Simulated annealing on assignments, contiguous or not.
//!
//! The energy is a high norm of the loads instead of their maximum, so that it also decreases when a device other than the
//! most loaded one is relieved; the norm rises during cooling. Memory overflow is penalised with a weight that in every
//! other round starts low, so that large bundles can be exchanged.

use fastrand::Rng;

use super::candidate::ThroughputCandidate;
use crate::placement::{
    options::PlacementOptions,
    {bundles::Bundles, load::Loads},
};
use edgecut_plan::deadline::{Deadline, Round};

/// Moves between two looks at the clock, and between two sums from scratch that undo rounding.
const STRIDE: u64 = 4096;
const NORMS: (f64, f64) = (6.0, 40.0);
const TEMPERATURES: (f64, f64) = (0.02, 2e-5);
/// Sums of sizes that are kept move by move are not exact.
const ROUNDING: f64 = 1e-9;
/// What a memory that is used twice adds to the load at the beginning and the end of a round, in times of the best
/// largest load so far.
const WEIGHTS: [(f64, f64); 2] = [(4.0, 4.0), (0.4, 8.0)];
/// Times the search goes on from the best.
const ROUNDS: usize = 6;
/// How hot each round begins: once hot enough to leave any valley, then ever nearer to the best.
const HEATS: [f64; ROUNDS] = [1.0, 10.0, 1.0, 0.25, 1.0, 0.25];

/// Goes on from `starts` and returns the best assignment seen.
pub fn search(
    problem: &Bundles,
    starts: Vec<ThroughputCandidate>,
    bound: f64,
    options: &PlacementOptions,
    deadline: &Deadline,
) -> ThroughputCandidate {
    let mut rng = Rng::with_seed(options.seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut starts = starts.into_iter();
    let mut best = starts
        .next()
        .unwrap_or_else(|| ThroughputCandidate::of(problem, vec![problem.devices() - 1; problem.bundles.len()]));
    let mut pool: Vec<ThroughputCandidate> = vec![best.clone()];
    for start in starts {
        if start.cmp_quality(&best).is_lt() {
            best = start.clone();
        }
        pool.push(start);
    }
    if problem.bundles.is_empty() || problem.devices() < 2 {
        return best;
    }
    let moves = options.budget / ROUNDS as u64;
    for round in 0..ROUNDS {
        let start = if round < pool.len() && round < ROUNDS / 2 { pool[round].clone() } else { best.clone() };
        let heat = HEATS[round.min(HEATS.len() - 1)];
        let mut walk = ThroughputWalk::new(problem, start.device, best.largest);
        walk.weights = WEIGHTS[round % WEIGHTS.len()];
        let found = walk.run(moves, heat, &mut rng, bound, deadline.round(ROUNDS - round));
        if found.cmp_quality(&best).is_lt() {
            best = found;
        }
        if deadline.has_passed() || (best.over <= 0.0 && best.largest <= bound) {
            break;
        }
    }
    best
}

/// One cooling.
struct ThroughputWalk<'a> {
    loads: Loads<'a>,
    /// What loads are measured in.
    scale: f64,
    norm: f64,
    weights: (f64, f64),
    weight: f64,
    best: ThroughputCandidate,
    /// Moves of the step at hand: bundle and where it was.
    undo: Vec<(usize, usize)>,
}

impl<'a> ThroughputWalk<'a> {
    fn new(problem: &'a Bundles, device: Vec<usize>, scale: f64) -> ThroughputWalk<'a> {
        let best = ThroughputCandidate::of(problem, device.clone());
        let scale = if scale.is_finite() && scale > 0.0 { scale } else { 1.0 };
        ThroughputWalk {
            loads: Loads::new(problem, device),
            scale,
            norm: NORMS.0,
            weights: WEIGHTS[0],
            weight: WEIGHTS[0].0,
            best,
            undo: Vec::new(),
        }
    }

    fn run(mut self, moves: u64, heat: f64, rng: &mut Rng, bound: f64, deadline: Round) -> ThroughputCandidate {
        let (mut now, mut temperature) = (self.energy(), TEMPERATURES.0 * heat);
        for step in 0..moves {
            if step % STRIDE == 0 {
                let cooled = deadline.progress(step, moves);
                if cooled >= 1.0 || (self.best.over <= 0.0 && self.best.largest <= bound) {
                    break;
                }
                temperature = TEMPERATURES.0 * heat * (TEMPERATURES.1 / TEMPERATURES.0).powf(cooled);
                self.norm = NORMS.0 + (NORMS.1 - NORMS.0) * cooled;
                self.weight = self.weights.0 * (self.weights.1 / self.weights.0).powf(cooled);
                self.loads = Loads::new(self.loads.problem, std::mem::take(&mut self.loads.device));
                now = self.energy();
            }
            self.undo.clear();
            self.propose(rng);
            if self.undo.is_empty() {
                continue;
            }
            let next = self.energy();
            if next <= now || rng.f64() < ((now - next) / temperature).exp() {
                now = next;
                self.keep();
            } else {
                while let Some((bundle, before)) = self.undo.pop() {
                    self.loads.move_bundle(bundle, before);
                }
            }
        }
        self.best
    }

    fn energy(&self) -> f64 {
        let problem = self.loads.problem;
        let mut sum = 0.0;
        for (device, load) in self.loads.loads.iter().enumerate() {
            let full = if device < problem.accelerators {
                (self.loads.sizes[device] / problem.memory - 1.0).max(0.0)
            } else {
                0.0
            };
            sum += ((load / self.scale).max(0.0) + self.weight * full).powf(self.norm);
        }
        sum.powf(1.0 / self.norm)
    }

    fn keep(&mut self) {
        let largest = self.loads.largest();
        let fits = self.loads.over() <= self.best.over + ROUNDING * self.loads.problem.memory;
        if fits && (largest < self.best.largest * (1.0 - 1e-12) || self.best.over > 0.0) {
            // Sums kept move by move drift; only exact figures may be best.
            let found = ThroughputCandidate::of(self.loads.problem, self.loads.device.clone());
            if found.cmp_quality(&self.best).is_lt() {
                self.best = found;
            }
        }
    }

    fn shift(&mut self, bundle: usize, to: usize) {
        let before = self.loads.device[bundle];
        if before != to && self.loads.problem.allows(bundle, to) {
            self.loads.move_bundle(bundle, to);
            self.undo.push((bundle, before));
        }
    }

    fn propose(&mut self, rng: &mut Rng) {
        let problem = self.loads.problem;
        let bundle = rng.usize(0..problem.bundles.len());
        let home = self.loads.device[bundle];
        match rng.u8(0..10) {
            0 => {
                let to = rng.usize(0..problem.devices());
                self.shift(bundle, to);
            }
            1..5 => {
                if let Some(near) = self.near(bundle, rng) {
                    self.shift(bundle, self.loads.device[near]);
                }
            }
            5..7 => {
                let other = if rng.bool() { self.near(bundle, rng) } else { Some(rng.usize(0..problem.bundles.len())) };
                if let Some(other) = other.filter(|o| self.loads.device[*o] != home) {
                    let there = self.loads.device[other];
                    self.shift(bundle, there);
                    self.shift(other, home);
                }
            }
            _ => {
                let Some(near) = self.near(bundle, rng) else { return };
                let to = match rng.u8(0..4) {
                    0 => rng.usize(0..problem.devices()),
                    _ => self.loads.device[near],
                };
                if to != home {
                    let longest = 2 << rng.u32(0..5);
                    self.shift_run(bundle, to, longest, rng);
                }
            }
        }
    }

    /// A bundle that shares a net with `bundle`.
    fn near(&self, bundle: usize, rng: &mut Rng) -> Option<usize> {
        let problem = self.loads.problem;
        let entry = &problem.bundles[bundle];
        let count = entry.makes.len() + entry.reads.len();
        if count == 0 {
            return None;
        }
        let at = rng.usize(0..count);
        match entry.makes.get(at) {
            Some(net) => rng.choice(&problem.nets[*net].readers).copied(),
            None => Some(problem.nets[entry.reads[at - entry.makes.len()]].source),
        }
    }

    /// Moves up to `longest` bundles, connected with `bundle` on its device.
    fn shift_run(&mut self, bundle: usize, to: usize, longest: usize, rng: &mut Rng) {
        let home = self.loads.device[bundle];
        self.shift(bundle, to);
        for _ in 0..2 * longest {
            let moved = self.undo.len();
            if moved == 0 || moved >= longest {
                return;
            }
            let from = self.undo[rng.usize(0..moved)].0;
            if let Some(near) = self.near(from, rng)
                && self.loads.device[near] == home
            {
                self.shift(near, to);
            }
        }
    }
}
