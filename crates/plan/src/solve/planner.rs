//! From a request to a candidate, by the request's costs alone.

use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy},
    },
    fit::strategy::{self as within_limits, Front, Schedules, Unsplit},
    judge::no_plan::{NoPlan, Shortage},
    request::{PlanRequest, choice::Choices},
    split::{
        bound,
        solve::met,
        strategy::{Like, Split, Whole},
    },
};

/// Everything that is tried for a plan, in this order.
const STRATEGIES: [&dyn Strategy; 6] = [&Like, &Whole, &Split, &Front, &Schedules, &Unsplit];

/// Where a bound proves that no plan meets limits and targets, the search for the nearest plan gets this fraction of the
/// evaluations and of the time: 1 / 16.
const PROVED_PART: u32 = 16;

/// The best plan found for `request`: groups whole or split, and where devices have too little memory for that, a plan
/// within their limits, with schedules if need be. [`Candidate::to_plan`] makes the plan file of it.
///
/// Deterministic by the request's seed and budget, but for the searches' own cut-off.
///
/// # Errors
/// If the tables contradict each other, or no plan meets limits and targets; then with the reason.
pub fn plan(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    met(request, nearest(request)?)
}

/// The same; where no plan that meets limits and targets is found, the nearest one, which says what it misses.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn nearest(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    let is_proved = !proof(request)?.is_empty();
    let shortened = is_proved.then(|| request.with_part(PROVED_PART));
    let request = shortened.as_ref().unwrap_or(request);
    Progress::new(request, None).try_all(&STRATEGIES)?.finish()
}

/// `solved`, whose shards may be measured, or what the strategies for limits on memory find in its place. If none meets
/// limits and targets, the nearest.
pub fn within_memory(request: &PlanRequest<'_>, solved: Candidate) -> Candidate {
    let progress = Progress::from(request, solved.clone());
    progress.try_all(&within_limits::STRATEGIES).and_then(Progress::finish).unwrap_or(solved)
}

