//! Options whose shard boundaries match those of adjacent groups, whatever the ratio. Otherwise the few positions in between are
//! sent separately, such as columns of a block of 32, or part of an attention head.

use super::{
    options::SplitOptions,
    split_option::{Grains, Need, Read, ResultLayout, SplitOption},
};
use edgecut_graph::{OperatorId, TensorId};
use edgecut_ops::split::{ShardedAxis, gcd};

/// Number of grains of an axis that lets every device have its fraction within half a percent.
const FINE: u64 = 128;

impl SplitOptions<'_> {
    /// Adds to the `options` of `group` those with the grains of its readers, which are in `read`: before the option with the finer
    /// grain if they let every device have about its fraction, else at the end.
    pub(super) fn align_to_readers(&self, group: &[OperatorId], options: &mut Vec<SplitOption>, read: &Grains) {
        let Some(result) = group.last().and_then(|last| self.graph.operator(*last).outputs.first()) else { return };
        let (mut aligned, mut coarse): (Vec<SplitOption>, Vec<SplitOption>) = Default::default();
        for option in options.drain(..) {
            let side = match &option.layout {
                ResultLayout::Split(ShardedAxis { axis, packed: None }) => Some((*result, *axis)),
                _ => None,
            };
            let mut fine = option.grain;
            for grain in side.and_then(|side| read.get(&side)).into_iter().flatten() {
                // Their least common multiple.
                let common = (fine / gcd(fine, *grain)).saturating_mul(*grain);
                if common == fine || !self.is_splittable(group, &option, common) {
                    continue;
                }
                match common.saturating_mul(FINE) <= option.size {
                    true => fine = common,
                    false => coarse.push(SplitOption { grain: common, ..option.clone() }),
                }
            }
            if fine != option.grain {
                aligned.push(SplitOption { grain: fine, ..option.clone() });
            }
            aligned.push(option);
        }
        *options = aligned;
        coarse.dedup();
        options.extend(coarse);
    }

    /// Indices of the options of group number `group` that searches try: all but those that an earlier, coarser option of the same
    /// axis and layout replaces.
    pub(crate) fn searched(&self, group: usize) -> impl Iterator<Item = usize> {
        let options = self.group(group);
        let is_aligned = |number: usize| {
            let SplitOption { axis, layout, grain, .. } = &options[number];
            options[..number].iter().any(|other| (other.axis, &other.layout) == (*axis, layout) && other.grain > *grain)
        };
        (0..options.len()).filter(move |number| !is_aligned(*number))
    }

    /// Adds to the `options` of all groups those with the grains of the producers of their operands, where these are coarser, such as
    /// the heads that attention is split by.
    pub(super) fn align_to_producers(&self, options: &mut [Vec<SplitOption>]) {
        let mut made = Grains::new();
        for (group, options) in self.groups.iter().zip(options) {
            let mut aligned: Vec<SplitOption> = Vec::new();
            for option in options.iter() {
                for (tensor, axis, read) in self.grains_read(group, option) {
                    for coarse in made.get(&(tensor, axis)).into_iter().flatten() {
                        let grain = option.grain.saturating_mul(coarse / gcd(read, *coarse));
                        let is_known = options.iter().chain(&aligned).any(|known| {
                            (known.axis, &known.layout, known.grain) == (option.axis, &option.layout, grain)
                        });
                        if !is_known && self.is_splittable(group, option, grain) {
                            aligned.push(SplitOption { grain, ..option.clone() });
                        }
                    }
                }
            }
            options.extend(aligned);
            let result = group.last().and_then(|last| self.graph.operator(*last).outputs.first());
            let Some(result) = result else { continue };
            for option in options.iter() {
                if let ResultLayout::Split(ShardedAxis { axis, packed: None }) = option.layout {
                    made.entry((*result, axis)).or_default().insert(option.grain);
                }
            }
        }
    }

    /// Whether there are two shards of `option` with this grain.
    fn is_splittable(&self, group: &[OperatorId], option: &SplitOption, grain: u64) -> bool {
        let option = SplitOption { grain, reads: Vec::new(), ..option.clone() };
        option.can_have_shards(2) && self.divisions(group, &option, &[0.5, 0.5]).is_some()
    }

    /// Tensors that shards of `option` read in adjacent ranges, proportional to the shards: tensor, axis, and positions read for one
    /// grain.
    pub(super) fn grains_read(&self, group: &[OperatorId], option: &SplitOption) -> Vec<(TensorId, usize, u64)> {
        let first = option.grain as f64 / option.size.max(1) as f64;
        let is_range = |need: &Need| matches!(need, Need::Part(ShardedAxis { packed: None, .. }));
        if option.is_replicated() || !option.reads.iter().any(|(_, need)| is_range(need)) {
            return Vec::new();
        }
        let Some(divisions) = self.divisions(group, option, &[first, 1.0 - first]) else { return Vec::new() };
        let read = |(tensor, reads): (TensorId, Vec<Read>)| match &reads[..] {
            [Read::Range(ShardedAxis { axis, packed: None }, range), Read::Range(along, rest)]
                if along.axis == *axis
                    && along.packed.is_none()
                    && range.start == 0
                    && range.end > 0
                    && range.end == rest.start =>
            {
                let size = self.graph.tensor(tensor).ty.shape.get(*axis)?.get()?;
                let is_linear = u128::from(range.end) * u128::from(option.size)
                    == u128::from(size) * u128::from(option.grain)
                    && rest.end == size;
                is_linear.then_some((tensor, *axis, range.end))
            }
            _ => None,
        };
        self.reads_of_shards(group, &divisions).into_iter().filter_map(read).collect()
    }
}
