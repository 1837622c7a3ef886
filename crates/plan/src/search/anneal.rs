//! Simulated annealing from the best placement so far.
//!
//! Neighbourhoods: move a group to another device, move a connected run of groups, move a group in the order; where memory
//! counts, exchange runs of groups between two devices. Groups on the critical path are moved more often than others. The
//! cost is the objective plus a penalty for violations; until limits and targets are met, it is the violation alone in
//! rounds of their own, because a gain in time would outweigh the last percent of memory. Cooling is geometric in the
//! evaluations spent. A move is simulated from the first instant that it affects until it is certain to be rejected
//! ([`IncrementalSimulator`]); only where memory counts is the whole placement evaluated.

use fastrand::Rng;

use super::{
    incremental::{Change, IncrementalSimulator},
    session::Session,
};
use crate::{
    judge::evaluation::Score,
    problem::{DeviceId, GroupId, Objective, Problem},
};
use edgecut_graph::units::Watts;

/// Initial temperature of each round, in average steps of the critical path. Every round restarts from the best placement:
/// cold first, because that is mostly far from a local optimum, then hot enough to leave it.
const INITIAL_TEMPERATURES: [f64; 4] = [0.1, 1.0, 0.3, 0.1];
/// Final temperature, relative to the initial one.
const FINAL_TEMPERATURE: f64 = 1e-3;
/// Relative penalty for a violation of 1: once a feasible placement is known, and before.
const PENALTY: f64 = 4.0;
const PENALTY_UNTIL_FEASIBLE: f64 = 30.0;
/// Where memory counts, one move in this many is an exchange: once a feasible placement is known, and before.
const EXCHANGE_PERIOD: u8 = 4;
const EXCHANGE_PERIOD_UNTIL_FEASIBLE: u8 = 2;
/// Rounds that look for a feasible placement, the part (one over it) of the evaluations that each of them may take, and
/// its initial temperature as a fraction of the violation.
const FEASIBILITY_ROUNDS: u64 = 6;
const FEASIBILITY_PART: u64 = 8;
const FEASIBILITY_TEMPERATURE: f64 = 0.1;
/// Limit on the run of groups that moves together.
const MAX_RUN: usize = 64;
/// In a joule. Energies are compared as these, which are of the size of times and bytes: next to them a violation, which
/// counts by itself too, is small.
const MICROJOULES: f64 = 1e6;
/// Relative slack for the rounding of sums that are updated move by move.
const ROUNDING: f64 = 1e-9;
/// Accepted moves between two updates of the critical path.
const CRITICAL_PATH_PERIOD: u32 = 16;

/// Anneals in rounds until the budget is spent.
pub(super) fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.is_empty() || session.best.is_none() || session.is_over() {
        return;
    }
    let tails = session.tails.clone();
    let mut rng = Rng::with_seed(session.options.seed);
    let mut moves = Neighbourhood::new(problem, session.depends_on_memory());
    if session.depends_on_memory() {
        find_feasible(session, &mut moves, &mut rng);
    }
    let steps = session.left() / INITIAL_TEMPERATURES.len() as u64;
    let idle = problem.idle_power();
    let unit = if problem.objective == Objective::Energy { MICROJOULES } else { 1.0 };
    for (round, initial) in INITIAL_TEMPERATURES.into_iter().enumerate() {
        let deadline = session.deadline().round(INITIAL_TEMPERATURES.len() - round);
        let Some((score, placement)) = session.best.clone() else { return };
        let mut simulator = IncrementalSimulator::new(problem, &tails, &placement);
        let penalty = if score.feasible() { PENALTY } else { PENALTY_UNTIL_FEASIBLE };
        let cost = |score: &Score| penalised(score, penalty, unit);
        let mut now = cost(&score);
        moves.update_critical_path(&simulator);
        let hottest = initial * now.max(f64::MIN_POSITIVE) / moves.critical.len().max(1) as f64;
        for step in 0..steps {
            if session.is_over() {
                return;
            }
            let cooling = deadline.progress(step, steps);
            if cooling >= 1.0 {
                break;
            }
            let temperature = hottest * FINAL_TEMPERATURE.powf(cooling);
            // The Metropolis criterion as a limit on the cost, drawn before the move is simulated.
            let limit = now - temperature * (1.0 - rng.f64()).ln();
            if !moves.draw(&simulator, &mut rng) {
                continue;
            }
            simulator.apply(&moves.changes);
            let latest = latest_makespan(problem, idle, &simulator, limit);
            match score_move(session, &mut simulator, latest) {
                Some(score) if cost(&score) <= limit => {
                    now = cost(&score);
                    moves.accepted(&simulator);
                }
                _ => simulator.undo(),
            }
        }
    }
}

