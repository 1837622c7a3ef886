//! Simulated annealing from the best placement so far: move a group, move a connected run of groups, move a
//! group in the order.
//!
//! The energy is the objective's value, raised by what is violated; the temperature falls geometrically with
//! the evaluations spent, from a few percent of the value to a few parts in a hundred thousand.

use fastrand::Rng;

use super::{Session, Whole};
use crate::plan::{DeviceId, GroupId, Problem, evaluate::Score};

const HOTTEST: f64 = 0.03;
const COLDEST: f64 = 3e-5;
/// Times the search starts again from the best.
const ROUNDS: u64 = 4;
/// Longest run of groups moved together.
const LONGEST: usize = 64;

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.is_empty() || session.best.is_none() {
        return;
    }
    let mut rng = Rng::with_seed(session.options.seed);
    let moves = Moves::new(problem);
    let left = session.options.budget.saturating_sub(session.spent());
    for _ in 0..ROUNDS {
        let Some((score, whole)) = session.best.clone() else { return };
        let (mut now, mut at) = (energy(&score), whole);
        let scale = now.max(f64::MIN_POSITIVE);
        let steps = left / ROUNDS;
        for step in 0..steps {
            if session.is_over() {
                return;
            }
            let cooling = step as f64 / steps as f64;
            let temperature = scale * HOTTEST * (COLDEST / HOTTEST).powf(cooling);
            let Some(next) = moves.neighbour(&at, &mut rng) else { continue };
            let Ok(score) = session.offer(&next) else { continue };
            let change = energy(&score) - now;
            if change <= 0.0 || rng.f64() < (-change / temperature).exp() {
                now += change;
                at = next;
            }
        }
    }
}

fn energy(score: &Score) -> f64 {
    // Ties decide where the value is flat, without ever outweighing it.
    score.value * (1.0 + 4.0 * score.violation) + 1e-6 * score.tie.min(score.value) + score.violation
}

/// What neighbours are made from.
struct Moves<'a> {
    problem: &'a Problem,
    /// By group: groups that it exchanges tensors with.
    near: Vec<Vec<GroupId>>,
    /// By group: what it must come after and before.
    after: Vec<Vec<GroupId>>,
    before: Vec<Vec<GroupId>>,
}

impl<'a> Moves<'a> {
    fn new(problem: &'a Problem) -> Moves<'a> {
        let groups = problem.groups.len();
        let mut moves = Moves {
            problem,
            near: vec![Vec::new(); groups],
            after: vec![Vec::new(); groups],
            before: vec![Vec::new(); groups],
        };
        for (tensor, readers) in problem.tensors.iter().zip(problem.consumers()) {
            for reader in readers {
                let Some(producer) = tensor.producer else { continue };
                moves.after[reader.0 as usize].push(producer);
                moves.before[producer.0 as usize].push(reader);
                moves.near[reader.0 as usize].push(producer);
                moves.near[producer.0 as usize].push(reader);
            }
        }
        moves
    }

    /// A placement next to `at`; `None` if the drawn move leads nowhere.
    fn neighbour(&self, at: &Whole, rng: &mut Rng) -> Option<Whole> {
        let group = GroupId(rng.u32(0..self.problem.groups.len() as u32));
        let mut next = at.clone();
        match rng.u8(0..10) {
            0..2 => self.shift(&mut next, group, rng)?,
            2..6 => {
                let to = self.target(at, group, rng)?;
                next.devices[group.0 as usize] = to;
            }
            _ => {
                let to = self.target(at, group, rng)?;
                let longest = 1 << rng.u32(1..=LONGEST.ilog2());
                for member in self.run_of(at, group, longest, rng) {
                    if self.problem.cost(member, to).is_some() {
                        next.devices[member.0 as usize] = to;
                    }
                }
            }
        }
        Some(next)
    }

    /// Another device for `group`: mostly one that a neighbour is on.
    fn target(&self, at: &Whole, group: GroupId, rng: &mut Rng) -> Option<DeviceId> {
        let near = &self.near[group.0 as usize];
        let to = match rng.u8(0..3) {
            0 => DeviceId(rng.u32(0..self.problem.devices.len() as u32)),
            _ => at.devices[rng.choice(near)?.0 as usize],
        };
        (to != at.devices[group.0 as usize] && self.problem.cost(group, to).is_some()).then_some(to)
    }

    /// Up to `longest` groups around `group`, connected on its device.
    fn run_of(&self, at: &Whole, group: GroupId, longest: usize, rng: &mut Rng) -> Vec<GroupId> {
        let device = at.devices[group.0 as usize];
        let mut run = vec![group];
        let mut looked = 0;
        while looked < run.len() && run.len() < longest {
            let near = &self.near[run[looked].0 as usize];
            let turn = rng.usize(0..near.len().max(1));
            for member in near.iter().cycle().skip(turn).take(near.len()) {
                if run.len() < longest && at.devices[member.0 as usize] == device && !run.contains(member) {
                    run.push(*member);
                }
            }
            looked += 1;
        }
        run
    }

    /// Moves `group` to another place of the order that its neighbours allow.
    fn shift(&self, whole: &mut Whole, group: GroupId, rng: &mut Rng) -> Option<()> {
        let from = whole.order.iter().position(|g| *g == group)?;
        let after = &self.after[group.0 as usize];
        let before = &self.before[group.0 as usize];
        let first = whole.order[..from].iter().rposition(|g| after.contains(g)).map_or(0, |at| at + 1);
        let last = whole.order[from + 1..]
            .iter()
            .position(|g| before.contains(g))
            .map_or(whole.order.len() - 1, |at| from + at);
        let to = rng.usize(first..=last);
        (to != from).then(|| {
            let group = whole.order.remove(from);
            whole.order.insert(to, group);
        })
    }
}
