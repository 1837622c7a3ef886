//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::path::{Path, PathBuf};

use miette::Report;

use crate::caller::status;
use edgecut_plan::{
    self as plan, Candidate, PlanRequest,
    split::front::{self, Point},
    table,
};

use super::{
    flags::Plan,
    print::{front_csv, print_front},
    progress,
};
use crate::{Failure, Outcome, source_file as file};

/// Where a plan goes without `--output`.
pub(super) const DEFAULT_OUTPUT: &str = "plan.json";

/// The plan of `candidate` with all notes.
pub(super) fn plan(
    arguments: &Plan,
    request: &PlanRequest<'_>,
    candidate: &Candidate,
    notes: Vec<String>,
) -> Result<plan::Plan, Failure> {
    let advice = if arguments.advise { front::without(request, candidate) } else { Vec::new() };
    let mut plan = candidate.to_plan(request).map_err(Failure::failed)?;
    plan.notes.extend(notes.into_iter().chain(advice.iter().map(ToString::to_string)));
    Ok(plan)
}

/// Prints the front of `request`; its table is written whenever it grows, the plans of its rows at the end.
pub(super) fn front(arguments: &Plan, request: &PlanRequest<'_>) -> Outcome {
    let place = arguments.output.as_deref().map(FrontPlace::of).transpose()?;
    let line = progress::PlanProgress::new(request.search.stop);
    let mut written = Ok(());
    let points = front::front(request, |points| {
        line.tell(&format!("front: {} plans so far", points.len()));
        if let (Some(place), Ok(())) = (&place, &written) {
            written = place.write_table(points);
        }
    });
    drop(line);
    let points = points.map_err(|why| arguments.no_plan(&why.to_string(), Some(&why)))?;
    written?;
    if let Some(place) = &place {
        place.finish(request, &points)?;
    }
    print_front(arguments.format, &points)
}

/// The JSON and the CSV file of a plan that goes to `path`: the other one has the same name with its own extension.
fn files(path: &Path) -> (PathBuf, PathBuf) {
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
        true => (path.with_extension("json"), path.to_path_buf()),
        false => (path.to_path_buf(), path.with_extension("csv")),
    }
}

/// Writes a plan as JSON, and its rows as CSV.
pub fn write(path: &Path, plan: &plan::Plan) -> Outcome {
    let (json, csv) = files(path);
    let text = plan.to_json().map_err(Failure::failed)?;
    for (path, text) in [(json, text), (csv, table::csv(plan).map_err(Failure::failed)?)] {
        file::write(&path, text.as_bytes())?;
        status!("plan written to {}", path.display());
    }
    Ok(())
}

/// Where a front goes: to a file as CSV, or into a folder as `front.csv` with the plan of each row.
struct FrontPlace {
    table: PathBuf,
    has_plans: bool,
}

impl FrontPlace {
    fn of(path: &Path) -> Result<FrontPlace, Failure> {
        if path.extension().is_some_and(|extension| extension == "csv") && !path.is_dir() {
            return Ok(FrontPlace { table: path.to_path_buf(), has_plans: false });
        }
        if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
            let what =
                format!("--output {}: a front goes to FILE.csv, or with its plans into a folder", path.display());
            return Err(Failure::BadInput(Report::msg(what)));
        }
        std::fs::create_dir_all(path).map_err(|e| Failure::Failed(Report::msg(format!("{}: {e}", path.display()))))?;
        Ok(FrontPlace { table: path.join("front.csv"), has_plans: true })
    }

    fn write_table(&self, points: &[Point]) -> Outcome {
        file::write(&self.table, &front_csv(points)?)
    }

    /// Writes the plan of each row, if they go into a folder.
    fn finish(&self, request: &PlanRequest<'_>, points: &[Point]) -> Outcome {
        for (number, point) in (1..).zip(points).filter(|_| self.has_plans) {
            let plan = point.candidate.to_plan(request).map_err(Failure::failed)?;
            write(&self.table.with_file_name(format!("plan-{number}.json")), &plan)?;
        }
        status!("front written to {}", self.table.display());
        Ok(())
    }
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
