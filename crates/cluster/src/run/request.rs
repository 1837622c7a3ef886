//! Makes the planner's [`PlanRequest`] from a model, an inventory and profile rows, whether the rows were measured by
//! agents or read from files.

use std::path::{Path, PathBuf};

use edgecut_graph::{Granularity, Graph, OperatorId, units::Bytes};
use edgecut_plan::{
    GroupNames, Plan, PlanRequest, TransferFormat,
    file::{ModelRef, Split},
    like::{self, LikeError, splits_of},
    problem::{DeviceId, Objective, Targets},
    rule::{self, Rule, RuleError},
    search::Options,
    split::{choice::Halo, options::SplitOptions, ratios::Ratios},
};
use edgecut_profile::{CacheFlush, Calibration, DevicePower, Item, ProfileError, ProfileRow, items, reader};

use super::{
    costs::{Costs, NothingKnown},
    idle_power::idle_powers,
    network::{NetworkError, calibrated, network},
    shards::{KnownRows, shard_costs},
    unknown_energy::{UnknownEnergy, Unmetered},
};
use crate::{DeviceName, DeviceSpec, Endpoint, Inventory, survey::DeviceProfile};

/// A model cut into items: profiles have one row per item, and plans place items as groups.
#[derive(Debug, Clone)]
pub struct ModelGroups<'g> {
    pub graph: &'g Graph,
    pub granularity: Granularity,
    pub items: Vec<Item>,
    /// The operators of each item.
    pub groups: Vec<Vec<OperatorId>>,
    /// The name of each item.
    pub names: Vec<String>,
}

/// The settings of a plan that do not depend on the devices: objective, targets, rules and search options.
#[derive(Debug, Clone)]
pub struct PlanSettings {
    /// The model and the cluster file, as the plan file names them.
    pub model: ModelRef,
    pub cluster: Option<String>,
    pub objective: Objective,
    pub targets: Targets,
    /// The format in which activations go from server to server.
    pub transfer: TransferFormat,
    /// Lowers the memory limit of every device to this.
    pub memory: Option<Bytes>,
    pub rules: Vec<Rule>,
    /// Whether groups may be split.
    pub may_split: bool,
    /// How the shares of the devices of a split group are chosen.
    pub ratios: Ratios,
    /// As [`PlanRequest::halo`].
    pub halo: Option<Halo>,
    /// If given, just the groups that this plan splits are split.
    pub like: Option<Plan>,
    /// As [`PlanRequest::fits_memory`].
    pub fits_memory: bool,
    pub search: Options,
}

/// The profile rows of one device.
#[derive(Debug, Clone, Default)]
pub struct DeviceRows {
    /// Of whole items.
    pub rows: Vec<ProfileRow>,
    /// Of shards of items.
    pub shards: Vec<ProfileRow>,
    /// Rows of other models on the same device, from which items without rows are estimated.
    pub related: Vec<ProfileRow>,
    /// What runs take beyond the rows, where the device was calibrated.
    pub calibration: Option<Calibration>,
    /// The file that the rows are from, for messages.
    pub path: Option<PathBuf>,
}

/// Why the request cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Like(#[from] LikeError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    NothingKnown(#[from] NothingKnown),
    #[error(transparent)]
    UnknownEnergy(#[from] UnknownEnergy),
}

impl From<&DeviceProfile> for DeviceRows {
    fn from(surveyed: &DeviceProfile) -> DeviceRows {
        let path = Some(surveyed.path.clone());
        DeviceRows { rows: surveyed.rows.clone(), shards: surveyed.shards.clone(), path, ..DeviceRows::default() }
    }
}

impl DeviceRows {
    /// The rows of a profile, and those of other models on the same device in the profiles of `folder`.
    ///
    /// # Errors
    /// If a profile cannot be read.
    pub fn with_related(surveyed: &DeviceProfile, folder: &Path) -> Result<DeviceRows, ProfileError> {
        let all = if folder.is_dir() { reader::read_all(&[folder.to_path_buf()])? } else { Vec::new() };
        let is_related = |row: &ProfileRow| surveyed.key.is_of_device(row) && row.mode == surveyed.key.mode;
        let related = all.into_iter().filter(is_related).collect();
        Ok(DeviceRows { related, ..DeviceRows::from(surveyed) })
    }
}

/// What `profiles`, in the order of the devices of `inventory`, cannot tell of their energy.
pub fn energy_doubts(inventory: &Inventory, profiles: &[DeviceRows]) -> Vec<String> {
    let doubt =
        |(device, profile): (&DeviceSpec, &DeviceRows)| DevicePower::of(&profile.rows)?.doubt(&device.name.to_string());
    inventory.devices.iter().zip(profiles).filter_map(doubt).collect()
}

