//! Laws of planning, on random problems: the checker agrees with the simulator, plans beat single devices and
//! never their bound, small problems are solved as well as by trying everything.

use crate::common::problems::{brute_force, exact_problem, problem};
use edgecut::{
    plan::{
        DeviceId, GroupId, NoPlan, Plan, Problem, TransferFormat,
        bound::{Bounds, LowerBound, critical_path::Tails},
        check,
        evaluation::Evaluation,
        file::{Granularity, ModelRef},
        placement::Placement,
        problem::Objective,
        search::{
            Options,
            fast_evaluator::FastEvaluator,
            incremental::{Change, IncrementalSimulator},
            solve::solve,
        },
        solution::{Solution, judge},
    },
    units::{Bytes, Joules, Micros, Watts},
};
use fastrand::Rng;
use proptest::prelude::*;

fn options(budget: u64) -> Options {
    Options { seed: 1, budget: Some(budget), cut_off: None, ..Options::default() }
}

fn written(problem: &Problem, solution: &Solution) -> Plan {
    let model = ModelRef { path: "model.relay".into(), ..ModelRef::default() };
    Plan::new(problem, solution, model, Granularity::Fused, 1)
}

/// A random placement, as a solution without any search.
fn anyhow_placed(problem: &Problem, rng: &mut Rng) -> Solution {
    let able = |g: GroupId| {
        let able: Vec<DeviceId> = problem.device_ids().filter(|d| problem.cost(g, *d).is_some()).collect();
        able[rng.usize(0..able.len())]
    };
    let devices: Vec<DeviceId> = problem.group_ids().map(able).collect();
    let order = random_order(problem, rng);
    let evaluation = Evaluation::of(problem, Placement::new(&devices, &order)).unwrap();
    let arenas = evaluation.memory.iter().map(|a| a.pack().unwrap().height).collect();
    let bounds = Bounds::of(problem);
    let LowerBound { value, by } = bounds.on(problem.objective);
    let bound = LowerBound { value, by };
    let (missed, is_infeasible) = (Vec::new(), false);
    Solution { evaluation, arenas, bounds, bound, evaluations: 0, in_flight: None, missed, is_infeasible }
}

