//! A run as a Chrome trace, which Perfetto and `chrome://tracing` show: for every device and link a lane of what was
//! predicted and one of what was measured.

use serde::Serialize;

use super::{crossing::crossings, deploy::Deployment, execute::Record};
use crate::agent::protocol::inference_trace::InferenceTrace;
use edgecut_graph::units::Micros;
use edgecut_plan::{DeviceId, Plan, file::DevicePlan};

/// One event of the trace event format; times in microseconds.
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    /// `X` for something with a duration, `M` for a name.
    ph: &'static str,
    pid: usize,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: serde_json::Value,
}

#[derive(Serialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
}

const PREDICTED: usize = 0;
const MEASURED: usize = 1;

/// The last measured run next to the plan's prediction; both begin at 0.
///
/// # Errors
/// Never, unless a number cannot be written.
pub fn trace(plan: &Plan, deployment: &Deployment, record: &Record) -> Result<String, serde_json::Error> {
    let mut events = Vec::new();
    let device = |server: &str, name: &str| plan.devices.iter().position(|d| d.server == server && d.device == name);
    let mut links: Vec<(String, String)> = Vec::new();
    let mut link = |from: &str, to: &str| {
        let pair = (from.to_string(), to.to_string());
        let at = links.iter().position(|known| *known == pair).unwrap_or_else(|| {
            links.push(pair);
            links.len() - 1
        });
        plan.devices.len() + at
    };
    for (number, group) in plan.groups.iter().enumerate() {
        let device = group.device.0 as usize;
        events.push(span(&group.name, device, PREDICTED, group.start_us, group.time_us, number));
    }
    for transfer in &plan.transfers {
        let server = |d: DeviceId| plan.devices.get(d.0 as usize).map_or("", |d| d.server.as_str());
        let lane = link(server(transfer.from), server(transfer.to));
        events.push(span(
            &transfer.name,
            lane,
            PREDICTED,
            transfer.start_us,
            transfer.time_us,
            transfer.bytes.0 as usize,
        ));
    }
    let last = |measured: &Vec<InferenceTrace>| measured.last().map_or(0, |m| m.inference);
    let inference = record.measured.values().map(last).min().unwrap_or(0);
    let runs = record.measured.iter().filter_map(|(server, measured)| {
        let run = measured.iter().find(|m| m.inference == inference)?;
        Some((server, run))
    });
    let mut spans: Vec<(String, usize, Micros, Micros, usize)> = Vec::new();
    for (server, run) in runs {
        let here = |at: Micros| record.to_client(server, at);
        for stage in &run.stages {
            let Some(lane) = device(server, &stage.device) else { continue };
            for step in &stage.steps {
                let name = plan.groups.get(step.group as usize).map_or(String::new(), |group| group.name.clone());
                spans.push((name, lane, here(step.end) - step.wall, step.wall, step.group as usize));
            }
        }
    }
    for ((from, to), crossed) in crossings(record) {
        let lane = link(&from, &to);
        for crossing in crossed.iter().filter(|crossing| crossing.inference == inference) {
            let value = deployment.setups.first().and_then(|setup| setup.value(crossing.value));
            let name = value.map_or(String::new(), |value| value.name.to_string());
            spans.push((name, lane, crossing.start, crossing.time(), crossing.bytes.0 as usize));
        }
    }
    let begin = spans.iter().map(|s| s.2.0).fold(f64::INFINITY, f64::min);
    events.extend(
        spans.iter().map(|(name, lane, start, time, number)| {
            span(name, *lane, MEASURED, *start - Micros(begin), *time, *number)
        }),
    );
    let devices = plan.devices.iter().map(DevicePlan::full_name);
    let lanes = devices.chain(links.iter().map(|(from, to)| format!("link {from} → {to}")));
    for (pid, name) in lanes.collect::<Vec<_>>().into_iter().enumerate() {
        events.push(named("process_name", pid, 0, &name));
        events.push(named("thread_name", pid, PREDICTED, "predicted"));
        events.push(named("thread_name", pid, MEASURED, "measured"));
    }
    serde_json::to_string(&Trace { events, unit: "ms" }).map(|text| text + "\n")
}

/// `number` is the group's number, or the transfer's bytes.
fn span(name: &str, pid: usize, tid: usize, start: Micros, time: Micros, number: usize) -> Event {
    let args = serde_json::json!({ "group_or_bytes": number });
    Event { name: name.to_string(), ph: "X", pid, tid, ts: start.0, dur: Some(time.0), args }
}

fn named(what: &str, pid: usize, tid: usize, name: &str) -> Event {
    let args = serde_json::json!({ "name": name });
    Event { name: what.to_string(), ph: "M", pid, tid, ts: 0.0, dur: None, args }
}
