//! Makes the planner's [`PlanRequest`] from a model, an inventory and profile rows, whether the rows were measured by
//! agents or read from files.

use std::path::{Path, PathBuf};

use edgecut_graph::{DeviceName, Granularity, Graph, OperatorId, units::Bytes};
use edgecut_onnx::ShardedModel;
use edgecut_plan::{
    Goal, GroupNames, Instance, Plan, PlanRequest, TransferFormat,
    file::ModelRef,
    like::{self, LikeError, operator_splits, splits_of},
    problem::{DeviceId, Objective, Targets},
    rule::{self, Rule, RuleError},
    search::Options,
    split::{choice::Halo, options::SplitOptions, ratios::Ratios},
};
use edgecut_profile::{
    CacheFlush, Calibration, DevicePower, Item, ProfileError, ProfileRow, items, reader, representatives,
};

use super::{
    costs::{Costs, NothingKnown},
    idle_power::idle_powers,
    network::{NetworkError, calibrated, network},
    shards::{KnownRows, shard_costs},
    unknown_energy::{UnknownEnergy, Unmetered},
};
use crate::{
    sharding::{NamedGroups, StatedError, StatedPlan, stated_plan},
    survey::DeviceProfile,
};
use edgecut_agent::{DeviceSpec, Endpoint, Inventory};

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
    /// The same model in other sizes: only what can be split there too is split.
    pub common_with: Option<&'g Graph>,
}

/// The settings of a plan that do not depend on the devices: objective, targets, rules and search options.
#[derive(Debug, Clone)]
pub(crate) struct PlanSettings {
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
    /// As [`Goal::halo`].
    pub halo: Option<Halo>,
    /// If given, just the groups that this splits are split.
    pub like: Option<Like>,
    /// As [`Goal::fits_memory`].
    pub fits_memory: bool,
    pub search: Options,
}

