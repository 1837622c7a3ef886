//! A problem in which some groups are split: its groups are the shards of those and the other groups whole.

use std::collections::{BTreeMap, HashMap};

use super::{
    PlanRequest,
    choice::{Choices, Halo},
    costs::Shard,
    goal::Goal,
    instance::Instance,
    pieces::borders_first,
    ratios::{Ratios, speeds},
    split_option::SplitOption,
};
use crate::{
    plan_file::file::Split,
    problem::{
        Cost, DeviceId, Group, GroupId, ParameterId, Problem, ProblemError,
        assemble::{CostedGroup, assemble},
        part_name::part_name,
    },
};
use edgecut_graph::{Graph, OperatorId, StatePair, TensorId, units::Bytes};
use edgecut_ops::{
    is_view,
    passes::{
        shard::SplitError,
        shard_graph::{Role, Sharded, Sharding, shard_graph_with_axes},
    },
};

/// A request with some groups split.
#[derive(Debug, Clone)]
pub struct Expanded {
    /// In which every shard is an operator.
    pub graph: Graph,
    /// The states of `graph`.
    pub states: Vec<StatePair>,
    /// The groups of `graph`; shards can only run on the devices that they were made for.
    pub problem: Problem,
    /// For each group of the problem the group of the request that it is, or is a shard of; `None` for slices of inputs
    /// and joins of outputs.
    pub of: Vec<Option<usize>>,
    /// The same, and for the steps of a schedule the group that they compute a part of.
    pub within: Vec<Option<usize>>,
    /// How the operators of the request's graph are divided, and by group on which devices.
    pub divisions: BTreeMap<OperatorId, Sharding>,
    pub homes: BTreeMap<usize, Vec<DeviceId>>,
    /// For each group of the problem that is a shard: what of.
    pub shards: BTreeMap<GroupId, Shard>,
    /// For each whole group of the problem that slices for others, or joins what others made: with what.
    pub joined: BTreeMap<GroupId, Shard>,
}

/// The axis that a group is cut along, and the devices of its shards with the share of each.
pub(crate) type Homes = (usize, Vec<(DeviceId, f64)>);

/// The operators of a split graph: slices of inputs, the shards of each group by number, joins of outputs.
#[derive(Default)]
struct Parts {
    first: Vec<OperatorId>,
    shards: BTreeMap<(usize, u32), Shard>,
    last: Vec<OperatorId>,
}

impl Expanded {
    /// The groups in the order in which devices compute them: program order, with borders before interiors.
    pub fn order(&self) -> Vec<GroupId> {
        borders_first(&self.of, |group| self.homes.get(&group).map(Vec::as_slice))
    }
}

impl PlanRequest<'_> {
    /// `choices` with the fractions of the request's rule; those of [`Ratios::Tuned`] stay. The pieces of a device's share keep
    /// their ratio.
    pub fn applied(&self, mut choices: Choices) -> Choices {
        let wanted: Vec<f64> = match self.goal.ratios {
            Ratios::Tuned => return choices,
            Ratios::Equal => vec![1.0; self.instance.network.devices.len()],
            Ratios::Proportional => speeds(&self.instance.costs, self.instance.network.devices.len()),
        };
        for choice in choices.values_mut() {
            let had = choice.clone();
            for (fraction, device) in choice.fractions.iter_mut().zip(&had.devices) {
                let wanted = wanted.get(device.0 as usize).copied().unwrap_or_default();
                *fraction *= wanted / had.share(*device).max(f64::MIN_POSITIVE);
            }
        }
        choices
    }

    /// [`PlanRequest::expand`], for what only needs to say that there is no such problem.
    ///
    /// # Errors
    /// If an operator refuses a shard.
    pub(crate) fn expanded(&self, choices: &Choices) -> Result<Expanded, ProblemError> {
        self.expand(choices).map_err(|error| ProblemError { what: error.to_string() })
    }

    /// The problem in which the groups of `choices` are split so; those that cannot be cut that finely stay whole.
    ///
    /// # Errors
    /// If an operator refuses a shard.
    pub fn expand(&self, choices: &Choices) -> Result<Expanded, SplitError> {
        let instance = &*self.instance;
        let (divisions, homes) = instance.divided(&instance.without_unread_replicas(choices));
        let options = &instance.split_options;
        let axis_of = |id: OperatorId, number: usize| options.axis(id, number);
        let made = shard_graph_with_axes(options.graph, &instance.model.states, &divisions, &axis_of, options.calls())?;
        let Parts { first, shards: parts, last } = instance.parts(&made);
        let free = vec![Some(Cost::default()); instance.network.devices.len()];
        let alone = |id: &OperatorId, device: DeviceId| {
            let shard = Shard { operators: vec![*id], copies: vec![*id], share: 1.0, ..Shard::default() };
            let costs = instance.shards.costs(&made.graph, &shard, &free);
            let name = format!("{} {}", made.graph.operator(*id).name, made.graph.unique_name(*id));
            CostedGroup { label: name.clone(), name, operators: vec![*id], costs: only(costs, device) }
        };
        let mut of: Vec<Option<usize>> = vec![None; first.len()];
        let (mut shards, mut joined) = (BTreeMap::new(), BTreeMap::new());
        let mut groups: Vec<CostedGroup> = first.iter().map(|id| alone(id, instance.network.source)).collect();
        for ((group, number), mut part) in parts {
            let (whole, name) = (&instance.costs[group], &instance.names[group]);
            let home = homes.get(&group).map(|(axis, homes)| (*axis, homes.get(number as usize), homes.len()));
            let (name, costs) = match home {
                Some((axis, home, count)) => {
                    let (device, share) = home.copied().unwrap_or((instance.network.source, 1.0));
                    (part.axis, part.share, part.group) = (axis, share, Some(group));
                    let costs = instance.shards.costs(&made.graph, &part, whole);
                    (format!("{name}[{}]", part_name(number as usize + 1, count)), only(costs, device))
                }
                // A whole group may slice for others, and join what others made.
                None if !part.copies.is_empty() => {
                    (part.share, part.group) = (1.0, Some(group));
                    (name.clone(), instance.shards.costs(&made.graph, &part, whole))
                }
                None => (name.clone(), whole.clone()),
            };
            of.push(Some(group));
            let id = GroupId(groups.len() as u32);
            if home.is_some() {
                shards.insert(id, part.clone());
            } else if !part.copies.is_empty() {
                joined.insert(id, part.clone());
            }
            let label = instance.label(group, &name);
            groups.push(CostedGroup { name, label, operators: part.operators, costs });
        }
        of.resize(of.len() + last.len(), None);
        groups.extend(last.iter().map(|id| alone(id, instance.network.sink)));
        let network = instance.network.clone();
        let Goal { objective, targets, .. } = self.goal;
        let mut problem = assemble(&made.graph, &made.states, groups, network, is_view, objective, targets);
        sliced_weights(&made.graph, &mut problem);
        packed_weights(&mut problem, &of);
        let homes = homes.into_iter().map(|(group, (_, homes))| (group, homes.into_iter().map(|h| h.0).collect()));
        let homes = homes.collect();
        let (graph, states) = (made.graph, made.states);
        Ok(Expanded { graph, states, problem, within: of.clone(), of, divisions, homes, shards, joined })
    }
}

