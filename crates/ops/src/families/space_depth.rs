//! Space-to-depth, space-to-batch and their inverses.

use crate::{
    AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed,
    layout::{Layout, map_dim},
    split::SplitAxis,
};
use edgecut_graph::{Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.space_to_depth", &["data"], |call| sub_pixel_type(call, true))
        .attrs("relay.attrs.SubPixelAttrs", SUB_PIXEL)
        .class(FusionClass::Injective)
        .split(|call| sub_pixel_axes(call, true))
        .wire(kernel!(space_to_depth)),
    OpDef::new("nn.depth_to_space", &["data"], |call| sub_pixel_type(call, false))
        .attrs("relay.attrs.SubPixelAttrs", SUB_PIXEL)
        .class(FusionClass::Injective)
        .split(|call| sub_pixel_axes(call, false))
        .wire(kernel!(depth_to_space)),
    OpDef::new("nn.space_to_batch_nd", &["data"], space_to_batch_type)
        .attrs(
            "relay.attrs.SpaceToBatchNDAttrs",
            &[
                AttrDef::new("block_shape", AttrKind::Ints, "[1, 1]"),
                AttrDef::required("paddings", AttrKind::Ints),
                AttrDef::new("pad_value", AttrKind::Float, "0f"),
            ],
        )
        .class(FusionClass::Injective)
        .wire(kernel!(space_to_batch)),
    OpDef::new("nn.batch_to_space_nd", &["data"], batch_to_space_type)
        .attrs(
            "relay.attrs.BatchToSpaceNDAttrs",
            &[AttrDef::new("block_shape", AttrKind::Ints, "[1, 1]"), AttrDef::required("crops", AttrKind::Ints)],
        )
        .class(FusionClass::Injective)
        .wire(kernel!(batch_to_space)),
];

const SUB_PIXEL: &[AttrDef] = &[
    AttrDef::new("block_size", AttrKind::Int, "1"),
    AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
    AttrDef::new("mode", AttrKind::Str, "\"DCR\""),
];

/// The block size and the layout, which must be NCHW or NHWC without blocks.
fn sub_pixel(call: &Call<'_>) -> Result<(u64, Layout), TypeError> {
    let block = u64::try_from(call.int("block_size", 1)?).ok().filter(|n| *n > 0);
    let block = block.ok_or_else(|| call.error("block_size must be at least 1"))?;
    let layout = call.layout("layout", "NCHW", "NCHW")?;
    match layout.rank() {
        4 => Ok((block, layout)),
        _ => Err(call.error("the layout must not have blocks")),
    }
}

fn sub_pixel_type(call: &Call<'_>, to_depth: bool) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (block, layout) = sub_pixel(call)?;
    let area = block.checked_mul(block).ok_or_else(|| call.error(format!("blocks of {block} are too large")))?;
    let sizes = call.sizes_in(&layout, data, "NCHW")?;
    let divided = |dim: Dim, by: u64| match dim.get() {
        Some(n) if n % by != 0 => Err(call.error(format!("an axis of {n} is not a multiple of blocks of {block}"))),
        _ => Ok(map_dim(dim, |n| n / by)),
    };
    let times = |dim: Dim, by: u64| map_dim(dim, |n| n.saturating_mul(by));
    let sizes = match to_depth {
        true => [sizes[0], times(sizes[1], area), divided(sizes[2], block)?, divided(sizes[3], block)?],
        false => [sizes[0], divided(sizes[1], area)?, times(sizes[2], block), times(sizes[3], block)],
    };
    let shape = layout.shape("NCHW", &sizes).ok_or_else(|| call.error("the layout must be NCHW or NHWC"))?;
    Ok(TensorType::new(data.dtype, shape).into())
}

