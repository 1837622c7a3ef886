//! Profiles: what each group of a model costs on each device of a site.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use edgecut_agent::{Cluster, EnergyMetering, Inventory, client::Fleet};
use edgecut_graph::{Granularity, units::Micros};
use edgecut_profile::{DevicePower, MeasurementMode, ModelTime, ProfileSummary};
use serde::Deserialize;

use crate::{
    Error, Event, Events, Model, Site,
    busy::busy,
    cluster::connect_all,
    option_values,
    survey::{DeviceProfile, MissingPolicy, SurveyError, SurveyProgress, SurveyRequest, survey},
};

/// What is measured, and where profiles are stored.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileOptions {
    /// Measure each distinct group alone, or all groups while the model runs.
    pub mode: MeasurementMode,
    /// What a group is: a single operator, or operators fused by TVM's rules.
    pub granularity: Granularity,
    /// Also measure shards of a half, a quarter and an eighth. This takes as much time again as the budget.
    pub fractions: bool,
    /// Time to spend on each device. Sampling of a group ends earlier once its time is precise to 2 %.
    #[serde(deserialize_with = "option_values::time")]
    pub budget: Micros,
    /// Folder of the profiles. An existing profile of the same model and device is continued.
    pub output: PathBuf,
    /// Discard earlier measurements and measure again.
    pub again: bool,
}

impl Default for ProfileOptions {
    fn default() -> ProfileOptions {
        ProfileOptions {
            mode: MeasurementMode::default(),
            granularity: Granularity::default(),
            fractions: false,
            budget: DEFAULT_BUDGET,
            output: PathBuf::from(DEFAULT_FOLDER),
            again: false,
        }
    }
}

/// Default time to spend on each device.
pub(crate) const DEFAULT_BUDGET: Micros = Micros(20e6);

/// Default folder of profiles.
pub const DEFAULT_FOLDER: &str = "profiles";

/// A folder of profiles, and the profiles that were measured or read.
#[derive(Debug, Clone)]
pub struct Profiles {
    pub folder: PathBuf,
    /// One profile per device.
    pub devices: Vec<DeviceProfile>,
    /// One summary per device, in the same order.
    pub summaries: Vec<ProfileSummary>,
}

impl Profiles {
    /// The profiles in `folder`, which may not exist yet. What they lack is measured when it is needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Profiles {
        Profiles { folder: folder.into(), devices: Vec::new(), summaries: Vec::new() }
    }

    /// Checks that all profiles were written.
    ///
    /// # Errors
    /// If profiles were measured and could not be written.
    pub fn check_written(&self) -> Result<(), Error> {
        let unwritten = self.devices.iter().filter(|profile| profile.unwritten.is_some());
        let paths: Vec<String> = unwritten.map(|profile| profile.path.display().to_string()).collect();
        if paths.is_empty() { Ok(()) } else { Err(Error::Failed(format!("not written: {}", paths.join(", ")).into())) }
    }
}

impl Site {
    /// Measures what the profiles of `model` lack, on every device. Measurements are stored as they arrive, so the same
    /// call continues after a cancellation.
    ///
    /// # Errors
    /// If the options contradict each other, sizes of the model are unknown, an agent fails, or the call is cancelled.
    /// Profiles that cannot be written are still returned: see [`Profiles::check_written`].
    pub fn profile(&self, model: &Model, options: &ProfileOptions) -> Result<Profiles, Error> {
        if options.fractions && options.mode == MeasurementMode::InSitu {
            let what =
                "option `fractions` measures shards alone: there are none in their place, with option `mode=in-situ`";
            return Err(Error::BadInput(what.into()));
        }
        if options.output.extension().is_some_and(|extension| extension == "csv") && !options.output.is_dir()
            || options.output.is_file()
        {
            let what = format!("option `output={}`: profiles go into a folder", options.output.display());
            return Err(Error::BadInput(what.into()));
        }
        model.check_sizes()?;
        let (name, contents) = (model.name(), model.contents(model.graph())?.given());
        let mut survey = SurveyRequest::new(model.graph(), &name, &model.import.hash, &options.output);
        survey.binding = model.options.profiled_binding()?;
        (survey.mode, survey.granularity) = (options.mode, options.granularity);
        survey.sampling.budget = options.budget;
        survey.whole = true;
        survey.shard_budget = options.fractions.then_some(options.budget);
        survey.remeasure = options.again;
        survey.contents = contents;
        let devices = self.runtime.block_on(async {
            let fleet = connect_all(&self.cluster, &self.events).await?;
            log_energy(&fleet);
            let inventory = fleet.inventory(&self.cluster, Vec::new());
            self.survey(&fleet, &inventory, &survey).await
        })?;
        let summaries: Vec<ProfileSummary> = devices.iter().map(|profile| ProfileSummary::of(&profile.rows)).collect();
        for (profile, summary) in devices.iter().zip(&summaries) {
            warn(profile, summary, &self.events);
        }
        Ok(Profiles { folder: options.output.clone(), devices, summaries })
    }

