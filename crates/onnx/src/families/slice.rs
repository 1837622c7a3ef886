//! Parts of tensors, and tensors of parts: slices, splits, concatenation, padding, repetition.

use edgecut_graph::{Attr, TensorId};

use crate::{
    compose::{list, many, one, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Concat", |call| {
        let tensors = call.all()?;
        let first = *tensors.first().ok_or("it needs at least one input")?;
        let axis = call.axis(call.int("axis", 1), first)?;
        one(call.concat(&tensors, axis)?)
    }),
    ("Slice", slice),
    ("Split", split),
    ("Pad", pad),
    ("Tile", tile),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
];

/// Bounds are attributes until operator set 9, then inputs.
fn slice(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let given = |name: &str, index: usize, what: &str| match call.ints(name) {
        Some(values) => Ok(Some(values)),
        None => call.content_ints(index, what),
    };
    let (starts, ends) = (given("starts", 1, "the starts")?, given("ends", 2, "the ends")?);
    let (starts, ends) = starts.zip(ends).ok_or("starts or ends are missing")?;
    let axes = given("axes", 3, "the axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.content_ints(4, "the steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if starts.len() != ends.len() || starts.len() != axes.len() || starts.len() != steps.len() {
        return Err("starts, ends, axes and steps differ in length".to_string());
    }
    let dims = call.dims(x)?;
    let mut made = x;
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let axis = call.axis(axis, x)?;
        let size = dims[axis] as i64;
        let (start, end, step) = bounds(start, end, step, size)?;
        if (start, end, step) == (0, size, 1) {
            continue;
        }
        // -1, before the first element, would count from the end.
        let end = if end < 0 { -size - 1 } else { end };
        let attrs = vec![
            ("begin", list(&[start])),
            ("end", list(&[end])),
            ("strides", list(&[step])),
            ("axes", list(&[axis as i64])),
        ];
        made = call.op("strided_slice", &[made], attrs)?;
    }
    one(made)
}

/// The bounds of a slice of an axis of `size`, clamped as ONNX says; where the step is negative, -1 is the end before the first
/// element. Of nothing, the empty slice from the beginning on.
fn bounds(start: i64, end: i64, step: i64, size: i64) -> Result<(i64, i64, i64)> {
    let from_the_front = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    let (start, end) = (from_the_front(start), from_the_front(end));
    let (start, end) = match step {
        0 => return Err("a step of 0".to_string()),
        _ if size == 0 => (0, 0),
        1.. => (start.clamp(0, size), end.clamp(0, size)),
        _ => (start.clamp(0, size - 1), end.clamp(-1, size - 1)),
    };
    let is_empty = if step > 0 { end <= start } else { end >= start };
    Ok(if is_empty { (0, 0, 1) } else { (start, end, step) })
}

/// Sizes are an attribute until operator set 12; without them parts are equal, the last one smaller.
fn split(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis", 0), x)?;
    let size = call.dims(x)?[axis];
    let given = match call.ints("split") {
        Some(sizes) => Some(sizes),
        None => call.content_ints(1, "the sizes of the parts")?,
    };
    let parts: Vec<u64> = match given {
        Some(sizes) => {
            sizes.iter().map(|n| u64::try_from(*n).map_err(|_| format!("{n} is not a size"))).collect::<Result<_>>()?
        }
        None => {
            let count = call.int("num_outputs", call.node.output.len() as i64).max(1) as u64;
            call.lowering.check_operators(count)?;
            let each = size.div_ceil(count);
            (0..count).map(|part| size.saturating_sub(part.saturating_mul(each)).min(each)).collect()
        }
    };
    if parts.iter().try_fold(0u64, |n, part| n.checked_add(*part)) != Some(size) {
        return Err(format!("parts of {parts:?} of an axis of {size}"));
    }
    many(call.split(x, axis, &parts)?)
}

fn pad(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let pads = match call.ints("pads").or_else(|| call.ints("paddings")) {
        Some(pads) => pads,
        None => call.content_ints(1, "the padding")?.ok_or("the padding is missing")?,
    };
    let rank = call.rank(x);
    let axes: Vec<usize> = match call.content_ints(3, "the axes")? {
        Some(axes) => axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} sizes of padding, expected {}", pads.len(), 2 * axes.len()));
    }
    let mut widths = vec![[0i64; 2]; rank];
    for (at, axis) in axes.iter().enumerate() {
        widths[*axis] = [pads[at], pads[axes.len() + at]];
    }
    let dims = call.dims(x)?;
    let mut made = x;
    // Negative padding cuts.
    for (axis, width) in widths.iter_mut().enumerate().filter(|(_, width)| width.iter().any(|n| *n < 0)) {
        let size = dims[axis] as i64;
        let (begin, end) = ((-width[0]).max(0), size - (-width[1]).max(0));
        if begin > end {
            return Err(format!("padding cuts more than the {size} elements of axis {axis}"));
        }
        made = call.slice(made, axis, begin as u64, end as u64)?;
        *width = width.map(|n| n.max(0));
    }
    if widths.iter().flatten().all(|n| *n == 0) {
        return one(made);
    }
    let widths = Attr::List(widths.iter().map(|width| list(width)).collect());
    let mode = call.text("mode", "constant");
    let mode = match mode {
        "constant" | "edge" | "reflect" => mode,
        other => return Err(format!("padding of mode `{other}` is not supported")),
    };
    let value = match call.optional(2)? {
        Some(value) => call.reshape(value, &[])?,
        None => call.like(call.float("value", 0.0), x)?,
    };
    one(call.op("nn.pad", &[made, value], vec![("pad_width", widths), ("pad_mode", text(mode))])?)
}

fn tile(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let repeats = call.content_ints(1, "the repetitions")?.ok_or("the repetitions are missing")?;
    one(call.op("tile", &[x], vec![("reps", list(&repeats))])?)
}

fn block(call: &Call<'_, '_>) -> Vec<(&'static str, Attr)> {
    vec![("block_size", Attr::Int(call.int("blocksize", 1))), ("layout", text("NCHW"))]
}

fn depth_to_space(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x: TensorId = call.input(0)?;
    let mut attrs = block(call);
    attrs.push(("mode", text(call.text("mode", "DCR"))));
    one(call.op("nn.depth_to_space", &[x], attrs)?)
}

fn space_to_depth(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let attrs = block(call);
    one(call.op("nn.space_to_depth", &[x], attrs)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_clamped_as_onnx_says() {
        const FAR: i64 = i64::MAX;
        for (start, end, step, size, want) in [
            (1, FAR, 1, 5, (1, 5, 1)),
            (-100, 3, 1, 5, (0, 3, 1)),
            (-2, -1, 1, 5, (3, 4, 1)),
            (3, 1, 1, 5, (0, 0, 1)),
            (3, i64::MIN, -1, 5, (3, -1, -1)),
            (FAR, 1, -2, 5, (4, 1, -2)),
            (-100, i64::MIN, -1, 5, (0, -1, -1)),
            (0, 4, -1, 7, (0, 0, 1)),
            (-1, -1, -1, 5, (0, 0, 1)),
            (0, FAR, 2, 0, (0, 0, 1)),
            (FAR, i64::MIN, -1, 0, (0, 0, 1)),
        ] {
            assert_eq!(bounds(start, end, step, size), Ok(want), "{start}:{end}:{step} of {size}");
        }
        assert!(bounds(0, 1, 0, 5).is_err());
    }
}
