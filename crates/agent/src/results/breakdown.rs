//! Where the latency of a run goes on each device: computing, handling, transfers, waiting for other devices, gaps.
//!
//! Between the start of an inference and its result, every instant of a device has one [`Activity`], so that the times of a
//! device add up to the latency.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    crossing::{Crossings, planned},
    record::Record,
};
use crate::{
    deployment::Deployment,
    protocol::{
        inference_trace::StageTime,
        setup::{Partition, Setup, ValueId},
    },
};
use edgecut_graph::units::Micros;
use edgecut_plan::{DeviceId, Plan};

/// Where the latency of a run goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Interquartile mean: of the inferences between the quartiles of the latency, all of up to three.
    pub latency_us: Micros,
    /// How many they are.
    pub n: usize,
    /// By device in the order of the plan, then by activity. Those of a device add up to `latency_us`.
    pub times: Vec<ActivityTime>,
}

/// How long a device does one thing: mean over these inferences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActivityTime {
    /// `server/device`.
    pub device: String,
    pub activity: Activity,
    /// The device that it waits for, or that the transfer comes from; empty for what it does itself.
    pub peer: String,
    pub time_us: Micros,
}

/// What a device does at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Computes a group.
    Computing,
    /// Computes nothing, but passes operands or results on: from the arrival of a stage's last operand to its start, from the
    /// end of its last group until its results are available, before the first stage, and at the sink after the last one.
    Handling,
    /// Waits for the last operand of its next stage, which `peer` has computed: it is encoded, queued for the link, sent or
    /// decoded.
    Transfer,
    /// Waits for the last operand of its next stage, which `peer` has not computed yet.
    Waiting,
    /// Has not begun the next stage although its operands are there.
    Gap,
    /// Has computed its part of the inference.
    Done,
}

/// One inference, on the client's clock.
#[derive(Clone, Copy)]
struct Window {
    inference: u64,
    begin: Micros,
    end: Micros,
}

/// How an operand of a stage became available.
#[derive(Clone, Copy)]
struct Origin {
    /// The device that computed it.
    peer: DeviceId,
    computed: Micros,
    /// When it was available where it is read.
    available: Micros,
}

/// Times of one device by activity and peer.
#[derive(Default)]
struct Times(BTreeMap<(Activity, Option<DeviceId>), Micros>);

impl Times {
    fn add(&mut self, activity: Activity, peer: Option<DeviceId>, time: Micros) {
        if time > Micros::ZERO {
            *self.0.entry((activity, peer)).or_default() += time;
        }
    }

    /// Adds the time from `begin` to `end`, in which the device waits for an operand of another device.
    fn add_wait(&mut self, begin: Micros, end: Micros, operand: Origin) {
        let Origin { peer, computed, .. } = operand;
        let computed = computed.max(begin).min(end);
        self.add(Activity::Waiting, Some(peer), computed - begin);
        self.add(Activity::Transfer, Some(peer), end - computed);
    }
}

/// That of a run of one inference at a time. `None` if inferences and latencies do not match.
pub(super) fn breakdown(
    plan: &Plan,
    deployment: &Deployment,
    record: &Record,
    crossings: &Crossings,
) -> Option<Breakdown> {
    let windows = windows(record)?;
    let mean = |sum: Micros| Micros(sum.0 / windows.len() as f64);
    let inferences: BTreeSet<u64> = windows.iter().map(|window| window.inference).collect();
    let run = Run::of(plan, deployment, record, (crossings, &inferences));
    let name = |device: DeviceId| plan.device_name(device).map_or(String::new(), |name| name.to_string());
    let mut times = Vec::new();
    for (id, device) in (0u32..).map(DeviceId).zip(&plan.devices) {
        let Some(setup) = deployment.setups.iter().find(|setup| setup.server == device.server) else { continue };
        let partition = setup.partitions.iter().find(|partition| partition.device == device.device);
        // The sink waits for results even if it computes nothing.
        if partition.is_none() && id != plan.sink {
            continue;
        }
        let mut sums = Times::default();
        windows.iter().for_each(|window| run.add(*window, (id, setup, partition), &mut sums));
        times.extend(sums.0.into_iter().map(|((activity, peer), time)| ActivityTime {
            device: name(id),
            activity,
            peer: peer.map_or(String::new(), name),
            time_us: mean(time),
        }));
    }
    let latency_us = mean(windows.iter().map(|window| window.end - window.begin).sum());
    Some(Breakdown { latency_us, n: windows.len(), times })
}

