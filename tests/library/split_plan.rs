//! Plans with split operators: better than whole ones where that pays, never worse, above their bound, and computing
//! what the model computes.

use std::{ops::Range, path::Path};

use crate::{
    common::card::{CPU, Card, GPU, in_file},
    split_models::{FEED_FORWARD, MODEL, NORMS, QUANTISED, attention},
};
use edgecut::{
    engine::{Engine, EngineError, TractEngine},
    graph::{Granularity, Graph, LinkCost, OperatorId, TensorData},
    ops::passes::axes::axes,
    plan::{
        Candidate, DeviceId, Goal, Instance, Plan, PlanRequest,
        assemble::Network,
        divided,
        file::Split,
        problem::{Cost, Device, Link, LinkId, Objective},
        search::Options,
        split::{
            Choice, Halo, Ratios, SplitOptions,
            front::{front, within},
            met, solve,
            split_option::ResultLayout,
        },
        transfer_format::Coding,
    },
    profile::{Item, items},
    relay::{ImportOptions, import},
    units::{Bytes, Micros, Rate},
    values::seeded,
};

/// Devices of `speeds` FLOPs per microsecond, with links of `bandwidth` bytes per microsecond between all of them.
pub fn network(speeds: &[f64], bandwidth: f64) -> Network {
    let n = speeds.len();
    let device = |d: usize| Device {
        server: format!("s{d}"),
        name: "cpu".into(),
        address: None,
        memory: None,
        ..Device::default()
    };
    let pairs: Vec<(usize, usize)> = (0..n * n).map(|i| (i / n, i % n)).collect();
    let between: Vec<(usize, usize)> = pairs.iter().copied().filter(|(a, b)| a != b).collect();
    let link = |(a, b): &(usize, usize)| Link {
        name: format!("s{a}-s{b}"),
        cost: LinkCost { latency: Micros(100.0), rate: Rate(bandwidth) },
        overhead: Micros::ZERO,
        coding: Coding::default(),
    };
    let route = |pair: &(usize, usize)| between.iter().position(|p| p == pair).map(|at| LinkId(at as u32));
    Network {
        devices: (0..n).map(device).collect(),
        links: between.iter().map(link).collect(),
        routes: pairs.iter().map(route).collect(),
        source: DeviceId(0),
        sink: DeviceId(0),
    }
}

fn costs(items: &[Item], speeds: &[f64]) -> Vec<Vec<Option<Cost>>> {
    let cost = |item: &Item, speed: &f64| {
        let time = Micros(2.0 + item.flops as f64 / speed + item.bytes.0 as f64 * 1e-4);
        Some(Cost { time, workspace: Bytes(1024), ..Cost::default() })
    };
    items.iter().map(|item| speeds.iter().map(|speed| cost(item, speed)).collect()).collect()
}

/// Calls `with` on the request to plan `graph`.
pub fn on_request<T>(
    graph: &Graph,
    speeds: &[f64],
    bandwidth: f64,
    objective: Objective,
    with: impl FnOnce(PlanRequest<'_>) -> T,
) -> T {
    let items = items(graph, Granularity::Fused);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let names = items.iter().map(|item| item.name.clone()).collect();
    let options = SplitOptions::of(graph, &groups);
    let instance = Instance::new(options, names, costs(&items, speeds), network(speeds, bandwidth));
    with(PlanRequest::new(instance, Goal { objective, ..Goal::default() }))
}

pub fn with_budget<'a>(request: &PlanRequest<'a>, budget: u64) -> PlanRequest<'a> {
    let search = Options { budget: Some(budget), cut_off: None, ..Options::default() };
    request.with_goal(Goal { search, ..request.goal.clone() })
}

fn answer(graph: &Graph, speeds: &[f64], bandwidth: f64, objective: Objective) -> Candidate {
    let answer = on_request(graph, speeds, bandwidth, objective, |request| {
        checked(graph, solve(&with_budget(&request, 2_000), None).unwrap())
    });
    let read = Plan::from_json(in_file(graph, &answer, Granularity::Fused).to_json().unwrap().as_bytes()).unwrap();
    assert_eq!(read.splits, answer.splits);
    answer
}

