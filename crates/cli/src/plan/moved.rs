//! `plan --like PLAN --move GROUP=SERVER/DEVICE`: what a move would change, before, after and difference.

use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::{
    Candidate, PlanSet,
    change::{ChangeRow, changes},
    moved::Moved,
};
use edgecut_session::{PlanOptions, plan::planner::Planner};

use super::{flags::Plan, output};
use crate::{
    Failure, Outcome,
    format::{Format, print_csv, print_json},
    stderr::notice,
    stdout::print_line,
    table::{shortened, table},
};

/// Prints what the moves change of the other plan, and writes the moved plan if `--output` says where.
pub(super) fn finish(arguments: &Plan, options: &PlanOptions, planner: &Planner<'_>) -> Outcome {
    let (moved, request) = planner.moved()?;
    let rows = changes(&moved).map_err(Failure::failed)?;
    match arguments.format {
        Format::Csv => print_csv(&rows)?,
        Format::Json => print_json(&rows)?,
        Format::Table => print_line!("{}", page(&moved, &rows)),
    }
    let missed =
        |candidate: &Candidate| -> Vec<String> { candidate.solution.missed.iter().map(ToString::to_string).collect() };
    let missed = missed(&moved.after);
    if let Some(path) = &arguments.output {
        if !missed.is_empty() {
            return Err(options.no_plan(&format!("the moved plan is not written: {}", missed.join("; ")), None));
        }
        output::write(path, &PlanSet::from(moved.after.to_plan(&request).map_err(Failure::failed)?))?;
    } else if !missed.is_empty() {
        notice!("the moved plan misses limits or targets: {}", missed.join("; "));
    }
    Ok(())
}

fn page(moved: &Moved, rows: &[ChangeRow]) -> String {
    let mut text = String::new();
    for group in &moved.groups {
        text += &format!("#{} {}: from {} to {}\n", group.id, group.kind, group.from.join(" and "), group.to);
    }
    let mut figures = table(["figure", ">before", ">after", ">difference"]);
    let mut transfers = table(["transfer", "from", "to", ">before", ">after", ">difference"]);
    let mut count = 0;
    for row in rows {
        let [before, after] =
            [row.before, row.after].map(|value| value.map_or(String::new(), |v| shown(row.figure, v)));
        let difference = difference(row);
        let device = |server: &str, device: &str| format!("{server}/{device}");
        if row.figure == "transfer_us" && !row.name.is_empty() {
            count += 1;
            let (from, to) = (device(&row.server, &row.device), device(&row.to_server, &row.to_device));
            transfers.add_row([shortened(&row.name, 40), from, to, before, after, difference]);
            continue;
        }
        let of = if row.server.is_empty() { String::new() } else { device(&row.server, &row.device) + " " };
        figures.add_row([of + named(row.figure), before, after, difference]);
    }
    text += &format!("\n{figures}");
    if count > 0 {
        text += &format!("\n\n{transfers}");
    }
    text
}

/// What the table calls a figure.
fn named(figure: &'static str) -> &'static str {
    match figure {
        "latency_us" => "latency",
        "interval_us" => "between results",
        "transfer_bytes" => "bytes of transfers",
        "transfer_us" => "time of transfers",
        "busy_us" => "busy",
        "parameter_bytes" => "parameters",
        "load_bytes" => "peak load",
        "arena_bytes" => "arena",
        other => other,
    }
}

/// A value in the unit of its figure.
fn shown(figure: &str, value: f64) -> String {
    match figure {
        _ if figure.ends_with("_us") => Micros(value).to_string(),
        _ if figure.ends_with("_bytes") => Bytes(value as u64).to_string(),
        _ => value.to_string(),
    }
}

/// The difference with its sign, and as a share of what was there.
fn difference(row: &ChangeRow) -> String {
    if row.difference == 0.0 {
        return "0".to_string();
    }
    let sign = if row.difference > 0.0 { "+" } else { "−" };
    let share = row.before.filter(|before| *before > 0.0 && row.after.is_some());
    let share =
        share.map_or(String::new(), |before| format!(" ({sign}{:.1} %)", 100.0 * row.difference.abs() / before));
    format!("{sign}{}{share}", shown(row.figure, row.difference.abs()))
}
