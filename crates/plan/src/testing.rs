//! What unit tests of several modules share: small models, and requests to plan them.

use edgecut_graph::{
    Granularity, LinkCost, OperatorId,
    units::{Bytes, Micros, Rate},
};
use edgecut_profile::items;
use edgecut_relay::{ImportOptions, import};
use fastrand::Rng;

use crate::{
    problem::{Cost, Device, DeviceId, Link, LinkId, assemble::Network, transfer_format::Coding},
    request::{PlanRequest, goal::Goal, instance::Instance, options::SplitOptions},
    search::options::Options,
};

/// Three convolutions that are worth splitting.
pub(crate) const CONVOLUTIONS: &str = "
def @main(%x: Tensor[(1, 16, 64, 64), float32], %w1: Tensor[(32, 16, 3, 3), float32], %w2: Tensor[(32, 32, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  nn.conv2d(%1, %w2, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3])
}
";

/// The widest tensors take 4 MiB each, all others little.
pub(crate) const WIDE: &str = "
def @main(%x: Tensor[(1, 4, 128, 128), float32], %w1: Tensor[(64, 4, 1, 1), float32], %w2: Tensor[(8, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w1, channels=64, kernel_size=[1, 1]);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[3, 3], strides=[4, 4], padding=[1, 1, 1, 1]);
  %3 = nn.conv2d(%2, %w2, channels=8, kernel_size=[1, 1]);
  tanh(%3)
}
";

/// The same with a depthwise convolution whose weights are a view that is computed together with it.
pub(crate) const VIEWED_WEIGHTS: &str = "
def @main(%x: Tensor[(1, 4, 128, 128), float32], %w1: Tensor[(64, 4, 1, 1), float32], %d: Tensor[(64, 1, 9), float32], %w2: Tensor[(8, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w1, channels=64, kernel_size=[1, 1]);
  %1 = reshape(%d, newshape=[64, 1, 3, 3]);
  %2 = nn.conv2d(%0, %1, padding=[1, 1, 1, 1], groups=64, channels=64, kernel_size=[3, 3]);
  %3 = nn.conv2d(%2, %w2, channels=8, kernel_size=[1, 1]);
  tanh(%3)
}
";

/// A chain of convolutions of random widths and sizes, some followed by an activation, a pooling or a sum with its input.
pub(crate) fn random_model(rng: &mut Rng) -> String {
    let (mut channels, mut size) = ([4, 8, 16][rng.usize(0..3)], [16, 32, 64][rng.usize(0..3)]);
    let mut arguments = vec![format!("%x: Tensor[(1, {channels}, {size}, {size}), float32]")];
    let (mut lines, mut last): (Vec<String>, String) = (Vec::new(), "%x".into());
    for layer in 0..rng.usize(2..=5) {
        let (before, from) = (last.clone(), channels);
        let kernel = [1, 3][rng.usize(0..2)];
        channels = [4, 8, 16, 32][rng.usize(0..4)];
        arguments.push(format!("%w{layer}: Tensor[({channels}, {from}, {kernel}, {kernel}), float32]"));
        let padding = kernel / 2;
        let mut call = |text: String| {
            lines.push(text);
            format!("%{}", lines.len() - 1)
        };
        last = call(format!(
            "nn.conv2d({before}, %w{layer}, padding=[{padding}, {padding}, {padding}, {padding}], channels={channels}, kernel_size=[{kernel}, {kernel}])"
        ));
        match rng.u8(0..4) {
            0 => last = call(format!("nn.relu({last})")),
            1 if size > 8 => {
                size /= 2;
                last = call(format!("nn.max_pool2d({last}, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])"));
            }
            2 if from == channels => last = call(format!("add({last}, {before})")),
            _ => {}
        }
    }
    let lines: Vec<String> =
        lines.iter().enumerate().map(|(number, text)| format!("  %{number} = {text};\n")).collect();
    format!("\ndef @main({}) {{\n{}  tanh({last})\n}}\n", arguments.join(", "), lines.concat())
}

/// Calls `with` with the request to plan `model` for servers `s0`, `s1`, … with one device each, of these speeds in FLOPs
/// a microsecond, and fast links between all of them.
pub(crate) fn with_request<T>(model: &str, speeds: &[f64], with: impl FnOnce(PlanRequest<'_>) -> T) -> T {
    let text = format!("#[version = \"0.0.5\"]\n{model}");
    let graph = import("model", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
    let items = items(&graph, Granularity::Op);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let names = items.iter().map(|item| item.name.clone()).collect();
    let cost = |flops: u64, bytes: Bytes, speed: f64| {
        let time = Micros(1.0 + flops as f64 / speed + bytes.0 as f64 * 1e-3);
        Some(Cost { time, workspace: Bytes(256 << 10), ..Cost::default() })
    };
    let costs = items.iter().map(|item| speeds.iter().map(|s| cost(item.flops, item.bytes, *s)).collect()).collect();
    let count = speeds.len();
    let device = |n: usize| Device {
        server: format!("s{n}"),
        name: "cpu".into(),
        address: None,
        memory: None,
        ..Device::default()
    };
    let cost = LinkCost { latency: Micros(10.0), rate: Rate(1000.0) };
    let link = |n: usize| Link {
        name: format!("s{} → s{}", n / count, n % count),
        cost,
        overhead: Micros::ZERO,
        coding: Coding::default(),
    };
    let network = Network {
        devices: (0..count).map(device).collect(),
        links: (0..count * count).map(link).collect(),
        routes: (0..count * count).map(|n| (n / count != n % count).then_some(LinkId(n as u32))).collect(),
        source: DeviceId(0),
        sink: DeviceId(0),
    };
    let search = Options { budget: Some(300), cut_off: None, ..Options::default() };
    let instance = Instance::new(SplitOptions::of(&graph, &groups), names, costs, network);
    with(PlanRequest::new(instance, Goal { search, ..Goal::default() }))
}