impl Instance<'_> {
    /// What `expanded` splits, as the plan file has it.
    pub fn splits(&self, expanded: &Expanded) -> Vec<Split> {
        let group_of = |id: &OperatorId| self.split_options.group_of(*id);
        let split = |(operator, division): (&OperatorId, &Sharding)| {
            let devices = group_of(operator).and_then(|g| expanded.homes.get(&g)).cloned().unwrap_or_default();
            Split::new(*operator, division.clone(), devices)
        };
        expanded.divisions.iter().map(split).collect()
    }

    /// How the operators of the groups of `choices` are divided, and where the shards of each group run.
    pub(crate) fn divided(&self, choices: &Choices) -> (BTreeMap<OperatorId, Sharding>, HashMap<usize, Homes>) {
        let (mut divisions, mut homes) = (BTreeMap::new(), HashMap::<usize, Homes>::new());
        // From the last to the first: which halos a group computes itself depends on those that read it.
        for (group, choice) in choices.iter().rev() {
            let Some(option) = self.split_option(*group, choice.option) else { continue };
            let total: f64 = choice.fractions.iter().sum();
            let wanted = choice.devices.iter().zip(&choice.fractions).map(|(d, f)| (*d, f / total));
            let parts: Vec<(DeviceId, f64)> = wanted.filter(|(_, f)| *f >= option.least_fraction()).collect();
            // One that gets everything computes it as it is.
            if parts.iter().all(|(device, _)| *device == parts[0].0) {
                continue;
            }
            let fractions: Vec<f64> = parts.iter().map(|part| part.1).collect();
            let operators = &self.split_options.groups[*group];
            let Some(mut found) = self.split_options.divisions(operators, option, &fractions) else { continue };
            let last = operators.last().and_then(|last| found.get(last)).cloned();
            let Some(mut last) = last else { continue };
            if choice.halo == Halo::Recomputed {
                let readers = self.colocated_readers(operators, &parts, &divisions, &homes);
                if let Some(tiled) = self.split_options.tiled(operators, &last, &readers) {
                    found = tiled;
                    last = operators.last().and_then(|last| found.get(last)).cloned().unwrap_or(last);
                }
            }
            let shares = last.ranges().into_iter().map(|range| option.share(&range));
            let parts: Vec<_> = parts.iter().zip(shares).map(|((device, _), share)| (*device, share)).collect();
            for division in found.values_mut() {
                division.homes = parts.iter().map(|(device, _)| device.0).collect();
            }
            homes.insert(*group, (option.axis, parts));
            divisions.extend(found);
        }
        (divisions, homes)
    }

    /// `choices` without replicas of groups that no split group reads.
    fn without_unread_replicas(&self, choices: &Choices) -> Choices {
        let options = &self.split_options;
        let mut kept = Choices::new();
        for (group, choice) in choices.iter().rev() {
            let outputs = || options.groups[*group].iter().flat_map(|id| &options.graph.operator(*id).outputs);
            let mut readers = outputs().flat_map(|tensor| options.consumers(*tensor));
            let is_split = |reader: &OperatorId| {
                options.group_of(*reader).is_some_and(|other| other != *group && kept.contains_key(&other))
            };
            let is_replicated = self.split_option(*group, choice.option).is_some_and(SplitOption::is_replicated);
            if !is_replicated || readers.any(is_split) {
                kept.insert(*group, choice.clone());
            }
        }
        kept
    }

    /// The operators that read a result of `operators`, of other groups whose shards run on the devices of `parts` in the
    /// same order, and how they are divided.
    fn colocated_readers(
        &self,
        operators: &[OperatorId],
        parts: &[(DeviceId, f64)],
        divisions: &BTreeMap<OperatorId, Sharding>,
        homes: &HashMap<usize, Homes>,
    ) -> BTreeMap<OperatorId, Sharding> {
        let options = &self.split_options;
        let is_colocated = |reader: &OperatorId| {
            let home = options.group_of(*reader).and_then(|group| homes.get(&group));
            home.is_some_and(|(_, home)| home.iter().map(|h| h.0).eq(parts.iter().map(|p| p.0)))
        };
        let outputs = operators.last().into_iter().flat_map(|last| &options.graph.operator(*last).outputs);
        let readers = outputs.flat_map(|tensor| options.consumers(*tensor)).filter(|reader| is_colocated(reader));
        readers.filter_map(|reader| Some((*reader, divisions.get(reader)?.clone()))).collect()
    }

    /// The operators of a split graph by the group and shard that they belong to.
    fn parts(&self, made: &Sharded) -> Parts {
        let mut parts = Parts::default();
        for ((id, _), role) in made.graph.operators().zip(&made.roles) {
            match role {
                Role::Compute(shard) | Role::Prepare(shard) | Role::Serve(shard) => {
                    let group = self.split_options.group_of(shard.operator).unwrap_or_default();
                    let part = parts.shards.entry((group, shard.index)).or_default();
                    part.operators.push(id);
                    if !matches!(role, Role::Compute(_)) {
                        part.copies.push(id);
                    }
                }
                Role::Input => parts.first.push(id),
                Role::Output => parts.last.push(id),
            }
        }
        parts
    }
}

