//! Simulated annealing on assignments: moves, swaps, moves of connected runs, clearing an accelerator.
//!
//! In some rounds, bundles on the critical path are moved more often. Memory overflow is penalised: in every other round
//! with a low initial weight, so that large bundles can be exchanged, then increasingly.

use fastrand::Rng;

use super::candidate::LatencyCandidate;
use crate::placement::{
    PlacementWorkload,
    bundles::{Bundle, Bundles},
    latency_evaluator::LatencyEvaluator,
    options::PlacementOptions,
};
use edgecut_plan::deadline::{Deadline, Round};

/// Moves between two looks at the clock.
const STRIDE: u64 = 256;
const TEMPERATURES: (f64, f64) = (0.02, 2e-5);
/// What a memory that is used twice costs at the beginning and the end of a round, in times of the best finish so far.
const WEIGHTS: [(f64, f64); 2] = [(4.0, 4.0), (0.4, 8.0)];
/// Sums of sizes that are kept move by move are not exact.
const ROUNDING: f64 = 1e-9;
/// Whether bundles of the units that keep the end waiting are preferred, round by round.
const FOCUSED: [bool; 4] = [true, true, false, false];
/// Moves that are accepted between two looks for the units that keep the end waiting.
const STALE: u32 = 32;
/// Times the search goes on from the best.
const ROUNDS: usize = 8;
/// How hot each round begins: once hot enough to leave any valley, then ever nearer to the best.
const HEATS: [f64; ROUNDS] = [1.0, 10.0, 3.0, 1.0, 1.0, 0.25, 1.0, 0.25];
/// Cost of an evaluation: one of `operators` operators counts as `(BASE + operators) / OPERATORS` moves of the throughput
/// search, about.
const BASE: u64 = 88;
const OPERATORS: u64 = 43;

