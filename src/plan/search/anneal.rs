//! Simulated annealing from the best placement so far: move a group, move a connected run of groups, move a
//! group in the order; where memory may decide, exchange runs of groups between two devices.
//!
//! Groups that keep the last result waiting are moved more often than others. The energy is the objective's value,
//! raised by what is violated; the temperature falls geometrically with the evaluations spent. A move is simulated from
//! where it first makes a difference to where it is certain to be refused ([`Replay`]); only where memory may decide, the
//! whole placement is evaluated.

use fastrand::Rng;

use super::{
    Session,
    replay::{Change, Replay},
};
use crate::plan::{DeviceId, GroupId, Problem, evaluate::Score, problem::Objective};

/// How hot each time begins that the search starts again from the best, in steps of the chain that the result waits
/// for: cold first, because the best is mostly far from a valley's floor, then hot enough to leave the valley.
const HEATS: [f64; 4] = [0.1, 1.0, 0.3, 0.1];
/// How far it cools, as a fraction of that.
const COOLING: f64 = 1e-3;
/// How much dearer a placement is that violates a limit by all of it: where some placement keeps them, and before.
const PENALTY: f64 = 4.0;
const PENALTY_AT_FIRST: f64 = 30.0;
/// Of so many moves one is an exchange where memory may decide.
const EXCHANGES: u8 = 4;
/// Longest run of groups moved together.
const LONGEST: usize = 64;
/// Moves that are accepted between two looks for the groups that keep the rest waiting.
const STALE: u32 = 16;

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.is_empty() || session.best.is_none() || session.is_over() {
        return;
    }
    let tails = session.tails.clone();
    let mut rng = Rng::with_seed(session.options.seed);
    let mut moves = Moves::new(problem, session.needs_account());
    let steps = session.left() / HEATS.len() as u64;
    // Only where nothing but the latency counts is a late finish a reason to give up.
    let by_latency = problem.objective == Objective::Latency;
    for (round, heat) in HEATS.into_iter().enumerate() {
        let pace = session.pace().round(HEATS.len() - round);
        let Some((score, whole)) = session.best.clone() else { return };
        let mut at = Replay::new(problem, &tails, &whole);
        // While nothing keeps the limits, that is what to look for.
        let penalty = if score.feasible() { PENALTY } else { PENALTY_AT_FIRST };
        let energy = |score: &Score| energy(score, penalty);
        let mut now = energy(&score);
        moves.look(&at);
        let hottest = heat * now.max(f64::MIN_POSITIVE) / moves.critical.len().max(1) as f64;
        for step in 0..steps {
            if session.is_over() {
                return;
            }
            let cooling = pace.progress(step, steps);
            if cooling >= 1.0 {
                break;
            }
            let temperature = hottest * COOLING.powf(cooling);
            // What the energy may be, drawn before it is known.
            let limit = now - temperature * (1.0 - rng.f64()).ln();
            if !moves.neighbour(&at, &mut rng) {
                continue;
            }
            at.apply(&moves.changes);
            match judged(session, &mut at, if by_latency { limit } else { f64::INFINITY }) {
                Some(score) if energy(&score) <= limit => {
                    now = energy(&score);
                    moves.accepted(&at);
                }
                _ => at.undo(),
            }
        }
    }
}

/// The score after a change; `None` if the makespan is above `limit`.
fn judged(session: &mut Session<'_>, at: &mut Replay<'_>, limit: f64) -> Option<Score> {
    session.spend(1);
    let makespan = at.simulate(limit)?;
    match session.judge(makespan, at.interval()) {
        Some(score) => {
            if session.best.as_ref().is_none_or(|(best, _)| score.better(best)) {
                // Sums that are kept move by move are rounded: the placement is scored from scratch.
                return session.offer(&at.whole()).ok();
            }
            Some(score)
        }
        None => session.offer(&at.whole()).ok(),
    }
}

/// The value of a placement, more by `penalty` times what it violates.
fn energy(score: &Score, penalty: f64) -> f64 {
    // Ties decide where the value is flat, without ever outweighing it.
    score.value * (1.0 + penalty * score.violation) + 1e-6 * score.tie.min(score.value) + score.violation
}

/// What neighbours are made from.
struct Moves<'a> {
    problem: &'a Problem,
    /// Whether memory may decide.
    is_tight: bool,
    /// By group: groups that it exchanges tensors with.
    near: Vec<Vec<GroupId>>,
    /// Groups that keep the last result waiting, and how many moves ago.
    critical: Vec<GroupId>,
    age: u32,
    /// The move that was drawn last.
    changes: Vec<Change>,
}

