//! How a group can be split: all its operators alike, so that its shards exchange nothing inside.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use super::split_option::{Grains, Need, Read, ResultLayout, SplitOption};
use edgecut_graph::{Graph, OperatorId, Origin, StateTensors, TensorId, constant_operators, is_constant};
use edgecut_ops::{
    passes::{
        axes::{axes, counterpart, replica_axis},
        shard_graph::{ShardCalls, Sharding},
    },
    split::{Join, MAX_REPLICAS, PackedAxis, ShardedAxis, SplitAxis},
};

/// How the groups of a graph can be split.
#[derive(Debug, Clone)]
pub struct SplitOptions<'a> {
    pub graph: &'a Graph,
    /// The operators of each group, in program order.
    pub groups: &'a [Vec<OperatorId>],
    axes: Arc<HashMap<OperatorId, Vec<SplitAxis>>>,
    /// Of shards along `axes`.
    calls: Arc<ShardCalls>,
    /// By group.
    options: Vec<Vec<SplitOption>>,
    group_of: Arc<HashMap<OperatorId, usize>>,
    /// By tensor: the operators that read it.
    consumers: Arc<Vec<Vec<OperatorId>>>,
    /// By operator: whether it depends on parameters alone. Every shard that reads its result computes what it needs of it.
    constant: Arc<Vec<bool>>,
}