impl<'g> ModelGroups<'g> {
    pub fn of(graph: &'g Graph, granularity: Granularity) -> ModelGroups<'g> {
        let items = items(graph, granularity);
        let groups = items.iter().map(|item| item.operators.clone()).collect();
        let names = items.iter().map(|item| item.name.clone()).collect();
        ModelGroups { graph, granularity, items, groups, names }
    }

    /// The calibration for a profile of this model. Where the model is as large as what is displaced from the caches before
    /// every isolated sample, that has read weights from as far away as a run does.
    pub fn calibration(&self, profile: &DeviceRows) -> Calibration {
        let calibration = profile.calibration.unwrap_or_default();
        match CacheFlush::working_set(self.graph) >= CacheFlush::MAX {
            true => Calibration { weights_us_per_mb: 0.0, ..calibration },
            false => calibration,
        }
    }

    /// Everything that its groups are called.
    pub fn group_names(&self) -> Vec<GroupNames> {
        GroupNames::of(self.graph, &self.groups, &self.names)
    }
}

impl PlanSettings {
    /// Checks rules and [`PlanSettings::like`] against the devices, before anything is measured.
    ///
    /// # Errors
    /// If a rule matches no group or no device, or leaves a group without a device; if `like` is a plan of another
    /// model or splits over other devices.
    pub fn check(&self, model: &ModelGroups<'_>, inventory: &Inventory) -> Result<(), RequestError> {
        let groups = model.group_names();
        rule::check_groups(&self.rules, &groups)?;
        let devices = device_names(inventory);
        rule::check_devices(&self.rules, &groups, &devices)?;
        let splits = self.splits_like(model, inventory)?.unwrap_or_default();
        Ok(like::check_rules(&splits, &self.rules, &groups, &model.groups, &devices)?)
    }

    fn splits_like(&self, model: &ModelGroups<'_>, inventory: &Inventory) -> Result<Option<Vec<Split>>, RequestError> {
        let Some(other) = &self.like else { return Ok(None) };
        let devices = device_names(inventory);
        Ok(Some(splits_of(other, &self.model.blake3, model.granularity, &devices)?))
    }

    /// The request for a plan of `model` on the devices of `inventory`; `profiles` has the rows of each, in the same
    /// order. Costs of shards are measured where `profiles` has them, else estimated. `address` gives the endpoint of a
    /// device's server, if known.
    ///
    /// # Errors
    /// As [`PlanSettings::check`]; also if a link is missing, a device has no measurements, or energy is the objective and a
    /// device that may be used tells none.
    pub fn request<'a>(
        &self,
        model: &'a ModelGroups<'_>,
        inventory: &Inventory,
        profiles: &[DeviceRows],
        address: impl Fn(&DeviceName) -> Option<Endpoint>,
    ) -> Result<PlanRequest<'a>, RequestError> {
        self.check(model, inventory)?;
        let mut costs = Costs::of(&model.items);
        let calibrations: Vec<Calibration> = profiles.iter().map(|profile| model.calibration(profile)).collect();
        for (device, (profile, calibration)) in inventory.devices.iter().zip(profiles.iter().zip(&calibrations)) {
            costs.add(&device.name.to_string(), &profile.rows, &profile.related, calibration)?;
        }
        let known = profiles.iter().zip(&calibrations).map(|(profile, calibration)| KnownRows {
            rows: &profile.rows,
            shards: &profile.shards,
            calibration: *calibration,
        });
        let shards = shard_costs(&model.items, &known.collect::<Vec<_>>());
        let split_options = match self.may_split {
            true => SplitOptions::of(model.graph, &model.groups),
            false => SplitOptions::none(model.graph, &model.groups),
        };
        let mut network = calibrated(network(inventory, address, self.memory)?, &calibrations);
        network.set_transfer_format(self.transfer);
        for (device, idle) in network.devices.iter_mut().zip(idle_powers(&inventory.devices, &costs.powers)) {
            device.idle = idle;
        }
        let mut request = PlanRequest {
            model: self.model.clone(),
            cluster: self.cluster.clone(),
            granularity: model.granularity,
            estimated: costs.estimated,
            shards,
            threads: inventory.devices.iter().map(|device| Some(device.threads)).collect(),
            engines: inventory.devices.iter().map(|device| Some(device.engine.clone())).collect(),
            hardware: inventory.devices.iter().map(|device| Some(device.hardware.clone())).collect(),
            objective: self.objective,
            targets: self.targets,
            rules: self.rules.clone(),
            ratios: self.ratios,
            halo: self.halo,
            like: self.splits_like(model, inventory)?,
            fits_memory: self.fits_memory,
            search: self.search,
            ..PlanRequest::new(split_options, model.names.clone(), costs.rows, network)
        };
        request.restrict(&self.rules);
        if self.objective == Objective::Energy {
            let named = |id: DeviceId| {
                let (device, rows) = (&inventory.devices[id.0 as usize], &profiles[id.0 as usize]);
                Unmetered::new(device.name.clone(), rows.path.clone(), &rows.rows, None)
            };
            UnknownEnergy::check(request.without_energy().into_iter().map(named).collect())?;
        }
        Ok(request)
    }

    /// Checks, before anything is measured, whether energy as the objective can be told: each device that may be used has
    /// a meter, or some energy in the rows that are `known`. `no_meter` tells why a device has none.
    ///
    /// # Errors
    /// The devices of which neither holds.
    pub fn check_meters(
        &self,
        model: &ModelGroups<'_>,
        known: &[DeviceProfile],
        no_meter: impl Fn(&DeviceName) -> Option<String>,
    ) -> Result<(), RequestError> {
        let groups = model.group_names();
        let may_be_used = |device: &str| groups.iter().any(|group| rule::allow(&self.rules, group, device));
        let unmetered = |profile: &DeviceProfile| {
            let device = &profile.device.name;
            let no_meter = no_meter(device)?;
            let is_unknown = DevicePower::of(&profile.rows).is_none() && may_be_used(&device.to_string());
            is_unknown
                .then(|| Unmetered::new(device.clone(), Some(profile.path.clone()), &profile.rows, Some(no_meter)))
        };
        Ok(UnknownEnergy::check(known.iter().filter_map(unmetered).collect())?)
    }
}

fn device_names(inventory: &Inventory) -> Vec<String> {
    inventory.devices.iter().map(|device| device.name.to_string()).collect()
}
