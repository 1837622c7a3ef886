//! When values crossed the links of a run, on the client's clock.
//!
//! A link carries one value at a time, as it does where plans are simulated. One with a long latency carries more: there the
//! latency of what follows close behind another is not reported, and sums are right all the same.

use std::collections::{BTreeMap, HashMap};

use smol_str::SmolStr;

use super::execute::Record;
use crate::agent::protocol::setup::ValueId;
use edgecut_graph::units::Micros;

/// A value on its way from one server to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    pub inference: u64,
    pub value: ValueId,
    /// When it was there to be sent.
    pub ready: Micros,
    /// When the link was its own: what is handed to the network while another value is still on its way lies behind that one.
    pub start: Micros,
    /// When all of it was there.
    pub end: Micros,
}

impl Crossing {
    pub fn time(&self) -> Micros {
        self.end - self.start
    }

    /// How long it waited for the link.
    pub fn wait(&self) -> Micros {
        (self.start - self.ready).max(Micros::ZERO)
    }
}

/// By the servers at its ends, what crossed each link, in the order in which it was sent.
pub type Crossings = BTreeMap<(SmolStr, SmolStr), Vec<Crossing>>;

/// All crossings of a run.
pub fn crossings(record: &Record) -> Crossings {
    let here = |server: &SmolStr, at: Micros| record.clocks.get(server).map_or(at, |clock| clock.to_local(at));
    let mut arrivals: HashMap<(&SmolStr, u64, ValueId), Micros> = HashMap::new();
    for (server, measured) in &record.measured {
        for run in measured {
            arrivals.extend(run.arrivals.iter().map(|a| ((server, run.inference, a.value), here(server, a.end))));
        }
    }
    let mut found = Crossings::new();
    for (from, measured) in &record.measured {
        for run in measured {
            for sent in &run.transfers {
                let arrived = arrivals.get(&(&sent.to, run.inference, sent.value)).copied();
                found.entry((from.clone(), sent.to.clone())).or_default().push(Crossing {
                    inference: run.inference,
                    value: sent.value,
                    ready: here(from, sent.ready),
                    start: here(from, sent.start),
                    end: arrived.unwrap_or_else(|| here(from, sent.end)),
                });
            }
        }
    }
    found.values_mut().for_each(|crossings| one_at_a_time(crossings));
    found
}

/// Lets each begin when the one before it has ended.
fn one_at_a_time(crossings: &mut [Crossing]) {
    crossings.sort_by(|a, b| a.start.0.total_cmp(&b.start.0));
    let mut free = Micros(f64::NEG_INFINITY);
    for crossing in crossings {
        // Clocks of two servers agree within some microseconds only.
        crossing.end = crossing.end.max(crossing.start);
        crossing.start = crossing.start.max(free).min(crossing.end);
        free = free.max(crossing.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::inference_trace::{ArrivalTime, InferenceTrace, TransferTime};

    #[test]
    fn what_lies_behind_another_has_waited_and_not_crossed() {
        let sent = |value, start: f64| TransferTime {
            value: ValueId(value),
            to: "b".into(),
            ready: Micros(start),
            start: Micros(start),
            end: Micros(start + 1.0),
        };
        let come = |value, end: f64| ArrivalTime { value: ValueId(value), start: Micros::ZERO, end: Micros(end) };
        let nothing =
            InferenceTrace { inference: 1, stages: vec![], transfers: vec![], arrivals: vec![], memory: vec![] };
        // The last one's clock is behind; the first is told last.
        let transfers = vec![sent(1, 20.0), sent(2, 200.0), sent(0, 10.0)];
        let arrivals = vec![come(0, 100.0), come(1, 130.0), come(2, 190.0)];
        let record = Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: [
                ("a".into(), vec![InferenceTrace { transfers, ..nothing.clone() }]),
                ("b".into(), vec![InferenceTrace { arrivals, ..nothing }]),
            ]
            .into(),
            clocks: BTreeMap::new(),
        };
        let found = crossings(&record);
        let times: Vec<(f64, f64)> =
            found[&("a".into(), "b".into())].iter().map(|c| (c.time().0, c.wait().0)).collect();
        assert_eq!(times, [(90.0, 0.0), (30.0, 80.0), (0.0, 0.0)]);
    }
}