/// The batch axis, and the spatial axes at block boundaries.
fn sub_pixel_axes(call: &Typed<'_>, to_depth: bool) -> Result<Vec<SplitAxis>, TypeError> {
    let (block, layout) = sub_pixel(call)?;
    let (times, per) = if to_depth { (block, 1) } else { (1, block) };
    let mut axes = Vec::new();
    for (letter, times, per) in [('N', 1, 1), ('H', times, per), ('W', times, per)] {
        let at = layout.position(letter).ok_or_else(|| call.error("the layout must be NCHW or NHWC"))?;
        axes.push(SplitAxis::along(call, at).scaled(0, at, times, per));
    }
    Ok(axes)
}

/// An axis that is divided into blocks, and the padding or cropping at both ends.
struct Blocked {
    size: u64,
    before: u64,
    after: u64,
}

/// The axes after the batch; the attribute `key` has their padding or cropping.
fn blocks(call: &Call<'_>, key: &str) -> Result<Vec<Blocked>, TypeError> {
    let rank = call.ints("block_shape")?.map_or(2, |b| b.len());
    let sizes = call.steps("block_shape", rank, 1)?;
    if rank + 1 > call.tensor(0)?.shape.rank() {
        return Err(call.error("block_shape has more axes than the data"));
    }
    let blocked = |(size, (before, after)): (u64, (i64, i64))| {
        Some(Blocked { size, before: u64::try_from(before).ok()?, after: u64::try_from(after).ok()? })
    };
    let blocks = sizes.into_iter().zip(call.pairs(key, rank)?).map(blocked);
    blocks.collect::<Option<_>>().ok_or_else(|| call.error(format!("{key} must not be negative")))
}

fn space_to_batch_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let mut out = call.tensor(0)?.clone();
    let blocks = blocks(call, "paddings")?;
    for (dim, Blocked { size, before, after }) in out.shape[1..].iter_mut().zip(&blocks) {
        let padded = map_dim(*dim, |n| n + before + after);
        if padded.get().is_some_and(|n| n % size != 0) {
            return Err(call.error(format!("a padded axis of {padded} is not a multiple of blocks of {size}")));
        }
        *dim = map_dim(padded, |n| n / size);
    }
    let whole = blocks.iter().fold(1, |n: u64, b| n.saturating_mul(b.size));
    out.shape[0] = map_dim(out.shape[0], |n| n.saturating_mul(whole));
    Ok(out.into())
}

