//! A planner that measures profiles and runs candidates on the agents of a site.

use edgecut_agent::Inventory;
use edgecut_graph::{DeviceName, units::Bytes};
use edgecut_plan::problem::Objective;
use edgecut_profile::Sampling;

use super::{
    model_ref,
    options::PlanOptions,
    phases::check_prompt,
    planner::{Planner, PlanningAgents},
};
use crate::{
    Error, Model, Profiles, Site,
    calibrations::{self, Calibrations},
    cluster::{connect_all, links},
    profile::{link_table_in, stored_profiles},
    request::{DeviceRows, ModelGroups},
    survey::{DeviceProfile, MissingPolicy, SurveyRequest},
};

impl Site {
    /// A planner of `model` for the devices of the site. Measures what `profiles` lack, and the links.
    ///
    /// # Errors
    /// If the options contradict each other or the model, an agent fails, or the call is cancelled.
    pub fn planner<'a>(
        &'a self,
        model: &'a Model,
        profiles: &Profiles,
        options: &'a PlanOptions,
    ) -> Result<Planner<'a>, Error> {
        options.check()?;
        model.check_sizes()?;
        options.prompt.map_or(Ok(()), |prompt| check_prompt(model, prompt))?;
        let (events, folder, cluster) = (&self.events, profiles.folder.as_path(), &self.cluster);
        let given = model.contents(model.graph())?.given();
        let groups = ModelGroups::of(model.graph(), options.granularity);
        let settings = options.settings(model_ref(model)?, Some(model), self.file())?;
        Planner::check_groups(&settings, &groups)?;
        let name = model.name();
        let sampling = Sampling { budget: options.profile_budget, ..Sampling::default() };
        let mut survey = SurveyRequest::new(model.graph(), &name, &model.import.hash, folder);
        survey.binding = model.options.profiled_binding()?;
        (survey.granularity, survey.sampling) = (options.granularity, sampling);
        survey.missing = if options.estimate { MissingPolicy::Skip } else { MissingPolicy::Measure };
        survey.contents.clone_from(&given);
        let rows_of = |surveyed: &DeviceProfile| match options.estimate {
            true => DeviceRows::with_related(surveyed, folder).map_err(Error::bad_input),
            false => Ok(DeviceRows::from(surveyed)),
        };
        let (fleet, inventory, surveyed, calibrations) = self.runtime.block_on(async {
            let fleet = connect_all(cluster, events).await?;
            let inventory = fleet.inventory(cluster, Vec::new());
            settings.check(&groups, &inventory).map_err(|error| options.request_error(error))?;
            self.warn_of_memory(options, &inventory);
            Planner::check_moves(options, &groups, &inventory, settings.like_plan(), events)?;
            if options.objective == Objective::Energy.into() {
                let stored = stored_profiles(&fleet, cluster, &inventory, &survey).await?;
                let known = stored.iter().map(rows_of).collect::<Result<Vec<_>, _>>()?;
                let absent = |device: &DeviceName| fleet.energy_absent(device).map(str::to_string);
                let checked = settings.check_energy(&groups, &inventory.devices, &known, !options.estimate, absent);
                checked.map_err(|error| options.request_error(error))?;
            }
            let table = options.links.clone().unwrap_or_else(|| link_table_in(folder));
            let inventory = fleet.inventory(cluster, links(&fleet, cluster, &table, false, events).await?);
            let table = options.calibration.clone().unwrap_or_else(|| folder.join(calibrations::FILE));
            let calibrations = Calibrations::read(&table, &inventory.devices, events)?;
            let surveyed = self.survey(&fleet, &inventory, &survey).await?;
            Ok::<_, Error>((fleet, inventory, surveyed, calibrations))
        })?;
        let rows = surveyed.iter().zip(&calibrations.found);
        let rows = rows.map(|(surveyed, found)| Ok(DeviceRows { calibration: *found, ..rows_of(surveyed)? }));
        let measured = rows.collect::<Result<Vec<_>, Error>>()?;
        let folder = folder.to_path_buf();
        let agents = PlanningAgents { site: self, model, fleet, given, surveyed, folder, sampling };
        let (notes, agents) = (Vec::new(), Some(agents));
        Ok(Planner { events, options, settings, groups, inventory, measured, calibrations, notes, agents })
    }

    /// Warns about a memory limit that is larger than the memory of every device.
    fn warn_of_memory(&self, options: &PlanOptions, inventory: &Inventory) {
        let largest = inventory.devices.iter().max_by_key(|device| device.memory);
        if let (Some(limit), Some(largest)) = (options.memory, largest)
            && largest.memory > Bytes::ZERO
            && limit > largest.memory
        {
            let (name, has) = (&largest.name, largest.memory);
            let what = format!("warning: option `memory={limit}` has no effect: the largest device, {name}, has {has}");
            self.events.notice(what);
        }
    }
}
