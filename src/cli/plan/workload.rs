//! `edgecut plan --workload`: a device-placement problem of others, under its own cost model.

use std::{collections::BTreeMap, path::Path};

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use miette::Report;
use serde::Serialize;

use super::Plan;
use crate::cli::{Failure, Outcome, format::Format};
use crate::plan::{
    problem::Objective,
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
    let text = std::fs::read(path).map_err(|e| named(e.to_string()))?;
    let workload = Workload::from_json(&text).map_err(|e| named(e.to_string()))?;
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

fn no_plan(reason: NoAnswer) -> Failure {
    Failure::NoPlan(Report::msg(reason.to_string()))
}

fn print(flags: &Plan, workload: &Workload, answer: &Answer) -> Outcome {
    let row = |(operator, place): (&crate::plan::workload::file::Operator, &crate::plan::workload::Place)| Row {
        id: operator.id,
        device: place.to_string(),
    };
    let rows: Vec<Row> = workload.operators.iter().zip(&answer.places).map(row).collect();
    match flags.format {
        Format::Json => {
            let output = Output {
                objective: answer.objective,
                bound: answer.bound,
                gap: answer.gap(),
                bound_by: answer.bound_by,
                assignment: rows,
            };
            println!("{}", serde_json::to_string(&output).map_err(Failure::failed)?);
        }
        Format::Csv => {
            let mut writer = csv::Writer::from_writer(std::io::stdout());
            rows.iter().try_for_each(|row| writer.serialize(row)).map_err(Failure::failed)?;
            writer.flush().map_err(Failure::failed)?;
        }
        Format::Table => {
            let mut devices: BTreeMap<String, (usize, f64)> = BTreeMap::new();
            for (operator, row) in workload.operators.iter().zip(&rows) {
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
