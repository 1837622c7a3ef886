//! A plan and its run as a timeline: for every device and link what was predicted and what was measured, memory and rates as counters.

use std::{collections::BTreeMap, path::Path};

use edgecut_agent::{
    deployment::Deployment,
    protocol::inference_trace::InferenceTrace,
    results::{crossing::crossings, record::Record},
};
use edgecut_graph::{Graph, units::Micros};
use edgecut_plan::{DeviceId, Plan};

use super::{CounterUnit, Detail, Span, Timeline, TrackContent, TrackGroup, chrome, perfetto};
use crate::page::{account, memory_curve};

/// Spans of one device or link.
#[derive(Default)]
struct Lane {
    predicted: Vec<Span>,
    measured: Vec<Span>,
}

/// A link, by its servers; of one server, by its devices.
type Ends = (String, String);

/// The [`timeline`] as content of the file at `path`: a trace in Chrome's format if it is called `.json`, else in Perfetto's.
pub fn trace(path: &Path, plan: &Plan, graph: &Graph, deployment: &Deployment, record: &Record) -> Vec<u8> {
    let timeline = timeline(plan, graph, deployment, record);
    // Perfetto knows its own format by the content.
    let is_json = path.extension().is_none_or(|extension| extension.eq_ignore_ascii_case("json"));
    if is_json { chrome::json(&timeline).into_bytes() } else { perfetto::bytes(&timeline) }
}

/// The last inference that all servers measured next to the plan's prediction; both begin at 0. `graph` is what was deployed, for
/// the predicted memory.
pub fn timeline(plan: &Plan, graph: &Graph, deployment: &Deployment, record: &Record) -> Timeline {
    let mut devices: Vec<Lane> = plan.devices.iter().map(|_| Lane::default()).collect();
    let mut links: BTreeMap<Ends, Lane> = BTreeMap::new();
    predicted(plan, &mut devices, &mut links);
    measured(plan, deployment, record, &mut devices, &mut links);
    let problem = account::problem(graph, plan);
    let curves = problem.map(|problem| memory_curve::curves(plan, &problem)).unwrap_or_default();
    let mut timeline = Timeline::default();
    for (index, (device, lane)) in plan.devices.iter().zip(devices).enumerate() {
        let mut group = TrackGroup { name: device.device_name().to_string(), tracks: Vec::new() };
        group.push("predicted", TrackContent::Spans(lane.predicted));
        group.push("measured", TrackContent::Spans(lane.measured));
        if let Some(curve) = curves.iter().find(|curve| curve.device as usize == index) {
            let points = curve.time_us.iter().zip(&curve.bytes).map(|(at, bytes)| (Micros(*at), *bytes as f64));
            let unit = CounterUnit::Bytes;
            group.push("predicted memory", TrackContent::Counter { unit, points: points.collect() });
        }
        timeline.groups.push(group);
    }
    for ((from, to), lane) in links {
        let mut group = TrackGroup { name: format!("link {from} → {to}"), tracks: Vec::new() };
        let unit = CounterUnit::BytesPerSecond;
        let rates = [("predicted rate", rate(&lane.predicted)), ("measured rate", rate(&lane.measured))];
        group.push("predicted", TrackContent::Spans(lane.predicted));
        group.push("measured", TrackContent::Spans(lane.measured));
        for (name, points) in rates {
            group.push(name, TrackContent::Counter { unit, points });
        }
        timeline.groups.push(group);
    }
    timeline.groups.retain(|group| !group.tracks.is_empty());
    timeline
}

fn predicted(plan: &Plan, devices: &mut [Lane], links: &mut BTreeMap<Ends, Lane>) {
    for (number, group) in plan.groups.iter().enumerate() {
        let Some(lane) = devices.get_mut(group.device.0 as usize) else { continue };
        lane.predicted.push(step(plan, number, group.start_us, group.time_us));
    }
    let device = |id: DeviceId| plan.devices.get(id.0 as usize);
    for transfer in &plan.transfers {
        let (Some(from), Some(to)) = (device(transfer.from), device(transfer.to)) else { continue };
        let ends = match from.server == to.server {
            true => (from.device_name().to_string(), to.device_name().to_string()),
            false => (from.server.clone(), to.server.clone()),
        };
        let lane = links.entry(ends).or_default();
        lane.predicted.push(Span {
            name: transfer.name.clone(),
            start: transfer.start_us,
            time: transfer.time_us,
            details: vec![(BYTES, Detail::Number(transfer.sent().0))],
        });
    }
}