fn random_order(problem: &Problem, rng: &mut Rng) -> Vec<GroupId> {
    let mut left: Vec<GroupId> = problem.group_ids().collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let ready = |g: &GroupId| {
            let mut reads = problem.group(*g).inputs.iter().filter_map(|t| problem.tensor(*t).producer);
            reads.all(|p| order.contains(&p))
        };
        let ready: Vec<usize> = (0..left.len()).filter(|i| ready(&left[*i])).collect();
        order.push(left.remove(ready[rng.usize(0..ready.len())]));
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_quick_score_is_the_score_to_the_last_bit(seed in 0u64..1_000_000, groups in 1usize..24, devices in 1usize..5) {
        let mut problem = problem(seed, groups, devices);
        let mut rng = Rng::with_seed(seed);
        if rng.bool() {
            // Without limits nothing is left to the full account.
            problem.devices.iter_mut().for_each(|device| device.memory = None);
        }
        problem.targets.latency = rng.bool().then_some(Micros(200.0));
        problem.targets.throughput = rng.bool().then_some(10_000.0);
        let mut quick = FastEvaluator::new(&problem);
        for _ in 0..4 {
            let any = |_| DeviceId(rng.u32(0..devices as u32));
            let places: Vec<DeviceId> = problem.group_ids().map(any).collect();
            let mut order = random_order(&problem, &mut rng);
            if rng.u8(0..4) == 0 {
                order.reverse();
            }
            let full = Evaluation::of(&problem, Placement::new(&places, &order)).map(|e| e.score);
            prop_assert_eq!(quick.score(&places, &order), full);
        }
    }

    #[test]
    fn incremental_simulation_equals_full_simulation(seed in 0u64..1_000_000, groups in 1usize..24, devices in 1usize..5) {
        let mut problem = problem(seed, groups, devices);
        problem.objective = if seed % 3 == 0 { Objective::Energy } else { Objective::Latency };
        let mut rng = Rng::with_seed(seed);
        let able = |group: GroupId| -> Vec<DeviceId> {
            problem.device_ids().filter(|device| problem.cost(group, *device).is_some()).collect()
        };
        let devices_of_groups = problem.group_ids().map(|group| *rng.choice(&able(group)).unwrap()).collect();
        let whole = Placement { devices: devices_of_groups, order: random_order(&problem, &mut rng) };
        let tails = Tails::of(&problem);
        let mut simulator = IncrementalSimulator::new(&problem, &tails, &whole);
        let mut quick = FastEvaluator::new(&problem);
        let by_energy = problem.objective == Objective::Energy;
        for _ in 0..40 {
            let now = simulator.placement();
            let score = quick.score(&now.devices, &now.order).unwrap();
            if by_energy {
                let consumed = quick.score_times(simulator.makespan(), simulator.interval(), simulator.above_idle());
                prop_assert!((consumed.value - score.value).abs() <= 1e-12 * score.value.max(1.0));
                prop_assert_eq!(simulator.makespan().to_bits(), score.tie.to_bits());
            } else {
                prop_assert_eq!(simulator.makespan().to_bits(), score.value.to_bits());
                prop_assert!((simulator.interval() - score.tie).abs() < 1e-6);
            }
            let mut changes: Vec<Change> = Vec::new();
            for _ in 0..rng.usize(1..4) {
                let group = GroupId(rng.u32(0..groups as u32));
                let device = DeviceId(rng.u32(0..devices as u32));
                if problem.cost(group, device).is_some() && changes.iter().all(|change| change.group != group) {
                    changes.push(Change { group, device, rank: simulator.rank(group) });
                }
            }
            if let [change] = changes.as_mut_slice() {
                let (before, after) = simulator.neighbours(change.group);
                let first = before.map(|g| simulator.rank(g)).max().unwrap_or(0) + 1;
                change.rank = rng.u64(first..after.map(|g| simulator.rank(g)).min().unwrap_or(u64::MAX));
            }
            let before = simulator.makespan();
            simulator.apply(&changes);
            let found = simulator.simulate(if rng.bool() { f64::INFINITY } else { before });
            if found.is_none() || rng.bool() {
                simulator.undo();
                prop_assert_eq!(simulator.makespan().to_bits(), before.to_bits());
            }
        }
    }

    #[test]
    fn the_checker_agrees_with_the_simulator(seed: u64, groups in 1usize..40, devices in 1usize..6) {
        let problem = problem(seed, groups, devices);
        problem.check().unwrap();
        let solution = anyhow_placed(&problem, &mut Rng::with_seed(seed));
        prop_assert_eq!(check::plan(&problem, &written(&problem, &solution)), Ok(()));
    }

    #[test]
    fn what_is_judged_to_keep_limits_keeps_them_with_its_arenas(seed: u64, groups in 1usize..20, devices in 1usize..4) {
        let mut problem = problem(seed, groups, devices);
        problem.objective = Objective::Latency;
        let solution = anyhow_placed(&problem, &mut Rng::with_seed(seed));
        let placement = solution.evaluation.placement.clone();
        for (device, reserved) in problem.devices.iter_mut().zip(solution.reserved()) {
            device.memory = Some(reserved);
        }
        let judged = judge(&problem, placement.clone()).unwrap();
        prop_assert_eq!(check::plan(&problem, &written(&problem, &judged)), Ok(()));
        let limit = problem.devices[Rng::with_seed(seed).usize(0..devices)].memory.as_mut().unwrap();
        if *limit > Bytes::ZERO {
            *limit = *limit - Bytes(1);
            let missed = judge(&problem, placement);
            let is_full = matches!(&missed, Err(NoPlan::Targets { shortages, .. }) if shortages.len() == 1);
            prop_assert!(is_full, "{:?}", missed);
        }
    }

    #[test]
    fn with_fewer_inputs_under_way_a_target_is_missed_where_the_checker_says_so(seed: u64, groups in 2usize..20, devices in 2usize..5) {
        let mut problem = problem(seed, groups, devices);
        problem.objective = Objective::Throughput;
        let mut solution = solve(&problem, &options(200)).unwrap();
        problem.targets.throughput = (solution.interval() > Micros::ZERO).then(|| 1e6 / solution.interval().0);
        solution.at_most(1, &problem).unwrap();
        let is_met = solution.missed.is_empty();
        prop_assert_eq!(is_met, check::plan(&problem, &written(&problem, &solution)).is_ok(), "{:?}", solution.missed);
    }

    #[test]
    fn the_checker_sees_what_is_changed(seed: u64, groups in 2usize..20, devices in 2usize..5) {
        let problem = problem(seed, groups, devices);
        let mut rng = Rng::with_seed(seed);
        let plan = written(&problem, &anyhow_placed(&problem, &mut rng));
        let at = rng.usize(0..groups);
        let mut late = plan.clone();
        late.groups[at].start_us.0 += 1.0;
        let mut heavy = plan.clone();
        heavy.devices[rng.usize(0..devices)].memory.load_bytes.0 += 1;
        let mut moved = plan.clone();
        let device = &mut moved.groups[at].device;
        device.0 = (device.0 + 1) % devices as u32;
        let mut boastful = plan.clone();
        boastful.bound.value = match plan.objective {
            Objective::Energy => plan.predicted.energy_j.unwrap().0 * 1.001 + 1e-12,
            _ => 2.0 * plan.predicted.latency_us.0.max(plan.predicted.peak_bytes.0 as f64) + 1.0,
        };
        // Energy that is left out, or written where devices tell no power, is wrong like any other.
        let mut hungry = plan.clone();
        hungry.predicted.energy_j = Some(Joules(plan.predicted.energy_j.unwrap_or_default().0 * 1.001 + 1e-9));
        let mut unequal = plan.clone();
        unequal.groups[at].energy_j = Some(Joules(plan.groups[at].energy_j.unwrap_or_default().0 + 1e-9));
        let mut awake = plan.clone();
        let device = &mut awake.devices[rng.usize(0..devices)];
        device.idle_w = Some(Watts(device.idle_w.unwrap_or_default().0 + 0.001));
        for (what, wrong) in [("hungry", hungry), ("unequal", unequal), ("awake", awake)] {
            prop_assert!(check::plan(&problem, &wrong).is_err(), "{}", what);
        }
        for (what, wrong) in [("late", late), ("heavy", heavy), ("moved", moved), ("boastful", boastful)] {
            prop_assert!(check::plan(&problem, &wrong).is_err(), "{}", what);
        }
        if let Some(at) = plan.transfers.iter().position(|transfer| !transfer.format.is_exact()) {
            let (mut exact, mut smaller) = (plan.clone(), plan.clone());
            (exact.transfers[at].format, exact.transfers[at].sent_bytes) = (TransferFormat::Exact, None);
            smaller.transfers[at].sent_bytes = plan.transfers[at].sent_bytes.map(|sent| Bytes(sent.0 + 1));
            prop_assert!(check::plan(&problem, &exact).is_err() && check::plan(&problem, &smaller).is_err());
        }
        let mut lost = plan.clone();
        if lost.transfers.pop().is_some() {
            prop_assert!(check::plan(&problem, &lost).is_err());
        }
    }

    #[test]
    fn plans_hold_and_beat_single_devices(seed: u64, groups in 1usize..25, devices in 1usize..5) {
        let problem = problem(seed, groups, devices);
        let solution = solve(&problem, &options(800)).unwrap();
        prop_assert_eq!(check::plan(&problem, &written(&problem, &solution)), Ok(()));
        let order: Vec<GroupId> = problem.group_ids().collect();
        for device in problem.device_ids() {
            if let Ok(single) = Evaluation::of(&problem, Placement::new(&vec![device; groups], &order)) {
                prop_assert!(solution.value() <= single.score.value);
            }
        }
        let again = solve(&problem, &options(800)).unwrap();
        prop_assert_eq!(again.evaluation.placement, solution.evaluation.placement);
    }

    #[test]
    fn limits_are_met_or_the_reason_is_given(seed: u64, groups in 2usize..16, devices in 2usize..4, share in 0.3f64..1.2) {
        let mut problem = problem(seed, groups, devices);
        let all: u64 = problem.parameters.iter().map(|b| b.0).sum::<u64>() + 2000;
        problem.devices.iter_mut().for_each(|d| d.memory = Some(Bytes((all as f64 * share) as u64)));
        match solve(&problem, &options(1500)) {
            Ok(solution) => prop_assert_eq!(check::plan(&problem, &written(&problem, &solution)), Ok(())),
            Err(NoPlan::Targets { shortages, .. }) => prop_assert!(!shortages.is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn plan_files_keep_everything_and_contradictions_are_refused() {
    let written = |seed: &u64| {
        let problem = problem(*seed, 12, 3);
        written(&problem, &anyhow_placed(&problem, &mut Rng::with_seed(*seed)))
    };
    let is_converted = |plan: &Plan| plan.transfers.iter().any(|transfer| !transfer.format.is_exact());
    let plans: Vec<Plan> = (0..40).map(|seed| written(&seed)).collect();
    let (converted, exact): (Vec<&Plan>, Vec<&Plan>) = plans.iter().partition(|plan| is_converted(plan));
    assert!(converted.len() > 10 && exact.len() > 5, "{} and {}", converted.len(), exact.len());
    for plan in &plans {
        let text = plan.to_json().unwrap();
        assert_eq!(text.contains("\"transfer\":"), !plan.transfer.is_exact(), "{text}");
        assert_eq!(text.contains("\"format\":"), is_converted(plan), "{text}");
        let read = Plan::from_json(text.as_bytes()).unwrap();
        assert_eq!((&read, read.to_json().unwrap()), (plan, text));
    }
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = converted[0].clone();
        change(&mut plan);
        Plan::from_json(plan.to_json().unwrap().as_bytes()).unwrap_err().to_string()
    };
    for error in [
        refused(&|plan| plan.transfer = TransferFormat::Exact),
        refused(&|plan| plan.devices.iter_mut().for_each(|device| device.server = "one".to_string())),
        refused(&|plan| plan.transfers.iter_mut().for_each(|transfer| transfer.sent_bytes = None)),
    ] {
        assert!(error.contains("which is not how the plan sends it"), "{error}");
    }
}

/// Memory of the devices as a multiple of what a feasible placement needs, which the search does not know, and for how many
/// of [`PROBLEMS`] problems a plan is found.
const TIGHT: [(f64, usize); 2] = [(1.03, 98), (1.01, 97)];
const PROBLEMS: u64 = 100;

#[test]
fn where_hardly_any_memory_is_left_over_plans_are_found() {
    for (room, wanted) in TIGHT {
        let is_solved = |seed: &u64| {
            let mut problem = exact_problem(*seed, 30, 3);
            problem.objective = Objective::Latency;
            let some = anyhow_placed(&problem, &mut Rng::with_seed(*seed));
            for (device, reserved) in problem.devices.iter_mut().zip(some.reserved()) {
                device.memory = Some(Bytes((reserved.0 as f64 * room) as u64));
                // Memory alone is what is tight here.
                device.handling = Default::default();
            }
            let plan = solve(&problem, &options(4000)).ok();
            if let Some(plan) = &plan {
                assert_eq!(check::plan(&problem, &written(&problem, plan)), Ok(()), "{seed}");
            }
            plan.is_some()
        };
        let solved = (0..PROBLEMS).filter(is_solved).count();
        assert!(solved >= wanted, "{solved} of {PROBLEMS} with {room} times what is needed");
        println!("{solved} of {PROBLEMS} with {room} times what is needed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn small_problems_are_solved_exactly(seed: u64, groups in 1usize..6, devices in 1usize..4, tight: bool) {
        let mut problem = problem(seed, groups, devices);
        if tight {
            let total: u64 = problem.parameters.iter().map(|b| b.0).sum();
            problem.devices.iter_mut().for_each(|d| d.memory = Some(Bytes(total * 2 / 3 + 1500)));
        }
        let best = brute_force(&problem);
        match solve(&problem, &options(1_000_000)) {
            Ok(solution) => {
                let best = best.expect("what is found exists");
                prop_assert!(solution.value() <= best + 1e-9 * best || tight, "{} > {}", solution.value(), best);
                prop_assert!(solution.value() >= best - 1e-9 * best, "{} < {}", solution.value(), best);
                prop_assert!(solution.bound.value <= best + 1e-9 * best);
            }
            Err(NoPlan::Targets { proven, .. }) => prop_assert!(!proven || best.is_none(), "there is a plan of {best:?}"),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

/// Instants of a simulation are sums, whose rounding must not let what follows one another overlap.
#[test]
fn plans_with_times_of_any_size_pass_the_checker() {
    for seed in 0..6_000 {
        let mut rng = Rng::with_seed(seed);
        let mut problem = exact_problem(2 * seed + 1, 5, 2);
        for cost in problem.groups.iter_mut().flat_map(|group| group.costs.iter_mut().flatten()) {
            cost.time = Micros(1e4 * rng.f64());
        }
        for device in &mut problem.devices {
            device.handling.sending.each = Micros(1e3 * rng.f64());
            device.handling.receiving.each = Micros(1e3 * rng.f64());
        }
        let solution = anyhow_placed(&problem, &mut rng);
        check::plan(&problem, &written(&problem, &solution)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