/// Counts, of a weight that a group only slices, the slice: that is what it keeps once it is loaded.
fn sliced_weights(graph: &Graph, problem: &mut Problem) {
    let ids: Vec<TensorId> = graph.parameters().collect();
    let number: HashMap<TensorId, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let mut slices = Vec::new();
    for (index, group) in problem.groups.iter().enumerate() {
        let (mut whole, mut sliced): (Vec<usize>, Vec<(usize, Bytes)>) = Default::default();
        for operator in group.operators.iter().map(|id| graph.operator(*id)) {
            for parameter in operator.operands().filter_map(|t| number.get(&t)) {
                match operator.outputs.first() {
                    Some(output) if operator.name == "strided_slice" => {
                        sliced.push((*parameter, graph.tensor(*output).ty.bytes().unwrap_or_default()));
                    }
                    _ => whole.push(*parameter),
                }
            }
        }
        sliced.retain(|(parameter, _)| !whole.contains(parameter));
        if !sliced.is_empty() {
            slices.push((index, sliced));
        }
    }
    for (group, sliced) in slices {
        let parameters = &mut problem.groups[group].parameters;
        parameters.retain(|p| sliced.iter().all(|(whole, _)| *whole != p.0 as usize));
        for (_, bytes) in sliced {
            parameters.push(ParameterId(problem.parameters.len() as u32));
            problem.parameters.push(bytes);
        }
    }
}

/// Gives every shard of a group on one device but the first its own copy of the weights that they share: engines pack them
/// for each.
fn packed_weights(problem: &mut Problem, of: &[Option<usize>]) {
    let device_of = |group: &Group| group.costs.iter().position(Option::is_some);
    for index in 1..problem.groups.len() {
        let before = (0..index).rev().take_while(|other| of[*other].is_some() && of[*other] == of[index]);
        let here = device_of(&problem.groups[index]);
        let same: Vec<usize> = before.filter(|other| device_of(&problem.groups[*other]) == here).collect();
        for number in 0..problem.groups[index].parameters.len() {
            let parameter = problem.groups[index].parameters[number];
            if same.iter().any(|other| problem.groups[*other].parameters.contains(&parameter)) {
                problem.groups[index].parameters[number] = ParameterId(problem.parameters.len() as u32);
                problem.parameters.push(problem.parameters[parameter.0 as usize]);
            }
        }
    }
}

/// The cost on one device, and nothing elsewhere.
fn only(costs: Vec<Option<Cost>>, device: DeviceId) -> Vec<Option<Cost>> {
    costs.into_iter().enumerate().map(|(d, cost)| cost.filter(|_| d == device.0 as usize)).collect()
}