/// Goes on from `starts` and returns the best assignment seen.
pub fn search(
    workload: &PlacementWorkload,
    problem: &Bundles,
    starts: Vec<LatencyCandidate>,
    bound: f64,
    options: &PlacementOptions,
    deadline: &Deadline,
) -> LatencyCandidate {
    let mut rng = Rng::with_seed(options.seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut evaluator = LatencyEvaluator::new(workload, problem);
    let anywhere = if problem.cpus > 0 { problem.accelerators } else { 0 };
    let mut best = LatencyCandidate::of(&mut evaluator, problem, vec![anywhere; problem.bundles.len()]);
    let pool: Vec<LatencyCandidate> = starts.into_iter().chain([best.clone()]).collect();
    for start in &pool {
        if start.cmp_quality(&best).is_lt() {
            best = start.clone();
        }
    }
    if problem.bundles.is_empty() || problem.accelerators == 0 {
        return best;
    }
    let evaluations = options.budget.saturating_mul(OPERATORS) / (BASE + workload.operators.len() as u64);
    let moves = evaluations / ROUNDS as u64;
    for round in 0..ROUNDS {
        let start = if round < ROUNDS / 2 { pool[round % pool.len()].clone() } else { best.clone() };
        let heat = HEATS[round.min(HEATS.len() - 1)];
        let mut walk = LatencyWalk::new(problem, &mut evaluator, start, best.latency);
        walk.weights = WEIGHTS[round % WEIGHTS.len()];
        walk.focused = FOCUSED[round % FOCUSED.len()];
        let found = walk.run(moves, heat, &mut rng, bound, deadline.round(ROUNDS - round));
        if found.cmp_quality(&best).is_lt() {
            best = found;
        }
        if deadline.has_passed() || (best.over <= 0.0 && best.latency <= bound) {
            break;
        }
    }
    best
}

struct LatencyWalk<'a, 'b> {
    problem: &'a Bundles,
    evaluator: &'b mut LatencyEvaluator<'a>,
    device: Vec<usize>,
    sizes: Vec<f64>,
    scale: f64,
    weights: (f64, f64),
    weight: f64,
    focused: bool,
    best: LatencyCandidate,
    undo: Vec<(usize, usize)>,
    /// Operators of the units that keep the end waiting, and how many accepted moves ago.
    critical: Vec<u32>,
    age: u32,
}

impl<'a, 'b> LatencyWalk<'a, 'b> {
    fn new(
        problem: &'a Bundles,
        evaluator: &'b mut LatencyEvaluator<'a>,
        start: LatencyCandidate,
        scale: f64,
    ) -> LatencyWalk<'a, 'b> {
        let mut sizes = vec![0.0; problem.accelerators + 1];
        start.device.iter().enumerate().for_each(|(bundle, device)| sizes[*device] += problem.bundles[bundle].size);
        let scale = if scale.is_finite() && scale > 0.0 { scale } else { 1.0 };
        let (device, undo, critical) = (start.device.clone(), Vec::new(), Vec::new());
        let (weights, weight) = (WEIGHTS[0], WEIGHTS[0].0);
        LatencyWalk {
            problem,
            evaluator,
            device,
            sizes,
            scale,
            weights,
            weight,
            focused: false,
            best: start,
            undo,
            critical,
            age: 0,
        }
    }

    fn run(&mut self, moves: u64, heat: f64, rng: &mut Rng, bound: f64, deadline: Round) -> LatencyCandidate {
        let (mut now, mut temperature) = (f64::INFINITY, TEMPERATURES.0 * heat);
        for step in 0..moves {
            if step % STRIDE == 0 {
                let cooled = deadline.progress(step, moves);
                if cooled >= 1.0 || (self.best.over <= 0.0 && self.best.latency <= bound) {
                    break;
                }
                temperature = TEMPERATURES.0 * heat * (TEMPERATURES.1 / TEMPERATURES.0).powf(cooled);
                self.weight = self.weights.0 * (self.weights.1 / self.weights.0).powf(cooled);
                self.age = STALE;
            }
            if self.age >= STALE {
                now = self.energy();
                self.critical = if self.focused { self.evaluator.critical() } else { Vec::new() };
                self.age = 0;
            }
            self.undo.clear();
            self.propose(rng);
            if self.undo.is_empty() {
                continue;
            }
            let next = self.energy();
            if next <= now || rng.f64() < ((now - next) / temperature).exp() {
                if next < now {
                    self.keep(next);
                }
                now = next;
                self.age += 1;
            } else {
                while let Some((bundle, before)) = self.undo.pop() {
                    self.set(bundle, before);
                }
            }
        }
        self.best.clone()
    }

    fn energy(&mut self) -> f64 {
        self.evaluator.latency(&self.device) / self.scale + self.weight * self.full()
    }

    /// How many times the memories are used beyond the first.
    fn full(&self) -> f64 {
        let accelerators = self.sizes.iter().take(self.problem.accelerators);
        accelerators.map(|size| (size / self.problem.memory - 1.0).max(0.0)).sum()
    }

    fn keep(&mut self, energy: f64) {
        let fits = self.full() <= ROUNDING;
        if self.best.over > 0.0 || (fits && energy * self.scale < self.best.latency) {
            let found = LatencyCandidate::of(self.evaluator, self.problem, self.device.clone());
            if found.cmp_quality(&self.best).is_lt() {
                self.best = found;
            }
        }
    }

    fn set(&mut self, bundle: usize, to: usize) {
        let size = self.problem.bundles[bundle].size;
        self.sizes[self.device[bundle]] -= size;
        self.sizes[to] += size;
        self.device[bundle] = to;
    }

    fn shift(&mut self, bundle: usize, to: usize) {
        let before = self.device[bundle];
        let allowed =
            if to == self.problem.accelerators { self.problem.cpus > 0 } else { self.problem.allows(bundle, to) };
        if before != to && allowed {
            self.set(bundle, to);
            self.undo.push((bundle, before));
        }
    }

    fn propose(&mut self, rng: &mut Rng) {
        let problem = self.problem;
        let bundle = match rng.choice(&self.critical) {
            Some(op) if rng.u8(0..3) > 0 => self.problem.of[*op as usize],
            _ => rng.usize(0..problem.bundles.len()),
        };
        let home = self.device[bundle];
        match rng.u8(0..12) {
            0 => {
                let to = rng.usize(0..=problem.accelerators);
                self.shift(bundle, to);
            }
            1..4 => {
                if let Some(near) = self.near(bundle, rng) {
                    self.shift(bundle, self.device[near]);
                }
            }
            4 => {
                let other = rng.usize(0..problem.bundles.len());
                let there = self.device[other];
                if there != home {
                    self.shift(bundle, there);
                    self.shift(other, home);
                }
            }
            5 => {
                // Two accelerators change what they have, as far as it fits; or one goes to the CPUs whole.
                let to = rng.usize(0..=problem.accelerators);
                if to != home {
                    for other in 0..problem.bundles.len() {
                        if self.device[other] == home && rng.u8(0..64) > 0 {
                            self.shift(other, to);
                        }
                    }
                }
            }
            _ => {
                let Some(near) = self.near(bundle, rng) else { return };
                let to = match rng.u8(0..4) {
                    0 => rng.usize(0..=problem.accelerators),
                    _ => self.device[near],
                };
                if to != home {
                    let longest = 2 << rng.u32(0..6);
                    match rng.u8(0..4) {
                        0 => self.shift_cone(bundle, to, longest, |bundle| &bundle.reads),
                        1 => self.shift_cone(bundle, to, longest, |bundle| &bundle.makes),
                        _ => self.shift_run(bundle, to, longest, rng),
                    }
                }
            }
        }
    }

    fn near(&self, bundle: usize, rng: &mut Rng) -> Option<usize> {
        let entry = &self.problem.bundles[bundle];
        let count = entry.makes.len() + entry.reads.len();
        if count == 0 {
            return None;
        }
        let at = rng.usize(0..count);
        match entry.makes.get(at) {
            Some(net) => rng.choice(&self.problem.nets[*net].readers).copied(),
            None => Some(self.problem.nets[entry.reads[at - entry.makes.len()]].source),
        }
    }

    /// Moves up to `longest` bundles, connected with `bundle` on its device.
    fn shift_run(&mut self, bundle: usize, to: usize, longest: usize, rng: &mut Rng) {
        let home = self.device[bundle];
        self.shift(bundle, to);
        for _ in 0..2 * longest {
            let moved = self.undo.len();
            if moved == 0 || moved >= longest {
                return;
            }
            let from = self.undo[rng.usize(0..moved)].0;
            if let Some(near) = self.near(from, rng)
                && self.device[near] == home
            {
                self.shift(near, to);
            }
        }
    }

    /// Moves up to `longest` bundles of a device: `bundle` and what it needs there, or what needs it, as `nets` says.
    fn shift_cone(&mut self, bundle: usize, to: usize, longest: usize, nets: impl Fn(&Bundle) -> &Vec<usize>) {
        let (problem, home) = (self.problem, self.device[bundle]);
        self.shift(bundle, to);
        let mut looked = 0;
        while looked < self.undo.len() && self.undo.len() < longest {
            for net in nets(&problem.bundles[self.undo[looked].0]) {
                let net = &problem.nets[*net];
                for next in net.readers.iter().chain([&net.source]) {
                    if self.device[*next] == home && self.undo.len() < longest {
                        self.shift(*next, to);
                    }
                }
            }
            looked += 1;
        }
    }
}