/// What a plan takes over.
#[derive(Debug, Clone)]
pub(crate) enum Like {
    /// The splits of another plan.
    Plan(Box<Plan>),
    /// The splits, and the devices of whole groups, that the model's file states.
    Shardings(ShardedModel),
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
    #[error("option `sharded`: {0}")]
    Sharded(#[from] StatedError),
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
    pub(crate) fn with_related(surveyed: &DeviceProfile, folder: &Path) -> Result<DeviceRows, ProfileError> {
        let all = if folder.is_dir() { reader::read_all(&[folder.to_path_buf()])? } else { Vec::new() };
        let is_related = |row: &ProfileRow| surveyed.key.is_of_device(row) && row.mode == surveyed.key.mode;
        let related = all.into_iter().filter(is_related).collect();
        Ok(DeviceRows { related, ..DeviceRows::from(surveyed) })
    }

    /// The power of the device: by its own rows, else by those of other models.
    pub fn power(&self) -> Option<DevicePower> {
        DevicePower::of(&self.rows).or_else(|| DevicePower::of(&self.related))
    }
}

impl<'g> ModelGroups<'g> {
    pub fn of(graph: &'g Graph, granularity: Granularity) -> ModelGroups<'g> {
        let items = items(graph, granularity);
        let groups = items.iter().map(|item| item.operators.clone()).collect();
        let names = items.iter().map(|item| item.name.clone()).collect();
        ModelGroups { graph, granularity, items, groups, names, common_with: None }
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

    fn named(&self) -> NamedGroups<'_> {
        NamedGroups { graph: self.graph, operators: &self.groups, names: &self.names }
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
        let splits = self.stated(model, inventory)?.map_or(Vec::new(), |stated| stated.splits);
        Ok(like::check_rules(&splits, &self.rules, &groups, &model.groups, &devices)?)
    }

    /// What [`PlanSettings::like`] says for these devices.
    fn stated(&self, model: &ModelGroups<'_>, inventory: &Inventory) -> Result<Option<StatedPlan>, RequestError> {
        let devices: Vec<DeviceName> = inventory.devices.iter().map(|device| device.name.clone()).collect();
        Ok(match &self.like {
            None => None,
            Some(Like::Plan(other)) => {
                let splits = splits_of(other, &self.model.blake3, model.granularity, &devices)?;
                Some(StatedPlan { splits, ..StatedPlan::default() })
            }
            Some(Like::Shardings(sharded)) => Some(stated_plan(sharded, model.named(), &devices)?),
        })
    }

    /// The plan whose splits are taken over.
    pub fn like_plan(&self) -> Option<&Plan> {
        match &self.like {
            Some(Like::Plan(other)) => Some(other),
            Some(Like::Shardings(_)) | None => None,
        }
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
            costs.add(&device.name.to_string(), &profile.rows, &profile.related, profile.power(), calibration)?;
        }
        let known = profiles.iter().zip(&calibrations).map(|(profile, calibration)| KnownRows {
            rows: &profile.rows,
            shards: &profile.shards,
            calibration: *calibration,
        });
        let shards = shard_costs(&model.items, &known.collect::<Vec<_>>());
        let states = self.model.states.iter().filter_map(|pair| model.graph.state(pair).ok()).collect::<Vec<_>>();
        let split_options = match (self.may_split, model.common_with) {
            (false, _) => SplitOptions::none(model.graph, &model.groups),
            (true, None) => SplitOptions::of(model.graph, &model.groups).with_states(&states),
            (true, Some(other)) => SplitOptions::of(model.graph, &model.groups).common_with(other).with_states(&states),
        };
        let mut network = calibrated(network(inventory, address, self.memory)?, &calibrations);
        network.set_transfer_format(self.transfer);
        for (device, idle) in network.devices.iter_mut().zip(idle_powers(&inventory.devices, &costs.powers)) {
            device.idle = idle;
        }
        let mut instance = Instance {
            model: self.model.clone(),
            cluster: self.cluster.clone(),
            granularity: model.granularity,
            representatives: representatives(&model.items),
            estimated: costs.estimated,
            shards,
            rules: self.rules.clone(),
            ..Instance::new(split_options, model.names.clone(), costs.rows, network)
        };
        instance.restrict(&self.rules);
        let stated = self.stated(model, inventory)?;
        let homes = stated.iter().flat_map(|stated| &stated.homes);
        for (costs, home) in instance.costs.iter_mut().zip(homes) {
            let elsewhere = |at: usize| home.is_some_and(|home| home.0 as usize != at);
            (0..costs.len()).filter(|at| elsewhere(*at)).for_each(|at| costs[at] = None);
        }
        if self.objective == Objective::Energy {
            let named = |id: DeviceId| {
                let (device, rows) = (&inventory.devices[id.0 as usize], &profiles[id.0 as usize]);
                Unmetered::new(device.name.clone(), rows.path.clone(), &rows.rows, None)
            };
            UnknownEnergy::check(instance.without_energy().into_iter().map(named).collect())?;
        }
        let goal = Goal {
            objective: self.objective,
            targets: self.targets,
            ratios: self.ratios,
            halo: self.halo,
            like: stated.as_ref().map(|stated| stated.splits.clone()),
            fits_memory: self.fits_memory,
            search: self.search,
        };
        let request = PlanRequest::new(instance, goal);
        if let (Some(stated), Some(Like::Shardings(_))) = (&stated, &self.like) {
            stated.check(model.graph, |splits| operator_splits(&request, splits))?;
        }
        Ok(request)
    }

