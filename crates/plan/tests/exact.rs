//! Mixed-integer programs of small problems: never below their bound, and as good as trying everything where the
//! program leaves nothing out.

#[path = "../../../tests/common/problems.rs"]
mod problems;

use edgecut_graph::{
    LinkCost,
    units::{Bytes, Micros, Rate},
};
use edgecut_plan::{
    Problem,
    bound::Bounds,
    problem::{Handling, LinkId, Objective},
    search::solve::solve,
    search::{Options, Session, baseline, integer},
};
use problems::{brute_force, exact_problem, problem};
use proptest::prelude::*;

/// What one search found by a program alone, and its bound.
fn programmed(problem: &Problem) -> (Option<f64>, f64, bool) {
    let options = Options { seed: 1, budget: Some(200_000), cut_off: None, ..Options::default() };
    let mut session = Session::new(problem, Bounds::of(problem).on(problem.objective), options);
    baseline::search(&mut session);
    integer::search(&mut session);
    let found = session.best.as_ref().filter(|(score, _)| score.feasible()).map(|(score, _)| score.value);
    (found, session.bound.value, session.is_over())
}

/// Some links of the problem are as slow as a group, so that transfers matter.
fn slow_links(problem: &mut Problem) {
    problem.links.iter_mut().step_by(2).for_each(|link| link.cost.rate = Rate(link.cost.rate.0 / 10.0));
}

/// Takes out of `problem` what the program of its objective leaves out.
fn simplified(mut problem: Problem) -> Problem {
    // What transfers take of a device is part of the devices' times only in the simulator.
    problem.devices.iter_mut().for_each(|device| device.handling = Handling::default());
    match problem.objective {
        // Links are never busy for long.
        Objective::Latency | Objective::Energy => problem.links.iter_mut().for_each(|link| {
            link.cost = LinkCost::per_byte(Micros::ZERO, 0.0);
        }),
        Objective::Throughput => slow_links(&mut problem),
        // Nothing is held for later.
        Objective::Memory => problem.tensors.iter_mut().for_each(|tensor| tensor.bytes = Bytes::ZERO),
    }
    problem
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn programs_are_as_good_as_trying_everything(seed: u64, groups in 1usize..6, devices in 1usize..4) {
        // Encoding tensors keeps links busy, whatever their cost.
        let problem = simplified(exact_problem(seed, groups, devices));
        let best = brute_force(&problem).unwrap();
        let (found, bound, is_over) = programmed(&problem);
        let found = found.unwrap();
        prop_assert!((found - best).abs() <= 1e-6 * best, "{:?}: {found} against {best}", problem.objective);
        prop_assert!(bound <= best * (1.0 + 1e-9) && bound >= best * (1.0 - 1e-6), "{bound} against {best}");
        prop_assert!(is_over, "nothing is left to search for");
    }

    #[test]
    fn nothing_goes_below_what_programs_prove(seed: u64, groups in 1usize..6, devices in 1usize..4, tight: bool) {
        let mut problem = problem(seed, groups, devices);
        slow_links(&mut problem);
        if tight {
            let total: u64 = problem.parameters.iter().map(|bytes| bytes.0).sum();
            problem.devices.iter_mut().for_each(|device| device.memory = Some(Bytes(total * 2 / 3 + 1500)));
        }
        let weaker = Bounds::of(&problem).on(problem.objective).value;
        let best = brute_force(&problem);
        let (found, bound, _) = programmed(&problem);
        prop_assert!(bound >= weaker);
        prop_assert!(best.is_none_or(|best| bound <= best * (1.0 + 1e-9)), "{bound} is above {best:?}");
        prop_assert!(found.is_none_or(|found| best.is_some_and(|best| found >= best * (1.0 - 1e-9))));
    }

    #[test]
    fn targets_are_part_of_programs(seed: u64, groups in 1usize..6, devices in 2usize..4, loose in 1.0f64..2.0) {
        let mut problem = problem(seed, groups, devices);
        let bounds = Bounds::of(&problem);
        match problem.objective {
            Objective::Latency => problem.targets.throughput = Some(1e6 / (bounds.interval.value.0 * loose + 1.0)),
            Objective::Throughput | Objective::Memory | Objective::Energy => {
                problem.targets.latency = Some(Micros(bounds.latency.value.0 * loose + 1.0));
            }
        }
        let best = brute_force(&problem);
        let (found, bound, _) = programmed(&problem);
        prop_assert!(best.is_none_or(|best| bound <= best * (1.0 + 1e-9)), "{bound} is above {best:?}");
        prop_assert!(found.is_none_or(|found| best.is_some_and(|best| found >= best * (1.0 - 1e-9))));
    }
}

/// Energy grows with the latency, and that with the order on each device.
#[test]
fn programs_by_energy_decide_orders() {
    for seed in 0..40 {
        let mut problem = exact_problem(seed, 5, 2 + seed as usize % 2);
        problem.objective = Objective::Energy;
        let problem = simplified(problem);
        let best = brute_force(&problem).unwrap();
        let (found, bound, _) = programmed(&problem);
        assert!(found.is_some_and(|found| (found - best).abs() <= 1e-6 * best), "{seed}: {found:?} against {best}");
        assert!(bound <= best * (1.0 + 1e-9) && bound >= best * (1.0 - 1e-6), "{seed}: {bound} against {best}");
    }
}

/// Too many groups to try everything: the gap that is left is smaller than the other bounds leave, and planning again
/// gives the same.
#[test]
fn gaps_are_smaller_than_without() {
    let mut smaller = 0;
    for seed in 0..6 {
        let mut problem = problem(seed, 30, 3);
        let objectives = [Objective::Latency, Objective::Throughput, Objective::Memory, Objective::Energy];
        problem.objective = objectives[seed as usize % objectives.len()];
        slow_links(&mut problem);
        let options = Options { seed: 1, budget: Some(2_000), cut_off: None, ..Options::default() };
        let solution = solve(&problem, &options).unwrap();
        let weaker = Bounds::of(&problem).on(problem.objective).value;
        assert!(solution.bound.value >= weaker && solution.bound.value <= solution.value());
        smaller += usize::from(solution.bound.value > weaker * 1.001);
        println!(
            "{:>10} {:>10.1}, {:>10.1} by {}, {weaker:>10.1} without",
            problem.objective.to_string(),
            solution.value(),
            solution.bound.value,
            solution.bound.by
        );
        let again = solve(&problem, &options).unwrap();
        assert_eq!(again.evaluation.placement, solution.evaluation.placement);
        assert_eq!(again.bound, solution.bound);
    }
    assert!(smaller >= 4, "only {smaller} of 6 gaps are smaller");
}

/// Links that nothing uses and devices that can do nothing take no part, and break nothing.
#[test]
fn idle_devices_and_links_do_no_harm() {
    let mut problem = problem(5, 6, 3);
    problem.objective = Objective::Throughput;
    for group in &mut problem.groups {
        group.costs[0] = group.costs[0].or(group.costs[1]).or(group.costs[2]);
        group.costs[2] = None;
    }
    problem.routes[1] = Some(LinkId(0));
    let (found, bound, _) = programmed(&problem);
    assert!(found.is_some_and(|found| found >= bound));
}
