//! Searches for the assignment that finishes one sample soonest.

pub mod anneal;
pub mod stretches;

use super::{
    Answer, NoAnswer, Workload, bound, exhaust,
    finish::Finish,
    load::Bundles,
    throughput::{FOR_STARTS, Options, ROUNDING, possible},
};
use crate::plan::pace::Pace;

/// A device for every bundle (accelerators first, then one number for all CPUs), and when that finishes.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub device: Vec<usize>,
    pub finish: f64,
    /// Bytes above the accelerators' memory.
    pub over: f64,
}

/// Finds an assignment for `workload`.
///
/// # Errors
/// If some bundle fits on no device, or none was found that keeps within the memory.
pub fn solve(workload: &Workload, options: &Options) -> Result<Answer, NoAnswer> {
    let pace = Pace::new(options.cut_off);
    let problem = Bundles::new(workload);
    possible(workload, &problem)?;
    let (bound, bound_by) = bound::finish(workload, &problem);
    if let Some(best) = best_of_all(workload, &problem) {
        return answer(&problem, best.finish, "every assignment was tried", best);
    }
    let late = || pace.used() > FOR_STARTS;
    let starts = stretches::search(workload, &problem, options.seed, &late);
    let best = anneal::search(workload, &problem, starts, bound * ROUNDING, options, &pace);
    answer(&problem, bound, bound_by, best)
}

fn answer(problem: &Bundles, bound: f64, bound_by: &'static str, best: Candidate) -> Result<Answer, NoAnswer> {
    if best.over > problem.memory * 1e-12 || best.finish.is_infinite() {
        return Err(NoAnswer::NoneFound { over: best.over });
    }
    let places = problem.places(&best.device);
    Ok(Answer { objective: best.finish, bound: bound.min(best.finish), bound_by, places })
}

/// The best of all assignments, if there are few enough to try.
fn best_of_all(workload: &Workload, problem: &Bundles) -> Option<Candidate> {
    let mut best: Option<Candidate> = None;
    let mut finish = Finish::new(workload, problem);
    let complete = exhaust::assignments(problem, problem.cpus.min(1), |device| {
        let found = Candidate::of(&mut finish, problem, device.to_vec());
        if best.as_ref().is_none_or(|best| found.better(best)) {
            best = Some(found);
        }
    });
    best.filter(|_| complete)
}

impl Candidate {
    pub fn of(finish: &mut Finish<'_>, problem: &Bundles, device: Vec<usize>) -> Candidate {
        let mut sizes = vec![0.0; problem.accelerators];
        let mut allowed = true;
        for (bundle, &device) in problem.bundles.iter().zip(&device) {
            if device < problem.accelerators {
                sizes[device] += bundle.size;
                allowed &= bundle.on_accelerator;
            }
        }
        let over = sizes.iter().map(|size| (size - problem.memory).max(0.0)).sum();
        let finish = if allowed { finish.of(&device) } else { f64::INFINITY };
        Candidate { device, finish, over }
    }

    /// Whether this is to be preferred: within memory first, then the sooner finish.
    pub fn better(&self, other: &Candidate) -> bool {
        self.over.total_cmp(&other.over).then(self.finish.total_cmp(&other.finish)).is_lt()
    }
}
