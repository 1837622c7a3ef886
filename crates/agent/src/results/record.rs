//! What the agents reported about a run.

use std::collections::BTreeMap;

use edgecut_graph::{TensorData, units::Micros};
use smol_str::SmolStr;

use crate::{clock::ClockOffset, protocol::inference_trace::InferenceTrace};

/// What the agents reported about a run.
#[derive(Debug)]
pub struct Record {
    /// The sink's values of the first run, in their order.
    pub sink_values: Vec<TensorData>,
    /// For each run that counts: from the input leaving the source to the result arriving at the sink.
    pub latencies: Vec<Micros>,
    /// When the results of these runs arrived, on our clock.
    pub arrivals: Vec<Micros>,
    /// What each server measured in the runs that count, on its own clock.
    pub measured: BTreeMap<SmolStr, Vec<InferenceTrace>>,
    /// How far each server's clock is from ours.
    pub clocks: BTreeMap<SmolStr, ClockOffset>,
}

impl Record {
    /// An instant of a server's clock on ours.
    pub fn to_client(&self, server: &SmolStr, at: Micros) -> Micros {
        self.clocks.get(server).map_or(at, |clock| clock.to_local(at))
    }

    /// Leaves out what servers measured in runs that did not finish. Runs are numbered from `first`.
    pub fn keep_finished(&mut self, first: u64) {
        let mut servers: BTreeMap<u64, usize> = BTreeMap::new();
        for trace in self.measured.values().flatten().filter(|trace| trace.inference >= first) {
            *servers.entry(trace.inference).or_default() += 1;
        }
        let all = self.measured.len();
        for traces in self.measured.values_mut() {
            traces.retain(|trace| servers.get(&trace.inference) == Some(&all));
        }
    }
}