/// The limits and targets of `request` that no plan meets at its costs, by bounds.
///
/// # Errors
/// If the tables contradict each other.
pub fn proof(request: &PlanRequest<'_>) -> Result<Vec<Shortage>, NoPlan> {
    let unsplit = request.expanded(&Choices::new())?;
    Ok(bound::proof(request, &unsplit.problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        candidate::attempt::{Attempt, AttemptOutcome},
        fit::constrained::with_schedules,
        problem::Objective,
        request::{goal::Goal, ratios::Ratios},
        search::options::Options,
        split::front::front,
        testing::{CONVOLUTIONS, WIDE, random_model, with_request},
    };
    use edgecut_graph::units::{Bytes, Micros};
    use fastrand::Rng;

    const PROBLEMS: u64 = 300;
    /// Problems with limits below what the plan that needs the least memory takes.
    const IMPOSSIBLE: u64 = 120;
    /// With fewer refused by a proof, or by a search alone, the test would show nothing.
    const LEAST_REFUSED: usize = 40;

    /// Gives `request` a memory limit or targets about what `free`, planned without any, takes.
    fn tighten(request: &mut PlanRequest<'_>, free: &Candidate, rng: &mut Rng) {
        let mut factor = || 0.2 + 0.9 * rng.f64();
        let evaluation = &free.solution.evaluation;
        match request.goal.search.seed % 3 {
            0 => request.goal.targets.latency = Some(Micros(factor() * evaluation.latency().0)),
            1 => request.goal.targets.throughput = Some(1e6 / (factor() * free.solution.interval().0)),
            _ => {
                let peak = free.solution.reserved().max().unwrap_or_default();
                let limit = Bytes((factor() * peak.0 as f64) as u64);
                request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(limit));
            }
        }
    }

    /// Every plan that some search, seed or option finds.
    fn attempts(request: &PlanRequest<'_>) -> Vec<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for seed in [17, 18] {
            for objective in [Objective::Latency, Objective::Throughput, Objective::Memory] {
                let search = Options { seed, budget: Some(200), ..request.goal.search };
                let other = request.with_goal(Goal { search, objective, ..request.goal.clone() });
                found.extend(plan(&other));
                found.extend(with_schedules(&other));
            }
        }
        found.extend([Ratios::Equal, Ratios::Proportional].into_iter().flat_map(|ratios| {
            let other = request.with_goal(Goal { ratios, ..request.goal.clone() });
            plan(&other)
        }));
        found.extend(plan(&request.unsplit()));
        found.extend(front(request, |_| {}).into_iter().flat_map(|front| front.points).map(|point| point.candidate));
        found.retain(|candidate| candidate.solution.missed.is_empty());
        found
    }

    #[test]
    fn a_candidate_says_what_each_strategy_found() {
        let outcomes = |request: &PlanRequest<'_>| {
            let candidate = plan(request).unwrap();
            let names: Vec<&str> = candidate.attempts.iter().map(|attempt| attempt.strategy).collect();
            assert_eq!(names, STRATEGIES.map(Strategy::name));
            for attempt in &candidate.attempts {
                let is_tried = !matches!(attempt.outcome, AttemptOutcome::Skipped(_));
                assert_eq!(is_tried, attempt.evaluations > 0, "{attempt:?}");
            }
            let kept: Vec<&Attempt> = candidate.attempts.iter().filter(|attempt| attempt.is_kept).collect();
            let [kept] = kept[..] else { panic!("{kept:?}") };
            assert_eq!(kept.outcome, AttemptOutcome::Met(candidate.solution.value()));
            (kept.strategy, candidate.attempts.clone())
        };
        with_request(WIDE, &[1000.0], |mut request| {
            let (kept, attempts) = outcomes(&request);
            assert_eq!(kept, "whole groups");
            assert!(attempts[3..].iter().all(|attempt| matches!(attempt.outcome, AttemptOutcome::Skipped(_))));
            request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(Bytes(3 << 20)));
            let (kept, attempts) = outcomes(&request);
            assert_eq!(kept, "memory-saving schedules");
            assert!(matches!(&attempts[1].outcome, AttemptOutcome::Missed(missed) if !missed.is_empty()));
        });
        with_request(CONVOLUTIONS, &[1000.0, 1000.0], |request| assert_eq!(outcomes(&request).0, "split groups"));
    }

    #[test]
    fn the_nearest_plan_needs_no_more_memory_than_the_one_that_needs_the_least() {
        let mut missed = 0;
        for seed in 0..IMPOSSIBLE {
            let mut rng = Rng::with_seed(seed);
            let speeds: Vec<f64> = (0..rng.usize(1..=3)).map(|_| 300.0 + 1000.0 * rng.f64()).collect();
            with_request(&random_model(&mut rng), &speeds, |mut request| {
                request.goal.search = Options { seed, budget: Some(60), cut_off: None, ..Options::default() };
                request.goal.objective =
                    [Objective::Latency, Objective::Throughput, Objective::Memory][rng.usize(0..3)];
                if rng.bool() {
                    request = request.unsplit();
                }
                let goal = Goal { objective: Objective::Memory, ..request.goal.clone() };
                let frugal = nearest(&request.with_goal(goal)).unwrap();
                let needed: Vec<Bytes> = frugal.solution.reserved().collect();
                let peak = needed.iter().max().copied().unwrap_or_default();
                let is_alike = rng.bool();
                for device in &mut request.instance_mut().network.devices {
                    let factor = if is_alike { 0.5 } else { 0.3 + 0.5 * rng.f64() };
                    device.memory = Some(Bytes((factor * peak.0 as f64) as u64));
                }
                let nearest = nearest(&request).unwrap();
                let excess = |reserved: &mut dyn Iterator<Item = Bytes>| {
                    let over = reserved.zip(&request.instance.network.devices).map(|(reserved, device)| {
                        let limit = device.memory.unwrap_or_default();
                        limit.shortfall(reserved).0 as f64 / limit.0 as f64
                    });
                    over.fold(0.0, f64::max)
                };
                let (here, there) = (excess(&mut nearest.solution.reserved()), excess(&mut needed.into_iter()));
                missed += u64::from(here > 0.0);
                assert!(here <= there, "seed {seed}: {here} is more than {there}");
            });
        }
        assert!(missed >= IMPOSSIBLE / 4, "{missed}");
    }

    #[test]
    fn what_is_said_to_be_impossible_no_search_finds() {
        let (mut proved, mut not_found) = (0, 0);
        for seed in 0..PROBLEMS {
            let mut rng = Rng::with_seed(seed);
            let speeds: Vec<f64> = (0..rng.usize(1..=3)).map(|_| 300.0 + 1000.0 * rng.f64()).collect();
            with_request(&random_model(&mut rng), &speeds, |mut request| {
                request.goal.search = Options { seed, budget: Some(60), cut_off: None, ..Options::default() };
                request.goal.objective =
                    [Objective::Latency, Objective::Throughput, Objective::Memory][rng.usize(0..3)];
                let free = plan(&request).unwrap();
                tighten(&mut request, &free, &mut rng);
                match plan(&request) {
                    Ok(_) => {}
                    Err(NoPlan::Targets { proven: true, shortages, .. }) => {
                        proved += 1;
                        if let Some(found) = attempts(&request).first() {
                            panic!("seed {seed}: {shortages:?}, but {:?}", found.solution.evaluation.score);
                        }
                    }
                    Err(NoPlan::Targets { .. }) => not_found += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            });
        }
        assert!(proved >= LEAST_REFUSED && not_found > 0, "{proved} proved, {not_found} not found");
    }
}