    /// Checks, before anything is measured, that the objective can be energy: each device that may be used has energy in the
    /// rows that are `known` or, if rows of it are still to be measured, an energy source. `absent` says why it has none.
    ///
    /// # Errors
    /// The devices of which neither holds.
    pub(crate) fn check_energy(
        &self,
        model: &ModelGroups<'_>,
        devices: &[DeviceSpec],
        known: &[DeviceRows],
        measures: bool,
        absent: impl Fn(&DeviceName) -> Option<String>,
    ) -> Result<(), RequestError> {
        let groups = model.group_names();
        let unmetered = |(device, profile): (&DeviceSpec, &DeviceRows)| {
            let name = device.name.to_string();
            let is_allowed = |group: &GroupNames| rule::is_allowed(&self.rules, group, &name);
            let is_complete = profile.rows.len() >= groups.len();
            let can_run = |row: &&ProfileRow| row.time_us_median.is_some();
            let may_be_used = match is_complete {
                true => profile.rows.iter().filter(can_run).any(|row| groups.get(row.id).is_some_and(is_allowed)),
                false => groups.iter().any(is_allowed),
            };
            let absent = absent(&device.name);
            let is_final = is_complete || !measures || absent.is_some();
            let is_unknown = may_be_used && is_final && profile.power().is_none();
            is_unknown.then(|| Unmetered::new(device.name.clone(), profile.path.clone(), &profile.rows, absent))
        };
        Ok(UnknownEnergy::check(devices.iter().zip(known).filter_map(unmetered).collect())?)
    }
}

/// Warnings of the energy in `profiles`, which are in the order of the devices of `inventory`.
pub(crate) fn energy_warnings(inventory: &Inventory, profiles: &[DeviceRows]) -> Vec<String> {
    let warning = |(device, profile): (&DeviceSpec, &DeviceRows)| profile.power()?.warning(&device.name.to_string());
    inventory.devices.iter().zip(profiles).filter_map(warning).collect()
}

fn device_names(inventory: &Inventory) -> Vec<String> {
    inventory.devices.iter().map(|device| device.name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_agent::DeviceKind;
    use edgecut_engine::energy::EnergySource;
    use edgecut_graph::units::{Micros, Watts};
    use edgecut_profile::{MeasurementMode, ProfiledDevice};
    use edgecut_relay::{ImportOptions, import};

    const MODEL: &str = "def @main(%x: Tensor[(4, 4), float32]) { nn.softmax(nn.relu(%x)) }";

    fn settings(bans: &[&str]) -> PlanSettings {
        let rule = |group: &&str| Rule::parse(rule::RuleKind::Ban, &format!("{group}=s/cpu")).unwrap();
        PlanSettings {
            model: ModelRef::default(),
            cluster: None,
            objective: Objective::Energy,
            targets: Targets::default(),
            transfer: TransferFormat::Exact,
            memory: None,
            rules: bans.iter().map(rule).collect(),
            may_split: false,
            ratios: Ratios::Tuned,
            halo: None,
            like: None,
            fits_memory: false,
            search: Options::default(),
        }
    }

    #[test]
    fn energy_is_refused_where_no_row_can_have_it() {
        let graph = import("model", MODEL.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let model = ModelGroups::of(&graph, Granularity::Op);
        let device = DeviceSpec {
            name: DeviceName::new("s", "cpu"),
            kind: DeviceKind::Cpu,
            hardware: String::new(),
            engine: "tract 1".into(),
            threads: 1,
            memory: Bytes(1),
            host_link: None,
        };
        let of_device: ProfiledDevice = crate::survey::profiled_device(&device);
        // The first rows, with the time and the power above idle of each.
        let rows = |count: usize, time: Option<f64>, watts: Option<f64>| {
            let row = |(id, item): (usize, &Item)| ProfileRow {
                time_us_median: time.map(Micros),
                energy_j: time.zip(watts).map(|(time, watts)| Watts(1.0 + watts).during(Micros(time))),
                idle_w: watts.map(|_| Watts(1.0)),
                energy_source: watts.map(|_| EnergySource::External),
                ..ProfileRow::new(&of_device, MeasurementMode::Isolated, Granularity::Op, id, item, &Err(String::new()))
            };
            DeviceRows { rows: model.items.iter().enumerate().take(count).map(row).collect(), ..DeviceRows::default() }
        };
        let check = |rows: &DeviceRows, bans: &[&str], measures, absent: bool| {
            let devices = std::slice::from_ref(&device);
            let absent = |_: &DeviceName| absent.then(|| "no meter".to_string());
            let checked = settings(bans).check_energy(&model, devices, std::slice::from_ref(rows), measures, absent);
            checked.map_err(|error| error.to_string()).err()
        };
        let (some, none) = (Some(5.0), None);
        for (rows, bans, measures, absent, refused) in [
            (rows(2, some, some), &[][..], true, true, false),
            (rows(1, some, some), &[], true, true, false),
            // Rows that are still to be measured may have it, unless there is no source or nothing is measured.
            (rows(1, some, none), &[], true, false, false),
            (rows(1, some, none), &[], true, true, true),
            (rows(0, none, none), &[], false, false, true),
            (rows(2, some, none), &[], true, false, true),
            // What is not used needs none.
            (rows(2, none, none), &[], true, true, false),
            (rows(0, none, none), &["*"], true, true, false),
            (rows(2, some, none), &["nn.relu"], true, true, true),
            (rows(2, some, none), &["nn.relu", "nn.softmax"], true, true, false),
        ] {
            let found = check(&rows, bans, measures, absent);
            assert_eq!(found.is_some(), refused, "{found:?}: {} rows, {bans:?}, {measures}, {absent}", rows.rows.len());
            let names_source = found.is_none_or(|text| text.contains("measure any: no meter") == absent);
            assert!(names_source, "{bans:?}, {measures}, {absent}");
        }
        let related = DeviceRows { related: rows(1, some, some).rows, ..rows(0, none, none) };
        assert_eq!(check(&related, &[], false, true), None);
        let warnings = |watts: f64| rows(2, some, Some(watts)).power().unwrap().warning("s/cpu");
        assert_eq!(warnings(5.0), None);
        assert!(warnings(0.0).unwrap().starts_with("2 rows of s/cpu"));
    }
}