pub fn checked(graph: &Graph, answer: Candidate) -> Candidate {
    in_file(graph, &answer, Granularity::Fused);
    assert!(answer.solution.bound.value <= answer.solution.value() * (1.0 + 1e-9));
    answer
}

/// A plan within a limit is at least as good as every plan of the front that keeps the limit, and as every plan within
/// a lower limit.
#[test]
fn looser_limits_never_give_worse_plans() {
    let graph = model(MODEL);
    let cases = [
        (vec![10_000.0, 10_000.0], 1000.0, Objective::Latency),
        (vec![10_000.0, 4_000.0, 2_000.0], 100.0, Objective::Latency),
        (vec![10_000.0, 7_000.0, 2_000.0], 100.0, Objective::Throughput),
    ];
    for (speeds, bandwidth, objective) in cases {
        let worth = |answer: &Candidate| answer.value(objective);
        on_request(&graph, &speeds, bandwidth, objective, |request| {
            let mut grown: Vec<usize> = Vec::new();
            let found = front(&with_budget(&request, 400), |points| grown.push(points.len())).unwrap();
            assert!(found.is_complete);
            let points = found.points;
            assert_eq!(grown.last(), Some(&points.len()), "{grown:?}");
            assert!(!points.is_empty());
            let peaks = points.iter().map(|point| point.peak.0);
            let (least, most) = (peaks.clone().min().unwrap(), peaks.max().unwrap());
            let mut best_so_far = f64::INFINITY;
            // Below the front there may be a plan for just that limit: those above it are no worse either.
            let below = [least * 7 / 8, least * 31 / 32];
            let above = (0..6).map(|step| least + (most - least) * step / 4);
            for limit in below.into_iter().chain(above).map(Bytes) {
                let mut tight = request.clone();
                tight.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(limit));
                let tight = with_budget(&tight, 400);
                let answer = match within(&tight).and_then(|nearest| met(&tight, nearest)) {
                    Ok(answer) => checked(&graph, answer),
                    Err(why) => {
                        assert!(limit.0 < least && best_so_far.is_infinite(), "{limit}: {why}");
                        continue;
                    }
                };
                assert!(answer.solution.reserved().all(|reserved| reserved <= limit), "{limit}");
                let found = worth(&answer);
                assert!((found - answer.solution.value()).abs() <= 1e-9 * found);
                assert!(found <= best_so_far, "{limit}: {found} after {best_so_far}");
                best_so_far = found;
                for point in points.iter().filter(|point| point.peak <= limit) {
                    assert!(best_so_far <= worth(&point.candidate), "{limit}");
                }
            }
        });
    }
}

pub fn model(text: &str) -> Graph {
    import("model", text.as_bytes(), &ImportOptions::default()).unwrap().graph
}

pub fn computed(graph: &Graph) -> Vec<TensorData> {
    let content = |id| {
        let tensor = graph.tensor(id);
        seeded(&tensor.name, &tensor.ty).map_err(|e| EngineError::Other(e.to_string()))
    };
    let mut loaded = TractEngine::new(1).unwrap().load(graph, &content).unwrap();
    let inputs: Vec<TensorData> = graph.inputs().map(|id| content(id).unwrap()).collect();
    loaded.run(&inputs).unwrap()
}

pub fn assert_near(a: &[TensorData], b: &[TensorData]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a.to_f64s().unwrap(), b.to_f64s().unwrap());
        let scale = b.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-4 * scale), "{a:?} {b:?}");
    }
}

#[test]
fn two_equal_devices_on_a_fast_link_share_the_convolutions() {
    let graph = model(MODEL);
    let answer = answer(&graph, &[10_000.0, 10_000.0], 1000.0, Objective::Latency);
    let (whole, split) = (answer.whole.unwrap(), answer.solution.value());
    assert!(split < whole / 1.5, "{split} against {whole}");
    assert_near(&computed(&answer.expanded.graph), &computed(&graph));
}

