//! Device-placement workloads: figures kept move by move agree with the checker, answers pass it, small workloads
//! are solved as well as by trying everything, and the public ones at least as well as is known.

use crate::common::shared;
use edgecut::interop::placement::{
    PlacementOptions, PlacementSolution, PlacementWorkload, WorkloadDevice, bound,
    bundles::Bundles,
    check,
    file::Operator,
    latency,
    latency_evaluator::LatencyEvaluator,
    load::Loads,
    throughput::{self, ideals},
};
use fastrand::Rng;
use proptest::prelude::*;

fn workload(seed: u64, count: usize, accelerators: u32, cpus: u32) -> PlacementWorkload {
    let mut rng = Rng::with_seed(seed);
    let operators: Vec<Operator> = (0..count)
        .map(|at| Operator {
            id: at as i64 * 3,
            on_accelerator: rng.u8(0..8) > 0 || cpus == 0,
            cpu_time: f64::from(rng.u32(0..100)),
            accelerator_time: f64::from(rng.u32(0..20)),
            size: f64::from(rng.u32(0..50)),
            is_backward: false,
            colour: (rng.u8(0..4) == 0).then(|| rng.i64(0..4)),
            transfer: f64::from(rng.u32(0..10)),
        })
        .collect();
    let mut edges = Vec::new();
    for to in 1..count {
        for _ in 0..rng.usize(0..=2) {
            edges.push((rng.usize(0..to), to));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    let size: f64 = operators.iter().map(|o| o.size).sum();
    PlacementWorkload { operators, edges, accelerators, cpus, memory: size * (0.3 + rng.f64()) }
}

fn anywhere(problem: &Bundles, rng: &mut Rng) -> Vec<usize> {
    (0..problem.bundles.len()).map(|_| rng.usize(0..problem.devices())).collect()
}

fn options(budget: u64) -> PlacementOptions {
    PlacementOptions { seed: 3, budget, cut_off: None }
}

/// The best value over all assignments that keep the rules, by the checker's own figures.
fn brute_force(workload: &PlacementWorkload, value: impl Fn(&[WorkloadDevice]) -> Option<f64>) -> Option<f64> {
    let problem = Bundles::new(workload);
    let devices = problem.devices();
    let mut best: Option<f64> = None;
    for choice in 0..devices.pow(problem.bundles.len() as u32) {
        let device: Vec<usize> =
            (0..problem.bundles.len()).map(|at| choice / devices.pow(at as u32) % devices).collect();
        let places = problem.operator_devices(&device);
        if check::placement(workload, &places).is_ok()
            && let Some(value) = value(&places)
        {
            best = Some(best.map_or(value, |best| best.min(value)));
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn loads_follow_the_moves(seed: u64, count in 2usize..40, accelerators in 0u32..4, cpus in 1u32..3) {
        let workload = workload(seed, count, accelerators, cpus);
        let problem = Bundles::new(&workload);
        let mut rng = Rng::with_seed(seed);
        let mut loads = Loads::new(&problem, anywhere(&problem, &mut rng));
        for _ in 0..60 {
            loads.move_bundle(rng.usize(0..problem.bundles.len()), rng.usize(0..problem.devices()));
            let real = check::largest_load(&workload, &problem.operator_devices(&loads.device));
            prop_assert!((loads.largest() - real).abs() < 1e-6, "{} {}", loads.largest(), real);
        }
    }

    #[test]
    fn finishes_agree(seed: u64, count in 1usize..30, accelerators in 0u32..4) {
        let workload = workload(seed, count, accelerators, 1);
        let problem = Bundles::new(&workload);
        let mut rng = Rng::with_seed(seed);
        let mut evaluator = LatencyEvaluator::new(&workload, &problem);
        for _ in 0..20 {
            let device = anywhere(&problem, &mut rng);
            let real = check::sample_latency(&workload, &problem.operator_devices(&device));
            let found = evaluator.latency(&device);
            prop_assert!(real.map_or(found.is_infinite(), |real| (real - found).abs() < 1e-6), "{real:?} {found}");
        }
    }

    #[test]
    fn answers_pass_the_check(seed: u64, count in 1usize..30, accelerators in 1u32..4, cpus in 0u32..3) {
        let workload = workload(seed, count, accelerators, cpus);
        for (solve, verdict) in [
            (throughput::solve as Solve, check::throughput as Verdict),
            (latency::solve as Solve, check::latency as Verdict),
        ] {
            if let Ok(answer) = solve(&workload, &options(3000)) {
                prop_assert_eq!(verdict(&workload, &answer), Ok(()));
                prop_assert_eq!(&solve(&workload, &options(3000)), &Ok(answer));
            } else {
                prop_assert!(cpus == 0, "everything on a CPU is always possible");
            }
        }
    }
}

type Solve =
    fn(&PlacementWorkload, &PlacementOptions) -> Result<PlacementSolution, edgecut::interop::placement::PlacementError>;
type Verdict = fn(&PlacementWorkload, &PlacementSolution) -> Result<(), check::PlacementViolation>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn small_workloads_are_solved_exactly(seed: u64, count in 1usize..8, accelerators in 1u32..3) {
        let workload = workload(seed, count, accelerators, 1);
        let load = brute_force(&workload, |places| Some(check::largest_load(&workload, places))).unwrap();
        let answer = throughput::solve(&workload, &options(60_000)).unwrap();
        prop_assert!((answer.objective - load).abs() < 1e-9 * load.max(1.0), "{} {}", answer.objective, load);
        prop_assert!(answer.bound <= load * (1.0 + 1e-9));
        let finish = brute_force(&workload, |places| check::sample_latency(&workload, places)).unwrap();
        let answer = latency::solve(&workload, &options(400_000)).unwrap();
        prop_assert!((answer.objective - finish).abs() < 1e-9 * finish.max(1.0), "{} {}", answer.objective, finish);
        prop_assert!(answer.bound <= finish * (1.0 + 1e-9));
    }
}

/// Whether devices can be put in an order in which each needs only what those before it have.
fn is_contiguous(workload: &PlacementWorkload, places: &[WorkloadDevice]) -> bool {
    let mut needs: Vec<(WorkloadDevice, WorkloadDevice)> =
        workload.edges.iter().map(|(from, to)| (places[*to], places[*from])).collect();
    needs.retain(|(one, other)| one != other);
    let mut left: Vec<WorkloadDevice> = places.to_vec();
    while let Some(free) = left.iter().copied().find(|place| needs.iter().all(|(one, _)| one != place)) {
        left.retain(|place| *place != free);
        needs.retain(|(_, other)| *other != free);
    }
    left.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn contiguous_splits_are_the_best_of_their_kind(seed: u64, count in 1usize..8, accelerators in 0u32..3) {
        let workload = workload(seed, count, accelerators, 1);
        let load = |places: &[WorkloadDevice]| is_contiguous(&workload, places).then(|| check::largest_load(&workload, places));
        let best = brute_force(&workload, load).unwrap();
        let problem = Bundles::new(&workload);
        let found = ideals::search(&workload, &problem, f64::INFINITY, 1_000_000, &|| false).unwrap();
        prop_assert_eq!(check::placement(&workload, &problem.operator_devices(&found.device)), Ok(()));
        prop_assert!((found.largest - best).abs() < 1e-9 * best.max(1.0), "{} {}", found.largest, best);
        // What is sought must be better than what is there.
        prop_assert_eq!(ideals::search(&workload, &problem, best * (1.0 - 1e-9), 1_000_000, &|| false), None);
    }
}

/// Operators that nothing connects have more ideals than there is memory for: that is found out before it is taken.
#[test]
fn more_ideals_than_memory_has_room_for_are_not_made() {
    let mut wide = workload(1, 1, 1, 1);
    wide.operators = vec![wide.operators[0].clone(); 40_000];
    (0i64..).zip(&mut wide.operators).for_each(|(id, operator)| (operator.id, operator.colour) = (id, None));
    assert_eq!(ideals::search(&wide, &Bundles::new(&wide), f64::INFINITY, 1_000_000, &|| false), None);
}

/// As [`workload`], but mostly a path with detours, so that transfers and memory decide.
fn path_like(seed: u64, count: usize, accelerators: u32) -> PlacementWorkload {
    let mut rng = Rng::with_seed(seed);
    let mut workload = workload(seed, count, accelerators, 1);
    workload.edges = (1..count).map(|to| (to - 1 - rng.usize(0..to).min(rng.usize(0..2)), to)).collect();
    for to in 2..count {
        if rng.u8(0..3) == 0 {
            workload.edges.push((rng.usize(0..to - 1), to));
        }
    }
    workload.edges.sort_unstable();
    workload.edges.dedup();
    workload
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn nothing_goes_below_the_bounds(seed: u64, count in 1usize..8, accelerators in 1u32..3, path: bool) {
        let workload = if path { path_like(seed, count, accelerators) } else { workload(seed, count, accelerators, 1) };
        let problem = Bundles::new(&workload);
        let load = brute_force(&workload, |places| Some(check::largest_load(&workload, places))).unwrap();
        let (bound, by) = bound::largest_load(&problem);
        prop_assert!(bound <= load * (1.0 + 1e-9), "{by}: {bound} above {load}");
        let finish = brute_force(&workload, |places| check::sample_latency(&workload, places)).unwrap();
        let (bound, by) = bound::latency(&workload, &problem);
        prop_assert!(bound <= finish * (1.0 + 1e-9), "{by}: {bound} above {finish}");
    }
}

/// On a path without memory limits to speak of, the bound on the latency is the optimum.
#[test]
fn paths_are_solved_to_the_bound() {
    for seed in 0..20 {
        let mut path = workload(seed, 40, 3, 1);
        path.edges = (1..40).map(|to| (to - 1, to)).collect();
        path.operators.iter_mut().for_each(|operator| operator.colour = None);
        path.memory = f64::from(u32::MAX);
        let answer = latency::solve(&path, &options(400_000)).unwrap();
        assert!(answer.gap() < 1e-6, "{seed}: {} against {}", answer.objective, answer.bound);
    }
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn public_workloads_are_solved_as_well_as_is_known() {
    let folder = shared("placement");
    let best: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("best.json")).unwrap()).unwrap();
    for (objective, solve, verdict) in [
        ("throughput", throughput::solve as Solve, check::throughput as Verdict),
        ("latency", latency::solve as Solve, check::latency as Verdict),
    ] {
        for (name, known) in best[objective].as_object().unwrap() {
            let text = std::fs::read(folder.join(objective).join(format!("{name}.json"))).unwrap();
            let workload = PlacementWorkload::from_json(&text).unwrap();
            let answer = solve(&workload, &options(200_000)).unwrap();
            assert_eq!(verdict(&workload, &answer), Ok(()), "{objective} {name}");
            let known = known.as_f64().unwrap();
            assert!(answer.objective <= known * 1.0001, "{objective} {name}: {} > {known}", answer.objective);
        }
    }
}