/// The makespan in microseconds above which the energy of the applied move is certain to exceed `limit`.
fn latest_makespan(problem: &Problem, idle: Watts, simulator: &IncrementalSimulator<'_>, limit: f64) -> f64 {
    match problem.objective {
        Objective::Latency => limit,
        Objective::Energy if idle > Watts::ZERO => {
            (limit * (1.0 + ROUNDING) - simulator.above_idle().0 * MICROJOULES) / idle.0
        }
        Objective::Energy | Objective::Throughput | Objective::Memory => f64::INFINITY,
    }
}

/// Minimises the violation alone, until a feasible placement is found or the rounds are over.
fn find_feasible(session: &mut Session<'_>, moves: &mut Neighbourhood<'_>, rng: &mut Rng) {
    let (problem, tails) = (session.problem, session.tails.clone());
    let steps = session.left() / FEASIBILITY_PART;
    moves.seeks_feasibility = true;
    for _ in 0..FEASIBILITY_ROUNDS {
        let Some((score, placement)) = session.best.clone().filter(|(score, _)| !score.feasible()) else { break };
        let mut simulator = IncrementalSimulator::new(problem, &tails, &placement);
        let mut now = score.violation;
        let hottest = FEASIBILITY_TEMPERATURE * now;
        for step in 0..steps {
            if session.is_over() || session.best.as_ref().is_some_and(|(best, _)| best.feasible()) {
                break;
            }
            let temperature = hottest * FINAL_TEMPERATURE.powf(step as f64 / steps as f64);
            let limit = now - temperature * (1.0 - rng.f64()).ln();
            if !moves.draw(&simulator, rng) {
                continue;
            }
            simulator.apply(&moves.changes);
            match score_move(session, &mut simulator, f64::INFINITY) {
                Some(score) if score.violation <= limit => now = score.violation,
                _ => simulator.undo(),
            }
        }
    }
    moves.seeks_feasibility = false;
}

/// The score after a move; `None` if the makespan is above `limit`.
fn score_move(session: &mut Session<'_>, simulator: &mut IncrementalSimulator<'_>, limit: f64) -> Option<Score> {
    session.spend(1);
    let makespan = simulator.simulate(limit)?;
    match session.score_times(makespan, simulator.interval(), simulator.above_idle()) {
        Some(score) => {
            if session.improves(&score) {
                // Loads that are updated move by move accumulate rounding: score the incumbent from scratch.
                return session.offer(&simulator.placement()).ok();
            }
            Some(score)
        }
        None => session.offer(&simulator.placement()).ok(),
    }
}

/// The objective times `unit`, with violations penalised by `penalty`.
fn penalised(score: &Score, penalty: f64, unit: f64) -> f64 {
    let value = score.value * unit;
    // The tie-break guides the search on plateaus without outweighing the objective.
    value * (1.0 + penalty * score.violation) + 1e-6 * score.tie.min(value) + score.violation
}

/// Draws moves.
struct Neighbourhood<'a> {
    problem: &'a Problem,
    /// Whether the score may depend on memory.
    depends_on_memory: bool,
    /// Whether moves are to meet limits and targets, and not to improve the objective.
    seeks_feasibility: bool,
    /// By group: its producers and consumers.
    adjacent: Vec<Vec<GroupId>>,
    /// Groups on the critical path, and the moves accepted since it was updated.
    critical: Vec<GroupId>,
    age: u32,
    /// The move that was drawn last.
    changes: Vec<Change>,
}

