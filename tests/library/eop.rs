//! What EOP recorded of models on its CPU and GPU, planned with. Of the LSTM the known optima with whole operators, and
//! what splitting in ratios adds; of ResNet-18 plans by the program's own search: both devices together, a card with
//! little memory, a card without some kernels.

use std::collections::BTreeMap;

use crate::common::{
    card::{CPU, Card, GPU},
    shared,
};
use crate::two_device::TwoDeviceProblem;
use edgecut::{
    graph::{Granularity, Graph},
    interop::{
        eop::{self, EopRow},
        profile_import as import,
    },
    plan::{DeviceId, Plan, problem::Cost},
    profile::{
        growth::{Fit, Growth, Point},
        items,
    },
    relay::{
        ImportOptions, ParseMode,
        eop_numbering::{self, numbered},
        import as import_relay, parse,
    },
    units::{Bytes, Micros},
};

type Profile = BTreeMap<usize, EopRow>;

fn file(name: &str) -> String {
    std::fs::read_to_string(shared("profiles/eop").join(name)).unwrap()
}

fn profile(name: &str) -> Profile {
    eop::read(&file(name)).unwrap().rows
}

/// The graph of the module, with the times of two profiles, by the numbers of its operators in ascending order.
fn pair(cpu: &Profile, gpu: &Profile) -> (TwoDeviceProblem, Vec<usize>) {
    let text = file("lstm_5x128x10.relay");
    // The file has no header.
    let text = format!("#[version = \"0.0.5\"]\n{text}");
    let module = parse("lstm", text.as_bytes(), ParseMode::Tolerant).unwrap();
    let mut vertices = numbered(&module).unwrap();
    vertices.sort_by_key(|v| v.number);
    let numbers: Vec<usize> = vertices.iter().map(|v| v.number).collect();
    let place = |number: usize| numbers.binary_search(&number).unwrap();
    for vertex in &vertices {
        assert_eq!(cpu[&vertex.number].name, vertex.name);
    }
    let times = numbers.iter().map(|n| [cpu[n].time, gpu[n].time]).collect();
    let edges = vertices.iter().flat_map(|v| v.operands.iter().map(move |o| (place(*o), place(v.number)))).collect();
    (TwoDeviceProblem { times, edges }, numbers)
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn whole_operators_reach_the_known_optima() {
    let (cpu, gpu) = (profile("lstm_512_cpu_512.csv"), profile("lstm_512_k40_512.csv"));
    let (pair, _) = pair(&cpu, &gpu);
    assert_eq!((pair.times.len(), pair.edges.len()), (251, 342));
    for (edge, known) in [(0.0, 1203.0), (2.0, 1348.0), (10.0, 1512.0), (50.0, 1702.0)] {
        let placed = pair.place_whole(Micros(edge));
        assert_eq!(placed.total.0.round(), known, "at {edge} us an edge");
    }
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn tuned_ratios_are_never_worse_than_fixed_ones() {
    let names =
        ["lstm_128_cpu_new_128.csv", "lstm_512_cpu_512.csv", "lstm_128_k40_new_128.csv", "lstm_512_k40_512.csv"];
    let profiles = names.map(profile);
    let (pair, numbers) = pair(&profiles[1], &profiles[3]);
    // How each operator grows with the batch, from 128 and 512.
    let growth = |small: &Profile, large: &Profile| -> Vec<Growth> {
        let point = |work: f64, row: &EopRow| Point { work, time: row.time };
        let points = |n: &usize| [point(0.25, small.get(n).unwrap_or(&large[n])), point(1.0, &large[n])];
        numbers.iter().map(|n| Fit::of(&points(n)).unwrap().growth).collect()
    };
    let (cpu, gpu) = (growth(&profiles[0], &profiles[1]), growth(&profiles[2], &profiles[3]));
    let both = |ratio: &dyn Fn(usize) -> f64| -> Vec<Micros> {
        let time = |i: usize| {
            let share = ratio(i);
            let part = |growth: &Growth, share: f64| if share > 0.0 { growth.at(share) } else { Micros::ZERO };
            part(&cpu[i], share).max(part(&gpu[i], 1.0 - share))
        };
        (0..numbers.len()).map(time).collect()
    };
    let (first, second): (f64, f64) = pair.times.iter().fold((0.0, 0.0), |(a, b), time| (a + time[0].0, b + time[1].0));
    let tuned = |i: usize| -> f64 {
        let time = |share: f64| cpu[i].at(share).max(gpu[i].at(1.0 - share)).0;
        let shares = (1..64).map(|k| f64::from(k) / 64.0);
        shares.min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap()
    };
    println!("edge us, whole, equal, by speed, tuned ratio, bound");
    for edge in [0.0, 2.0, 10.0, 50.0].map(Micros) {
        let whole = pair.place_whole(edge).total.0;
        let equal = pair.place_split(&both(&|_| 0.5), edge).total.0;
        let speed = pair.place_split(&both(&|_| second / (first + second)), edge).total.0;
        let ours = pair.place_split(&both(&tuned), edge);
        println!("{:.0}, {whole:.0}, {equal:.0}, {speed:.0}, {:.0}, {:.0}", edge.0, ours.total.0, ours.bound.0);
        // Expansion moves end in a local optimum: a hair's breadth is allowed.
        assert!(ours.total.0 <= whole + 1e-6 && ours.total.0 <= equal.min(speed) * 1.01);
        assert!(ours.bound.0 <= ours.total.0 + 1e-6);
    }
}

/// ResNet-18 as EOP profiled it: MXNet's, with batch normalisation folded away. That every vertex has the name that the
/// profile says its number has is checked when the profile is imported.
#[derive(Default)]
struct ResNet {
    parameters: Vec<String>,
    body: Vec<String>,
    convolutions: usize,
}

impl ResNet {
    fn text() -> String {
        let mut net =
            ResNet { parameters: vec!["%data: Tensor[(1, 3, 224, 224), float32]".into()], ..ResNet::default() };
        let first = net.convolution("%data", [3, 64, 7, 2]);
        let first = net.call(format!("nn.relu({first})"));
        let mut x = net.call(format!("nn.max_pool2d({first}, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])"));
        let mut channels = 64;
        for (out, stride) in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)] {
            let inner = net.convolution(&x, [channels, out, 3, stride]);
            let inner = net.call(format!("nn.relu({inner})"));
            let inner = net.convolution(&inner, [out, out, 3, 1]);
            let around = if channels == out { x } else { net.convolution(&x, [channels, out, 1, stride]) };
            let sum = net.call(format!("add({inner}, {around})"));
            (x, channels) = (net.call(format!("nn.relu({sum})")), out);
        }
        x = net.call(format!("nn.global_avg_pool2d({x})"));
        x = net.call(format!("nn.batch_flatten({x})"));
        x = net.call(format!("nn.batch_flatten({x})"));
        net.parameters.extend(["%w: Tensor[(1000, 512), float32]".into(), "%b: Tensor[(1000), float32]".into()]);
        let dense = net.call(format!("nn.dense({x}, %w, units=1000)"));
        let bias = net.call("multiply(1f, %b)".into());
        let (parameters, body) = (net.parameters.join(", "), net.body.join(""));
        format!("#[version = \"0.0.5\"]\ndef @main({parameters}) {{\n{body}  add({dense}, {bias})\n}}\n")
    }

    fn call(&mut self, text: String) -> String {
        let name = format!("%{}", self.body.len());
        self.body.push(format!("  {name} = {text};\n"));
        name
    }

    /// Input channels, output channels, window size and stride; with a bias.
    fn convolution(&mut self, x: &str, [from, to, size, stride]: [usize; 4]) -> String {
        self.convolutions += 1;
        let (n, pad) = (self.convolutions, size / 2);
        self.parameters.push(format!("%w{n}: Tensor[({to}, {from}, {size}, {size}), float32]"));
        self.parameters.push(format!("%b{n}: Tensor[({to}), float32]"));
        let made = self.call(format!(
            "nn.conv2d({x}, %w{n}, strides=[{stride}, {stride}], padding=[{pad}, {pad}, {pad}, {pad}], channels={to}, \
             kernel_size=[{size}, {size}])"
        ));
        self.call(format!("nn.bias_add({made}, %b{n})"))
    }
}

