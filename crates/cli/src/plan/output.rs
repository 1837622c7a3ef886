//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use miette::Report;

use crate::caller::status;
use edgecut_plan::{
    self as plan, Candidate, PlanRequest, PlanSet,
    split::front::{self, Front, Point},
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
            written = place.grow(points);
        }
    });
    let found = points.map_err(|why| arguments.no_plan(&why.to_string(), Some(&why)))?;
    let Front { mut points, is_complete } = found;
    let mut rehearsed = Ok(());
    if let Some(rehearse) = rehearse {
        line.tell("running the ends of the front");
        rehearsed = run_ends(&mut points, rehearse);
    }
    drop(line);
    if !is_complete {
        status!("the front is not complete: it was stopped before all searches had ended{}", arguments.longer());
    }
    print_front(arguments.format, &points)?;
    let finished = written.and_then(|()| place.map_or(Ok(()), |place| place.finish(request, &points)));
    file::all([finished, rehearsed])
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

/// A plan's two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
}

/// What a plan that goes to `path` is written to: JSON and CSV, the other one with the same name and its own extension. A
/// stream has nothing next to it, and gets one of them.
fn files(path: &Path) -> Vec<(Form, PathBuf)> {
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let (form, other, extension) =
        if is_csv { (Form::Csv, Form::Json, "json") } else { (Form::Json, Form::Csv, "csv") };
    let mut files = vec![(form, path.to_path_buf())];
    if file::is_file(path) {
        files.push((other, path.with_extension(extension)));
    }
    files
}

/// Finds out whether a plan could be written at `path`, before it is made.
pub(super) fn check(path: &Path) -> Outcome {
    file::check_place(path)?;
    files(path)[1..].iter().try_for_each(|(_, path)| file::check_place(path))
}

/// Writes the plans as JSON, and their rows as CSV.
pub fn write(path: &Path, plans: &PlanSet) -> Outcome {
    file::all(files(path).into_iter().map(|(form, path)| {
        let text = match form {
            Form::Json => plans.to_json().map_err(Failure::failed)?,
            Form::Csv => plans.to_csv().map_err(Failure::failed)?,
        };
        file::write(&path, text.as_bytes())?;
        status!("plan written to {}", path.display());
        Ok(())
    }))
}

/// Where a front goes: to a file as CSV, or into a folder as `front.csv` with the plan of each row.
struct FrontPlace {
    table: PathBuf,
    has_plans: bool,
    is_stream: bool,
}

impl FrontPlace {
    fn of(path: &Path) -> Result<FrontPlace, Failure> {
        let is_csv = path.extension().is_some_and(|extension| extension == "csv") && !path.is_dir();
        let is_stream = !path.is_dir() && !file::is_file(path);
        if is_csv || is_stream {
            file::check_place(path)?;
            return Ok(FrontPlace { table: path.to_path_buf(), has_plans: false, is_stream });
        }
        if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
            let what =
                format!("--output {}: a front goes to FILE.csv, or with its plans into a folder", path.display());
            return Err(Failure::BadInput(Report::msg(what)));
        }
        file::create_folder(path)?;
        Ok(FrontPlace { table: path.join("front.csv"), has_plans: true, is_stream })
    }

    /// Replaces the table by a longer one. A stream gets the last one alone.
    fn grow(&self, points: &[Point]) -> Outcome {
        if self.is_stream { Ok(()) } else { self.write_table(points) }
    }

    fn write_table(&self, points: &[Point]) -> Outcome {
        file::write(&self.table, &front_csv(points)?)
    }

    /// Writes the plan of each row, if they go into a folder.
    fn finish(&self, request: &PlanRequest<'_>, points: &[Point]) -> Outcome {
        // Once more for what runs have measured; a stream gets it now.
        if self.is_stream || points.iter().any(|point| point.measured.is_some()) {
            self.write_table(points)?;
        }
        for (number, point) in (1..).zip(points).filter(|_| self.has_plans) {
            let plan = point.candidate.to_plan(request).map_err(Failure::failed)?;
            write(&self.table.with_file_name(format!("plan-{number}.json")), &PlanSet::from(plan))?;
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
            let mut both = files(Path::new(output));
            both.sort_by_key(|(form, _)| *form == Form::Csv);
            assert_eq!(both, [(Form::Json, json.into()), (Form::Csv, csv.into())], "{output}");
        }
        assert_eq!(files(Path::new("-")), [(Form::Json, "-".into())]);
    }
}
