//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::path::{Path, PathBuf};

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
        let points = front::front(request).map_err(|why| arguments.no_plan(&why.to_string(), Some(&why)))?;
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

/// The JSON and the CSV file of a plan that goes to `path`: the other one has the same name with its own extension.
fn files(path: &Path) -> (PathBuf, PathBuf) {
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
        true => (path.with_extension("json"), path.to_path_buf()),
        false => (path.to_path_buf(), path.with_extension("csv")),
    }
}

/// Writes a plan as JSON, and its rows as CSV.
pub(super) fn write(path: &Path, plan: &plan::Plan) -> Outcome {
    let (json, csv) = files(path);
    let files = [(json, plan.to_json().map_err(Failure::failed)?), (csv, table::csv(plan).map_err(Failure::failed)?)];
    for (path, text) in files {
        file::write(&path, text.as_bytes())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_csv_never_share_a_file() {
        for (output, json, csv) in [
            ("plan.json", "plan.json", "plan.csv"),
            ("x.csv", "x.json", "x.csv"),
            ("x.CSV", "x.json", "x.CSV"),
            ("d.csv/plan", "d.csv/plan", "d.csv/plan.csv"),
        ] {
            assert_eq!(files(Path::new(output)), (json.into(), csv.into()), "{output}");
        }
    }
}