#[test]
fn on_a_slow_link_nothing_is_split() {
    let answer = answer(&model(MODEL), &[10_000.0, 10_000.0], 0.1, Objective::Latency);
    assert!(answer.splits.is_empty());
    assert_eq!(answer.solution.value(), answer.whole.unwrap());
}

#[test]
fn unequal_devices_get_unequal_shares() {
    let graph = model(MODEL);
    let answer = answer(&graph, &[10_000.0, 5_000.0, 2_500.0], 2000.0, Objective::Latency);
    let shares: Vec<f64> = answer
        .splits
        .iter()
        .filter(|split| graph.operator(split.operator).name == "nn.conv2d")
        .map(|split| split.cuts[1] as f64 / split.cuts[split.cuts.len() - 1] as f64)
        .collect();
    assert!(!shares.is_empty() && shares.iter().all(|share| (0.4..0.8).contains(share)), "{shares:?}");
    assert_near(&computed(&answer.expanded.graph), &computed(&graph));
}

#[test]
fn the_same_request_gives_the_same_plan() {
    let graph = model(MODEL);
    let one = answer(&graph, &[10_000.0, 7_000.0], 500.0, Objective::Latency);
    let two = answer(&graph, &[10_000.0, 7_000.0], 500.0, Objective::Latency);
    assert_eq!((one.splits, one.solution.value()), (two.splits, two.solution.value()));
}

#[test]
fn every_way_is_an_axis_of_the_last_operator() {
    let graph = model(MODEL);
    let items = items(&graph, Granularity::Fused);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let ways = SplitOptions::of(&graph, &groups);
    for (number, group) in groups.iter().enumerate() {
        let count = axes(&graph, graph.operator(*group.last().unwrap())).len();
        assert!(ways.group(number).iter().all(|option| option.axis < count));
    }
    assert!((0..groups.len()).all(|g| !ways.group(g).is_empty()), "all of this model can be split");
}

#[test]
fn resnet_is_faster_on_two_devices() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/resnet18.relay");
    let text = std::fs::read_to_string(path).unwrap();
    let answer = answer(&model(&text), &[40_000.0, 40_000.0], 125.0, Objective::Latency);
    let (whole, split) = (answer.whole.unwrap(), answer.solution.value());
    eprintln!(
        "resnet18, 1 Gbit/s: whole {whole:.0} us, split {split:.0} us, bound {:.0} us",
        answer.solution.bound.value
    );
    assert!(split < whole / 1.3, "{split} against {whole}");
}

/// A server with a processor and a GPU that is eight times as fast, behind a link of its own; times are made
/// up of the operators' work, and the card has no kernel for pooling.
#[test]
fn a_processor_and_a_card_share_what_pays_and_the_rest_stays() {
    let graph = model(MODEL);
    let items = items(&graph, Granularity::Op);
    let mut costs = costs(&items, &[2_000.0, 16_000.0]);
    for (item, costs) in items.iter().zip(&mut costs) {
        if item.name.contains("pool") {
            costs[1] = None;
        }
    }
    let alone: f64 = costs.iter().map(|costs| costs[0].map_or(0.0, |cost| cost.time.0)).sum();
    let card = Card { memory: None, latency: Micros(10.0), per_byte: 1.0 / 10_000.0 };
    let (answer, made) = card.planned(&graph, costs, 2_000);
    for group in made.groups.iter().filter(|group| group.name.contains("pool")) {
        assert!(group.device == CPU, "{} is not on the processor", group.name);
    }
    let on_card = made.groups.iter().filter(|group| group.device == GPU);
    assert!(on_card.count() > 0, "the card is left idle");
    // Shares follow the devices' speeds: some of the convolutions are cut, and not in the middle.
    let shares: Vec<f64> =
        answer.splits.iter().map(|split| split.cuts[1] as f64 / *split.cuts.last().unwrap() as f64).collect();
    assert!(shares.iter().any(|share| *share < 0.4 || *share > 0.6), "{shares:?}");
    assert!(answer.solution.value() < alone / 2.0, "{} against {alone}", answer.solution.value());
    assert_near(&computed(&answer.expanded.graph), &computed(&graph));
}

