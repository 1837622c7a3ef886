//! The subjects of reports and comparisons: profiles, plans, fronts, results of runs, links. The content of a file says
//! what it is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut_agent::{LinkTable, results::file::RunResults};
use edgecut_plan::{GroupNames, Plan, PlanSet, planned_graph};
use edgecut_profile::{ProfileRow, reader};
use edgecut_report::subject::{Content, FrontPoint, MeasuredRun, PlanSubject, PlannedModel, Subject};

use crate::{
    Error, Events, Model, ModelOptions,
    file_kind::{self as kind, FileKind, is_file_of_results, is_json_object},
    input::{self as file, resolve},
    located::Located,
    profile::link_table_in,
    request::ModelGroups,
};

/// How deep folders are searched for profiles.
const DEPTH: usize = 4;

/// Whether the models of plans are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Models {
    Read,
    Skip,
}

/// Reads the file, or the folder of profiles and links, at `path`.
///
/// # Errors
/// If it cannot be read, or is nothing that a page shows.
pub(crate) fn read(path: &Path, models: Models, events: &Events) -> Result<Vec<Subject>, Error> {
    let named = |path: &Path, content| Subject { name: path.display().to_string(), content };
    if !path.is_dir() {
        return file_content(path, &file::read(path)?, models, events);
    }
    let mut subjects = folder(path)?;
    let table = link_table_in(path);
    if table.is_file() {
        subjects.push(named(&table, links(&table, &file::read(&table)?)?));
    }
    Ok(subjects)
}

/// The subjects in the file at `path`: one for each binding of a plan or profile.
fn file_content(path: &Path, bytes: &[u8], models: Models, events: &Events) -> Result<Vec<Subject>, Error> {
    let bound = |content, binding: Option<String>| Subject { name: bound_name(path, binding), content };
    if is_json_object(bytes) && kind::detect_any(bytes) == Some(FileKind::Plan) {
        let plans = PlanSet::from_json(bytes).map_err(|error| kind::plan_error(path, bytes, error))?;
        let subject = |plan: &Plan| {
            let binding = plans.binding_of(plan).map(|binding| binding.to_string());
            bound(plan_content(path, plan.clone(), models, events), binding)
        };
        return Ok(plans.plans().iter().map(subject).collect());
    }
    match content(path, bytes, models, events)? {
        Content::Profile(rows) => Ok(profiles(path, rows)),
        other => Ok(vec![bound(other, None)]),
    }
}

/// One profile for each binding in the rows of one model.
fn profiles(path: &Path, rows: Vec<ProfileRow>) -> Vec<Subject> {
    let mut bindings: BTreeMap<String, Vec<ProfileRow>> = BTreeMap::new();
    for row in rows {
        bindings.entry(row.binding.clone()).or_default().push(row);
    }
    let subject = |(binding, rows): (String, Vec<ProfileRow>)| Subject {
        name: bound_name(path, Some(binding).filter(|binding| !binding.is_empty())),
        content: Content::Profile(rows),
    };
    bindings.into_iter().map(subject).collect()
}

fn bound_name(path: &Path, binding: Option<String>) -> String {
    let binding = binding.map_or(String::new(), |binding| format!(" ({binding})"));
    format!("{}{binding}", path.display())
}

/// The profiles in a folder and those below it, one subject for each folder with any: each model has one of its own.
fn folder(path: &Path) -> Result<Vec<Subject>, Error> {
    let mut subjects = Vec::new();
    add_profiles(path, DEPTH, &mut subjects)?;
    if subjects.is_empty() {
        return Err(bad(path, "a folder without profiles, or none of them has rows"));
    }
    Ok(subjects)
}

fn add_profiles(folder: &Path, depth: usize, subjects: &mut Vec<Subject>) -> Result<(), Error> {
    let wrong = |error: std::io::Error| bad(folder, &error.to_string());
    let inside = std::fs::read_dir(folder).map_err(wrong)?.map(|entry| entry.map(|entry| entry.path()));
    let mut inside: Vec<PathBuf> = inside.collect::<Result<_, _>>().map_err(wrong)?;
    inside.sort();
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = inside.into_iter().partition(|path| path.is_dir());
    let mut rows = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "csv")) {
        // Summaries, links and calibrations lie there too.
        let bytes = file::read(path)?;
        if kind::detect_any(&bytes) == Some(FileKind::Profile) {
            let text = std::str::from_utf8(&bytes).map_err(|error| bad(path, &error.to_string()))?;
            rows.extend(reader::parse(text).map_err(|what| bad(path, &what))?);
        }
    }
    if !rows.is_empty() {
        subjects.extend(profiles(folder, rows));
    }
    folders.iter().filter(|_| depth > 0).try_for_each(|folder| add_profiles(folder, depth - 1, subjects))
}

fn content(path: &Path, bytes: &[u8], models: Models, events: &Events) -> Result<Content, Error> {
    if is_json_object(bytes) {
        return json(path, bytes, models, events);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Err(unknown(path, bytes)) };
    match kind::detect_any(bytes) {
        Some(FileKind::Profile) => profile(path, text),
        Some(FileKind::Front) => front(path, text),
        Some(FileKind::Links) => links(path, bytes),
        _ => Err(unknown(path, bytes)),
    }
}

