//! The steps of a run as samples: how long each took, and what its server sent and received meanwhile.

use std::collections::BTreeMap;

use edgecut_agent::{
    deployment::Deployment,
    results::{
        crossing::{Crossing, crossings},
        record::Record,
    },
};
use edgecut_engine::statistics::median;
use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::{DeviceId, Plan};
use edgecut_profile::StepSample;

/// What is known of a group beforehand.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub isolated: Micros,
    pub weights: Bytes,
}

/// All that was seen of one group: what it took, and the messages meanwhile.
#[derive(Default)]
struct Repeats {
    times: Vec<Micros>,
    sends: f64,
    sent: f64,
    receives: f64,
    received: f64,
}

/// The samples of each device, one a group: the median over the inferences of `record`. `known` describes a group on a device.
pub(super) fn samples(
    plan: &Plan,
    deployment: &Deployment,
    record: &Record,
    known: impl Fn(u32, DeviceId) -> Option<Known>,
) -> BTreeMap<DeviceId, Vec<StepSample>> {
    let links = crossings(record);
    let bytes = |crossing: &Crossing| {
        let value = deployment.setups.first().and_then(|setup| setup.value(crossing.value));
        value.map_or(0.0, |value| value.bytes().0 as f64)
    };
    let mut groups: BTreeMap<u32, Repeats> = BTreeMap::new();
    for (server, traces) in &record.measured {
        let here = |at: Micros| record.clocks.get(server).map_or(at, |clock| clock.to_local(at));
        for trace in traces {
            let of_inference = |crossing: &&Crossing| crossing.inference == trace.inference;
            for step in trace.stages.iter().flat_map(|stage| &stage.steps) {
                let repeats = groups.entry(step.group).or_default();
                repeats.times.push(step.wall);
                let (from, to) = (here(step.end) - step.wall, here(step.end));
                for ((sender, receiver), crossed) in &links {
                    for crossing in crossed.iter().filter(of_inference) {
                        let part = bytes(crossing) * overlap(crossing, from, to);
                        let is_within = |at: Micros| f64::from(u8::from(from <= at && at < to));
                        if sender == server {
                            repeats.sends += is_within(crossing.start);
                            repeats.sent += part;
                        } else if receiver == server {
                            repeats.receives += is_within(crossing.end);
                            repeats.received += part;
                        }
                    }
                }
            }
        }
    }
    let mut found: BTreeMap<DeviceId, Vec<StepSample>> = BTreeMap::new();
    for (group, repeats) in groups {
        let Some(device) = plan.groups.get(group as usize).map(|group| group.device) else { continue };
        let Some(Known { isolated, weights }) = known(group, device) else { continue };
        let mean = |sum: f64| sum / repeats.times.len() as f64;
        found.entry(device).or_default().push(StepSample {
            isolated,
            measured: median(&repeats.times),
            weights,
            sends: mean(repeats.sends),
            sent: Bytes(mean(repeats.sent) as u64),
            receives: mean(repeats.receives),
            received: Bytes(mean(repeats.received) as u64),
        });
    }
    found
}

/// Which part of a transfer's time is between two instants.
fn overlap(crossing: &Crossing, from: Micros, to: Micros) -> f64 {
    let common = crossing.end.min(to).0 - crossing.start.max(from).0;
    match crossing.time() > Micros::ZERO {
        true => (common / crossing.time().0).clamp(0.0, 1.0),
        false => f64::from(u8::from(from <= crossing.end && crossing.end < to)),
    }
}
