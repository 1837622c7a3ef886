//! A plan on stdout: for people a line a group and a line a device, then the figures that judge it.

use serde::Serialize;

use crate::{
    Failure, Outcome,
    flag_text::with_flags,
    format::{Format, print_all, print_csv, print_json, to_csv},
    stdout::print_line,
    table::{MANY_GROUPS, SMALL, numbered, shortened, small, table},
};
use edgecut_graph::{
    EngineId,
    units::{Bytes, Joules, Micros, Watts},
};
use edgecut_plan as plan;
use edgecut_plan::{
    Candidate, CostSource, Problem, Solution,
    candidate::attempt::AttemptOutcome,
    file::{PrefillPlan, Source},
    problem::{DeviceId, Objective},
    split::front::Point,
    table as plan_table,
};

pub(crate) fn print(format: Format, problem: &Problem, plan: &plan::Plan, solution: &Solution) -> Outcome {
    match format {
        Format::Csv => print_all(plan_table::csv(plan).map_err(Failure::failed)?.as_bytes()),
        Format::Json => print_all(plan.to_json().map_err(Failure::failed)?.as_bytes()),
        Format::Table => print_all(format!("{}\n", summary(problem, plan, solution)).as_bytes()),
    }
}

/// The strategies that were tried for a plan, in order, and what each found.
pub(crate) fn print_attempts(objective: Objective, candidate: &Candidate) -> Outcome {
    if candidate.costs == CostSource::PilotRun {
        print_line!("\nbefore pilot runs, which choose among this plan and others:");
    }
    let mut lines = table(["strategy", "found", ">evaluations", "kept"]);
    for attempt in &candidate.attempts {
        let evaluations = attempt.evaluations.to_string();
        let (found, evaluations) = match &attempt.outcome {
            AttemptOutcome::Skipped(reason) => (format!("not tried: {reason}"), String::new()),
            AttemptOutcome::NoPlanFound => ("nothing better".to_string(), String::new()),
            AttemptOutcome::Met(value) => {
                (format!("{objective} {}", candidate.solution.display(objective, *value)), evaluations)
            }
            AttemptOutcome::Missed(shortages) => {
                let missed: Vec<String> = shortages.iter().map(ToString::to_string).collect();
                (missed.join("\n"), evaluations)
            }
        };
        let kept = if attempt.is_kept { "yes" } else { "" };
        lines.add_row([attempt.strategy, &found, &evaluations, kept]);
    }
    print_line!("\n{lines}");
    Ok(())
}

/// The plans of a front, one a line.
pub(crate) fn print_front(format: Format, points: &[Point]) -> Outcome {
    let rows = front_rows(points);
    match format {
        Format::Csv => print_csv(&rows)?,
        Format::Json => print_json(&rows)?,
        Format::Table => {
            let is_run = points.iter().any(|point| point.measured.is_some());
            let columns = [">latency", ">between results", ">peak", ">devices", ">operators split"];
            let mut lines = table(columns.into_iter().chain(is_run.then_some(">latency in a run")).collect::<Vec<_>>());
            for (point, row) in points.iter().zip(&rows) {
                let (devices, splits) = (row.devices.to_string(), row.splits.to_string());
                let figures = [point.latency.to_string(), point.interval.to_string(), point.peak.to_string()];
                let measured = point.measured.map(|latency| latency.to_string()).unwrap_or_default();
                lines.add_row(figures.into_iter().chain([devices, splits]).chain(is_run.then_some(measured)));
            }
            print_line!("{lines}");
        }
    }
    Ok(())
}

/// The rows of a front as CSV.
pub(crate) fn front_csv(points: &[Point]) -> Result<Vec<u8>, Failure> {
    to_csv(&front_rows(points))
}

fn front_rows(points: &[Point]) -> Vec<FrontRow> {
    let row = |point: &Point| FrontRow {
        latency_us: point.latency.0,
        interval_us: point.interval.0,
        peak_bytes: point.peak.0,
        devices: point
            .candidate
            .solution
            .evaluation
            .task_graph
            .sequences
            .iter()
            .filter(|tasks| !tasks.is_empty())
            .count(),
        splits: point.candidate.splits.len(),
        measured_us: point.measured.map(|latency| latency.0),
    };
    points.iter().map(row).collect()
}

#[derive(Serialize)]
struct FrontRow {
    latency_us: f64,
    interval_us: f64,
    peak_bytes: u64,
    devices: usize,
    splits: usize,
    measured_us: Option<f64>,
}

fn inputs(count: u32) -> String {
    if count == 1 { "one input".to_string() } else { format!("{count} inputs") }
}

