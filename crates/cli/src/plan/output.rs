//! What becomes of a plan: its files, the front or the advice that was asked for, and what is printed.

use std::path::{Path, PathBuf};

use edgecut_plan::{
    PlanRequest, PlanSet,
    split::front::{Front, Point},
};
use edgecut_session::{
    error::Message,
    plan::planner::{PlannedFront, Planner},
    plan_file,
};

use super::{
    flags::Plan,
    print::{front_csv, print_front},
};
use crate::{Failure, Outcome, source_file as file, stderr::status};

/// Where a plan goes without `--output`.
pub(super) const DEFAULT_OUTPUT: &str = "plan.json";

/// Prints the front; its table is written whenever it grows, the plans of its rows at the end.
pub(super) fn front(arguments: &Plan, planner: &Planner<'_>) -> Outcome {
    let place = arguments.output.as_deref().map(FrontPlace::of).transpose()?;
    let mut written = Ok(());
    let PlannedFront { front, request, rehearsed } = planner.front(|points| {
        if let (Some(place), Ok(())) = (&place, &written) {
            written = place.grow(points);
        }
    })?;
    let Front { points, is_complete } = front;
    if !is_complete {
        let longer = if arguments.time_limit.is_none() { " (--time-limit none lets it end)" } else { "" };
        status!("the front is not complete: it was stopped before all searches had ended{longer}");
    }
    print_front(arguments.format, &points)?;
    let finished = written.and_then(|()| place.map_or(Ok(()), |place| place.finish(&request, &points)));
    file::all([finished, rehearsed])
}

/// Finds out whether a plan could be written at `path`, before it is made.
pub(super) fn check(path: &Path) -> Outcome {
    plan_file::paths(path).iter().try_for_each(|path| file::check_writable(path))
}

/// Writes the plans as JSON, and their rows as CSV.
pub(super) fn write(path: &Path, plans: &PlanSet) -> Outcome {
    file::all(plan_file::contents(path, plans)?.into_iter().map(|(path, text)| {
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
            file::check_writable(path)?;
            return Ok(FrontPlace { table: path.to_path_buf(), has_plans: false, is_stream });
        }
        if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
            let what =
                format!("--output {}: a front goes to FILE.csv, or with its plans into a folder", path.display());
            return Err(Failure::BadInput(Message::from(what)));
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