/// The inferences between the quartiles of the latency.
fn windows(record: &Record) -> Option<Vec<Window>> {
    let inferences: BTreeSet<u64> = record.measured.values().flatten().map(|trace| trace.inference).collect();
    let count = inferences.len();
    if count == 0 || [record.latencies.len(), record.arrivals.len()] != [count; 2] {
        return None;
    }
    let results = record.arrivals.iter().zip(&record.latencies);
    let window = |(inference, (end, latency)): (u64, (&Micros, &Micros))| Window {
        inference,
        begin: *end - *latency,
        end: *end,
    };
    let mut windows: Vec<Window> = inferences.into_iter().zip(results).map(window).collect();
    windows.sort_by(|a, b| (a.end - a.begin).0.total_cmp(&(b.end - b.begin).0));
    Some(windows.drain(count / 4..count - count / 4).collect())
}

/// The stages of a server in an inference, by device and number.
type Stages<'a> = BTreeMap<(&'a SmolStr, u32), &'a StageTime>;

/// A run, indexed by what its stages wait for.
struct Run<'a> {
    sink: DeviceId,
    record: &'a Record,
    /// By server and inference.
    stages: HashMap<(&'a SmolStr, u64), Stages<'a>>,
    /// By the server that receives a value.
    received: HashMap<(&'a SmolStr, u64, ValueId), Origin>,
    /// By server: the device and the number of the stage that compute a value there.
    producers: HashMap<(&'a SmolStr, ValueId), (DeviceId, &'a SmolStr, u32)>,
}

impl<'a> Run<'a> {
    /// Of `inferences` only.
    fn of(
        plan: &'a Plan,
        deployment: &'a Deployment,
        record: &'a Record,
        (crossings, inferences): (&'a Crossings, &BTreeSet<u64>),
    ) -> Run<'a> {
        let device = |server: &str, name: &str| {
            let found = plan.devices.iter().position(|device| device.server == server && device.device == name);
            found.map(|index| DeviceId(index as u32))
        };
        let mut producers = HashMap::new();
        for setup in &deployment.setups {
            for partition in &setup.partitions {
                let Some(id) = device(&setup.server, &partition.device) else { continue };
                for (number, stage) in (0u32..).zip(&partition.stages) {
                    let results = stage.results.iter().map(|value| ((&setup.server, *value), number));
                    producers.extend(results.map(|(key, number)| (key, (id, &partition.device, number))));
                }
            }
        }
        let mut received = HashMap::new();
        for ((from, to), crossings) in crossings {
            let mut senders: HashMap<ValueId, Option<DeviceId>> = HashMap::new();
            for crossing in crossings.iter().filter(|crossing| inferences.contains(&crossing.inference)) {
                let sender = || {
                    let produced = producers.get(&(from, crossing.value)).map(|(id, ..)| *id);
                    let tensor = deployment.tensors.get(crossing.value.0 as usize);
                    produced.or_else(|| tensor.and_then(|tensor| Some(planned(plan, *tensor, from, to)?.from)))
                };
                let Some(peer) = *senders.entry(crossing.value).or_insert_with(sender) else { continue };
                let origin = Origin { peer, computed: crossing.ready, available: crossing.end };
                received.insert((to, crossing.inference, crossing.value), origin);
            }
        }
        let mut stages = HashMap::new();
        for (server, traces) in &record.measured {
            for trace in traces.iter().filter(|trace| inferences.contains(&trace.inference)) {
                let of = trace.stages.iter().map(|stage| ((&stage.device, stage.stage), stage)).collect();
                stages.insert((server, trace.inference), of);
            }
        }
        Run { sink: plan.sink, record, stages, received, producers }
    }

    /// Adds what one device does in one inference.
    fn add(&self, window: Window, (id, setup, partition): (DeviceId, &Setup, Option<&Partition>), times: &mut Times) {
        let Window { inference, begin, end } = window;
        let mut at = begin;
        for (stage, operands) in self.stages_of(inference, setup, partition) {
            let [ready, started, ended] = [stage.ready, stage.start, stage.end]
                .map(|time| self.record.to_client(&setup.server, time).max(at).min(end));
            match self.last(id, setup, inference, operands) {
                Some(operand) if ready > at => {
                    let arrived = operand.available.max(at).min(ready);
                    times.add_wait(at, arrived, operand);
                    times.add(Activity::Handling, None, started - arrived);
                }
                _ => times.add(if at > begin { Activity::Gap } else { Activity::Handling }, None, started - at),
            }
            let computing = stage.steps.iter().map(|step| step.wall).sum::<Micros>().min(ended - started);
            times.add(Activity::Computing, None, computing);
            times.add(Activity::Handling, None, ended - started - computing);
            at = ended;
        }
        let Some(sink) = setup.sink.as_ref().filter(|_| id == self.sink) else {
            return times.add(Activity::Done, None, end - at);
        };
        if let Some(last) = self.last(id, setup, inference, &sink.values) {
            let arrived = last.available.max(at).min(end);
            times.add_wait(at, arrived, last);
            at = arrived;
        }
        times.add(Activity::Handling, None, end - at);
    }

    /// The stages that a device computed in an inference, in their order, each with its operands.
    fn stages_of<'s>(
        &self,
        inference: u64,
        setup: &Setup,
        partition: Option<&'s Partition>,
    ) -> Vec<(&'a StageTime, &'s [ValueId])> {
        let (Some(stages), Some(partition)) = (self.stages.get(&(&setup.server, inference)), partition) else {
            return Vec::new();
        };
        let of = (0u32..)
            .zip(&partition.stages)
            .filter_map(|(number, stage)| Some((*stages.get(&(&partition.device, number))?, &stage.operands[..])));
        let mut found: Vec<_> = of.collect();
        found.sort_by(|a, b| a.0.start.0.total_cmp(&b.0.start.0));
        found
    }

    /// The last of `values` to become available to a device that did not compute it.
    fn last(&self, reader: DeviceId, setup: &Setup, inference: u64, values: &[ValueId]) -> Option<Origin> {
        let of = |value: &ValueId| {
            if let Some(origin) = self.received.get(&(&setup.server, inference, *value)) {
                return Some(*origin);
            }
            let (peer, device, number) = *self.producers.get(&(&setup.server, *value))?;
            let stages = self.stages.get(&(&setup.server, inference)).filter(|_| peer != reader)?;
            let end = self.record.to_client(&setup.server, stages.get(&(device, number))?.end);
            Some(Origin { peer, computed: end, available: end })
        };
        values.iter().filter_map(of).max_by(|a, b| a.available.0.total_cmp(&b.available.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        inference_trace::{InferenceTrace, StepTime},
        setup::{Stage, Terminal, tests::setup},
    };
    use edgecut_graph::units::Bytes;

    const READER: DeviceId = DeviceId(0);
    const PEER: DeviceId = DeviceId(1);

    fn stage(index: u32, [ready, start, end]: [f64; 3], wall: f64) -> StageTime {
        let step =
            StepTime { group: 0, end: Micros(end), wall: Micros(wall), cpu: Micros(wall), workspace: Bytes::ZERO };
        StageTime {
            device: "cpu".into(),
            stage: index,
            ready: Micros(ready),
            start: Micros(start),
            end: Micros(end),
            steps: vec![step],
            engine: SmolStr::default(),
            fallbacks: 0,
        }
    }

    #[test]
    fn every_instant_has_one_activity() {
        use Activity::{Computing, Done, Gap, Handling, Transfer, Waiting};
        let mut setup = setup();
        let first = setup.partitions[0].stages[0].clone();
        setup.partitions[0].stages.push(Stage { operands: vec![ValueId(2)], ..first });
        setup.sink = Some(Terminal { values: vec![ValueId(4)], partition: Some(0) });
        let begun = stage(0, [100.0, 103.0, 120.0], 15.0);
        let waiting = vec![begun.clone(), stage(1, [150.0, 151.0, 160.0], 9.0)];
        let late = vec![begun, stage(1, [110.0, 124.0, 160.0], 36.0)];
        type Found<'a> = &'a [(Activity, Option<DeviceId>, f64)];
        let cases: [(&[StageTime], DeviceId, Found<'_>); 3] = [
            (
                &waiting,
                READER,
                &[
                    (Computing, None, 24.0),
                    (Handling, None, 16.0),
                    (Transfer, Some(PEER), 40.0),
                    (Waiting, Some(PEER), 20.0),
                ],
            ),
            (
                &waiting,
                PEER,
                &[
                    (Computing, None, 24.0),
                    (Handling, None, 6.0),
                    (Transfer, Some(PEER), 10.0),
                    (Waiting, Some(PEER), 20.0),
                    (Done, None, 40.0),
                ],
            ),
            (
                &late,
                READER,
                &[(Computing, None, 51.0), (Handling, None, 15.0), (Transfer, Some(PEER), 30.0), (Gap, None, 4.0)],
            ),
        ];
        for (stages, sink, expected) in cases {
            let trace = InferenceTrace { inference: 7, stages: stages.to_vec(), ..InferenceTrace::default() };
            let record = Record {
                sink_values: vec![],
                latencies: vec![],
                arrivals: vec![],
                measured: BTreeMap::new(),
                clocks: BTreeMap::new(),
            };
            let origin =
                |computed, available| Origin { peer: PEER, computed: Micros(computed), available: Micros(available) };
            let available = stages[1].ready.0;
            let run = Run {
                sink,
                record: &record,
                stages: [((&setup.server, 7), trace.stages.iter().map(|s| ((&s.device, s.stage), s)).collect())].into(),
                received: [
                    ((&setup.server, 7, ValueId(2)), origin(available - 10.0, available)),
                    ((&setup.server, 7, ValueId(4)), origin(150.0, 190.0)),
                ]
                .into(),
                producers: HashMap::new(),
            };
            let window = Window { inference: 7, begin: Micros(100.0), end: Micros(200.0) };
            let mut times = Times::default();
            run.add(window, (READER, &setup, setup.partitions.first()), &mut times);
            let found: Vec<_> = times.0.into_iter().map(|((activity, peer), time)| (activity, peer, time.0)).collect();
            assert_eq!(found, expected);
            assert_eq!(found.iter().map(|(.., time)| time).sum::<f64>(), 100.0);
        }
    }

    #[test]
    fn outliers_do_not_count() {
        let latencies: Vec<Micros> = [9.0, 10.0, 11.0, 900.0, 1.0].map(Micros).to_vec();
        let traces = (3..8).map(|inference| InferenceTrace { inference, ..InferenceTrace::default() }).collect();
        let mut record = Record {
            sink_values: vec![],
            arrivals: latencies.clone(),
            latencies,
            measured: [("a".into(), traces)].into(),
            clocks: BTreeMap::new(),
        };
        let found: Vec<(u64, f64)> = windows(&record).unwrap().iter().map(|w| (w.inference, w.end.0)).collect();
        assert_eq!(found, [(3, 9.0), (4, 10.0), (5, 11.0)]);
        record.latencies.pop();
        assert!(windows(&record).is_none());
    }
}
