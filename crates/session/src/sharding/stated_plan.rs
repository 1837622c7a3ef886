//! Shardings as placement: devices of whole groups, and splits.

use std::collections::HashMap;

use edgecut_graph::{DeviceName, Graph, OperatorId, constant_operators};
use edgecut_onnx::{DeviceConfiguration, NodeSharding, ShardedModel};
use edgecut_ops::passes::axes::axes;
use edgecut_plan::{DeviceId, file::Split, problem::ProblemError};

use super::{
    entry_operators::{NamedEntry, entry_operators},
    split_spec::{Spec, StatedSplit, placement, specs},
};

/// The part of a plan that a file states.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StatedPlan {
    /// By group: the device that it runs on, if the file says one.
    pub homes: Vec<Option<DeviceId>>,
    /// Of groups that are split: how its last operator is.
    pub splits: Vec<Split>,
    /// Of all operators that the file splits: the title of the entry, and how.
    pub operator_splits: Vec<(String, Split)>,
}

/// Why shardings cannot be planned with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatedError {
    #[error("no device configuration of the model matches the cluster: {configurations}; available: {devices}")]
    Devices { configurations: String, devices: String },
    #[error("{entry}: {what}")]
    Entry { entry: String, what: String },
    #[error("the file has no shardings for operators of the model in configuration `{configuration}`")]
    Nothing { configuration: String },
    #[error(
        "{group}: {first} and {second} are on different devices: give option `granularity=op`, with profiles of single operators"
    )]
    OnSeveralDevices { group: String, first: String, second: String },
}

/// The groups of a model, as plans place them.
#[derive(Clone, Copy)]
pub(crate) struct NamedGroups<'a> {
    pub graph: &'a Graph,
    pub operators: &'a [Vec<OperatorId>],
    pub names: &'a [String],
}

/// What `sharded`, the shardings of the file of a model with these groups, says for `devices`.
///
/// # Errors
/// If no configuration matches `devices`, no split has the shardings of an entry, or a group that is not split is on several devices.
pub(crate) fn stated_plan(
    sharded: &ShardedModel,
    groups: NamedGroups<'_>,
    devices: &[DeviceName],
) -> Result<StatedPlan, StatedError> {
    let (configuration, ids) = configuration(sharded, devices)?;
    let entries: Vec<&NodeSharding> =
        sharded.entries.iter().filter(|entry| entry.configuration == configuration).collect();
    let named: Vec<NamedEntry<'_>> =
        entries.iter().map(|entry| NamedEntry { name: &entry.name, outputs: &entry.outputs }).collect();
    let on_cluster = |operator: OperatorId, split: &StatedSplit| {
        let devices = split.devices.iter().map(|device| ids[*device]).collect();
        Split::new(operator, split.sharding.clone(), devices)
    };
    let mut stated = StatedPlan::default();
    let mut placed: HashMap<OperatorId, (&NodeSharding, Spec)> = HashMap::new();
    for (entry, operators) in entries.iter().zip(entry_operators(groups.graph, &named)) {
        let computes = |id: &&OperatorId| {
            let outputs = &groups.graph.operator(**id).outputs;
            outputs.iter().any(|tensor| entry.outputs.iter().any(|name| groups.graph.tensor(*tensor).name == *name))
        };
        let Some(main) = operators.iter().filter(computes).max().or(operators.iter().max()) else { continue };
        let found = placement(groups.graph, groups.graph.operator(*main), entry);
        let of_entry = |what: String| StatedError::Entry { entry: entry.title.clone(), what };
        let Some(spec) = found.map_err(of_entry)? else { continue };
        if let Some(unknown) = spec.devices().into_iter().find(|device| *device >= ids.len()) {
            return Err(of_entry(format!("device {unknown} does not exist: the configuration has {}", ids.len())));
        }
        if let Spec::Split(split) = &spec {
            stated.operator_splits.push((entry.title.clone(), on_cluster(*main, split)));
        }
        placed.extend(operators.iter().map(|id| (*id, (*entry, spec.clone()))));
    }
    if placed.is_empty() {
        let configuration = sharded.configurations[configuration].name.clone();
        return Err(StatedError::Nothing { configuration });
    }
    for (group, operators) in groups.operators.iter().enumerate() {
        let mut known = operators.iter().rev().filter_map(|id| Some((*id, placed.get(id)?)));
        let Some((last, (entry, spec))) = known.next() else {
            stated.homes.push(None);
            continue;
        };
        if let Some((_, (other, _))) = known.find(|(_, (_, other))| other.devices() != spec.devices()) {
            let group = format!("group #{group} {}", groups.names[group]);
            return Err(StatedError::OnSeveralDevices {
                group,
                first: other.title.clone(),
                second: entry.title.clone(),
            });
        }
        match spec {
            Spec::Whole(device) => stated.homes.push(Some(ids[*device])),
            Spec::Split(split) => {
                stated.homes.push(None);
                stated.splits.push(on_cluster(last, split));
            }
        }
    }
    Ok(stated)
}