/// The graph, and for each of its operators what EOP measured on the processor and on the card.
fn recorded() -> (Graph, Vec<Vec<Option<Cost>>>) {
    let text = ResNet::text();
    let graph = import_relay("resnet18", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let numbers = eop_numbering::operators(&text, &graph).unwrap();
    let mut costs = vec![Vec::new(); items(&graph, Granularity::Op).len()];
    for (device, name) in [("cpu", "resnet18_cpu_1.csv"), ("gpu0", "resnet18_k40_1.csv")] {
        let measured = eop::read(&file(name)).unwrap();
        assert_eq!(measured.is_gpu, device == "gpu0");
        let rows = import::eop(&measured, &graph, &numbers, &import::place("eop", device, name)).unwrap();
        assert_eq!((rows.rows.len(), rows.unused, rows.missing), (costs.len(), 0, 0));
        for row in rows.rows {
            let time = row.time_us_median.unwrap();
            costs[row.id].push(Some(Cost { time, ..Cost::default() }));
        }
    }
    (graph, costs)
}

/// The plan for one server with both devices. Every transfer takes 10 us, as one edge of EOP's own model does, whatever
/// its size; a shard takes its share of its operator's time.
fn on_both(graph: &Graph, costs: &[Vec<Option<Cost>>], memory: Option<Bytes>) -> Plan {
    Card { memory, latency: Micros(10.0), per_byte: 0.0 }.planned(graph, costs.to_vec(), 1_000).1
}

fn is_on(plan: &Plan, device: DeviceId, name: &str) -> bool {
    let mut of_name = plan.groups.iter().filter(|group| group.name.contains(name)).peekable();
    assert!(of_name.peek().is_some(), "the plan has no {name}");
    of_name.all(|group| group.device == device)
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn a_recorded_card_and_its_processor_are_faster_together() {
    let (graph, costs) = recorded();
    let alone = |device: usize| costs.iter().filter_map(|costs| costs[device]).map(|cost| cost.time.0).sum::<f64>();
    let plan = on_both(&graph, &costs, None);
    let latency = plan.predicted.latency_us.0;
    println!(
        "resnet18: processor {:.0} us, card {:.0} us, both {latency:.0} us (bound {:.0} us), {} operators are split",
        alone(0),
        alone(1),
        plan.bound.value,
        plan.splits.len()
    );
    assert!(plan.devices.iter().all(|device| !device.order.is_empty()), "a device is left idle");
    assert!(latency < alone(1).min(alone(0)) && plan.bound.value <= latency * (1.0 + 1e-9));
    // The card is some four times as fast, and gets more of what they share.
    for split in plan.splits.iter().filter(|split| split.devices[..] == [CPU, GPU]) {
        let whole = *split.cuts.last().unwrap();
        assert!(split.cuts[1] * 2 <= whole, "the processor computes {:?} of {whole}", split.cuts);
    }
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn a_recorded_card_with_little_memory_gets_what_fits() {
    let (graph, costs) = recorded();
    let mut before = 0.0;
    // The parameters alone are 45 MiB.
    for mebibytes in [64, 32, 16, 8] {
        let limit = Bytes(mebibytes << 20);
        let plan = on_both(&graph, &costs, Some(limit));
        let card = &plan.devices[GPU.0 as usize];
        println!("{limit}: {} with {} of the card", plan.predicted.latency_us, card.memory.arena_bytes);
        assert!(card.memory.parameter_bytes + card.memory.arena_bytes <= limit, "{:?}", card.memory);
        assert!(!card.order.is_empty() && plan.devices[CPU.0 as usize].memory.parameter_bytes > Bytes::ZERO);
        assert!(plan.predicted.latency_us.0 >= 0.99 * before, "less memory is no better");
        before = plan.predicted.latency_us.0;
    }
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn what_a_recorded_card_has_no_kernel_for_stays_on_the_processor() {
    let (graph, mut costs) = recorded();
    for (item, costs) in items(&graph, Granularity::Op).iter().zip(&mut costs) {
        if item.name.contains("pool") {
            costs[1] = None;
        }
    }
    let plan = on_both(&graph, &costs, None);
    assert!(is_on(&plan, CPU, "pool") && !is_on(&plan, CPU, "nn.conv2d"));
}
