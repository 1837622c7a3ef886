//! Memory reports against the tools they follow: G10's files byte for byte, Aidge's networks at their bound.

use std::path::{Path, PathBuf};

use edgecut::{
    graph::OperatorId,
    memory::{
        Options, Sharing, bound, fx, g10,
        network::{InPlace, Network},
        place,
    },
    units::Bytes,
};

fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/liveness").join(folder);
    if !path.exists() {
        assert!(std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none(), "{} is not there", path.display());
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn g10_files_are_equal_byte_for_byte() {
    let Some(folder) = shared("g10/tiny6") else { return };
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let times = fx::times(&read("time_dict.txt")).unwrap();
    let trace = fx::parse(&read("fwd.py"), &read("bwd.py"), &times).unwrap();
    for (name, content) in g10::files(&trace, "run1", true) {
        assert_eq!(content, read(&name), "{name}");
    }
}

#[test]
fn aidge_networks_lie_at_their_bound() {
    let Some(folder) = shared("aidge") else { return };
    // The bound under Aidge's rule, and the best of its strategies.
    for (name, theirs, best) in
        [("mlp", 1536, 1536), ("resnet8", 196608, 196608), ("incep", 98304, 106496), ("vitblock", 163072, 163072)]
    {
        let text = std::fs::read(folder.join(format!("{name}.graph.json"))).unwrap();
        let network = Network::parse(&text).unwrap();
        let order: Vec<OperatorId> = network.graph.operators().map(|(id, _)| id).collect();
        let arena = |rule: InPlace| {
            let reuse = |id| network.reuse(id, rule);
            let sharing = Sharing { reuse: &reuse, workspace: &|_| Bytes::ZERO, align: 1 };
            let placed = place::place(&network.graph, order.clone(), &sharing, &Options::default()).unwrap();
            assert_eq!(placed.packing.height, bound::arena(&placed.lifetimes.buffers), "{name} {rule:?}");
            placed.packing.height.0
        };
        assert_eq!(arena(InPlace::First), theirs, "{name}");
        let ours = arena(InPlace::Any);
        assert!(ours <= best && (name != "vitblock" || ours <= 112896), "{name}: {ours}");
        assert!(arena(InPlace::Never) >= ours, "{name}");
        let reuse = |id| network.reuse(id, InPlace::Any);
        let sharing = Sharing { reuse: &reuse, workspace: &|_| Bytes::ZERO, align: 1 };
        let placements = place::best(&network.graph, &sharing, &Options::default()).unwrap();
        eprintln!(
            "{name}: {ours} in program order, {} reordered, bound {}",
            placements.best.packing.height.0, placements.bound.0
        );
        assert!(placements.best.packing.height.0 <= ours, "{name}");
        assert!(placements.bound <= placements.best.lifetimes.peak(), "{name}");
    }
}
