//! A planner that reads profiles from files. Nothing is measured, and no agent is used.
//!
//! The devices are those of the profiles, in the same order. Transfers between devices of one server are free.

use std::path::{Path, PathBuf};

use edgecut_graph::{DeviceName, Granularity};
use edgecut_plan::{Plan, file::ModelRef};
use edgecut_profile::ProfileRow;

use super::{model_ref, options::PlanOptions, phases::prompt_without_agents, planner::Planner};
use crate::{
    Error, Events, Model, ModelOptions,
    calibrations::{self, Calibrations},
    cluster::{link_table, read_cluster},
    profile_source::{ProfiledModel, Source, is_dump, rows},
    request::{ModelGroups, recorded::RecordedProfiles},
};

/// A model with recorded profiles.
pub struct RecordedModel {
    subject: ProfiledModel,
    sources: Vec<Source>,
    /// The rows of each file.
    files: Vec<(PathBuf, Vec<ProfileRow>)>,
    /// The cluster file. It gives memory limits, links, source and sink.
    cluster: Option<PathBuf>,
    events: Events,
}

impl RecordedModel {
    /// The profile files that `profiles` name for the model at `path`. `None` if they name a folder of profiles and the
    /// model is not a graph dump: then profiles are measured.
    pub fn sources(path: &Path, profiles: &[PathBuf]) -> Option<Vec<Source>> {
        let source = |path: &PathBuf| Source::parse(&path.to_string_lossy());
        let is_file = |path: &PathBuf| {
            let is_named_so = path.extension().is_some_and(|extension| extension == "csv" || extension == "json");
            source(path).device.is_some() || path.is_file() || (is_named_so && !path.is_dir())
        };
        let are_files = profiles.len() > 1 || profiles.iter().any(is_file);
        // A dump has its own trace.
        let named = profiles.iter().filter(|_| are_files).map(source).collect();
        (are_files || is_dump(path)).then_some(named)
    }

    /// Reads the model at `path`, which may be a graph dump of TVM, and its profiles. Without `sources`, the trace of
    /// the dump is the profile. The devices have the memory limits and links of the file `cluster`, if there is one.
    ///
    /// # Errors
    /// If a file cannot be read or is not a profile of this model.
    pub fn read(
        path: &Path,
        options: &ModelOptions,
        sources: &[Source],
        cluster: Option<&Path>,
        events: &Events,
    ) -> Result<RecordedModel, Error> {
        let subject = ProfiledModel::open(path, options)?;
        let mut sources = sources.to_vec();
        if sources.is_empty() {
            // The model is a dump. Its trace is found by name.
            sources.push(Source { path: path.to_path_buf(), device: None });
        }
        if let ProfiledModel::Read { model, .. } = &subject {
            events.notices(&model.notices);
            model.check_sizes()?;
        }
        let binding = match &subject {
            ProfiledModel::Read { model, .. } => model.options.binding()?,
            ProfiledModel::Dump { .. } => options.binding()?,
        };
        let files = rows(&sources, &subject, &binding, events)?;
        Ok(RecordedModel { subject, sources, files, cluster: cluster.map(Path::to_path_buf), events: events.clone() })
    }

    /// `model` with `rows` from any source. The devices have the memory limits and links of the file `cluster`, if
    /// there is one.
    ///
    /// # Errors
    /// If sizes of the model are unknown.
    pub fn from_rows(
        model: Model,
        rows: Vec<ProfileRow>,
        cluster: Option<&Path>,
        events: &Events,
    ) -> Result<RecordedModel, Error> {
        model.check_sizes()?;
        let files = vec![(model.path.clone(), rows)];
        let subject = ProfiledModel::Read { model: Box::new(model), text: String::new() };
        let cluster = cluster.map(Path::to_path_buf);
        Ok(RecordedModel { subject, sources: Vec::new(), files, cluster, events: events.clone() })
    }

    /// Plans where the groups of the model run.
    ///
    /// # Errors
    /// If no plan satisfies the targets, the options contradict each other or the files, or the call is cancelled.
    pub fn plan(&self, options: &PlanOptions) -> Result<Plan, Error> {
        Ok(self.planner(options)?.plan()?.plan)
    }

