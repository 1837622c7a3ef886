//! Memory reports against the tools they follow: G10's files byte for byte, Aidge's networks at their bound.

use crate::common::shared;
use edgecut::{
    graph::InPlacePolicy,
    graph::OperatorId,
    interop::{fx, g10, network::Network},
    memory::{PackOptions, StorageRules, bound, place},
    units::Bytes,
};

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn g10_files_are_equal_byte_for_byte() {
    let folder = shared("liveness/g10/tiny6");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let times = fx::times(&read("time_dict.txt")).unwrap();
    let trace = fx::parse(&read("fwd.py"), &read("bwd.py"), &times).unwrap();
    for (name, content) in g10::files(&trace, "run1", true) {
        assert_eq!(content, read(&name), "{name}");
    }
}

/// The training graphs that come with G10's tool: kernels, tensors and idle periods; of ResNet-50 the whole file of G10,
/// whose times are not published.
#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn dumps_of_pytorch_are_read_as_g10_reads_them() {
    let folder = shared("liveness/g10/fx");
    let read = |name: String| std::fs::read_to_string(folder.join(name)).unwrap();
    for (name, expected) in
        [("ResNet50", (1834, 2262, 1953)), ("bert", (2879, 3146, 1694)), ("mobilev3small", (1703, 2137, 1579))]
    {
        let trace = fx::parse(&read(format!("{name}.forward.py")), &read(format!("{name}.backward.py")), &[]).unwrap();
        let periods: usize = trace.liveness().iter().map(|life| life.idle.len()).sum();
        assert_eq!((trace.kernels.len(), trace.tensors.len(), periods), expected, "{name}");
    }
    let trace = fx::parse(&read("ResNet50.forward.py".into()), &read("ResNet50.backward.py".into()), &[]).unwrap();
    let files = g10::files(&trace, "run1", true);
    let (_, ours) = files.iter().find(|(name, _)| name == "liveness_analysis.config").unwrap();
    let theirs = read("ResNet50.liveness_analysis.config".into());
    assert_eq!(ours.lines().count(), theirs.lines().count());
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert!(ours == theirs || theirs.starts_with("Estimated Time:"), "{ours}\n{theirs}");
    }
}

/// What PyTorch prints since: strides and devices, a parameter a line, dynamic dimensions, constants, prefixes of logs.
#[test]
fn dumps_of_current_pytorch_are_read() {
    let trace = fx::parse(include_str!("../data/fx/forward.py"), include_str!("../data/fx/backward.log"), &[]).unwrap();
    let kernels: Vec<(&str, usize, usize)> = trace
        .kernels
        .iter()
        .map(|kernel| {
            let operator = kernel.name.split('(').next().unwrap_or_default();
            (operator.rsplit('.').nth(1).unwrap_or_default(), kernel.inputs.len(), kernel.outputs.len())
        })
        .collect();
    let expected = [
        ("convert_element_type", 1, 1),
        ("permute", 1, 1),
        ("addmm", 3, 1),
        ("cat", 2, 1),
        ("gt", 1, 1),
        ("mul", 2, 1),
        ("var_mean", 1, 2),
        ("mul", 2, 1),
        ("slice", 1, 1),
        ("permute", 1, 1),
        ("mm", 2, 1),
    ];
    assert_eq!(kernels, expected);
    let globals: Vec<&str> = trace.tensors.iter().filter(|t| t.global).map(|t| t.name.as_str()).collect();
    assert_eq!(globals, ["primals_1", "primals_2", "primals_4", "_tensor_constant0"]);
    let bytes = |name: &str| trace.tensors.iter().find(|tensor| tensor.name == name).unwrap().bytes;
    assert_eq!((bytes("primals_4"), bytes("gt"), bytes("cat")), (Bytes(16), Bytes(32), Bytes(128)));
    assert_eq!(trace.kernels[2].outputs[0].dimensions, "f32[2, 8]");
    let results: Vec<&str> = trace.tensors.iter().filter(|t| t.result).map(|t| t.name.as_str()).collect();
    assert_eq!(results, ["convert_element_type", "gt", "mul", "mm"]);
    // The second tangent is read by no kernel.
    let unused = trace.tensors.iter().position(|tensor| tensor.name == "tangents_2").unwrap();
    assert_eq!(trace.liveness()[unused].birth, None);
    let reports = g10::files(&trace, "run1", true);
    let (_, liveness) = reports.iter().find(|(name, _)| name == "liveness_analysis.config").unwrap();
    assert!(liveness.contains("Name: tangents_2, Is global?: 0: Size in byte: 16, \nLiveness: Birth: 0, Death: -1.\n"));
}

#[test]
#[cfg_attr(not(shared), ignore = "needs ../shared")]
fn aidge_networks_lie_at_their_bound() {
    let folder = shared("liveness/aidge");
    // The bound under Aidge's rule, and the best of its strategies.
    for (name, theirs, best) in
        [("mlp", 1536, 1536), ("resnet8", 196608, 196608), ("incep", 98304, 106496), ("vitblock", 163072, 163072)]
    {
        let text = std::fs::read(folder.join(format!("{name}.graph.json"))).unwrap();
        let network = Network::parse(&text).unwrap();
        let order: Vec<OperatorId> = network.graph.operators().map(|(id, _)| id).collect();
        let arena = |rule: InPlacePolicy| {
            let alias = |id| network.alias(id, rule);
            let rules = StorageRules { alias: &alias, workspace: &|_| Bytes::ZERO, align: 1 };
            let placed = place::place(&network.graph, order.clone(), &rules, &PackOptions::default()).unwrap();
            assert_eq!(placed.packing.height, bound::arena(&placed.lifetimes.buffers), "{name} {rule:?}");
            placed.packing.height.0
        };
        assert_eq!(arena(InPlacePolicy::FirstOperand), theirs, "{name}");
        let ours = arena(InPlacePolicy::Any);
        assert!(ours <= best && (name != "vitblock" || ours <= 112896), "{name}: {ours}");
        assert!(arena(InPlacePolicy::Never) >= ours, "{name}");
        let alias = |id| network.alias(id, InPlacePolicy::Any);
        let rules = StorageRules { alias: &alias, workspace: &|_| Bytes::ZERO, align: 1 };
        let placements = place::best_placement(&network.graph, &rules, &PackOptions::default()).unwrap();
        eprintln!(
            "{name}: {ours} in program order, {} reordered, bound {}",
            placements.best.packing.height.0, placements.bound.0
        );
        assert!(placements.best.packing.height.0 <= ours, "{name}");
        assert!(placements.bound <= placements.best.lifetimes.peak(), "{name}");
    }
}