    /// Measures or reads the profiles of all devices, and reports where they are.
    pub(crate) async fn survey(
        &self,
        fleet: &Fleet,
        inventory: &Inventory,
        wanted: &SurveyRequest<'_>,
    ) -> Result<Vec<DeviceProfile>, Error> {
        let events = &self.events;
        let progress = |now: SurveyProgress<'_>| {
            if let Some(who) = now.waiting_for {
                events.status(format_args!("{}: waiting for {who}", now.device));
            }
            let device = &now.device.to_string();
            events.emit(Event::Measured { device, done: now.measured, total: now.items, group: now.item });
        };
        let survey = async { survey(fleet, &self.cluster, inventory, wanted, &progress).await.map_err(survey_error) };
        let shown = events.progress();
        let profiles = events.until_cancelled(survey).await;
        drop(shown);
        let mut profiles = profiles?;
        for profile in &mut profiles {
            // An earlier measurement of the whole model is as good as a new one.
            let whole = profile.whole.or_else(|| ModelTime::read(&profile.path));
            if profile.unwritten.is_none() {
                let summary = ProfileSummary::of(&profile.rows).write(&profile.path, whole);
                profile.unwritten = summary.err().map(Arc::new);
            }
            match &profile.unwritten {
                Some(why) => {
                    events.notice(format_args!("the profile of {} is used, and not kept: {why}", profile.device.name));
                }
                None => {
                    let how = if profile.changed { "written to" } else { "unchanged, read from" };
                    events.status(format_args!("profile {how} {}", profile.path.display()));
                }
            }
        }
        Ok(profiles)
    }
}

/// Reads the stored profiles of all devices. Measures nothing.
pub(crate) async fn stored_profiles(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    wanted: &SurveyRequest<'_>,
) -> Result<Vec<DeviceProfile>, Error> {
    let mut wanted = wanted.clone();
    (wanted.missing, wanted.whole, wanted.shard_budget) = (MissingPolicy::Skip, false, None);
    survey(fleet, cluster, inventory, &wanted, &|_| {}).await.map_err(survey_error)
}

/// Path of the table of measured links in a folder of profiles.
pub(crate) fn link_table_in(folder: &Path) -> PathBuf {
    folder.join("links.csv")
}

fn survey_error(error: SurveyError) -> Error {
    match error {
        SurveyError::Agent { .. } => Error::agent(error),
        SurveyError::Store(error) => Error::profile(error),
    }
}

/// Logs the source of each device's energy readings, or why there is none. This is not a notice, because most machines
/// have no source.
fn log_energy(fleet: &Fleet) {
    for (server, _, description) in fleet.connected() {
        for device in &description.devices {
            match &device.energy {
                EnergyMetering::Source(source) => tracing::info!("energy of {server}/{}: {source}", device.name),
                EnergyMetering::Absent(why) => tracing::info!("no energy of {server}/{}: {why}", device.name),
            }
        }
    }
}

/// Maximum relative difference between the sum of the groups and the whole model. A larger difference causes a notice.
const MAX_DIFFERENCE: f64 = 0.1;

/// Emits notices about figures that are not to be trusted.
fn warn(profile: &DeviceProfile, summary: &ProfileSummary, events: &Events) {
    let device = &profile.device.name;
    if profile.unmeasured_shards > 0 {
        events.notice(format_args!(
            "{} shards are not measured yet on {device}: run the command again to continue",
            profile.unmeasured_shards
        ));
    }
    if summary.missing > 0 {
        events.notice(format_args!(
            "{} operators cannot be computed on {device}; the column `note` says why",
            summary.missing
        ));
    }
    if let Some(whole) = profile.whole {
        let (wall, _) = whole.relative_difference(&summary.sum);
        if wall.abs() > MAX_DIFFERENCE {
            let (than, else_because) = match wall > 0.0 {
                true => ("more", "operators are faster together"),
                false => ("less", "operators are slower together, as where they take the caches from each other"),
            };
            events.notice(format_args!(
                "the operators of the model take {} one by one on {device}, {:.0} % {than} than the {} of the whole: \
                 something else used the machine meanwhile, or {else_because}; option `again` measures again",
                summary.sum.time,
                100.0 * wall.abs(),
                whole.time
            ));
        }
    }
    let loads: Vec<f64> = profile.rows.iter().filter_map(|row| row.load).collect();
    let load = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    if let Some(busy) = busy([(device.server.as_str(), load)]) {
        events.notice(format_args!("{busy} while it was measured: times may be too long; measure again with option `again` when the machine is idle"));
    }
    if summary.disturbed > 0 {
        events.notice(format_args!(
            "{} times on {device} are not to be trusted: other processes took the processor during most samples; \
             measure again with option `again` when the machine is idle",
            summary.disturbed
        ));
    }
    if let Some(warning) = DevicePower::of(&profile.rows).and_then(|power| power.warning(&device.to_string())) {
        events.notice(format_args!("{warning}"));
    }
}
