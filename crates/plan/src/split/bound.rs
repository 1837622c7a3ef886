//! What no plan of a request can go below, however it splits groups, and however devices that are short of memory
//! compute theirs in parts.
//!
//! A device gets no more of a group done in a microsecond than in the best of the shares that its costs are made of. A
//! group that can be split over devices takes at least 1 / Σ rate on all of them, any other one at least 1 / rate on its
//! best device, as a whole or in tiles. Groups that depend on parameters alone, which shards that read them compute as far as
//! they need them, take nothing. A chain of groups takes the sum of that, with transfers and joins for nothing;
//! and all work must be done by some device, which bounds fractions anyway ([`area`]). Shards draw the power of their group,
//! so no share of one consumes less than that share at the best rate, on the device where that is the least ([`energy`]).

use crate::{
    candidate::Candidate,
    judge::{
        bound::{Bounds, LowerBound, area, energy, footprint},
        no_plan::Shortage,
        proof::{self, SLACK},
    },
    problem::{Cost, DeviceId, Group, GroupId, ParameterId, Problem, ProblemError},
    request::{PlanRequest, choice::Choices, instance::Instance},
};
use edgecut_graph::units::{Bytes, Joules, Micros};

/// The bounds on every plan of `request`; `unsplit` is its problem with every group whole.
pub fn bounds(request: &PlanRequest<'_>, unsplit: &Problem) -> Bounds {
    Relaxation::of(request, unsplit).map_or_else(|| Bounds::of(unsplit), |relaxation| relaxation.bounds(unsplit))
}

/// Limits and targets of `request` that no plan meets; `unsplit` is its problem with every group whole.
pub fn proof(request: &PlanRequest<'_>, unsplit: &Problem) -> Vec<Shortage> {
    match Relaxation::of(request, unsplit) {
        None => proof::proof(unsplit, &Bounds::of(unsplit)),
        Some(relaxation) => relaxation.proof(unsplit),
    }
}

/// Sets the bounds of `candidate` to those on every plan of `request`, unless it is proved the best one by itself.
pub(crate) fn bound_by(request: &PlanRequest<'_>, candidate: &mut Candidate) -> Result<(), ProblemError> {
    let unsplit = request.expanded(&Choices::new())?;
    let solution = &mut candidate.solution;
    solution.bounds = bounds(request, &unsplit.problem);
    if is_relaxed(request) {
        let bound = solution.bounds.on(request.goal.objective);
        solution.bound = LowerBound { value: bound.value.min(solution.value()), ..bound };
    }
    Ok(())
}

/// Whether groups may be computed in parts, so that the bounds of a placement problem do not hold for `request`.
pub(crate) fn is_relaxed(request: &PlanRequest<'_>) -> bool {
    may_split(&request.instance) || request.may_schedule()
}

fn may_split(instance: &Instance<'_>) -> bool {
    instance.can_split() && instance.network.devices.len() > 1
}

/// What groups take at least.
struct Relaxation {
    /// The problem with every group as fast on each device as any share of it.
    best: Problem,
    /// By group: whether it can be split over devices.
    splits: Vec<bool>,
    /// By group: what it takes at least, on all devices that may share it.
    least: Vec<f64>,
}

impl Relaxation {
    /// `None` if every group is computed as a whole on one device.
    fn of(request: &PlanRequest<'_>, unsplit: &Problem) -> Option<Relaxation> {
        if !is_relaxed(request) {
            return None;
        }
        let (may_split, may_schedule) = (may_split(&request.instance), request.may_schedule());
        let options = &request.instance.split_options;
        let is_copied = |group: usize| may_split && options.is_constant_group(group);
        let splits: Vec<bool> = (0..unsplit.groups.len())
            .map(|group| is_copied(group) || may_split && options.is_divisible(group))
            .collect();
        let mut best = unsplit.clone();
        for group in (0..splits.len()).filter(|group| is_copied(*group)) {
            best.groups[group].costs.iter_mut().flatten().for_each(|cost| cost.time = Micros::ZERO);
        }
        // A replica may have been measured below the whole.
        let has_shards = |(index, _): &(usize, &mut Group)| {
            may_schedule || splits[*index] || may_split && !options.group(*index).is_empty()
        };
        for (index, group) in best.groups.iter_mut().enumerate().filter(has_shards) {
            for (device, cost) in (0u32..).map(DeviceId).zip(&mut group.costs) {
                let rate = |whole: Cost| request.instance.shards.rate(index, device, whole);
                *cost = cost.map(|whole| Cost { time: Micros(whole.time.0.min(1.0 / rate(whole))), ..whole });
            }
        }
        let least = best.groups.iter().zip(&splits).map(|(group, splits)| {
            let times = group.costs.iter().flatten().map(|cost| cost.time.0);
            match splits {
                true => 1.0 / times.map(|time| 1.0 / time.max(f64::MIN_POSITIVE)).sum::<f64>(),
                false => times.fold(f64::INFINITY, f64::min),
            }
        });
        let least = least.collect();
        Some(Relaxation { best, splits, least })
    }