impl StatedPlan {
    /// Checks that `divide`, which gives the splits of all operators of the groups that are split, gives those that are stated.
    ///
    /// # Errors
    /// The first operator that would be split otherwise, or not at all.
    pub fn check(
        &self,
        graph: &Graph,
        divide: impl Fn(&[Split]) -> Result<Vec<Split>, ProblemError>,
    ) -> Result<(), StatedError> {
        let title = |split: &Split| self.operator_splits.iter().find(|(_, of)| of.operator == split.operator);
        let refused = |entry: Option<&(String, Split)>, what: String| {
            let entry = entry.map_or_else(String::new, |(title, _)| title.clone());
            StatedError::Entry { entry, what }
        };
        let divided = divide(&self.splits).map_err(|error| {
            let lengths: Vec<usize> = (1..=self.splits.len()).collect();
            let before = lengths.partition_point(|length| divide(&self.splits[..*length]).is_ok());
            let wrong = self.splits.get(before).and_then(title);
            refused(wrong, format!("its group cannot be split this way: {error}"))
        })?;
        let divided: HashMap<OperatorId, &Split> = divided.iter().map(|split| (split.operator, split)).collect();
        let constant = constant_operators(graph);
        for stated in &self.operator_splits {
            let (_, split) = stated;
            let is_kept = match divided.get(&split.operator) {
                Some(found) => is_same(graph, found, split),
                // What depends on parameters alone is copied for the shards of its group.
                None => constant.get(split.operator.0 as usize).copied().unwrap_or(false),
            };
            if !is_kept {
                let operator = graph.operator(split.operator);
                let what = match split.axis == axes(graph, operator).len() {
                    true => format!("no shard reads the replicas of {}: place it on one device", operator.name),
                    false => {
                        format!("this split of {} does not match the operators that it is fused with", operator.name)
                    }
                };
                return Err(refused(Some(stated), what));
            }
        }
        Ok(())
    }
}

/// Whether two splits of an operator are the same; numbers of axes with the same shardings may differ.
fn is_same(graph: &Graph, found: &Split, stated: &Split) -> bool {
    let shardings = |split: &Split| specs(graph, graph.operator(split.operator), &Spec::Split(split.into()));
    let is_cut_alike = *found == Split { axis: found.axis, ..stated.clone() };
    is_cut_alike && (found.axis == stated.axis || shardings(found) == shardings(stated))
}

/// The first configuration with shardings whose devices are all of `devices`, with the numbers of these; without names they are the first ones.
fn configuration(sharded: &ShardedModel, devices: &[DeviceName]) -> Result<(usize, Vec<DeviceId>), StatedError> {
    let numbers: HashMap<String, DeviceId> =
        devices.iter().enumerate().map(|(at, name)| (name.to_string(), DeviceId(at as u32))).collect();
    let ids = |one: &DeviceConfiguration| -> Option<Vec<DeviceId>> {
        match one.names.is_empty() {
            true => (one.devices <= devices.len()).then(|| (0..one.devices as u32).map(DeviceId).collect()),
            false => one.names.iter().map(|name| numbers.get(name).copied()).collect(),
        }
    };
    let is_used = |at: &usize| sharded.entries.iter().any(|entry| entry.configuration == *at);
    let used = sharded.configurations.iter().enumerate().filter(|(at, _)| is_used(at));
    let mut found = used.filter_map(|(at, one)| Some((at, ids(one)?)));
    found.next().ok_or_else(|| {
        let described = |one: &DeviceConfiguration| match one.names.is_empty() {
            true => format!("`{}` has {} devices", one.name, one.devices),
            false => format!("`{}` has {}", one.name, one.names.join(", ")),
        };
        let configurations = sharded.configurations.iter().map(described).collect::<Vec<_>>().join("; ");
        StatedError::Devices { configurations, devices: DeviceName::join(devices.iter().cloned(), ", ") }
    })
}
