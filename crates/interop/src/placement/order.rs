//! Linear extensions of the graph as orders of bundles, for contiguous splits.

use fastrand::Rng;

use super::{PlacementWorkload, bundles::Bundles};

/// An order of the bundles by their first operator in a topological order of the operators, forward ones first:
/// breadth first, depth first, or at random.
pub fn order(workload: &PlacementWorkload, problem: &Bundles, round: usize, rng: &mut Rng) -> Vec<usize> {
    let count = workload.operators.len();
    let mut missing = vec![0usize; count];
    let mut readers = vec![Vec::new(); count];
    for &(from, to) in &workload.edges {
        missing[to] += 1;
        readers[from].push(to);
    }
    let mut ready: Vec<usize> = (0..count).filter(|i| missing[*i] == 0).collect();
    let mut place = vec![usize::MAX; count];
    let mut next = 0;
    let deep = round.is_multiple_of(3);
    while !ready.is_empty() {
        let at = match round {
            0 => ready.len() - 1,
            1 => 0,
            // Mostly the newest, so that chains stay together.
            _ if deep || rng.f64() < 0.9 => ready.len() - 1,
            _ => rng.usize(0..ready.len()),
        };
        let operator = ready.remove(at);
        place[operator] = next;
        next += 1;
        let mut opened: Vec<usize> = Vec::new();
        for &reader in &readers[operator] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                opened.push(reader);
            }
        }
        if round > 1 {
            rng.shuffle(&mut opened);
        }
        ready.extend(opened);
    }
    // An operator without operands (a weight) belongs to where it is first read, not to the beginning.
    let mut by_need = place.clone();
    let mut backwards: Vec<usize> = (0..count).collect();
    backwards.sort_by_key(|i| std::cmp::Reverse(place[*i]));
    let mut has_operands = vec![false; count];
    workload.edges.iter().for_each(|(_, to)| has_operands[*to] = true);
    for operator in backwards {
        if !has_operands[operator]
            && let Some(first) = readers[operator].iter().map(|r| by_need[*r]).min()
        {
            by_need[operator] = first;
        }
    }
    let forward = |bundle: usize| {
        let members = problem.bundles[bundle].operators.iter();
        members.map(|op| (workload.operators[*op].is_backward, by_need[*op], place[*op])).min()
    };
    let mut order: Vec<usize> = (0..problem.bundles.len()).collect();
    order.sort_by_key(|bundle| forward(*bundle));
    order
}
