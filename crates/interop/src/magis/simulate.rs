//! Latency and peak of operators in schedule order, after MAGIS's asynchronous simulator.

use std::collections::{BTreeMap, HashMap};

use super::Op;

/// What a simulation found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulated {
    pub latency_ms: f64,
    pub peak_bytes: u64,
}

/// Simulates operators; arguments that are not among them are there from the beginning.
pub fn simulate(ops: &[Op]) -> Simulated {
    let mut events = Vec::new();
    let end = streams(ops, 0.0, &mut events);
    // All changes of one instant count together. Times are never negative, so their bits sort as they do.
    let mut at: BTreeMap<u64, i64> = BTreeMap::new();
    for (time, bytes) in events {
        *at.entry(time.to_bits()).or_default() += bytes;
    }
    let (mut now, mut peak) = (0, 0);
    for bytes in at.values() {
        now += bytes;
        peak = peak.max(now);
    }
    Simulated { latency_ms: end, peak_bytes: peak as u64 }
}

/// Runs operators from `start` on and notes what comes and goes; returns when the last one ends.
fn streams(ops: &[Op], start: f64, events: &mut Vec<(f64, i64)>) -> f64 {
    let (mut computing, mut copying) = (start, start);
    let mut lives: HashMap<u64, (f64, f64)> = HashMap::new();
    let mut last_use: HashMap<u64, f64> = HashMap::new();
    for op in ops {
        let copies = matches!(op.tag.as_str(), "store" | "load");
        if copies {
            computing = computing.max(copying);
            copying = computing;
        }
        let ready = op.args.iter().filter_map(|arg| lives.get(arg)).map(|life| life.1);
        let begin = ready.fold(if copies { copying } else { computing }, f64::max);
        let took = match &op.fission {
            // Only the first part is noted: the others come and go as it does.
            Some(fission) => (streams(&fission.graph.ops, begin, events) - begin) * fission.iters as f64,
            None => op.latency_ms,
        };
        let done = begin + took;
        *(if copies { &mut copying } else { &mut computing }) = done;
        lives.insert(op.id, (begin, done));
        for arg in &op.args {
            let last = last_use.entry(*arg).or_insert(done);
            *last = last.max(done);
        }
    }
    let end = lives.values().map(|life| life.1).fold(start, f64::max);
    for op in ops.iter().filter(|op| op.tag != "store") {
        let (begin, done) = lives[&op.id];
        events.push((begin, (op.out_bytes + op.extra_bytes) as i64));
        events.push((done, -(op.extra_bytes as i64)));
        events.push((last_use.get(&op.id).copied().unwrap_or(end), -(op.out_bytes as i64)));
    }
    end
}