    /// The bounds at these times.
    fn bounds(&self, unsplit: &Problem) -> Bounds {
        let peak = self.peak(unsplit);
        if !self.splits.contains(&true) {
            return Bounds { peak, ..Bounds::of(&self.best) };
        }
        // The largest load of all work spread at will, and the largest group that cannot be spread.
        let indivisible = self.least.iter().zip(&self.splits).filter(|(_, splits)| !**splits).map(|(least, _)| *least);
        let even = Micros(indivisible.fold(area::spread(&self.best), f64::max));
        let interval = LowerBound { value: even, by: "all work spread evenly" };
        let chain = Micros(self.chain().1);
        let latency = match chain >= even {
            true => LowerBound { value: chain, by: "longest chain of groups, each on all devices at once" },
            false => interval.clone(),
        };
        // Sums of products are rounded.
        let joules = crate::judge::energy::of_run(self.best.idle_power(), latency.value, energy::least(&self.best));
        let energy = LowerBound {
            value: Joules(joules.0 * (1.0 - 1e-9)),
            by: "least energy of all groups and their shares, and idle power for the least latency",
        };
        Bounds { latency, interval, peak, energy }
    }

    /// The bound on the fullest device's memory.
    fn peak(&self, unsplit: &Problem) -> LowerBound<Bytes> {
        let share = Bytes(footprint::parameters(unsplit).0 / unsplit.devices.len().max(1) as u64);
        let largest = self.indivisible_parameters(unsplit).map(|(_, bytes)| bytes).max().unwrap_or_default();
        match largest > share {
            true => LowerBound { value: largest, by: "the parameters of the largest group that cannot be split" },
            false => LowerBound { value: share, by: "all parameters spread evenly" },
        }
    }

    fn proof(&self, unsplit: &Problem) -> Vec<Shortage> {
        let mut shortages = proof::unsupported(unsplit);
        // A group may be computed in tiles, but each of them needs all its parameters.
        for (id, need) in self.indivisible_parameters(unsplit) {
            let able = unsplit.device_ids().filter(|device| unsplit.cost(id, *device).is_some());
            let short = |device: DeviceId| {
                let limit = unsplit.device(device).memory.unwrap_or(Bytes(u64::MAX));
                (limit.shortfall(need), device)
            };
            let least = able.map(short).min().filter(|(short, _)| *short > Bytes::ZERO);
            shortages.extend(least.map(|(short, device)| {
                let group = unsplit.group(id).label.clone();
                Shortage::Group { group, need, short, device: unsplit.device(device).device_name() }
            }));
        }
        shortages.extend(proof::parameters(unsplit));
        let bounds = self.bounds(unsplit);
        match self.splits.contains(&true) {
            true => shortages.extend(self.critical_path(unsplit, &bounds)),
            false => shortages.extend(proof::critical_path(&self.best, &bounds)),
        }
        shortages.extend(proof::work(unsplit, &bounds));
        shortages
    }

    /// That the latency target is below the bound on the latency, if it is.
    fn critical_path(&self, unsplit: &Problem, bounds: &Bounds) -> Option<Shortage> {
        let (target, length) = (unsplit.targets.latency?, bounds.latency.value);
        if length.0 <= target.0 * SLACK {
            return None;
        }
        let (chain, sum) = self.chain();
        let (chain, on) = match sum >= length.0 {
            true => (chain, "on all devices at once, without transfers"),
            false => (unsplit.group_ids().collect(), "spread evenly over all devices, without transfers"),
        };
        let name = |id: Option<&GroupId>| id.map_or(String::new(), |id| unsplit.group(*id).label.clone());
        let (first, last, excess) = (name(chain.first()), name(chain.last()), length - target);
        Some(Shortage::Chain { groups: chain.len(), first, last, length, on, target, excess })
    }

