//! Transfers of a run: when each value crossed its link, on the client's clock.
//!
//! A link carries one value at a time, as it does where plans are simulated. One with a long latency carries more: there the
//! latency of what follows close behind another is not reported, and sums are right all the same.

use std::collections::{BTreeMap, HashMap};

use smol_str::SmolStr;

use super::record::Record;
use crate::protocol::setup::ValueId;
use edgecut_graph::{
    TensorId,
    units::{Bytes, Micros},
};
use edgecut_plan::{DeviceId, Plan, file::Transfer};

/// The transfer of one value from one server to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    pub inference: u64,
    pub value: ValueId,
    /// When the value was available to be sent.
    pub ready: Micros,
    /// When the transfer had the link to itself: after the previous transfer ended, even if it was sent earlier.
    pub start: Micros,
    /// When the value had arrived completely.
    pub end: Micros,
    /// What was sent for it.
    pub bytes: Bytes,
}

impl Crossing {
    pub fn time(&self) -> Micros {
        self.end - self.start
    }

    /// Time that it waited for the link.
    pub fn wait(&self) -> Micros {
        (self.start - self.ready).max(Micros::ZERO)
    }
}

/// The transfers of each link in the order of sending; links are keyed by (sending, receiving) server.
pub type Crossings = BTreeMap<(SmolStr, SmolStr), Vec<Crossing>>;

/// The transfers of a run, with times converted to the client's clock.
pub fn crossings(record: &Record) -> Crossings {
    let to_client = |server: &SmolStr, at: Micros| record.to_client(server, at);
    let mut arrivals: HashMap<(&SmolStr, u64, ValueId), Micros> = HashMap::new();
    for (server, measured) in &record.measured {
        for run in measured {
            arrivals.extend(run.arrivals.iter().map(|a| ((server, run.inference, a.value), to_client(server, a.end))));
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
                    ready: to_client(from, sent.ready),
                    start: to_client(from, sent.start),
                    end: arrived.unwrap_or_else(|| to_client(from, sent.end)),
                    bytes: sent.bytes,
                });
            }
        }
    }
    found.values_mut().for_each(|crossings| serialise(crossings));
    found
}

/// The transfer of `tensor` from one server to another, as planned.
pub(super) fn planned<'p>(plan: &'p Plan, tensor: TensorId, from: &str, to: &str) -> Option<&'p Transfer> {
    let server = |device: DeviceId| plan.devices[device.0 as usize].server.as_str();
    plan.transfers.iter().find(|t| t.tensor == tensor && server(t.from) == from && server(t.to) == to)
}

/// Delays the start of each transfer to the end of the previous one.
fn serialise(crossings: &mut [Crossing]) {
    crossings.sort_by(|a, b| a.start.0.total_cmp(&b.start.0));
    let mut free = Micros(f64::NEG_INFINITY);
    for crossing in crossings {
        // Clocks of two servers differ by some microseconds: an arrival may precede its start.
        crossing.end = crossing.end.max(crossing.start);
        crossing.start = crossing.start.max(free).min(crossing.end);
        free = free.max(crossing.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::inference_trace::{ArrivalTime, InferenceTrace, TransferTime};

    #[test]
    fn a_transfer_behind_another_waits_for_the_link() {
        let sent = |value, start: f64| TransferTime {
            value: ValueId(value),
            to: "b".into(),
            ready: Micros(start),
            start: Micros(start),
            end: Micros(start + 1.0),
            bytes: Bytes(8),
        };
        let arrival = |value, end: f64| ArrivalTime { value: ValueId(value), start: Micros::ZERO, end: Micros(end) };
        let nothing = InferenceTrace { inference: 1, ..InferenceTrace::default() };
        // The last arrival precedes its start, as clocks differ; the first transfer is recorded last.
        let transfers = vec![sent(1, 20.0), sent(2, 200.0), sent(0, 10.0)];
        let arrivals = vec![arrival(0, 100.0), arrival(1, 130.0), arrival(2, 190.0)];
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