/// Where exchanges are slow, shards compute halos themselves instead of receiving them.
#[test]
fn on_a_link_of_high_latency_tiles_are_fused() {
    let text = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 96, 96), float32], %w1: Tensor[(32, 3, 3, 3), float32], %w2: Tensor[(32, 32, 3, 3), float32],
          %w3: Tensor[(32, 32, 3, 3), float32], %w4: Tensor[(32, 32, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.conv2d(%1, %w2, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %3 = nn.max_pool2d(%2, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);
  %4 = nn.conv2d(%3, %w3, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %5 = add(%4, %3);
  nn.conv2d(%5, %w4, strides=[2, 2], padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])
}
"#;
    let graph = model(text);
    for speeds in [vec![5_000.0; 2], vec![5_000.0, 5_000.0, 3_000.0]] {
        on_request(&graph, &speeds, 100.0, Objective::Latency, |mut request| {
            request.instance_mut().network.links.iter_mut().for_each(|link| link.cost.latency = Micros(3_000.0));
            let request = with_budget(&request, 20_000);
            let fused = checked(&graph, solve(&request, None).unwrap());
            assert!(fused.splits.iter().any(|split| !split.tiles.is_empty()), "{:?}", fused.splits);
            assert_near(&computed(&fused.expanded.graph), &computed(&graph));
            // The same shares with halos exchanged take longer, and the plan file gives the tiles back.
            let mut exchanged = fused.applied.clone();
            exchanged.values_mut().for_each(|choice| choice.halo = Halo::Exchanged);
            let exchanged = request.expand(&exchanged).unwrap();
            let few = Options { budget: Some(64), ..request.goal.search };
            let exchanged = edgecut::plan::search::solve::nearest(&exchanged.problem, &few).unwrap();
            assert!(fused.solution.value() < exchanged.value(), "{} and {}", fused.solution.value(), exchanged.value());
            let like = Goal { like: Some(fused.splits.clone()), ..request.goal.clone() };
            let again = solve(&request.with_goal(like), None).unwrap();
            assert_eq!(again.splits, fused.splits);
            // Tiles that a hand has changed are refused.
            let tiled = |splits: &mut Vec<Split>| splits.iter().position(|split| !split.tiles.is_empty()).unwrap();
            let changes: [fn(&mut Vec<Range<u64>>); 4] = [
                |tiles| tiles.truncate(1),
                |tiles| tiles[0].end = 0,
                |tiles| tiles[0].end = u64::MAX,
                |tiles| tiles[0] = tiles[1].clone(),
            ];
            for change in changes {
                let mut splits = fused.splits.clone();
                let at = tiled(&mut splits);
                change(&mut splits[at].tiles);
                let refused = divided(&graph, &[], &splits).unwrap_err().to_string();
                assert!(refused.contains("expected as many tiles as shares"), "{refused}");
            }
        });
    }
}

/// What neighbours wait for is computed and sent first, the rest while that is on its way.
#[test]
fn borders_are_sent_while_interiors_are_computed() {
    let layer = |at: usize| {
        format!("  %{at} = nn.conv2d(%{}, %w{at}, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);", at - 1)
    };
    let layers: Vec<String> = (1..6).map(layer).collect();
    let weights: String = (1..7).map(|at| format!(", %w{at}: Tensor[(32, 32, 3, 3), float32]")).collect();
    let text = format!(
        "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, 32, 96, 96), float32]{weights}) {{\n  %0 = nn.relu(%x);\n{}\n  \
         nn.conv2d(%5, %w6, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])\n}}\n",
        layers.join("\n")
    );
    let graph = model(&text);
    for speeds in [vec![5_000.0; 2], vec![5_000.0; 3]] {
        on_request(&graph, &speeds, 20.0, Objective::Latency, |mut request| {
            request.goal.halo = Some(Halo::Exchanged);
            let request = with_budget(&request, 20_000);
            let found = checked(&graph, solve(&request, None).unwrap());
            assert!(found.applied.values().any(Choice::has_pieces), "{:?}", found.applied);
            assert!(found.applied.values().all(|choice| choice.halo == Halo::Exchanged));
            assert_near(&computed(&found.expanded.graph), &computed(&graph));
            let mut whole = found.applied.clone();
            whole.values_mut().for_each(|choice| *choice = choice.in_one_piece());
            let whole = request.expand(&whole).unwrap();
            let few = Options { budget: Some(64), ..request.goal.search };
            let whole = edgecut::plan::search::solve::nearest(&whole.problem, &few).unwrap();
            assert!(found.solution.value() < whole.value(), "{} and {}", found.solution.value(), whole.value());
            // The plan file gives the pieces back, and ratios by rule are those of the devices.
            let like = Goal { like: Some(found.splits.clone()), ..request.goal.clone() };
            assert_eq!(solve(&request.with_goal(like.clone()), None).unwrap().splits, found.splits);
            let equal = solve(&request.with_goal(Goal { ratios: Ratios::Equal, ..like }), None).unwrap();
            for choice in equal.applied.values() {
                assert!((choice.share(DeviceId(0)) - choice.share(DeviceId(1))).abs() < 1e-9, "{choice:?}");
            }
        });
    }
}

/// A product with a weight is split along tokens, along its columns or as a sum; of a weight nothing is sent.
#[test]
fn attention_is_shared_and_no_weight_is_sent() {
    let graph = model(&attention());
    let clusters =
        [(vec![5_000.0; 2], 1_000.0, 1.2), (vec![2_000.0; 4], 300.0, 1.2), (vec![5_000.0, 2_000.0], 500.0, 1.05)];
    for (speeds, bandwidth, faster) in clusters {
        let answer = answer(&graph, &speeds, bandwidth, Objective::Latency);
        let (whole, split) = (answer.whole.unwrap(), answer.solution.value());
        assert!(split < whole / faster, "{split} against {whole}");
        let products = answer.splits.iter().filter(|s| graph.operator(s.operator).name == "nn.batch_matmul").count();
        assert!(products >= 4, "{:?}", answer.splits);
        let expanded = &answer.expanded;
        let constant = edgecut::graph::constant_operators(&expanded.graph);
        for tensor in &expanded.problem.tensors {
            let by = expanded.graph.producer(tensor.graph);
            assert!(by.is_none_or(|by| !constant[by.0 as usize]), "{} is sent or kept", tensor.name);
        }
        assert_near(&computed(&expanded.graph), &computed(&graph));
    }
}

#[test]
fn a_window_after_a_dequantisation_is_split_along_height_and_width() {
    let graph = model(QUANTISED);
    on_request(&graph, &[5_000.0, 5_000.0], 1_000.0, Objective::Latency, |request| {
        let options = &request.instance.split_options;
        for name in ["nn.conv2d", "nn.max_pool2d"] {
            let windows = graph.operators().filter(|(_, operator)| operator.name == name);
            for group in windows.map(|(id, _)| options.group_of(id).unwrap()) {
                let first = options.groups[group].iter().any(|id| graph.operator(*id).name == "qnn.dequantize");
                let all = options.group(group).iter();
                let layouts: Vec<&ResultLayout> = all.map(|option| &option.layout).collect();
                let is_split = |axis: usize| layouts.contains(&&ResultLayout::Split(axis.into()));
                assert!(first && is_split(2) && is_split(3), "group {group}: {layouts:?}");
            }
        }
    });
}

/// Whatever single group is split, and along whichever axis: the same is computed.
#[test]
fn every_option_of_every_group_computes_the_same() {
    for text in [MODEL, &attention(), FEED_FORWARD, NORMS, QUANTISED] {
        let graph = model(text);
        let whole = computed(&graph);
        on_request(&graph, &[5_000.0, 5_000.0, 5_000.0], 1_000.0, Objective::Latency, |request| {
            for group in 0..request.instance.split_options.groups.len() {
                for option in 0..request.instance.split_options.group(group).len() {
                    let devices = (0..3).map(DeviceId).collect();
                    let choice = Choice { option, fractions: vec![0.5, 0.3, 0.2], devices, halo: Halo::Exchanged };
                    let expanded = request.expand(&[(group, choice)].into()).unwrap();
                    assert_near(&computed(&expanded.graph), &whole);
                }
            }
        });
    }
}
