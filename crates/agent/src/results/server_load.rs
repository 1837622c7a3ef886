//! How busy other workloads kept the machines of servers during a run. Pure functions of the record.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::record::Record;
use crate::protocol::inference_trace::MachineUse;

/// The load of the machine of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerLoad {
    pub server: String,
    /// Processors kept busy by anything but the agents of the run.
    pub load: f64,
}

/// The load of every server that reports it; none in runs shorter than 0.1 s.
pub(super) fn loads(record: &Record) -> Vec<ServerLoad> {
    let last = record.measured.iter().filter_map(|(server, traces)| {
        let machine = traces.iter().rev().find_map(|trace| trace.machine.as_ref())?;
        Some((server, machine))
    });
    let machines: Vec<(&SmolStr, &MachineUse)> = last.collect();
    let load = |(server, machine): &(&SmolStr, &MachineUse)| {
        let is_here =
            |(other, of): &&(&SmolStr, &MachineUse)| other != server && !of.id.is_empty() && of.id == machine.id;
        let agents: f64 = machines.iter().filter(is_here).map(|(_, of)| of.busy.own).sum();
        ServerLoad { server: server.to_string(), load: (machine.busy.others - agents).max(0.0) }
    };
    machines.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::inference_trace::InferenceTrace;
    use edgecut_profile::BusyProcessors;
    use std::collections::BTreeMap;

    #[test]
    fn agents_of_one_machine_are_no_load_to_each_other() {
        let of = |id: &str, own, others| MachineUse { id: id.into(), busy: BusyProcessors { own, others } };
        let trace = |machine| InferenceTrace { machine, ..InferenceTrace::default() };
        let servers = [
            ("a", vec![trace(Some(of("one", 9.0, 9.0))), trace(Some(of("one", 1.0, 3.0))), trace(None)]),
            ("b", vec![trace(Some(of("one", 2.0, 1.5)))]),
            ("c", vec![trace(Some(of("", 1.0, 0.5)))]),
            ("d", vec![trace(Some(of("", 1.0, 0.25)))]),
            ("silent", vec![trace(None)]),
        ];
        let record = Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: servers.map(|(server, traces)| (server.into(), traces)).into(),
            clocks: BTreeMap::new(),
        };
        let found: Vec<_> = loads(&record).into_iter().map(|of| (of.server, of.load)).collect();
        let wanted = [("a", 1.0), ("b", 0.5), ("c", 0.5), ("d", 0.25)].map(|(server, load)| (server.to_string(), load));
        assert_eq!(found, wanted);
    }
}
