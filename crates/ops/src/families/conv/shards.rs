//! Split axes of convolutions: batch, output channels or groups, and spatial axes with the halo of the windows.

use super::{
    geometry::{Convolution, WeightForm},
    transpose::Transposed,
};
use crate::{
    TypeError, Typed,
    layout::Layout,
    split::{SplitAxis, gcd},
};
use edgecut_graph::{Attr, Dim};

/// The positions of an axis in the data and in the result, and its block sizes there.
struct Both {
    from: usize,
    to: usize,
    from_block: u64,
    to_block: u64,
}

impl Both {
    fn of(data: &Layout, out: &Layout, letter: char) -> Option<Both> {
        let (from_block, to_block) = (data.block(letter), out.block(letter));
        Some(Both { from: data.position(letter)?, to: out.position(letter)?, from_block, to_block })
    }

    fn is_plain(&self) -> bool {
        self.from_block == 1 && self.to_block == 1
    }
}

/// The channels of a convolution and how they can be split.
struct Channels<'a> {
    data: &'a Layout,
    out: &'a Layout,
    kernel: &'a Layout,
    /// The weight's axis that corresponds to output channels, and the number of channels per index.
    weight: char,
    per_slice: u64,
    channels_in: Dim,
    channels_out: Dim,
    groups: u64,
    /// Whether a shard needs at least two groups, so that its weight form is recognised as that of the whole.
    at_least_two: bool,
}

impl Channels<'_> {
    /// The split along output channels; with several groups, at group boundaries.
    fn axis(&self, call: &Typed<'_>) -> Option<SplitAxis> {
        let both = Both::of(self.data, self.out, 'C')?;
        let (outputs, inputs) = (self.channels_out.get()?, self.channels_in.get()?);
        let per_group = (outputs / self.groups).max(1);
        if self.at_least_two && self.groups % 2 == 1 {
            return None;
        }
        let mut split = SplitAxis::along(call, both.to).scaled(
            1,
            self.kernel.position(self.weight)?,
            both.to_block,
            self.kernel.block(self.weight).saturating_mul(self.per_slice),
        );
        if self.groups > 1 {
            let least = if self.at_least_two { per_group.saturating_mul(2) } else { per_group };
            let block = both.to_block;
            split = split
                .grain(least / gcd(least, block))
                .scaled(
                    0,
                    both.from,
                    block.saturating_mul(inputs / self.groups),
                    per_group.saturating_mul(both.from_block),
                )
                .attr("groups", move |range| Attr::Int(((range.end - range.start) * block / per_group) as i64));
        }
        if call.attr("channels").is_some() {
            let block = both.to_block;
            split = split.attr("channels", move |range| Attr::Int(((range.end - range.start) * block) as i64));
        }
        Some(split)
    }
}

pub(crate) fn conv_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let conv = Convolution::<RANK>::of(call)?;
    let data = call.tensor(0)?;
    let mut axes = images(call, &conv.data, &conv.out);
    let depthwise = conv.form == WeightForm::Depthwise;
    let multiplier = conv.channels_out.get().unwrap_or(0) / conv.groups;
    let channels = Channels {
        data: &conv.data,
        out: &conv.out,
        kernel: &conv.kernel,
        weight: 'O',
        per_slice: if depthwise { multiplier.max(1) } else { 1 },
        channels_in: conv.channels_in,
        channels_out: conv.channels_out,
        groups: conv.groups,
        at_least_two: depthwise && multiplier > 1,
    };
    axes.extend(channels.axis(call));
    for (which, letter) in Convolution::<RANK>::DATA[2..].chars().enumerate() {
        if let Some(both) = Both::of(&conv.data, &conv.out, letter).filter(Both::is_plain) {
            let split = SplitAxis::along(call, both.to);
            axes.push(split.under(0, both.from, data.shape[both.from], &conv.windows, which));
        }
    }
    Ok(axes)
}