    /// A planner of the model for the devices of the profiles.
    ///
    /// # Errors
    /// If the options contradict each other or the files.
    pub fn planner<'a>(&'a self, options: &'a PlanOptions) -> Result<Planner<'a>, Error> {
        options.check()?;
        if options.estimate || options.has_pilot_runs() {
            let option = if options.estimate { "estimate" } else { "rehearse" };
            let what =
                format!("option `{option}` has no effect with profiles that are files: nothing is measured or run");
            return Err(Error::BadInput(what.into()));
        }
        if options.prompt.is_some() {
            return Err(prompt_without_agents());
        }
        let events = &self.events;
        let of_device = |device: &DeviceName| {
            let is_of = |row: &ProfileRow| device.server == row.server && device.device == row.device;
            self.files.iter().find(|(_, rows)| rows.iter().any(is_of)).map(|(path, _)| path.clone())
        };
        let all = self.files.iter().flat_map(|(_, rows)| rows).cloned().collect();
        let mut recorded = RecordedProfiles::of(all).map_err(Error::bad_input)?;
        for (device, profile) in recorded.devices.iter().zip(&mut recorded.profiles) {
            profile.path = of_device(&device.name);
        }
        if options.granularity == Granularity::Op && recorded.granularity != Granularity::Op {
            return Err(Error::BadInput("option `granularity=op`: the profiles are of fused groups".into()));
        }
        let groups = ModelGroups::of(self.subject.graph(), recorded.granularity);
        let model = match &self.subject {
            ProfiledModel::Read { model, .. } => Some(&**model),
            ProfiledModel::Dump { .. } => None,
        };
        let mut settings = options.settings(self.model_ref()?, model, self.cluster.as_deref())?;
        // A dump has only the names of kernels, so they cannot be split.
        let is_dump = matches!(self.subject, ProfiledModel::Dump { .. });
        settings.may_split &= !is_dump;
        Planner::check_groups(&settings, &groups)?;
        recorded.check(&groups.items).map_err(Error::bad_input)?;
        let cluster = self.cluster.as_deref().map(|path| read_cluster(path, events)).transpose()?;
        let links = match &options.links {
            Some(path) => link_table(path)?.rows.iter().map(|row| row.link()).collect(),
            None => Vec::new(),
        };
        let inventory = recorded.inventory(cluster.as_ref(), &links);
        Planner::check_moves(options, &groups, &inventory, settings.like_plan(), events)?;
        let table = options.calibration.clone().unwrap_or_else(|| calibration_near(&self.sources));
        let calibrations = Calibrations::read(&table, &inventory.devices, events)?;
        let mut measured = recorded.profiles;
        for (profile, calibration) in measured.iter_mut().zip(&calibrations.found) {
            profile.calibration = *calibration;
        }
        let dumped = "the model is a graph dump, which names kernels and has none: this plan can be looked at, not run or exported";
        let notes = is_dump.then(|| dumped.to_string()).into_iter().collect();
        let agents = None;
        Ok(Planner { events, options, settings, groups, inventory, measured, calibrations, notes, agents })
    }

    fn model_ref(&self) -> Result<ModelRef, Error> {
        match &self.subject {
            ProfiledModel::Read { model, .. } => model_ref(model),
            ProfiledModel::Dump { hash, path, options, .. } => Ok(ModelRef {
                path: path.display().to_string(),
                blake3: hash.clone(),
                bind_dims: options.binding()?.dims().to_vec(),
                seed_parameters: options.seed_parameters.iter().map(ToString::to_string).collect(),
                inputs: None,
                states: Vec::new(),
            }),
        }
    }
}

/// The table of calibrations of the first profile that has one. The table is in the profile's folder or its parent, as
/// in a folder of profiles.
fn calibration_near(sources: &[Source]) -> PathBuf {
    let folders = sources.iter().flat_map(|source| source.path.ancestors().skip(1).take(2));
    let tables = folders.map(|folder| folder.join(calibrations::FILE));
    tables.into_iter().find(|table| table.is_file()).unwrap_or_else(|| PathBuf::from(calibrations::FILE))
}
