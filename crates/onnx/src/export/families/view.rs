//! Operators that rearrange elements: views, transpositions, slices, padding, joins and repetitions.

use edgecut_graph::DType;

use super::unary::identity;
use crate::export::write::Write::{self, Many, One};
use crate::{
    error::Result,
    export::{
        builder::OnnxValue,
        layout::BlockedLayout,
        scope::{Scope, axis, known},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("broadcast_to", One(broadcast)),
    ("broadcast_to_like", One(broadcast)),
    ("concatenate", One(concatenate)),
    ("contrib_reverse_reshape", One(reshape)),
    ("dyn.broadcast_to", One(broadcast)),
    ("dyn.expand_dims", One(reshape)),
    ("dyn.reshape", One(reshape_as_given)),
    ("dyn.squeeze", One(reshape)),
    ("expand_dims", One(expand_dims)),
    ("layout_transform", One(layout_transform)),
    ("nn.batch_flatten", One(batch_flatten)),
    ("nn.fifo_buffer", One(fifo_buffer)),
    ("reshape", One(reshape)),
    ("reshape_like", One(reshape)),
    ("slice_like", One(slice_like)),
    ("split", Many(split)),
    ("squeeze", One(squeeze)),
    ("stack", One(stack)),
    ("strided_slice", One(strided_slice)),
    ("transpose", One(transpose)),
    ("vm.reshape_tensor", One(reshape)),
];

/// The operand in the result's shape, of which one size may be unknown.
fn reshape(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, out) = (scope.x(0)?, scope.out()?);
    if scope.ty(0)?.shape == out.shape && scope.dims(0).is_ok() {
        return identity(scope);
    }
    let sizes: Vec<i64> = out.shape.iter().map(|dim| dim.get().map_or(-1, |n| n as i64)).collect();
    match sizes.iter().filter(|size| **size < 0).count() {
        0 | 1 => scope.builder.reshape(&x, &sizes),
        _ => {
            let kept: Option<Vec<i64>> = scope.ints("newshape")?;
            let kept = kept.filter(|sizes| sizes.iter().all(|size| *size >= -1));
            let kept = kept.ok_or_else(|| format!("the shape {} is not known before it runs", out.shape))?;
            let shape = scope.builder.ints(&kept)?;
            // Zeros keep sizes, as in Relay.
            scope.builder.node("Reshape", &[&x, &shape]).one(x.dtype)
        }
    }
}

/// The operand in the shape that the second operand holds.
fn reshape_as_given(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    if scope.out_dims().is_ok() {
        return reshape(scope);
    }
    let (x, shape) = (scope.x(0)?, scope.x(1)?);
    let shape = scope.builder.cast(&shape, DType::I64)?;
    // Zeros keep sizes, as in Relay.
    scope.builder.node("Reshape", &[&x, &shape]).one(x.dtype)
}

fn batch_flatten(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    match scope.out_dims() {
        Ok(_) => reshape(scope),
        Err(_) => scope.builder.node("Flatten", &[&x]).int("axis", 1).one(x.dtype),
    }
}

fn expand_dims(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    if scope.out_dims().is_ok() {
        return reshape(scope);
    }
    let (x, rank, count) = (scope.x(0)?, scope.rank(0)?, scope.int("num_newaxis", 1)?);
    let at = axis(scope.int("axis", 0)?, rank + 1)? as i64;
    let axes: Vec<i64> = (at..at + count).collect();
    scope.builder.unsqueeze(&x, &axes)
}

fn squeeze(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    if scope.out_dims().is_ok() {
        return reshape(scope);
    }
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let axes = scope.axes("axis", rank)?.ok_or("the axes to remove are not known")?;
    match axes.is_empty() {
        true => Ok(x),
        false => scope.builder.squeeze(&x, &axes.iter().map(|axis| *axis as i64).collect::<Vec<_>>()),
    }
}

fn transpose(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let axes = match scope.axes("axes", rank)? {
        Some(axes) if !axes.is_empty() => axes,
        _ => (0..rank).rev().collect(),
    };
    scope.builder.transpose(&x, &axes)
}

fn concatenate(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (parts, rank) = (scope.tuple(0)?, scope.out()?.shape.rank());
    let at = scope.axis("axis", 0, rank)?;
    scope.builder.concat(&parts, at)
}

/// The newest entries of the buffer followed by the data.
fn fifo_buffer(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (data, buffer, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(1)?);
    let at = scope.axis("axis", 0, rank)?;
    let (new, kept) = (scope.dims(0)?[at], scope.dims(1)?[at]);
    if new >= kept {
        return scope.builder.range(&data, at, new - kept, new);
    }
    let old = scope.builder.range(&buffer, at, new, kept)?;
    scope.builder.concat(&[old, data], at)
}