/// The split axes of a transposed convolution. Along a spatial axis a shard reads the elements whose windows intersect its
/// range; padding crops what these windows cover beyond the range, and output padding fills what they leave.
pub(crate) fn transposed_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let conv = Transposed::<RANK>::of(call)?;
    let data = call.tensor(0)?;
    let mut axes = images(call, &conv.data, &conv.out);
    let grouped = conv.groups > 1;
    let channels = Channels {
        data: &conv.data,
        out: &conv.out,
        kernel: &conv.kernel,
        weight: if grouped { 'I' } else { 'O' },
        per_slice: 1,
        channels_in: conv.channels_in,
        channels_out: conv.channels_out,
        groups: conv.groups,
        at_least_two: false,
    };
    match grouped {
        false => axes.extend(channels.axis(call)),
        true => axes.extend(grouped_axis(call, &channels)),
    }
    let pads: Vec<(u64, u64)> = conv.windows.iter().map(|w| (w.before, w.after)).collect();
    for (which, letter) in Convolution::<RANK>::DATA[2..].chars().enumerate() {
        let Some(both) = Both::of(&conv.data, &conv.out, letter).filter(Both::is_plain) else { continue };
        let Some(n) = data.shape[both.from].get().filter(|n| *n > 0) else { continue };
        let window = conv.windows[which];
        let (before, extent, stride) = (window.before as i64, window.extent() as i64, window.stride as i64);
        let needed = move |begin: u64, end: u64| {
            let (begin, last) = (begin as i64 + before, end as i64 - 1 + before);
            let first = (begin - extent).div_euclid(stride) + 1;
            let first = first.min(begin.div_euclid(stride)).clamp(0, n as i64 - 1);
            (first, last.div_euclid(stride).clamp(first, n as i64 - 1) + 1)
        };
        // Crop at the front, crop at the end, and output padding at the end.
        let edges = move |begin: u64, end: u64| {
            let (first, behind) = needed(begin, end);
            let reach = (behind - 1) * stride - before + extent;
            (begin as i64 - (first * stride - before), (reach - end as i64).max(0), (end as i64 - reach).max(0))
        };
        let (pads, extra) = (pads.clone(), conv.output_padding.clone());
        axes.push(
            SplitAxis::along(call, both.to)
                .access(0, both.from, move |range| {
                    let (first, behind) = needed(range.start, range.end);
                    first as u64..behind as u64
                })
                .attr("padding", move |range| {
                    let (front, back, _) = edges(range.start, range.end);
                    let mut all: Vec<i64> =
                        pads.iter().map(|p| p.0 as i64).chain(pads.iter().map(|p| p.1 as i64)).collect();
                    (all[which], all[which + RANK]) = (front, back);
                    Attr::List(all.into_iter().map(Attr::Int).collect())
                })
                .attr("output_padding", move |range| {
                    let missing = edges(range.start, range.end).2;
                    let entry = |(i, n): (usize, &u64)| Attr::Int(if i == which { missing } else { *n as i64 });
                    Attr::List(extra.iter().enumerate().map(entry).collect())
                }),
        );
    }
    Ok(axes)
}

/// The split of a transposed convolution at group boundaries: its weight is sliced by *input* channels.
fn grouped_axis(call: &Typed<'_>, channels: &Channels<'_>) -> Option<SplitAxis> {
    let both = Both::of(channels.data, channels.out, 'C').filter(Both::is_plain)?;
    let (outputs, inputs) = (channels.channels_out.get()?, channels.channels_in.get()?);
    let (per_group, groups) = (outputs / channels.groups, channels.groups);
    if per_group == 0 || channels.kernel.splits('I') || call.attr("channels").is_none() {
        return None;
    }
    let split = SplitAxis::along(call, both.to)
        .grain(per_group)
        .scaled(0, both.from, inputs / groups, per_group)
        .scaled(1, channels.kernel.position('I')?, inputs / groups, per_group)
        .attr("groups", move |range| Attr::Int(((range.end - range.start) / per_group) as i64))
        .attr("channels", |range| Attr::Int((range.end - range.start) as i64));
    Some(split)
}

fn images(call: &Typed<'_>, data: &Layout, out: &Layout) -> Vec<SplitAxis> {
    let both = Both::of(data, out, 'N').filter(Both::is_plain);
    both.map(|both| SplitAxis::along(call, both.to).operand(0, both.from)).into_iter().collect()
}
