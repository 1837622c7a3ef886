//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::path::Path;

use miette::Report;

use edgecut_plan::{
    self as plan, Candidate, PlanRequest,
    split::front::{self, Point},
    table,
};

use super::{
    flags::Plan,
    print::{front_csv, print, print_front},
};
use crate::{Failure, Outcome, source_file as file};

/// Where a plan goes without `--output`.
pub(super) const DEFAULT_OUTPUT: &str = "plan.json";

/// Prints the plan of `candidate` and writes it to its files; `notes` are added to its own.
pub(super) fn finish(
    arguments: &Plan,
    request: &PlanRequest<'_>,
    candidate: &Candidate,
    notes: Vec<String>,
) -> Outcome {
    if arguments.pareto {
        let points = front::front(request).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
        if let Some(output) = &arguments.output {
            write_front(output, request, &points)?;
        }
        return print_front(arguments.format, &points);
    }
    let advice = if arguments.advise { front::without(request, candidate) } else { Vec::new() };
    let mut plan = candidate.to_plan(request).map_err(Failure::failed)?;
    plan.notes.extend(notes.into_iter().chain(advice.iter().map(ToString::to_string)));
    write(arguments.output.as_deref().unwrap_or(Path::new(DEFAULT_OUTPUT)), &plan)?;
    print(arguments.format, &candidate.expanded.problem, &plan, &candidate.solution)
}

/// Writes a plan, and its rows as CSV to a file of the same name.
fn write(path: &Path, plan: &plan::Plan) -> Outcome {
    let csv = path.with_extension("csv");
    let files =
        [(path, plan.to_json().map_err(Failure::failed)?), (csv.as_path(), table::csv(plan).map_err(Failure::failed)?)];
    for (path, text) in files {
        file::write(path, text.as_bytes())?;
        eprintln!("plan written to {}", path.display());
    }
    Ok(())
}

/// Writes a front: to a file as CSV, or into a folder as `front.csv` with the plan of each row.
fn write_front(path: &Path, request: &PlanRequest<'_>, points: &[Point]) -> Outcome {
    let csv = front_csv(points)?;
    if path.extension().is_some_and(|extension| extension == "csv") && !path.is_dir() {
        file::write(path, &csv)?;
        eprintln!("front written to {}", path.display());
        return Ok(());
    }
    if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
        let what = format!("--output {}: a front goes to FILE.csv, or with its plans into a folder", path.display());
        return Err(Failure::BadInput(Report::msg(what)));
    }
    std::fs::create_dir_all(path).map_err(|e| Failure::Failed(Report::msg(format!("{}: {e}", path.display()))))?;
    for (number, point) in (1..).zip(points) {
        let plan = point.candidate.to_plan(request).map_err(Failure::failed)?;
        write(&path.join(format!("plan-{number}.json")), &plan)?;
    }
    let table = path.join("front.csv");
    file::write(&table, &csv)?;
    eprintln!("front written to {}", table.display());
    Ok(())
}
