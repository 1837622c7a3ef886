//! `edgecut plan --workload`: a device-placement problem of others, under its own cost model.

use std::{collections::BTreeMap, path::Path};

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use miette::Report;
use serde::Serialize;

use super::Plan;
use crate::cli::{
    Failure, Outcome, file,
    format::{Format, print_csv},
    kind::{self, Kind},
    profile::GranularityFlag,
};
use crate::plan::{
    problem::Objective,
    split::Ratios,
    workload::{Answer, NoAnswer, Workload, check, latency, throughput},
};

/// What `--format json` prints.
#[derive(Serialize)]
struct Output {
    objective: f64,
    bound: f64,
    gap: f64,
    bound_by: &'static str,
    assignment: Vec<Row>,
}

/// One operator of the assignment, and one line of `--format csv`.
#[derive(Serialize)]
struct Row {
    id: i64,
    device: String,
}

/// Plans the workload at `path` and prints its assignment.
pub(super) fn run(flags: &Plan, path: &Path) -> Outcome {
    let named = |what: String| Failure::BadInput(Report::msg(format!("{}: {what}", path.display())));
    let idle = idle(flags);
    if !idle.is_empty() {
        let what = format!("a workload has times, devices and transfers of its own: leave out {}", idle.join(", "));
        return Err(named(what));
    }
    let text = std::fs::read(path).map_err(|e| named(e.to_string()))?;
    let workload = Workload::from_json(&text).map_err(|e| kind::instead(path, &text, Kind::Workload, e))?;
    let mut options = throughput::Options { seed: flags.seed, ..throughput::Options::default() };
    if let Some(budget) = flags.budget {
        // What was asked for is done in full, however long it takes.
        options = throughput::Options { budget, cut_off: None, ..options };
    }
    let (answer, verdict) = match flags.objective {
        Objective::Throughput => {
            let answer = throughput::solve(&workload, &options).map_err(no_plan)?;
            let verdict = check::throughput(&workload, &answer);
            (answer, verdict)
        }
        Objective::Latency => {
            let answer = latency::solve(&workload, &options).map_err(no_plan)?;
            let verdict = check::latency(&workload, &answer);
            (answer, verdict)
        }
        Objective::Memory => return Err(named("a workload is planned for latency or throughput, not memory".into())),
    };
    verdict.map_err(|flaw| Failure::Failed(Report::msg(format!("the plan does not pass its own check: {flaw}"))))?;
    print(flags, &workload, &answer)
}

/// Flags that were given and say nothing of a workload.
fn idle(flags: &Plan) -> Vec<&'static str> {
    let all = [
        ("--params", flags.flags.params.is_some()),
        ("--bind-dim", !flags.flags.bind_dim.is_empty()),
        ("--inputs", flags.flags.inputs.is_some()),
        ("--cluster", flags.cluster.path().is_some()),
        ("--memory", flags.memory.is_some()),
        ("--latency", flags.latency.is_some()),
        ("--throughput", flags.throughput.is_some()),
        ("--advise", flags.advise),
        ("--pareto", flags.pareto),
        ("--no-split", flags.no_split),
        ("--ratios", flags.ratios != Ratios::Tuned),
        ("--like", flags.like.is_some()),
        ("--granularity", matches!(flags.granularity, GranularityFlag::Op)),
        ("--pin", !flags.pin.is_empty()),
        ("--ban", !flags.ban.is_empty()),
        ("--profile", flags.profile != ["profiles"]),
        ("--links", flags.links.is_some()),
    ];
    flags.idle(&all)
}

fn no_plan(reason: NoAnswer) -> Failure {
    Failure::NoPlan(Report::msg(reason.to_string()))
}

fn print(flags: &Plan, workload: &Workload, answer: &Answer) -> Outcome {
    let row = |(operator, place): (&crate::plan::workload::file::Operator, &crate::plan::workload::Place)| Row {
        id: operator.id,
        device: place.to_string(),
    };
    let output = Output {
        objective: answer.objective,
        bound: answer.bound,
        gap: answer.gap(),
        bound_by: answer.bound_by,
        assignment: workload.operators.iter().zip(&answer.places).map(row).collect(),
    };
    let json = serde_json::to_string(&output).map_err(Failure::failed)? + "\n";
    if let Some(path) = &flags.output {
        file::write(path, json.as_bytes())?;
        eprintln!("assignment written to {}", path.display());
    }
    match flags.format {
        Format::Json => print!("{json}"),
        Format::Csv => print_csv(&output.assignment)?,
        Format::Table => {
            let mut devices: BTreeMap<String, (usize, f64)> = BTreeMap::new();
            for (operator, row) in workload.operators.iter().zip(&output.assignment) {
                let entry = devices.entry(row.device.clone()).or_default();
                let time = if row.device.starts_with("acc") { operator.accelerator_time } else { operator.cpu_time };
                *entry = (entry.0 + 1, entry.1 + time);
            }
            let mut table = Table::new();
            table.load_preset(UTF8_HORIZONTAL_ONLY).set_header(["device", "operators", "computing"]);
            for (device, (count, time)) in devices {
                table.add_row([device, count.to_string(), format!("{time:.4}")]);
            }
            println!("{table}");
            println!("{} {:.4}", flags.objective, answer.objective);
            println!("bound {:.4} ({}), gap {:.1} %", answer.bound, answer.bound_by, 100.0 * answer.gap());
        }
    }
    Ok(())
}
