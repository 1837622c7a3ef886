//! EOP's LSTM on its CPU and GPU: the known optima with whole operators, and what splitting in ratios adds.

use std::{collections::BTreeMap, path::Path};

use edgecut::{
    plan::pair::Pair,
    profile::{
        eop::{self, EopRow},
        growth::{Fit, Growth, Point},
    },
    relay::{Mode, numbers::numbered, parse},
    units::Micros,
};

type Profile = BTreeMap<usize, EopRow>;

fn file(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/profiles/eop").join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        assert!(std::env::var_os("EDGECUT_REQUIRE_SHARED").is_none(), "{} is missing", path.display());
        eprintln!("skipped: {} is missing", path.display());
    }
    text
}

fn profile(name: &str) -> Option<Profile> {
    Some(eop::read(&file(name)?).unwrap().rows)
}

/// The graph of the module, with the times of two profiles, by the numbers of its operators in ascending order.
fn pair(cpu: &Profile, gpu: &Profile) -> Option<(Pair, Vec<usize>)> {
    let text = file("lstm_5x128x10.relay")?;
    // The file has no header.
    let text = format!("#[version = \"0.0.5\"]\n{text}");
    let module = parse("lstm", text.as_bytes(), Mode::Tolerant).unwrap();
    let mut vertices = numbered(&module).unwrap();
    vertices.sort_by_key(|v| v.number);
    let numbers: Vec<usize> = vertices.iter().map(|v| v.number).collect();
    let place = |number: usize| numbers.binary_search(&number).unwrap();
    for vertex in &vertices {
        assert_eq!(cpu[&vertex.number].name, vertex.name);
    }
    let times = numbers.iter().map(|n| [cpu[n].time, gpu[n].time]).collect();
    let edges = vertices.iter().flat_map(|v| v.operands.iter().map(move |o| (place(*o), place(v.number)))).collect();
    Some((Pair { times, edges }, numbers))
}

#[test]
fn whole_operators_reach_the_known_optima() {
    let (Some(cpu), Some(gpu)) = (profile("lstm_512_cpu_512.csv"), profile("lstm_512_k40_512.csv")) else { return };
    let Some((pair, _)) = pair(&cpu, &gpu) else { return };
    assert_eq!((pair.times.len(), pair.edges.len()), (251, 342));
    for (edge, known) in [(0.0, 1203.0), (2.0, 1348.0), (10.0, 1512.0), (50.0, 1702.0)] {
        let placed = pair.whole(Micros(edge));
        assert_eq!(placed.total.0.round(), known, "at {edge} us an edge");
    }
}

#[test]
fn tuned_ratios_are_never_worse_than_fixed_ones() {
    let names =
        ["lstm_128_cpu_new_128.csv", "lstm_512_cpu_512.csv", "lstm_128_k40_new_128.csv", "lstm_512_k40_512.csv"];
    let Some(profiles) = names.iter().map(|name| profile(name)).collect::<Option<Vec<_>>>() else { return };
    let Some((pair, numbers)) = pair(&profiles[1], &profiles[3]) else { return };
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
        let whole = pair.whole(edge).total.0;
        let equal = pair.split(&both(&|_| 0.5), edge).total.0;
        let speed = pair.split(&both(&|_| second / (first + second)), edge).total.0;
        let ours = pair.split(&both(&tuned), edge);
        println!("{:.0}, {whole:.0}, {equal:.0}, {speed:.0}, {:.0}, {:.0}", edge.0, ours.total.0, ours.bound.0);
        // Expansion moves end in a local optimum: a hair's breadth is allowed.
        assert!(ours.total.0 <= whole + 1e-6 && ours.total.0 <= equal.min(speed) * 1.01);
        assert!(ours.bound.0 <= ours.total.0 + 1e-6);
    }
}