fn stack(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (parts, rank) = (scope.tuple(0)?, scope.out()?.shape.rank());
    let at = scope.axis("axis", 0, rank)?;
    let lifted = parts.iter().map(|part| scope.builder.unsqueeze(part, &[at as i64])).collect::<Result<Vec<_>>>()?;
    scope.builder.concat(&lifted, at)
}

fn split(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let at = scope.axis("axis", 0, rank)?;
    let sizes: Option<Vec<i64>> =
        scope.results().iter().map(|ty| ty.shape.get(at).and_then(|dim| dim.get()).map(|n| n as i64)).collect();
    let sizes = sizes.ok_or("the sizes of its parts are not known")?;
    if sizes.len() == 1 {
        return Ok(vec![x]);
    }
    let (count, sizes) = (sizes.len(), scope.builder.ints(&sizes)?);
    scope.builder.node("Split", &[&x, &sizes]).int("axis", at as i64).many(&vec![x.dtype; count])
}

fn broadcast(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, out) = (scope.x(0)?, scope.out_dims()?);
    match scope.dims(0)? == out {
        true => Ok(x),
        false => scope.builder.expand(&x, &out),
    }
}

fn strided_slice(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank, dims) = (scope.x(0)?, scope.rank(0)?, known(&scope.ty(0)?.shape).ok());
    let (begin, end) = (scope.ints("begin")?.unwrap_or_default(), scope.ints("end")?.unwrap_or_default());
    let strides = scope.ints("strides")?.unwrap_or_default();
    let count = begin.len().max(end.len());
    let axes = scope.axes("axes", rank)?.unwrap_or_else(|| (0..count).collect());
    let by_size = scope.text("slice_mode", "end")? == "size";
    let (mut from, mut to, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for (i, at) in axes.iter().enumerate() {
        let step = if by_size { 1 } else { strides.get(i).copied().unwrap_or(1) };
        let start = begin.get(i).copied().unwrap_or(if step < 0 { i64::MAX } else { 0 });
        let past = if step < 0 { i64::MIN } else { i64::MAX };
        to.push(match end.get(i).copied() {
            None => past,
            Some(size) if by_size && size < 0 => past,
            Some(size) if by_size => {
                let length = dims.as_ref().map(|dims| dims[*at]);
                let counted =
                    if start < 0 { start + length.ok_or("its shape is not known before it runs")? } else { start };
                counted + size
            }
            Some(end) => end,
        });
        from.push(start);
        steps.push(step);
    }
    let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
    if scope.dims(0).is_ok_and(|dims| scope.out_dims().is_ok_and(|out| out == dims)) && steps.iter().all(|s| *s == 1) {
        return Ok(x);
    }
    scope.builder.slice(&x, &axes, &from, &to, &steps)
}

fn slice_like(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, out) = (scope.x(0)?, scope.out_dims()?);
    let axes: Vec<i64> = (0..out.len() as i64).collect();
    let (begin, steps) = (vec![0; out.len()], vec![1; out.len()]);
    scope.builder.slice(&x, &axes, &begin, &out, &steps)
}

/// From one layout string to another; axes may be split into blocks and merged.
fn layout_transform(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    let from = BlockedLayout::parse(scope.text("src_layout", "")?)?;
    let to = BlockedLayout::parse(scope.text("dst_layout", "")?)?;
    let dims = scope.dims(0).ok();
    let letters = from.letters();
    let sizes: Option<Vec<i64>> = dims.as_ref().and_then(|dims| letters.chars().map(|l| from.size(dims, l)).collect());
    let whole = from.unpack(scope.builder, &x, dims.as_deref(), &letters)?;
    // Blocks may have been padded: the result's own sizes say how long axes without blocks are.
    let out = scope.out_dims().ok();
    let wanted: Option<Vec<i64>> = out.as_ref().and_then(|out| letters.chars().map(|l| to.size(out, l)).collect());
    let mut at = whole;
    if let (Some(sizes), Some(wanted)) = (&sizes, &wanted) {
        for (axis, (size, wanted)) in sizes.iter().zip(wanted).enumerate() {
            if wanted < size {
                at = scope.builder.range(&at, axis, 0, *wanted)?;
            }
        }
        let sizes: Vec<i64> = sizes.iter().zip(wanted).map(|(size, wanted)| *size.min(wanted)).collect();
        return to.pack(scope.builder, &at, Some(&sizes), &letters);
    }
    to.pack(scope.builder, &at, None, &letters)
}