    /// By group that cannot be split: the bytes of its parameters.
    fn indivisible_parameters(&self, unsplit: &Problem) -> impl Iterator<Item = (GroupId, Bytes)> {
        let size = |parameter: &ParameterId| unsplit.parameters[parameter.0 as usize];
        let groups = unsplit.group_ids().zip(&self.splits).filter(|(_, splits)| !**splits);
        groups.map(move |(id, _)| (id, unsplit.group(id).parameters.iter().map(size).sum()))
    }

    /// The longest chain of groups, and its length in microseconds.
    fn chain(&self) -> (Vec<GroupId>, f64) {
        let mut finish = vec![0.0f64; self.best.groups.len()];
        let mut previous: Vec<Option<GroupId>> = vec![None; finish.len()];
        for (index, group) in self.best.groups.iter().enumerate() {
            let producers = group.inputs.iter().filter_map(|tensor| self.best.tensor(*tensor).producer);
            let last = producers.max_by(|a, b| finish[a.0 as usize].total_cmp(&finish[b.0 as usize]));
            previous[index] = last;
            finish[index] = last.map_or(0.0, |last| finish[last.0 as usize]) + self.least[index];
        }
        let end = self.best.group_ids().max_by(|a, b| finish[a.0 as usize].total_cmp(&finish[b.0 as usize]));
        let mut chain: Vec<GroupId> = std::iter::successors(end, |group| previous[group.0 as usize]).collect();
        chain.reverse();
        // Sums of reciprocals are rounded; a bound must not be above what can be reached.
        (chain, end.map_or(0.0, |end| finish[end.0 as usize]) * (1.0 - 1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        problem::Objective,
        request::{choice::Choices, goal::Goal, ratios::Ratios},
        search::options::Options,
        solve::planner::plan,
        testing::{random_model, with_request},
    };
    use edgecut_graph::units::Watts;
    use fastrand::Rng;

    const MODELS: u64 = 30;

    #[test]
    fn no_plan_goes_below_the_bound_on_energy_however_it_splits() {
        let (mut split, mut scheduled) = (0, 0);
        for seed in 0..MODELS {
            let mut rng = Rng::with_seed(seed);
            let speeds: Vec<f64> = (0..rng.usize(1..=3)).map(|_| 300.0 + 1000.0 * rng.f64()).collect();
            with_request(&random_model(&mut rng), &speeds, |mut request| {
                request.goal.search = Options { seed, budget: Some(60), cut_off: None, ..Options::default() };
                let instance = request.instance_mut();
                for (at, device) in instance.network.devices.iter_mut().enumerate() {
                    device.idle = Some(Watts(5.0 * rng.f64()));
                    let costs = instance.costs.iter_mut().filter_map(|row| row[at].as_mut());
                    costs.for_each(|cost| cost.power = Watts(20.0 * rng.f64()));
                }
                if rng.bool() {
                    let goal = Goal { objective: Objective::Memory, ..request.goal.clone() };
                    let frugal = plan(&request.with_goal(goal)).unwrap();
                    let peak = frugal.solution.reserved().max().unwrap_or_default();
                    let limit = Bytes((1.02 * peak.0 as f64) as u64);
                    request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(limit));
                }
                for objective in [Objective::Energy, Objective::Latency, Objective::Throughput, Objective::Memory] {
                    for ratios in [Ratios::Tuned, Ratios::Equal] {
                        let request = request.with_goal(Goal { objective, ratios, ..request.goal.clone() });
                        let unsplit = request.expand(&Choices::new()).unwrap().problem;
                        let by_energy = Goal { objective: Objective::Energy, ..request.goal.clone() };
                        let bounds = bounds(&request.with_goal(by_energy), &unsplit);
                        let Ok(found) = plan(&request) else { continue };
                        let energy = found.solution.evaluation.energy;
                        assert!(bounds.energy.value.0 <= energy.0 * (1.0 + 1e-9), "seed {seed}, {objective}: {energy}");
                        split += usize::from(!found.splits.is_empty());
                        scheduled += usize::from(found.is_scheduled());
                        assert_eq!(found.to_plan(&request).map(|plan| plan.predicted.energy_j), Ok(Some(energy)));
                    }
                }
            });
        }
        assert!(split > 50 && scheduled > 0, "{split} split, {scheduled} with schedules: the test shows nothing");
    }
}
