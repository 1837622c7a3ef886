//! A model planned with profiles that are given as files: nothing is measured, and no agent takes part.
//!
//! The devices are those that the profiles are of, in their order; transfers between devices of one server are free.

use std::path::{Path, PathBuf};

use miette::Report;

use edgecut_cluster::run::{
    pilot::PlanEvent,
    recorded::RecordedProfiles,
    request::{ModelGroups, RequestError, energy_warnings},
};
use edgecut_graph::{DeviceName, Granularity};
use edgecut_plan::{plan, rule};
use edgecut_profile::ProfileRow;

use super::{
    flags::Plan,
    found::Found,
    moved,
    progress::{self, PlanProgress},
};
use crate::{
    Failure,
    calibration::{self, Calibrations},
    caller::is_stopped,
    cluster_flag::link_table,
    ineffective,
    profile::GranularityFlag,
    profile_source::{ProfiledModel, Source, rows},
};

/// Whether profiles were named, and not a folder of them.
pub(super) fn is_given(arguments: &Plan) -> bool {
    let is_file = |text: &String| {
        let path = Path::new(text);
        let is_named_so = path.extension().is_some_and(|extension| extension == "csv" || extension == "json");
        Source::parse(text).device.is_some() || path.is_file() || (is_named_so && !path.is_dir())
    };
    arguments.profile.len() > 1 || arguments.profile.iter().any(is_file)
}

/// Plans the model at `path`.
pub(super) fn run<T>(
    arguments: &Plan,
    path: &Path,
    finish: impl FnOnce(Found<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let bad = |what: String| Failure::BadInput(Report::msg(what));
    ineffective::refuse(&arguments.measuring_flags(), "profiles that are files: nothing is measured or run")?;
    let subject = ProfiledModel::open(path, &arguments.flags.for_engine(&arguments.engine))?;
    let mut sources: Vec<Source> = arguments.profile.iter().map(|text| Source::parse(text)).collect();
    if !is_given(arguments) {
        // A dump, whose trace has a name of its own.
        sources = vec![Source { path: path.to_path_buf(), device: None }];
    }
    if let ProfiledModel::Relay { model, path, .. } = &subject {
        model.check_sizes(path)?;
    }
    let files = rows(&sources, &subject, &arguments.flags.binding()?)?;
    let of_device = |device: &DeviceName| {
        let is_of = |row: &ProfileRow| device.server == row.server && device.device == row.device;
        files.iter().find(|(_, rows)| rows.iter().any(is_of)).map(|(path, _)| path.clone())
    };
    let all = files.iter().flat_map(|(_, rows)| rows).cloned().collect();
    let mut recorded = RecordedProfiles::of(all).map_err(Failure::bad_input)?;
    for (device, profile) in recorded.devices.iter().zip(&mut recorded.profiles) {
        profile.path = of_device(&device.name);
    }
    if matches!(arguments.granularity, GranularityFlag::Op) && recorded.granularity != Granularity::Op {
        return Err(bad("--granularity op: the profiles are of fused groups".to_string()));
    }
    let groups = ModelGroups::of(subject.graph(), recorded.granularity);
    let mut settings = arguments.settings(arguments.model_ref(path, subject.hash(), subject.is_selected())?)?;
    // Kernels of a dump are known by name alone: how to split them is not known.
    let is_dump = matches!(subject, ProfiledModel::Dump { .. });
    settings.may_split &= !is_dump;
    rule::check_groups(&settings.rules, &groups.group_names()).map_err(Failure::bad_input)?;
    recorded.check(&groups.items).map_err(Failure::bad_input)?;
    let cluster = arguments.cluster.path().map(|_| arguments.cluster.read()).transpose()?;
    let links = match &arguments.links {
        Some(path) => link_table(path)?.rows.iter().map(|row| row.link()).collect(),
        None => Vec::new(),
    };
    let inventory = recorded.inventory(cluster.as_ref(), &links);
    moved::check(arguments, &groups, &inventory, settings.like.as_ref())?;
    let table = arguments.calibration.clone().unwrap_or_else(|| calibration_near(&sources));
    let calibrations = Calibrations::read(&table, &inventory.devices)?;
    for (profile, calibration) in recorded.profiles.iter_mut().zip(&calibrations.found) {
        profile.calibration = *calibration;
    }
    let request = settings.request(&groups, &inventory, &recorded.profiles, |_| None);
    let mut request = request.map_err(|error| match error {
        RequestError::Network(error) => {
            bad(format!("{error}: give it in a file as `--links`, or in that of `--cluster`"))
        }
        error => arguments.failure(error),
    })?;
    if let Some(other) = settings.like.as_ref().filter(|_| !arguments.moves.is_empty()) {
        return finish(Found::Moves { request: &request, of: other });
    }
    request.search.stop = progress::stop(arguments.longest(false))?;
    if arguments.pareto {
        return finish(Found::Front { request: &request, rehearse: None });
    }
    let progress = PlanProgress::new(request.search.stop);
    progress.show(&PlanEvent::Searching);
    let candidate = plan(&request);
    drop(progress);
    if is_stopped() {
        return Err(Failure::Stopped);
    }
    let candidate = candidate.map_err(|why| arguments.no_plan(&why.to_string(), Some(&why)))?;
    let dumped =
        "the model is a graph dump, which names kernels and has none: this plan can be looked at, not run or exported";
    let notes = is_dump.then(|| dumped.to_string()).into_iter().chain(calibrations.notes());
    let notes = notes.chain(energy_warnings(&inventory, &recorded.profiles));
    finish(Found::Candidate { request: &request, candidate: &candidate, notes: notes.collect() })
}

/// The table of calibrations next to the first profile that has one, in its folder or, as a folder of profiles is laid out,
/// in the one above.
fn calibration_near(sources: &[Source]) -> PathBuf {
    let folders = sources.iter().flat_map(|source| source.path.ancestors().skip(1).take(2));
    let tables = folders.map(|folder| folder.join(calibration::FILE));
    tables.into_iter().find(|table| table.is_file()).unwrap_or_else(|| PathBuf::from(calibration::FILE))
}