fn batch_to_space_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let mut out = call.tensor(0)?.clone();
    let blocks = blocks(call, "crops")?;
    for (dim, Blocked { size, before, after }) in out.shape[1..].iter_mut().zip(&blocks) {
        let whole = map_dim(*dim, |n| n.saturating_mul(*size));
        if whole.get().is_some_and(|n| n < before + after) {
            return Err(call.error(format!("crops {before} and {after} exceed an axis of {whole}")));
        }
        *dim = map_dim(whole, |n| n - before - after);
    }
    let whole = blocks.iter().fold(1, |n: u64, b| n.saturating_mul(b.size));
    if out.shape[0].get().is_some_and(|n| n % whole != 0) {
        return Err(call.error(format!("a batch of {} is not a multiple of {whole}", out.shape[0])));
    }
    out.shape[0] = map_dim(out.shape[0], |n| n / whole);
    Ok(out.into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::{Pad, PadMode, Slice};

    use crate::kernel::Wiring;

    /// `out[n, (i·b + j)·C + c, y, x] = data[n, c, y·b + i, x·b + j]`
    pub(super) fn space_to_depth(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (block, layout) = sub_pixel(call)?;
        let (block, plain) = (block as usize, Layout::parse("NCHW").map_err(TractError::msg)?);
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let [n, c, h, w] = wiring.concrete(data)?[..] else { bail!("the data must have rank 4") };
        let split = wiring.reshape(data, &[n, c, h / block, block, w / block, block])?;
        let turned = wiring.permute(split, &[0, 3, 5, 1, 2, 4])?;
        let made = wiring.reshape(turned, &[n, block * block * c, h / block, w / block])?;
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    /// `out[n, c, y·b + i, x·b + j]` is `data[n, (i·b + j)·C + c, y, x]` in mode DCR, `data[n, c·b² + i·b + j, y, x]`
    /// in mode CRD.
    pub(super) fn depth_to_space(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (block, layout) = sub_pixel(call)?;
        let (b, plain) = (block as usize, Layout::parse("NCHW").map_err(TractError::msg)?);
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let [n, c, h, w] = wiring.concrete(data)?[..] else { bail!("the data must have rank 4") };
        let c = c / (b * b);
        let turned = match call.text("mode", "DCR")? {
            "CRD" => {
                let split = wiring.reshape(data, &[n, c, b, b, h, w])?;
                wiring.permute(split, &[0, 1, 4, 2, 5, 3])?
            }
            _ => {
                let split = wiring.reshape(data, &[n, b, b, c, h, w])?;
                wiring.permute(split, &[0, 3, 4, 1, 5, 2])?
            }
        };
        let made = wiring.reshape(turned, &[n, c, h * b, w * b])?;
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    pub(super) fn space_to_batch(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let blocks = blocks(call, "paddings")?;
        let fact = wiring.fact(inputs[0])?;
        let (dtype, rank) = (fact.datum_type, fact.rank());
        let mut pads = vec![(0, 0); rank];
        pads[1..].iter_mut().zip(&blocks).for_each(|(pad, b)| *pad = (b.before as usize, b.after as usize));
        let value = tensor0(call.float("pad_value", 0.0)?).cast_to_dt(dtype)?.into_owned().into_arc_tensor();
        let padded = wiring.one(Pad { pads, mode: PadMode::Constant(value) }, &[inputs[0]])?;
        let shape = wiring.concrete(padded)?;
        let spatial = blocks.len();
        let mut split = vec![shape[0]];
        for (n, block) in shape[1..].iter().zip(&blocks) {
            split.extend([n / block.size as usize, block.size as usize]);
        }
        split.extend(&shape[1 + spatial..]);
        // Order: the inner parts of all axes, the batch, the outer parts, the remaining axes.
        let mut order: Vec<usize> = (0..spatial).map(|i| 2 * i + 2).collect();
        order.push(0);
        order.extend((0..spatial).map(|i| 2 * i + 1));
        order.extend(1 + 2 * spatial..split.len());
        let split = wiring.reshape(padded, &split)?;
        let turned = wiring.permute(split, &order)?;
        Ok(tvec![wiring.reshape(turned, &call.dims()?)?])
    }

    pub(super) fn batch_to_space(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let blocks = blocks(call, "crops")?;
        let shape = wiring.concrete(inputs[0])?;
        let spatial = blocks.len();
        let whole: u64 = blocks.iter().map(|b| b.size).product();
        let mut split: Vec<usize> = blocks.iter().map(|b| b.size as usize).collect();
        split.push(shape[0] / whole as usize);
        split.extend(&shape[1..]);
        let mut order = vec![spatial];
        order.extend((0..spatial).flat_map(|i| [spatial + 1 + i, i]));
        order.extend(2 * spatial + 1..split.len());
        let mut joined = vec![shape[0] / whole as usize];
        joined.extend(shape[1..].iter().zip(&blocks).map(|(n, b)| n * b.size as usize));
        joined.extend(&shape[1 + spatial..]);
        let split = wiring.reshape(inputs[0], &split)?;
        let turned = wiring.permute(split, &order)?;
        let mut at = wiring.reshape(turned, &joined)?;
        for (i, Blocked { before, after, .. }) in blocks.iter().enumerate() {
            if before + after > 0 {
                at = wiring.one(Slice::new(i + 1, *before as usize, joined[i + 1] - *after as usize), &[at])?;
            }
        }
        Ok(tvec![at])
    }
}
