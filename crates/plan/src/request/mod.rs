//! The input of the planner: a model in groups, devices and links, costs of groups, objective and targets.
//!
//! A request is pure data. It is independent of whether its costs were read from files or measured by agents; new
//! measurements make a new request. Code that talks to agents is in `run::pilot` of the cluster crate, above this one.
//!
//! Uses `problem`, `plan_file` for the types that the plan file shares with it, and the options of `search`.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | along which axes a group can be split, all its operators alike |
//! | [`choice`] | which option a group takes, in which ratio |
//! | [`costs`] | what a shard costs, given what the whole costs |
//! | [`ratios`] | ratios by rules that are common elsewhere, to compare with |
//! | [`shard_graphs`] | shards cut out, to be measured |
//! | [`expand`] | a problem in which the shards are groups, with what they exchange |
//! | `pieces` | shares of devices in several shards, the borders first |

pub mod choice;
pub mod costs;
pub mod expand;
pub mod options;
pub mod pieces;
pub mod ratios;
pub mod shard_graphs;

use std::collections::BTreeSet;

use edgecut_graph::{DeviceName, Granularity, units::Bytes};

use self::{
    choice::Halo,
    costs::ShardCosts,
    options::{SplitOption, SplitOptions},
    ratios::Ratios,
};
use crate::{
    plan_file::file::{ModelRef, Split},
    problem::{
        Cost, Device, DeviceId, Objective, Targets,
        assemble::Network,
        group_names::{GroupNames, label},
        rule::{self, Rule},
    },
    search::{options::Options, stop::Stop},
};

/// See the module's head. Rows of all tables are in the order of `split_options.groups`, columns in that of
/// `network.devices`.
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    /// The model and the cluster file, as the plan file names them.
    pub model: ModelRef,
    pub cluster: Option<String>,
    /// What a group is.
    pub granularity: Granularity,
    /// The graph, its groups, and how each can be split.
    pub split_options: SplitOptions<'a>,
    /// By group: its name, and what it costs as a whole on each device; `None` where it cannot or must not run.
    pub names: Vec<String>,
    pub costs: Vec<Vec<Option<Cost>>>,
    /// Costs of whole groups that were not measured on that device.
    pub estimated: BTreeSet<(DeviceId, usize)>,
    /// What shards of groups cost.
    pub shards: ShardCosts,
    pub network: Network,
    pub objective: Objective,
    pub targets: Targets,
    /// Rules that `costs` follow; see [`PlanRequest::restrict`].
    pub rules: Vec<Rule>,
    /// In which ratio the devices of a split group share it.
    pub ratios: Ratios,
    /// How shards get their halos; `None` leaves that to the search.
    pub halo: Option<Halo>,
    /// Splits of another plan, over these devices: then just these groups are split.
    pub like: Option<Vec<Split>>,
    /// Whether a plan that exceeds a memory limit may be replaced by one made for the limit, with schedules if need be.
    pub fits_memory: bool,
    pub search: Options,
}

impl<'a> PlanRequest<'a> {
    /// A request for the lowest latency without targets or rules, at costs of shards by rule.
    pub fn new(
        split_options: SplitOptions<'a>,
        names: Vec<String>,
        costs: Vec<Vec<Option<Cost>>>,
        network: Network,
    ) -> PlanRequest<'a> {
        PlanRequest {
            model: ModelRef::default(),
            cluster: None,
            granularity: Granularity::Op,
            split_options,
            names,
            costs,
            estimated: BTreeSet::new(),
            shards: ShardCosts::default(),
            network,
            objective: Objective::default(),
            targets: Targets::default(),
            rules: Vec::new(),
            ratios: Ratios::default(),
            halo: None,
            like: None,
            fits_memory: true,
            search: Options::default(),
        }
    }

    /// The same with no group split.
    pub fn unsplit(&self) -> PlanRequest<'a> {
        let split_options = SplitOptions::none(self.split_options.graph, self.split_options.groups);
        PlanRequest { split_options, ..self.clone() }
    }

    /// The same with one of `parts` equal parts of the evaluations, and of the time.
    pub fn with_part(&self, parts: u32) -> PlanRequest<'a> {
        PlanRequest { search: self.search.part(parts, self.names.len()), ..self.clone() }
    }

    /// The same, stopped by `stop`.
    pub fn with_stop(&self, stop: Stop) -> PlanRequest<'a> {
        let mut request = self.clone();
        request.search.stop = stop;
        request
    }

    /// Removes the costs that `rules` forbid.
    pub fn restrict(&mut self, rules: &[Rule]) {
        let devices: Vec<String> = self.device_names().iter().map(DeviceName::to_string).collect();
        rule::apply(rules, &self.group_names(), &devices, &mut self.costs);
    }

    /// The names of its devices, in order.
    pub fn device_names(&self) -> Vec<DeviceName> {
        self.network.devices.iter().map(Device::device_name).collect()
    }

    /// What its groups are called.
    pub fn group_names(&self) -> Vec<GroupNames> {
        GroupNames::of(self.split_options.graph, self.split_options.groups, &self.names)
    }

    /// What messages call `group`, or the part of it that is called `name`: the group's own name, and the part in brackets.
    pub fn label(&self, group: usize, name: &str) -> String {
        let first = self.split_options.groups[group].first().map(|id| self.split_options.graph.unique_name(*id));
        label(group as u32, first) + name.strip_prefix(self.names[group].as_str()).unwrap_or_default()
    }

    /// Whether the planner chooses what is split and in which ratio, and may compare other candidates.
    pub fn is_free(&self) -> bool {
        self.ratios == Ratios::Tuned && self.like.is_none()
    }

    /// Whether devices that are short of memory may follow schedules that need less.
    pub fn may_schedule(&self) -> bool {
        self.is_free() && self.fits_memory && self.is_limited()
    }

    /// Whether all devices have the same memory limit, or none has any.
    pub fn has_equal_limits(&self) -> bool {
        self.network.devices.windows(2).all(|pair| pair[0].memory == pair[1].memory)
    }

    /// Whether some group can be split.
    pub fn can_split(&self) -> bool {
        (0..self.split_options.groups.len()).any(|group| !self.split_options.group(group).is_empty())
    }

    /// The option with number `option` of a group.
    pub fn split_option(&self, group: usize, option: usize) -> Option<&SplitOption> {
        self.split_options.group(group).get(option)
    }

    /// Devices that may be used and whose energy is not known.
    pub fn without_energy(&self) -> Vec<DeviceId> {
        let may_be_used = |at: usize| self.costs.iter().any(|row| row.get(at).is_some_and(Option::is_some));
        let devices = (0u32..).zip(&self.network.devices);
        let without = devices.filter(|(at, device)| device.idle.is_none() && may_be_used(*at as usize));
        without.map(|(at, _)| DeviceId(at)).collect()
    }

    /// Whether some device has room for less than all tensors, parameters and workspaces together.
    pub fn is_limited(&self) -> bool {
        let tensors = self.split_options.graph.tensors().filter_map(|(_, tensor)| tensor.ty.bytes()).sum::<Bytes>();
        let costs = self.costs.iter().flat_map(|row| row.iter().flatten().map(|cost| cost.held + cost.workspace).max());
        let all = tensors + costs.sum::<Bytes>();
        self.network.devices.iter().any(|device| device.memory.is_some_and(|limit| limit < all))
    }
}
