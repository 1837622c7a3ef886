//! Variants of a model: as it is, reordered for minimum peak, and with segments computed in parts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    costs::GroupCosts,
    group_sequence::GroupSequence,
    grouped_graph::{Group, GroupedGraph, LoweredGroups},
    tiling::{Tiling, tilings},
};
use crate::{
    OrderError,
    order::min_peak_order,
    remat::{ParetoFront, ScheduleCost, ScheduleDecision, ScheduleExpander},
};
use edgecut_graph::{
    Graph, LinkCost, OperatorId,
    units::{Bytes, Micros},
};
use edgecut_ops::passes::{
    shard_graph::{Role, Sharded},
    tile::{SplitAxes, TiledSegment, tile_graph},
};

/// Beam width of the order search.
const WIDTH: usize = 60;

/// Index of a group of the model and the fraction of it that is computed.
pub type GroupShare = (usize, f64);

/// One variant of a model, with the schedules found for it.
pub struct Variant {
    pub grouped: GroupedGraph,
    pub lowered: LoweredGroups,
    /// The segments that are computed in parts.
    pub segments: Vec<TiledSegment>,
    /// The model's operators in the order in which segments and remaining groups were taken.
    pub order: Vec<OperatorId>,
    /// For each group of `grouped` the model's group that it is part of; `None` for slices and concatenations.
    pub origins: Vec<Option<GroupShare>>,
    pub(super) front: ParetoFront,
}

impl Variant {
    /// The model as it is.
    pub(super) fn whole(grouped: &GroupedGraph, host: Option<LinkCost>) -> Result<Variant, OrderError> {
        let origins = (0..grouped.groups.len()).map(|index| Some((index, 1.0))).collect();
        Variant::new(grouped.clone(), Vec::new(), operators(grouped), origins, host)
    }

    fn new(
        grouped: GroupedGraph,
        segments: Vec<TiledSegment>,
        order: Vec<OperatorId>,
        origins: Vec<Option<GroupShare>>,
        host: Option<LinkCost>,
    ) -> Result<Variant, OrderError> {
        let mut lowered = grouped.lower()?;
        lowered.program.host = host;
        Ok(Variant { grouped, lowered, segments, order, origins, front: ParetoFront::default() })
    }

    /// The cost of program order with every value kept.
    pub(super) fn original_cost(&self) -> Option<ScheduleCost> {
        let program = &self.lowered.program;
        ScheduleExpander::new(program).cost(&ScheduleDecision::keep_all(program), Bytes(u64::MAX))
    }

    /// The same groups in the order of minimum peak, if that lowers the peak.
    pub(super) fn reordered(&self) -> Result<Option<Variant>, OrderError> {
        let program = &self.lowered.program;
        let found = min_peak_order(program, &self.lowered.alias(), WIDTH);
        let is_no_better = self.original_cost().is_some_and(|cost| cost.peak <= found.peak);
        if found.order.len() != program.operators.len() || is_no_better {
            return Ok(None);
        }
        let grouped = self.grouped.reordered(&self.lowered, &found.order);
        let groups = found.order.iter().filter_map(|&operator| self.lowered.groups[operator as usize]);
        let origins = groups.map(|index| self.origins[index]).collect();
        let order = operators(&grouped);
        Variant::new(grouped, self.segments.clone(), order, origins, program.host).map(Some)
    }

    /// Variants with segments in parts, those that no other tiling beats in both peak and time.
    pub(super) fn tiled(&self, costs: &dyn GroupCosts) -> Result<Vec<Variant>, OrderError> {
        let splits = SplitAxes::of(&self.grouped.graph);
        let groups: Vec<Vec<OperatorId>> = self.grouped.groups.iter().map(|group| group.operators.clone()).collect();
        let times: Vec<Micros> = self.grouped.groups.iter().map(|group| group.time).collect();
        let sequence = GroupSequence::new(&splits, &groups, times);
        let mut found: Vec<(ScheduleCost, Variant)> = Vec::new();
        for tiling in tilings(&sequence, costs) {
            let segments = tiled_segments(&groups, &tiling);
            // Some operators cannot compute a part that lies in their padding alone.
            let Ok(sharded) = tile_graph(&splits, &segments) else { continue };
            let in_parts = segments.into_iter().filter(|segment| segment.tiles > 1).collect();
            let (grouped, shares) = group_parts(&self.grouped, sharded, costs);
            let origin = |share: Option<GroupShare>| {
                let (index, share) = share?;
                self.origins[index].map(|(group, _)| (group, share))
            };
            let origins = shares.into_iter().map(origin).collect();
            let host = self.lowered.program.host;
            let candidate = Variant::new(grouped, in_parts, self.order.clone(), origins, host)?;
            if let Some(cost) = candidate.original_cost() {
                found.push((cost, candidate));
            }
        }
        found.sort_by(|a, b| a.0.time.0.total_cmp(&b.0.time.0));
        let mut least = Bytes(u64::MAX);
        found.retain(|(cost, _)| {
            let is_better = cost.peak < least;
            least = least.min(cost.peak);
            is_better
        });
        Ok(found.into_iter().map(|(_, variant)| variant).collect())
    }
}

