//! The energy that servers consumed for a run. Pure functions of the record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::record::Record;
use crate::protocol::inference_trace::InferenceTrace;
use edgecut_graph::units::{Joules, Watts};
use edgecut_plan::{DeviceId, Plan, file::DevicePlan};

/// The energy of one server for one inference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerEnergy {
    pub server: String,
    /// Idle power of its devices for the latency, or for the time between two results of a stream, and the energy of its
    /// groups; `None` where the plan does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_energy_j: Option<Joules>,
    /// All sources together, with what the server draws anyway: mean over the runs.
    pub measured_energy_j: Joules,
    pub sources: Vec<EnergyOfSource>,
}

/// What one source of a server tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyOfSource {
    /// With its parts: `powercap: package-0`.
    pub source: String,
    pub measured_energy_j: Joules,
    /// Inferences between the first reading and the last.
    pub n: usize,
}

/// Of every server that tells it. A counter that stands still, as those of some virtual machines, tells nothing. A single reading tells nothing, so there is none of a single inference, nor of some so
/// short that the source does not resolve them.
pub(super) fn energy(plan: &Plan, is_stream: bool, record: &Record) -> Vec<ServerEnergy> {
    servers(record, &|server| predicted(plan, is_stream, &|device| device.server == server))
}

/// The energy of one inference on the devices that `counts`, as `plan` has it: their idle power for the latency, or for the
/// time between two results of a stream, and the energy of their groups. `None` where the plan does not say.
pub(super) fn predicted(plan: &Plan, is_stream: bool, counts: &dyn Fn(&DevicePlan) -> bool) -> Option<Joules> {
    plan.predicted.energy_j?;
    let time = if is_stream { plan.predicted.interval_us } else { plan.predicted.latency_us };
    let idle: Watts = plan.devices.iter().filter(|device| counts(device)).filter_map(|device| device.idle_w).sum();
    let is_counted = |device: DeviceId| plan.devices.get(device.0 as usize).is_some_and(counts);
    let groups = plan.groups.iter().filter(|group| is_counted(group.device)).filter_map(|group| group.energy_j);
    Some(idle.during(time) + groups.sum())
}

fn servers(record: &Record, predicted: &dyn Fn(&str) -> Option<Joules>) -> Vec<ServerEnergy> {
    let server = |(server, traces): (&SmolStr, &Vec<InferenceTrace>)| {
        let sources = of_sources(traces);
        let measured_energy_j = sources.iter().map(|source| source.measured_energy_j).sum();
        (!sources.is_empty()).then(|| ServerEnergy {
            server: server.to_string(),
            predicted_energy_j: predicted(server),
            measured_energy_j,
            sources,
        })
    };
    record.measured.iter().filter_map(server).collect()
}

fn of_sources(traces: &[InferenceTrace]) -> Vec<EnergyOfSource> {
    // First and last reading of each source: the number of inferences that had ended, and the total.
    let mut readings: BTreeMap<&str, [(usize, Joules); 2]> = BTreeMap::new();
    for (ended, trace) in traces.iter().enumerate() {
        for energy in &trace.energy {
            let reading = (ended, energy.total);
            readings.entry(&energy.source).or_insert([reading; 2])[1] = reading;
        }
    }
    let mean = |(source, [(first, before), (last, after)]): (&str, [(usize, Joules); 2])| {
        let n = last - first;
        let energy = (after - before).0 / n as f64;
        (n > 0 && energy > 0.0).then(|| EnergyOfSource {
            source: source.to_string(),
            measured_energy_j: Joules(energy),
            n,
        })
    };
    readings.into_iter().filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::inference_trace::SourceEnergy;

    fn record(energies: &[&[(&str, f64)]]) -> Record {
        let trace = |(inference, energies): (u64, &&[(&str, f64)])| InferenceTrace {
            inference,
            energy: energies
                .iter()
                .map(|(source, total)| SourceEnergy { source: source.to_string(), total: Joules(*total) })
                .collect(),
            ..InferenceTrace::default()
        };
        Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: BTreeMap::from([
                ("a".into(), (1..).zip(energies).map(trace).collect()),
                ("without".into(), vec![trace((1, &&[][..]))]),
            ]),
            clocks: BTreeMap::new(),
        }
    }

    #[test]
    fn energy_is_divided_by_the_inferences_between_readings() {
        let source =
            |source: &str, j: f64, n| EnergyOfSource { source: source.into(), measured_energy_j: Joules(j), n };
        let found =
            servers(&record(&[&[("cpu", 10.0), ("gpu", 3.0)], &[], &[("gpu", 4.0)], &[("cpu", 16.0)], &[]]), &|_| {
                Some(Joules(2.25))
            });
        let sources = vec![source("cpu", 2.0, 3), source("gpu", 0.5, 2)];
        let (server, predicted_energy_j) = ("a".to_string(), Some(Joules(2.25)));
        assert_eq!(found, [ServerEnergy { server, predicted_energy_j, measured_energy_j: Joules(2.5), sources }]);
    }

    #[test]
    fn one_reading_tells_nothing() {
        for energies in [
            &[][..],
            &[&[("cpu", 1.0)][..]],
            &[&[], &[("cpu", 1.0)], &[]],
            &[&[("cpu", 2.0)], &[("cpu", 1.0)]],
            &[&[("cpu", 2.0)], &[("cpu", 2.0)]],
        ] {
            assert_eq!(servers(&record(energies), &|_| None), [], "{energies:?}");
        }
    }
}
