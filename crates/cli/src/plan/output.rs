//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use miette::Report;

use crate::caller::status;
use edgecut_plan::{
    self as plan, Candidate, PlanRequest,
    split::front::{self, Front, Point},
    table,
};

use super::{
    flags::Plan,
    found::Rehearse,
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

/// Prints the front of `request`; its table is written whenever it grows, the plans of its rows at the end. Its ends are run
/// first, if they are to be run.
pub(super) fn front(arguments: &Plan, request: &PlanRequest<'_>, rehearse: Option<&Rehearse<'_>>) -> Outcome {
    let place = arguments.output.as_deref().map(FrontPlace::of).transpose()?;
    let line = progress::PlanProgress::new(request.search.stop);
    let mut written = Ok(());
    let points = front::front(request, |points| {
        line.tell(&format!("front: {} plans so far", points.len()));
        if let (Some(place), Ok(())) = (&place, &written) {
            written = place.write_table(points);
        }
    });
    let found = points.map_err(|why| arguments.no_plan(&why.to_string(), Some(&why)))?;
    written?;
    let Front { mut points, is_complete } = found;
    if let Some(rehearse) = rehearse {
        line.tell("running the ends of the front");
        run_ends(&mut points, rehearse)?;
    }
    drop(line);
    if !is_complete {
        status!("the front is not complete: it was stopped before all searches had ended{}", arguments.longer());
    }
    if let Some(place) = &place {
        place.finish(request, &points)?;
    }
    print_front(arguments.format, &points)
}

/// Runs the plan of the lowest latency, which is the first, and that of the least memory.
fn run_ends(points: &mut [Point], rehearse: &Rehearse<'_>) -> Outcome {
    let leanest = (0..points.len()).min_by_key(|at| points[*at].peak);
    let ends: BTreeSet<usize> = leanest.into_iter().chain((!points.is_empty()).then_some(0)).collect();
    for at in ends {
        points[at].measured = rehearse(&points[at].candidate)?;
    }
    Ok(())
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