impl<'a> SplitOptions<'a> {
    pub fn of(graph: &'a Graph, groups: &'a [Vec<OperatorId>]) -> SplitOptions<'a> {
        let axes_of = |id: &OperatorId| {
            let operator = graph.operator(*id);
            axes(graph, operator).into_iter().chain(replica_axis(graph, operator)).collect()
        };
        let axes = groups.iter().flatten().map(|id| (*id, axes_of(id)));
        let mut all = SplitOptions { axes: Arc::new(axes.collect()), ..SplitOptions::none(graph, groups) };
        // From the last to the first: readers say which of their operands are packed, and where shards of these end.
        let mut packed_axes: HashMap<TensorId, Vec<PackedAxis>> = HashMap::new();
        let mut read_grains = Grains::new();
        let mut found: Vec<Vec<SplitOption>> = Vec::with_capacity(groups.len());
        for group in groups.iter().rev() {
            let mut options = all.of_group(group, &packed_axes);
            all.align_to_readers(group, &mut options, &read_grains);
            for (tensor, axis, grain) in options.iter().flat_map(|option| all.grains_read(group, option)) {
                read_grains.entry((tensor, axis)).or_default().insert(grain);
            }
            for (tensor, need) in options.iter().flat_map(|option| &option.reads) {
                let Need::Part(ShardedAxis { packed: Some(packed), .. }) = need else { continue };
                let known = packed_axes.entry(*tensor).or_default();
                if !known.contains(packed) {
                    known.push(packed.clone());
                }
            }
            found.push(options);
        }
        found.reverse();
        all.align_to_producers(&mut found);
        all.options = found;
        all.add_replicas();
        all
    }

    /// Adds, for groups that cannot be split, the option of replicas: the tensors that they read and compute then stay on the devices
    /// of the shards around them, as with the norms between the products of a transformer. Nothing to add if no group can be split.
    fn add_replicas(&mut self) {
        if self.options.iter().all(Vec::is_empty) {
            return;
        }
        let replicas = |(group, options): (&Vec<OperatorId>, &Vec<SplitOption>)| {
            options.is_empty().then(|| self.replicas(group)).flatten()
        };
        let found: Vec<_> = self.groups.iter().zip(&self.options).map(replicas).collect();
        self.options.iter_mut().zip(found).for_each(|(options, replicas)| options.extend(replicas));
    }

    /// The same without replicas of groups that read or compute one of `states`, which has one home.
    pub fn with_states(mut self, states: &[StateTensors]) -> SplitOptions<'a> {
        let computed = states.iter().filter_map(|state| self.graph.producer(state.output));
        let read = states.iter().flat_map(|state| self.consumers(state.input)).copied();
        let groups: BTreeSet<usize> = computed.chain(read).filter_map(|operator| self.group_of(operator)).collect();
        for (_, options) in self.options.iter_mut().enumerate().filter(|(group, _)| groups.contains(group)) {
            options.retain(|option| !option.is_replicated());
        }
        self
    }

    /// The same without options that `other`, the same model in other sizes, does not have. Groups that have no other option then
    /// can have replicas.
    pub fn common_with(mut self, other: &Graph) -> SplitOptions<'a> {
        for (group, options) in self.groups.iter().zip(&mut self.options) {
            let Some(last) = group.last() else { continue };
            let (here, there) = ((self.graph, self.graph.operator(*last)), (other, other.operator(*last)));
            options.retain(|option| counterpart(here, option.axis, there).is_some());
        }
        self.add_replicas();
        self
    }

    fn replicas(&self, group: &[OperatorId]) -> Option<SplitOption> {
        let last = group.last().filter(|last| !self.is_constant(**last))?;
        let axis = self.replica_number(*last)?;
        let layout = ResultLayout::Replicated;
        let option = SplitOption { axis, layout, size: MAX_REPLICAS, grain: 1, reads: Vec::new() };
        let two = self.divisions(group, &option, &[0.5, 0.5])?;
        Some(SplitOption { reads: self.reads(group, &two), ..option })
    }

    /// Nothing can be split.
    pub fn none(graph: &'a Graph, groups: &'a [Vec<OperatorId>]) -> SplitOptions<'a> {
        let numbered = groups.iter().enumerate();
        let group_of = numbered.flat_map(|(group, operators)| operators.iter().map(move |id| (*id, group))).collect();
        let consumers = Arc::new(graph.consumers());
        let constant = Arc::new(constant_operators(graph));
        SplitOptions {
            graph,
            groups,
            axes: Arc::default(),
            calls: Arc::default(),
            options: Vec::new(),
            group_of: Arc::new(group_of),
            consumers,
            constant,
        }
    }

    /// The number of the group that `operator` is in.
    pub fn group_of(&self, operator: OperatorId) -> Option<usize> {
        self.group_of.get(&operator).copied()
    }

    /// The axis of this number along which `operator` can be split.
    pub(crate) fn axis(&self, operator: OperatorId, number: usize) -> Option<&SplitAxis> {
        self.axes.get(&operator)?.get(number)
    }

    /// The shards along these axes that were computed before.
    pub(crate) fn calls(&self) -> &ShardCalls {
        &self.calls
    }

    /// The operators that read `tensor`.
    pub fn consumers(&self, tensor: TensorId) -> &[OperatorId] {
        self.consumers.get(tensor.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn is_constant(&self, operator: OperatorId) -> bool {
        self.constant[operator.0 as usize]
    }

    /// Whether group number `group` depends on parameters alone: in plans with splits its readers compute it.
    pub(crate) fn is_constant_group(&self, group: usize) -> bool {
        self.groups[group].iter().all(|id| self.is_constant(*id))
    }

    /// Whether every device that reads `tensor` has it: a parameter, or what depends on parameters alone.
    pub(crate) fn is_weight(&self, tensor: TensorId) -> bool {
        is_constant(self.graph, &self.constant, tensor)
    }

    /// The options of group number `group`.
    pub fn group(&self, group: usize) -> &[SplitOption] {
        self.options.get(group).map_or(&[], Vec::as_slice)
    }

    /// The number of the axis of replicas of `operator`, if it has one.
    fn replica_number(&self, operator: OperatorId) -> Option<usize> {
        self.axes.get(&operator)?.iter().position(|axis| axis.join == Join::Replicated)
    }

    /// Whether the work of group number `group` can be divided among devices.
    pub fn is_divisible(&self, group: usize) -> bool {
        self.group(group).iter().any(|option| !option.is_replicated())
    }

    /// The options of `group`. `packed_axes` are those that later groups read.
    fn of_group(&self, group: &[OperatorId], packed_axes: &HashMap<TensorId, Vec<PackedAxis>>) -> Vec<SplitOption> {
        let Some(last) = group.last().filter(|last| !self.is_constant(**last)) else { return Vec::new() };
        let axes = self.axes.get(last).map_or(&[][..], Vec::as_slice);
        let result = self.graph.operator(*last).outputs.first();
        let packed_axes = result.and_then(|result| packed_axes.get(result)).map_or(&[][..], Vec::as_slice);
        let option = |(number, axis, packed): (usize, &SplitAxis, Option<&PackedAxis>)| {
            let layout = match &axis.join {
                Join::Axis(outputs) => {
                    let axis = outputs.first().copied().flatten()?;
                    ResultLayout::Split(ShardedAxis { axis, packed: packed.cloned() })
                }
                Join::Sum => ResultLayout::Partial,
                Join::Replicated => return None,
            };
            let grain = packed.map_or(axis.grain, PackedAxis::unit);
            let option = SplitOption { axis: number, layout, size: axis.size, grain, reads: Vec::new() };
            // Candidate on halves, because what a shard needs is known by example only.
            let halves = self.divisions(group, &option, &[0.5, 0.5])?;
            Some(SplitOption { reads: self.reads(group, &halves), ..option })
        };
        let plain = axes.iter().enumerate().map(|(number, axis)| (number, axis, None));
        let by_unit = packed_axes.iter().flat_map(|packed| {
            let able = axes
                .iter()
                .enumerate()
                .filter(|(_, axis)| axis.supports_packed(self.graph, self.graph.operator(*last), packed));
            able.map(move |(number, axis)| (number, axis, Some(packed)))
        });
        plain.chain(by_unit).filter_map(option).collect()
    }

    /// What the operators of a group so divided read from elsewhere, and along which axis.
    fn reads(&self, group: &[OperatorId], divisions: &BTreeMap<OperatorId, Sharding>) -> Vec<(TensorId, Need)> {
        let need = |reads: Vec<Read>| match reads.first() {
            Some(Read::Range(side, _)) if reads.iter().all(|read| *read != Read::Whole) => Need::Part(side.clone()),
            Some(Read::Whole) if reads[1..].iter().all(|read| *read == Read::Nothing) => Need::First,
            _ => Need::Whole,
        };
        self.reads_of_shards(group, divisions).into_iter().map(|(tensor, reads)| (tensor, need(reads))).collect()
    }

    /// What each shard of a group so divided reads of tensors that come from elsewhere and are no weights.
    pub(crate) fn reads_of_shards(
        &self,
        group: &[OperatorId],
        divisions: &BTreeMap<OperatorId, Sharding>,
    ) -> Vec<(TensorId, Vec<Read>)> {
        let mut reads: Vec<(TensorId, Vec<Read>)> = Vec::new();
        for (id, division) in divisions {
            let operands = self.graph.operator(*id).operands();
            let Some(axis) = self.axes[id].get(division.axis) else { continue };
            let is_offset = axis.carried.is_some_and(|carried| carried.is_offset);
            for (tensor, access) in operands.zip(&axis.operands) {
                let inside = self.graph.producer(tensor).is_some_and(|p| group.contains(&p));
                if inside || self.is_weight(tensor) {
                    continue;
                }
                let read = |(shard, range): (usize, &Range<u64>)| match access {
                    Some(access) => {
                        let packed = access.packed.as_ref().or(division.packed.as_ref()).cloned();
                        Read::Range(ShardedAxis { axis: access.axis, packed }, (access.map)(range))
                    }
                    None if is_offset && shard > 0 => Read::Nothing,
                    None => Read::Whole,
                };
                let found: Vec<Read> = division.ranges().iter().enumerate().map(read).collect();
                match reads.iter_mut().find(|read| read.0 == tensor) {
                    Some((_, known)) => known.iter_mut().zip(found).for_each(|(known, read)| known.extend(read)),
                    None => reads.push((tensor, found)),
                }
            }
        }
        reads
    }

    /// How every operator of `group` is divided when its result is cut by `fractions`; `None` if fewer than two shards
    /// come out, or the operators before the last one cannot be cut where it needs them to be.
    pub fn divisions(
        &self,
        group: &[OperatorId],
        option: &SplitOption,
        fractions: &[f64],
    ) -> Option<BTreeMap<OperatorId, Sharding>> {
        let axis = self.axes.get(group.last()?)?.get(option.axis)?;
        if option.is_replicated() {
            let division = Sharding::replicated(option.axis, fractions.len() as u64);
            return division.fits(axis).then(|| self.propagated(group, division)).flatten();
        }
        let packed = option.layout.packed().cloned();
        let cuts = axis.cuts_by(option.grain, fractions);
        if cuts.windows(2).any(|w| w[0] == w[1]) {
            return None;
        }
        let division = Sharding { packed, ..Sharding::disjoint(option.axis, cuts) };
        division.fits(axis).then(|| self.propagated(group, division)).flatten()
    }

    /// The divisions of `group`, whose last operator is divided as in `base`, with tiles that contain what the shards of
    /// operators in `readers` read of its result, if each runs on the device of the shard of the same number. `None` if they
    /// read no more than the shares, or some operator of the group cannot be divided so.
    pub fn tiled(
        &self,
        group: &[OperatorId],
        base: &Sharding,
        readers: &BTreeMap<OperatorId, Sharding>,
    ) -> Option<BTreeMap<OperatorId, Sharding>> {
        let last = group.last()?;
        let axis = self.axes.get(last)?.get(base.axis)?;
        let shares = base.ranges();
        let mut tiles = shares.clone();
        let outputs = self.graph.operator(*last).outputs.iter().enumerate();
        let along = |(index, output): (usize, &TensorId)| {
            Some((*output, axis.aligned_output_axis(index, &self.graph.tensor(*output).ty)?))
        };
        for (output, side) in outputs.filter_map(along) {
            for (reader, division) in readers {
                for reads in self.reads_of(*reader, division, output, side) {
                    for (tile, read) in tiles.iter_mut().zip(reads) {
                        tile.start = tile.start.min(read.start / axis.grain * axis.grain);
                        tile.end = tile.end.max(read.end.next_multiple_of(axis.grain).min(axis.size));
                    }
                }
            }
        }
        let tiled = Sharding { tiles, ..base.clone() };
        (tiled.fits(axis) && tiled.tiles != shares).then(|| self.propagated(group, tiled)).flatten()
    }

    /// For each operand of `reader` that is `tensor`: the ranges of the axis `side` that its shards read. Operands of which
    /// they read all, or along another axis, are left out.
    fn reads_of(&self, reader: OperatorId, division: &Sharding, tensor: TensorId, side: usize) -> Vec<Vec<Range<u64>>> {
        let axis = self.axes.get(&reader).and_then(|axes| axes.get(division.axis));
        let Some(axis) = axis.filter(|_| division.packed.is_none()) else { return Vec::new() };
        let operands = self.graph.operator(reader).operands().zip(&axis.operands);
        let accesses = operands.filter(|(operand, _)| *operand == tensor).filter_map(|(_, access)| access.as_ref());
        let along = accesses.filter(|access| access.axis == side && access.packed.is_none());
        along.map(|access| division.ranges().iter().map(|range| (access.map)(range)).collect()).collect()
    }

    /// How every operator of `group` is divided when its last one is as in `division`: each where its readers in the group
    /// need it to be.
    fn propagated(&self, group: &[OperatorId], division: Sharding) -> Option<BTreeMap<OperatorId, Sharding>> {
        let mut found = BTreeMap::from([(*group.last()?, division)]);
        for id in group.iter().rev().filter(|id| !self.is_constant(**id)) {
            let division = found.get(id)?.clone();
            let axis = self.axes.get(id)?.get(division.axis)?;
            for (number, (tensor, access)) in self.graph.operator(*id).operands().zip(&axis.operands).enumerate() {
                let carried = axis.carried.filter(|carried| carried.operand == number);
                let producer = match self.graph.tensor(tensor).origin {
                    Origin::Operator { operator, index }
                        if group.contains(&operator) && !self.is_constant(operator) =>
                    {
                        Some((operator, index))
                    }
                    _ => None,
                };
                let (operator, index) = match (producer, carried) {
                    (Some(producer), _) => producer,
                    (None, None) => continue,
                    // Partial sums of another group are added up where they are read.
                    (None, Some(_)) => return None,
                };
                if let Some(carried) = carried {
                    let wanted = Sharding::disjoint(carried.axis, division.cuts.clone());
                    if found.insert(operator, wanted.clone()).is_some_and(|before| before != wanted) {
                        return None;
                    }
                    continue;
                }
                if axis.join == Join::Replicated {
                    let axis = self.replica_number(operator)?;
                    found.insert(operator, Sharding { axis, ..division.clone() });
                    continue;
                }
                let access = access.as_ref()?;
                let packed = access.packed.as_ref().or(division.packed.as_ref()).cloned();
                let read = |ranges: Vec<Range<u64>>| ranges.iter().map(|range| (access.map)(range)).collect::<Vec<_>>();
                let shares = division.cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
                let ty = &self.graph.tensor(tensor).ty;
                let is_same_axis = |axis: &SplitAxis| axis.aligned_output_axis(index as usize, ty) == Some(access.axis);
                let axes = self.axes.get(&operator)?;
                let number = axes.iter().position(is_same_axis)?;
                let wanted = covering(number, &axes[number], &read(shares), read(division.ranges()))?;
                let wanted = Sharding { packed, ..wanted };
                let producer = self.graph.operator(operator);
                let is_supported = |packed| axes[number].supports_packed(self.graph, producer, packed);
                if !wanted.fits(&axes[number]) || !wanted.packed.as_ref().is_none_or(is_supported) {
                    return None;
                }
                if found.insert(operator, wanted.clone()).is_some_and(|before| before != wanted) {
                    return None;
                }
            }
        }
        Some(found)
    }
}

/// A division along `axis`, whose index is `number`, that covers the ranges that the shards of the reader need: `shares`, and
/// `tiles` that contain them. Shards overlap in what several of them need, such as the halo of a window. What none needs, such
/// as rows that a stride skips, is computed by the shard before it. `None` if a shard would be empty.
fn covering(number: usize, axis: &SplitAxis, shares: &[Range<u64>], tiles: Vec<Range<u64>>) -> Option<Sharding> {
    let inner = shares.iter().skip(1).map(|share| share.start / axis.grain * axis.grain);
    let cuts: Vec<u64> = std::iter::once(0).chain(inner).chain([axis.size]).collect();
    if shares.iter().any(Range::is_empty) || cuts.windows(2).any(|cut| cut[0] >= cut[1]) {
        return None;
    }
    let widened = |(tile, cut): (Range<u64>, &[u64])| {
        let end = tile.end.checked_next_multiple_of(axis.grain).map_or(axis.size, |end| end.min(axis.size));
        (tile.start / axis.grain * axis.grain).min(cut[0])..end.max(cut[1])
    };
    let tiles: Vec<Range<u64>> = tiles.into_iter().zip(cuts.windows(2)).map(widened).collect();
    let is_disjoint = tiles.iter().zip(cuts.windows(2)).all(|(tile, cut)| *tile == (cut[0]..cut[1]));
    Some(Sharding { tiles: if is_disjoint { Vec::new() } else { tiles }, ..Sharding::disjoint(number, cuts) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_before_a_window_compute_its_halo_and_skipped_rows() {
        let axis = |size, grain| SplitAxis { grain, ..SplitAxis::new(Join::Axis(vec![Some(0)]), size, 0) };
        for (what, axis, reads, cuts, tiles) in [
            ("neither", axis(8, 1), [0..4, 4..8], [0, 4, 8], vec![]),
            ("a halo", axis(8, 1), [0..5, 3..8], [0, 3, 8], vec![0..5, 3..8]),
            ("a stride of 2", axis(8, 1), [0..3, 4..7], [0, 4, 8], vec![]),
            ("a halo on a grain of 2", axis(8, 2), [0..5, 3..8], [0, 2, 8], vec![0..6, 2..8]),
        ] {
            let made = covering(1, &axis, &reads, reads.to_vec()).unwrap();
            assert_eq!(made, Sharding { tiles, ..Sharding::disjoint(1, cuts.to_vec()) }, "{what}");
            assert!(made.fits(&axis), "{what}");
        }
        assert_eq!(covering(0, &axis(8, 1), &[0..0, 0..8], vec![0..0, 0..8]), None, "an empty shard");
        assert_eq!(covering(0, &axis(8, 8), &[0..4, 4..8], vec![0..4, 4..8]), None, "a grain as large as the axis");
        // Readers with tiles wider than their shares.
        let made = covering(0, &axis(8, 1), &[0..4, 4..8], vec![0..6, 2..8]).unwrap();
        assert_eq!((made.cuts, made.tiles), (vec![0, 4, 8], vec![0..6, 2..8]));
    }
}