/// The engine's name and version, without that of this program; of a choice between two, only that it is one.
fn short_engine(engine: &EngineId) -> String {
    match engine.name.as_str() {
        "auto" => "auto".to_string(),
        _ => engine.to_string().split('+').next().unwrap_or_default().to_string(),
    }
}

fn summary(problem: &Problem, plan: &plan::Plan, solution: &Solution) -> String {
    let name = |id: DeviceId| problem.device(id).device_name().to_string();
    let all: Micros = plan.groups.iter().map(|group| group.time_us).sum();
    let mut groups = table([">group", "operators", "device", ">start", ">time", ">workspace"]);
    let (mut hidden, mut hidden_time) = (0, Micros::ZERO);
    for group in &plan.groups {
        if plan.groups.len() > MANY_GROUPS && group.time_us.0 < SMALL * all.0 {
            (hidden, hidden_time) = (hidden + 1, hidden_time + group.time_us);
            continue;
        }
        groups.add_row([
            numbered(group.id),
            shortened(&group.name, 56),
            name(group.device),
            group.start_us.to_string(),
            format!("{}{}", if group.source == Source::Estimated { "≈ " } else { "" }, group.time_us),
            group.workspace_bytes.to_string(),
        ]);
    }
    let mut text = format!("{groups}\n{}", small(hidden, hidden_time));
    if !plan.transfers.is_empty() {
        let mut transfers = table(["transfer", "from", "to", ">bytes", ">sent", ">start", ">time"]);
        for transfer in &plan.transfers {
            transfers.add_row([
                shortened(&transfer.name, 40),
                name(transfer.from),
                name(transfer.to),
                transfer.bytes.to_string(),
                transfer.sent().to_string(),
                transfer.start_us.to_string(),
                transfer.time_us.to_string(),
            ]);
        }
        text += &format!("\n{transfers}\n");
    }
    let mut devices = table(["device", "engine", ">groups", ">busy", ">parameters", ">peak load", ">arena", ">limit"]);
    for device in &plan.devices {
        devices.add_row([
            device.device_name().to_string(),
            device.engine.as_ref().map_or(String::new(), short_engine),
            device.order.len().to_string(),
            device.busy_us.to_string(),
            device.memory.parameter_bytes.to_string(),
            device.memory.load_bytes.to_string(),
            device.memory.arena_bytes.to_string(),
            device.memory_limit_bytes.map_or("none".to_string(), |limit| limit.to_string()),
        ]);
    }
    text += &format!(
        "\n{devices}\n\nlatency {}, throughput {:.1}/s with {} in flight, {} transfers\n{} {} against a bound of {} ({}): gap {:.1} %",
        plan.predicted.latency_us,
        plan.predicted.throughput_per_s,
        inputs(plan.predicted.in_flight),
        plan.transfers.len(),
        problem.objective,
        solution.display(problem.objective, solution.value()),
        solution.display(problem.objective, plan.bound.value),
        plan.bound.by,
        100.0 * plan.gap
    );
    text += &plan.prefill.as_ref().map_or(String::new(), prompt_line);
    if let Some(energy) = plan.predicted.energy_j {
        let above: Joules = plan.groups.iter().filter_map(|group| group.energy_j).sum();
        let idle: Watts = plan.devices.iter().filter_map(|device| device.idle_w).sum();
        text += &format!("\nenergy {energy} a run: {} of {idle} idle, {above} more by computing", energy - above);
    }
    if let (Some(bytes), Some(sent)) = (plan.predicted.transfer_bytes, plan.predicted.sent_bytes) {
        let saved = if bytes > Bytes::ZERO { 100.0 * (1.0 - sent.0 as f64 / bytes.0 as f64) } else { 0.0 };
        text += &format!(
            "\nbetween servers {sent} an input, activations in {}; {bytes} if all were exact: {saved:.0} % less. The outputs change: \
             edgecut run says by how much",
            plan.transfer
        );
    }
    for note in &plan.notes {
        text += &format!("\nnote: {}", with_flags(note));
    }
    text
}

/// How a decoder reads its prompt, on a line of its own.
fn prompt_line(prefill: &PrefillPlan) -> String {
    let PrefillPlan { prompt, step, step_us, time_us, bound_us, .. } = prefill;
    let steps = match step {
        1 => "token by token".to_string(),
        _ => format!("in steps of {step}, each {step_us}"),
    };
    let against = bound_us.map_or(String::new(), |bound| {
        let gap = 100.0 * (1.0 - bound.0 / time_us.0.max(f64::MIN_POSITIVE)).max(0.0);
        format!(" against a bound of {bound}: gap {gap:.1} %")
    });
    format!("\nfirst token after a prompt of {prompt}, {steps}: {time_us}{against}")
}
