//! What is known when a plan is asked for: the model in groups, devices and links, and what groups and shards cost.

use std::collections::BTreeSet;

use edgecut_graph::{DeviceName, Granularity, units::Bytes};

use super::{costs::ShardCosts, options::SplitOptions, split_option::SplitOption};
use crate::{
    plan_file::file::ModelRef,
    problem::{
        Cost, Device, DeviceId,
        assemble::Network,
        group_names::{GroupNames, label},
        rule::{self, Rule},
    },
};

/// See the module's head. Rows of all tables are in the order of `split_options.groups`, columns in that of
/// `network.devices`.
#[derive(Debug, Clone)]
pub struct Instance<'a> {
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
    /// By group: the first group that computes the same, such as that of an earlier layer, possibly itself.
    pub representatives: Vec<usize>,
    /// Costs of whole groups that were not measured on that device.
    pub estimated: BTreeSet<(DeviceId, usize)>,
    /// What shards of groups cost.
    pub shards: ShardCosts,
    pub network: Network,
    /// Rules that `costs` follow; see [`Instance::restrict`].
    pub rules: Vec<Rule>,
}

impl<'a> Instance<'a> {
    /// An instance without rules, at costs of shards by rule.
    pub fn new(
        split_options: SplitOptions<'a>,
        names: Vec<String>,
        costs: Vec<Vec<Option<Cost>>>,
        network: Network,
    ) -> Instance<'a> {
        Instance {
            model: ModelRef::default(),
            cluster: None,
            granularity: Granularity::Op,
            split_options,
            representatives: (0..names.len()).collect(),
            names,
            costs,
            estimated: BTreeSet::new(),
            shards: ShardCosts::default(),
            network,
            rules: Vec::new(),
        }
    }

    /// The same with no group split.
    pub fn unsplit(&self) -> Instance<'a> {
        let split_options = SplitOptions::none(self.split_options.graph, self.split_options.groups);
        Instance { split_options, ..self.clone() }
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

    /// Whether all devices have the same memory limit, or none has any.
    pub fn has_equal_limits(&self) -> bool {
        self.network.devices.windows(2).all(|pair| pair[0].memory == pair[1].memory)
    }

    /// Whether some group can be split.
    pub fn can_split(&self) -> bool {
        (0..self.split_options.groups.len()).any(|group| self.split_options.is_divisible(group))
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