impl<'a> Neighbourhood<'a> {
    fn new(problem: &'a Problem, depends_on_memory: bool) -> Neighbourhood<'a> {
        let mut adjacent = vec![Vec::new(); problem.groups.len()];
        for (tensor, readers) in problem.tensors.iter().zip(problem.consumers()) {
            for reader in readers {
                let Some(producer) = tensor.producer else { continue };
                adjacent[reader.0 as usize].push(producer);
                adjacent[producer.0 as usize].push(reader);
            }
        }
        Neighbourhood {
            problem,
            depends_on_memory,
            seeks_feasibility: false,
            adjacent,
            critical: Vec::new(),
            age: 0,
            changes: Vec::new(),
        }
    }

    fn update_critical_path(&mut self, simulator: &IncrementalSimulator<'_>) {
        self.critical = simulator.critical_path();
        self.age = 0;
    }

    fn accepted(&mut self, simulator: &IncrementalSimulator<'_>) {
        self.age += 1;
        if self.age >= CRITICAL_PATH_PERIOD {
            self.update_critical_path(simulator);
        }
    }

    /// Draws a move into `changes`; false if there is none.
    fn draw(&mut self, simulator: &IncrementalSimulator<'_>, rng: &mut Rng) -> bool {
        self.changes.clear();
        let period = if self.seeks_feasibility { EXCHANGE_PERIOD_UNTIL_FEASIBLE } else { EXCHANGE_PERIOD };
        if self.depends_on_memory && rng.u8(0..period) == 0 {
            self.exchange(simulator, rng);
            return !self.changes.is_empty();
        }
        let any = GroupId(rng.u32(0..self.problem.groups.len() as u32));
        let group = match rng.u8(0..3) {
            0 => any,
            _ if self.seeks_feasibility => any,
            _ => rng.choice(&self.critical).copied().unwrap_or(any),
        };
        match rng.u8(0..10) {
            0..3 => self.changes.extend(self.shift(simulator, group, rng)),
            3..7 => {
                if let Some(device) = self.target(simulator, group, rng) {
                    self.changes.push(Change { group, device, rank: simulator.rank(group) });
                }
            }
            _ => {
                let Some(device) = self.target(simulator, group, rng) else { return false };
                let longest = 1 << rng.u32(1..=MAX_RUN.ilog2());
                self.move_run(simulator, group, longest, device, rng);
            }
        }
        !self.changes.is_empty()
    }

    /// Exchanges runs of groups between two devices: where both are full, neither can take a group without giving one.
    fn exchange(&mut self, simulator: &IncrementalSimulator<'_>, rng: &mut Rng) {
        let groups = self.problem.groups.len() as u32;
        let (one, other) = (GroupId(rng.u32(0..groups)), GroupId(rng.u32(0..groups)));
        let (here, there) = (simulator.device(one), simulator.device(other));
        if here != there {
            for (group, device) in [(one, there), (other, here)] {
                // The minimum of two draws favours short runs, which fit small gaps.
                let mut exponent = || rng.u32(0..=MAX_RUN.ilog2());
                let longest = 1 << exponent().min(exponent());
                self.move_run(simulator, group, longest, device, rng);
            }
        }
    }

    /// Moves up to `longest` groups around `group` to `device`, as far as it can run them.
    fn move_run(
        &mut self,
        simulator: &IncrementalSimulator<'_>,
        group: GroupId,
        longest: usize,
        device: DeviceId,
        rng: &mut Rng,
    ) {
        for member in self.run_of(simulator, group, longest, rng) {
            if self.problem.cost(member, device).is_some() {
                self.changes.push(Change { group: member, device, rank: simulator.rank(member) });
            }
        }
    }

    /// Another device for `group`: mostly that of an adjacent group.
    fn target(&self, simulator: &IncrementalSimulator<'_>, group: GroupId, rng: &mut Rng) -> Option<DeviceId> {
        let adjacent = &self.adjacent[group.0 as usize];
        let to = match rng.u8(0..3) {
            0 => DeviceId(rng.u32(0..self.problem.devices.len() as u32)),
            _ => simulator.device(*rng.choice(adjacent)?),
        };
        (to != simulator.device(group) && self.problem.cost(group, to).is_some()).then_some(to)
    }

    /// Up to `longest` groups of the device of `group`, connected with it, by breadth-first search.
    fn run_of(
        &self,
        simulator: &IncrementalSimulator<'_>,
        group: GroupId,
        longest: usize,
        rng: &mut Rng,
    ) -> Vec<GroupId> {
        let device = simulator.device(group);
        let mut run = vec![group];
        let mut visited = 0;
        while visited < run.len() && run.len() < longest {
            let adjacent = &self.adjacent[run[visited].0 as usize];
            let first = rng.usize(0..adjacent.len().max(1));
            for member in adjacent.iter().cycle().skip(first).take(adjacent.len()) {
                if run.len() < longest && simulator.device(*member) == device && !run.contains(member) {
                    run.push(*member);
                }
            }
            visited += 1;
        }
        run
    }

    /// Moves `group` in the order, between its producers and consumers.
    fn shift(&self, simulator: &IncrementalSimulator<'_>, group: GroupId, rng: &mut Rng) -> Option<Change> {
        let ranks = simulator.rank_range(group);
        (!ranks.is_empty()).then(|| Change { group, device: simulator.device(group), rank: rng.u64(ranks) })
    }
}