fn json(path: &Path, bytes: &[u8], models: Models, events: &Events) -> Result<Content, Error> {
    match kind::detect_any(bytes) {
        Some(FileKind::Results) => results(path, bytes, events),
        Some(FileKind::Plan) => plan(path, bytes, models, events),
        // Of what nearly is a plan, the error says what is wrong.
        _ => match serde_json::from_slice::<serde_json::Value>(bytes) {
            Ok(value) if value.get("groups").is_some() && value.get("version").is_some() => {
                plan(path, bytes, models, events)
            }
            Ok(_) => Err(unknown(path, bytes)),
            Err(error) => Err(bad(path, &format!("not JSON that can be read: {error}"))),
        },
    }
}

fn plan(path: &Path, bytes: &[u8], models: Models, events: &Events) -> Result<Content, Error> {
    let plan = Plan::from_json(bytes).map_err(|error| kind::plan_error(path, bytes, error))?;
    Ok(plan_content(path, plan, models, events))
}

fn plan_content(path: &Path, plan: Plan, models: Models, events: &Events) -> Content {
    if models == Models::Skip {
        return Content::Plan(Box::new(PlanSubject { plan, model: Err("it was not read".to_string()) }));
    }
    let model = planned_model(path, &plan, events);
    if let Err(why) = &model {
        events.notice(format_args!("{}: without its model: {why}", path.display()));
    }
    Content::Plan(Box::new(PlanSubject { plan, model }))
}

/// The model that `plan`, the file at `path`, was made for; else why there is none.
fn planned_model(path: &Path, plan: &Plan, events: &Events) -> Result<PlannedModel, String> {
    let place = resolve(path, &plan.model.path);
    if !place.is_file() {
        return Err(format!("{} is not there, neither from here nor from the plan's folder", plan.model.path));
    }
    let bytes = file::read(&place).map_err(|error| error.to_string())?;
    if blake3::hash(&bytes).to_hex().as_str() != plan.model.blake3 {
        return Err(format!("{} is not the file that the plan was made for: its hash differs", place.display()));
    }
    let options = ModelOptions::default().for_plan(path, &plan.model);
    let model = Model::open(&place, &options).map_err(|error| error.to_string())?;
    events.notices(&model.notices);
    let whole = model.import.graph;
    let groups = ModelGroups::of(&whole, plan.granularity);
    let names = GroupNames::of(&whole, &groups.groups, &groups.names);
    let graph = planned_graph(&whole, plan).map_err(|error| error.to_string())?;
    Ok(PlannedModel { graph, names })
}

/// The last run of a file of results, or what `run --format json` printed.
fn results(path: &Path, bytes: &[u8], events: &Events) -> Result<Content, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        bad(path, &format!("not results of a run, as `edgecut run` writes them: {error}"))
    };
    let run = match is_file_of_results(bytes) {
        false => MeasuredRun { about: None, outcome: serde_json::from_slice(bytes).map_err(|error| wrong(&error))? },
        true => {
            let mut runs =
                RunResults::from_json(bytes).map_err(|error| Error::bad_input(Located::new(path, error)))?.runs;
            let last = runs.pop().ok_or_else(|| bad(path, "a file of results without a run"))?;
            if !runs.is_empty() {
                events.status(format_args!("{}: the last of {} runs", path.display(), runs.len() + 1));
            }
            MeasuredRun { about: Some(last.about), outcome: last.outcome }
        }
    };
    Ok(Content::Results(Box::new(run)))
}

fn profile(path: &Path, text: &str) -> Result<Content, Error> {
    let rows = reader::parse(text).map_err(|what| bad(path, &what))?;
    if rows.is_empty() {
        return Err(bad(path, "a profile without rows"));
    }
    Ok(Content::Profile(rows))
}

fn links(path: &Path, bytes: &[u8]) -> Result<Content, Error> {
    let table = LinkTable::read(bytes).map_err(|error| bad(path, &error.to_string()))?;
    Ok(Content::Links(table.rows))
}

fn front(path: &Path, text: &str) -> Result<Content, Error> {
    let rows: Result<Vec<FrontPoint>, csv::Error> = csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
    let points = rows.map_err(|error| {
        bad(path, &format!("not a front, as `edgecut plan` with option `pareto` writes it: {error}"))
    })?;
    if points.is_empty() {
        return Err(bad(path, "a front without plans"));
    }
    Ok(Content::Front(points))
}

/// The failure for a file of any other kind.
fn unknown(path: &Path, bytes: &[u8]) -> Error {
    const WANTED: &str = "neither a profile nor a plan, a front or results of a run";
    match kind::detect_any(bytes) {
        Some(FileKind::Json) => bad(path, &format!("{WANTED}: this is JSON of no kind that is known")),
        Some(FileKind::Csv) => {
            let header = String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_string();
            if header.starts_with("measured_at,") {
                return bad(
                    path,
                    "results of runs as CSV are for other programs: give those of `edgecut run` with option `output=FILE.json`",
                );
            }
            bad(path, &format!("{WANTED}: this is CSV with the header `{}`", reader::truncated(&header)))
        }
        Some(kind) => bad(path, &format!("{WANTED}: {kind}")),
        None if bytes.is_empty() => bad(path, "the file is empty"),
        None => bad(path, WANTED),
    }
}

fn bad(path: &Path, what: &str) -> Error {
    Error::BadInput(format!("{}: {what}", path.display()).into())
}