impl<'a> Moves<'a> {
    fn new(problem: &'a Problem, is_tight: bool) -> Moves<'a> {
        let mut near = vec![Vec::new(); problem.groups.len()];
        for (tensor, readers) in problem.tensors.iter().zip(problem.consumers()) {
            for reader in readers {
                let Some(producer) = tensor.producer else { continue };
                near[reader.0 as usize].push(producer);
                near[producer.0 as usize].push(reader);
            }
        }
        Moves { problem, is_tight, near, critical: Vec::new(), age: 0, changes: Vec::new() }
    }

    fn look(&mut self, at: &Replay<'_>) {
        self.critical = at.critical();
        self.age = 0;
    }

    fn accepted(&mut self, at: &Replay<'_>) {
        self.age += 1;
        if self.age >= STALE {
            self.look(at);
        }
    }

    /// Draws a move; false if it leads nowhere.
    fn neighbour(&mut self, at: &Replay<'_>, rng: &mut Rng) -> bool {
        self.changes.clear();
        if self.is_tight && rng.u8(0..EXCHANGES) == 0 {
            self.exchange(at, rng);
            return !self.changes.is_empty();
        }
        let anyone = GroupId(rng.u32(0..self.problem.groups.len() as u32));
        let group = match rng.u8(0..3) {
            0 => anyone,
            _ => rng.choice(&self.critical).copied().unwrap_or(anyone),
        };
        match rng.u8(0..10) {
            0..3 => self.changes.extend(self.shift(at, group, rng)),
            3..7 => {
                if let Some(device) = self.target(at, group, rng) {
                    self.changes.push(Change { group, device, rank: at.rank(group) });
                }
            }
            _ => {
                let Some(device) = self.target(at, group, rng) else { return false };
                let longest = 1 << rng.u32(1..=LONGEST.ilog2());
                self.carry(at, group, longest, device, rng);
            }
        }
        !self.changes.is_empty()
    }

    /// Two devices exchange runs of groups: where both are full, neither can take anything without giving something.
    fn exchange(&mut self, at: &Replay<'_>, rng: &mut Rng) {
        let groups = self.problem.groups.len() as u32;
        let (one, other) = (GroupId(rng.u32(0..groups)), GroupId(rng.u32(0..groups)));
        let (here, there) = (at.device(one), at.device(other));
        if here != there {
            for (group, device) in [(one, there), (other, here)] {
                // Mostly short: what fills a gap is small.
                let mut most = || rng.u32(0..=LONGEST.ilog2());
                let longest = 1 << most().min(most());
                self.carry(at, group, longest, device, rng);
            }
        }
    }

    /// Moves up to `longest` groups around `group` to `device`, those that run there.
    fn carry(&mut self, at: &Replay<'_>, group: GroupId, longest: usize, device: DeviceId, rng: &mut Rng) {
        for member in self.run_of(at, group, longest, rng) {
            if self.problem.cost(member, device).is_some() {
                self.changes.push(Change { group: member, device, rank: at.rank(member) });
            }
        }
    }

    /// Another device for `group`: mostly one that a neighbour is on.
    fn target(&self, at: &Replay<'_>, group: GroupId, rng: &mut Rng) -> Option<DeviceId> {
        let near = &self.near[group.0 as usize];
        let to = match rng.u8(0..3) {
            0 => DeviceId(rng.u32(0..self.problem.devices.len() as u32)),
            _ => at.device(*rng.choice(near)?),
        };
        (to != at.device(group) && self.problem.cost(group, to).is_some()).then_some(to)
    }

    /// Up to `longest` groups around `group`, connected on its device.
    fn run_of(&self, at: &Replay<'_>, group: GroupId, longest: usize, rng: &mut Rng) -> Vec<GroupId> {
        let device = at.device(group);
        let mut run = vec![group];
        let mut looked = 0;
        while looked < run.len() && run.len() < longest {
            let near = &self.near[run[looked].0 as usize];
            let turn = rng.usize(0..near.len().max(1));
            for member in near.iter().cycle().skip(turn).take(near.len()) {
                if run.len() < longest && at.device(*member) == device && !run.contains(member) {
                    run.push(*member);
                }
            }
            looked += 1;
        }
        run
    }

    /// Moves `group` to another place of the order that its neighbours allow.
    fn shift(&self, at: &Replay<'_>, group: GroupId, rng: &mut Rng) -> Option<Change> {
        let (before, after) = at.around(group);
        let first = before.map(|other| at.rank(other)).max().unwrap_or(0) + 1;
        let end = after.map(|other| at.rank(other)).min().unwrap_or((self.problem.groups.len() as u64 + 2) << 32);
        (first < end).then(|| Change { group, device: at.device(group), rank: rng.u64(first..end) })
    }
}