/// The operators in the order of the groups.
fn operators(grouped: &GroupedGraph) -> Vec<OperatorId> {
    grouped.groups.iter().flat_map(|group| &group.operators).copied().collect()
}

/// All groups as segments: those of the tiling in parts, the others whole.
fn tiled_segments(groups: &[Vec<OperatorId>], tiling: &Tiling) -> Vec<TiledSegment> {
    let whole = |group: &Vec<OperatorId>| TiledSegment { operators: group.clone(), tiles: 1, axis: 0 };
    let mut segments = Vec::new();
    let mut at = 0;
    for segment in &tiling.segments {
        segments.extend(groups[at..segment.first].iter().map(whole));
        let operators = groups[segment.first..=segment.last].concat();
        segments.push(TiledSegment { operators, tiles: segment.parts, axis: segment.axis });
        at = segment.last + 1;
    }
    segments.extend(groups[at..].iter().map(whole));
    segments
}

/// A group of the model and the number of its tile.
type GroupTile = (usize, u32);

/// For each operator of a tiled graph the part of a group that computes it. What slices or concatenates belongs to a part
/// if it lies on a path from one of the part's operators to another: computed apart, each would wait for the other.
fn part_of_operators(tiled: &Sharded, group_of: &HashMap<OperatorId, usize>) -> Vec<Option<GroupTile>> {
    let graph = &tiled.graph;
    let computed = |role: &Role| match role {
        Role::Compute(shard) => Some((group_of[&shard.operator], shard.index)),
        _ => None,
    };
    let mut part_of: Vec<Option<GroupTile>> = tiled.roles.iter().map(computed).collect();
    // The parts that an operator of none reads from, also through others of none.
    let mut sources: Vec<BTreeSet<GroupTile>> = vec![BTreeSet::new(); part_of.len()];
    for (id, operator) in graph.operators().filter(|(id, _)| part_of[id.0 as usize].is_none()) {
        for producer in operator.operands().filter_map(|tensor| graph.producer(tensor)) {
            let through = match part_of[producer.0 as usize] {
                Some(part) => BTreeSet::from([part]),
                None => sources[producer.0 as usize].clone(),
            };
            sources[id.0 as usize].extend(through);
        }
    }
    // Last first, so that what reads an operator is known when its turn comes.
    let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    for reader in operators.into_iter().rev() {
        let Some(part) = part_of[reader.0 as usize] else { continue };
        for producer in graph.operator(reader).operands().filter_map(|tensor| graph.producer(tensor)) {
            let producer = producer.0 as usize;
            if part_of[producer].is_none() && sources[producer].contains(&part) {
                part_of[producer] = Some(part);
            }
        }
    }
    part_of
}

/// The groups of a tiled graph: a part of a group is one group, and so is every slice and concatenation that is not
/// inside such a part. For each, the group of `whole` that it is part of.
fn group_parts(
    whole: &GroupedGraph,
    tiled: Sharded,
    costs: &dyn GroupCosts,
) -> (GroupedGraph, Vec<Option<GroupShare>>) {
    let mut group_of: HashMap<OperatorId, usize> = HashMap::new();
    for (index, group) in whole.groups.iter().enumerate() {
        group_of.extend(group.operators.iter().map(|id| (*id, index)));
    }
    // By group and part.
    let mut parts: BTreeMap<(usize, u32), Vec<OperatorId>> = BTreeMap::new();
    // With the last operator of each group, which gives the order.
    let mut groups: Vec<(OperatorId, Group, Option<GroupShare>)> = Vec::new();
    let bytes = |operators: &[OperatorId], graph: &Graph| -> u64 {
        let last = operators.last().map(|id| &graph.operator(*id).outputs);
        last.into_iter().flatten().filter_map(|t| graph.tensor(*t).ty.bytes()).map(|bytes| bytes.0).sum()
    };
    let part_of = part_of_operators(&tiled, &group_of);
    for (id, operator) in tiled.graph.operators() {
        if let Some(part) = part_of[id.0 as usize] {
            parts.entry(part).or_default().push(id);
            continue;
        }
        let moved: Bytes = operator.outputs.iter().filter_map(|t| tiled.graph.tensor(*t).ty.bytes()).sum();
        let time = costs.copy(moved);
        groups.push((id, Group { operators: vec![id], time, workspace: Bytes::ZERO, in_place: false }, None));
    }
    for ((index, _), operators) in parts {
        let group = &whole.groups[index];
        let all = bytes(&group.operators, &whole.graph);
        let share = if all == 0 { 1.0 } else { bytes(&operators, &tiled.graph) as f64 / all as f64 };
        let time = if share < 1.0 { costs.part(&group.operators, group.time, share) } else { group.time };
        let workspace = Bytes((group.workspace.0 as f64 * share).ceil() as u64);
        let Some(last) = operators.last().copied() else { continue };
        groups.push((last, Group { operators, time, workspace, in_place: group.in_place }, Some((index, share))));
    }
    groups.sort_by_key(|(last, ..)| *last);
    let (groups, origins) = groups.into_iter().map(|(_, group, origin)| (group, origin)).unzip();
    (GroupedGraph { graph: tiled.graph, groups }, origins)
}