fn measured(
    plan: &Plan,
    deployment: &Deployment,
    record: &Record,
    devices: &mut [Lane],
    links: &mut BTreeMap<Ends, Lane>,
) {
    let last = |measured: &Vec<InferenceTrace>| measured.last().map_or(0, |m| m.inference);
    let inference = record.measured.values().map(last).min().unwrap_or(0);
    for (server, measured) in &record.measured {
        let Some(run) = measured.iter().find(|run| run.inference == inference) else { continue };
        for stage in &run.stages {
            let device = plan.devices.iter().position(|d| *d.server == **server && *d.device == *stage.device);
            let Some(lane) = device.and_then(|index| devices.get_mut(index)) else { continue };
            for measured in &stage.steps {
                let start = record.to_client(server, measured.end) - measured.wall;
                lane.measured.push(step(plan, measured.group as usize, start, measured.wall));
            }
        }
    }
    for ((from, to), crossed) in crossings(record) {
        let lane = links.entry((from.to_string(), to.to_string())).or_default();
        for crossing in crossed.iter().filter(|crossing| crossing.inference == inference) {
            let value = deployment.setups.first().and_then(|setup| setup.value(crossing.value));
            lane.measured.push(Span {
                name: value.map_or(String::new(), |value| value.name.to_string()),
                start: crossing.start,
                time: crossing.time(),
                details: vec![(BYTES, Detail::Number(crossing.bytes.0))],
            });
        }
    }
    let lanes = || devices.iter().chain(links.values());
    let begin = lanes().flat_map(|lane| &lane.measured).map(|span| span.start.0).fold(f64::INFINITY, f64::min);
    for span in devices.iter_mut().chain(links.values_mut()).flat_map(|lane| &mut lane.measured) {
        span.start = span.start - Micros(begin);
    }
}

const BYTES: &str = "bytes";

/// A group of the plan, at a time.
fn step(plan: &Plan, number: usize, start: Micros, time: Micros) -> Span {
    let mut details = vec![("group", Detail::Number(number as u64))];
    let Some(group) = plan.groups.get(number) else { return Span { name: String::new(), start, time, details } };
    details.extend(group.id.map(|id| ("id", Detail::Number(u64::from(id)))));
    let texts = [("part", &group.part), ("layer", &group.layer)];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    details.extend(texts.map(|(name, text)| (name, Detail::Text(text.clone()))));
    Span { name: group.name.clone(), start, time, details }
}

/// Bytes a second over the time of transfers, which follow one another.
fn rate(transfers: &[Span]) -> Vec<(Micros, f64)> {
    let mut spans: Vec<&Span> = transfers.iter().filter(|span| span.time > Micros::ZERO).collect();
    spans.sort_by(|a, b| a.start.0.total_cmp(&b.start.0));
    let mut points: Vec<(Micros, f64)> = Vec::new();
    for span in spans {
        let bytes = span.details.iter().find_map(|(name, detail)| match detail {
            Detail::Number(bytes) if *name == BYTES => Some(*bytes as f64),
            _ => None,
        });
        // The end of the one before is this one's beginning, or later by what is rounded.
        points.pop_if(|(at, value)| *value == 0.0 && *at >= span.start);
        points.push((span.start, bytes.unwrap_or(0.0) / (span.time.0 / 1e6)));
        points.push((span.start + span.time, 0.0));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fall_to_zero_between_transfers_alone() {
        let span = |start: f64, time: f64| Span {
            name: String::new(),
            start: Micros(start),
            time: Micros(time),
            details: vec![(BYTES, Detail::Number(100))],
        };
        let found: Vec<(f64, f64)> =
            rate(&[span(10.0, 10.0), span(20.0, 50.0), span(100.0, 100.0)]).iter().map(|(at, v)| (at.0, *v)).collect();
        assert_eq!(found, [(10.0, 1e7), (20.0, 2e6), (70.0, 0.0), (100.0, 1e6), (200.0, 0.0)]);
    }
}
