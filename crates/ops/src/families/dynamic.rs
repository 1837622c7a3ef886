//! The `dyn.` operators, whose shapes, axes and counts are operands. Dimensions that depend on them are unknown until the
//! operand values are.

use crate::families::broadcast::{INIT_ATTRS, broadcast_result};
use crate::families::repeat::tile_type;
use crate::families::scatter::{ONE_HOT_ATTRS, dense_type, one_hot_type};
use crate::families::slice::{Bounds, STRIDED_ATTRS, sliced};
use crate::families::sort::{TOPK_ATTRS, topk_type};
use crate::families::view::{RESHAPE_ATTRS, drop_axes, new_shape};
use crate::{Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("dyn.reshape", &["data", "newshape"], reshape_type)
        .attrs("relay.attrs.ReshapeAttrs", RESHAPE_ATTRS)
        .class(FusionClass::Injective)
        .alias(Alias::View)
        .wire(kernel!(reshape)),
    OpDef::new("dyn.squeeze", &["data", "axes"], squeeze_type)
        .attrs("relay.attrs.SqueezeAttrs", &[AttrDef::new("axis", AttrKind::OptionalInts, "None")])
        .class(FusionClass::Injective)
        .alias(Alias::View)
        .wire(kernel!(reshape)),
    OpDef::new("dyn.expand_dims", &["data", "axis"], expand_type)
        .attrs("relay.attrs.DynExpandDimsAttrs", &[AttrDef::new("num_newaxis", AttrKind::Int, "1")])
        .attrs_in_metadata()
        .class(FusionClass::Injective)
        .alias(Alias::View)
        .wire(kernel!(reshape)),
    OpDef::new("dyn.broadcast_to", &["data", "shape"], |call| {
        let shape = call.shape_operand(1)?;
        match call.value(1) {
            Some(_) => broadcast_result(call, call.tensor(0)?, &shape),
            None => Ok(TensorType::new(call.tensor(0)?.dtype, shape).into()),
        }
    })
    .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
    .class(FusionClass::Broadcast)
    .wire(kernel!(broadcast)),
    OpDef::new("dyn.zeros", &["shape"], init_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .wire(kernel!(|w, c, _| uniform(w, c, 0))),
    OpDef::new("dyn.ones", &["shape"], init_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .wire(kernel!(|w, c, _| uniform(w, c, 1))),
    OpDef::new("dyn.full", &["fill_value", "shape"], |call| {
        let dtype = call.dtype("dtype")?.unwrap_or(call.tensor(0)?.dtype);
        Ok(TensorType::new(dtype, call.shape_operand(1)?).into())
    })
    .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
    .class(FusionClass::Elementwise)
    .wire(kernel!(|w, c, i| filled(w, c, i[0]))),
    OpDef::new("dyn.tile", &["data", "reps"], |call| {
        let unknown = || call.unknown_shape(1).map(|reps| reps.iter().map(|_| None).collect());
        let reps: Vec<Option<i64>> = known(call, 1).map_or_else(unknown, |v| Ok(v.into_iter().map(Some).collect()))?;
        tile_type(call, &reps)
    })
    .attrs("relay.attrs.TileAttrs", &[AttrDef::required("reps", AttrKind::Ints)])
    .class(FusionClass::Injective)
    .host(kernel!(tile)),
    OpDef::new("dyn.topk", &["data", "k"], |call| topk_type(call, scalar(call, 1)))
        .attrs("relay.attrs.TopkAttrs", TOPK_ATTRS)
        .host(kernel!(topk)),
    OpDef::new("dyn.one_hot", &["indices", "on_value", "off_value", "depth"], |call| {
        one_hot_type(call, scalar(call, 3))
    })
    .attrs("relay.attrs.OneHotAttrs", ONE_HOT_ATTRS)
    .class(FusionClass::OutFusable)
    .host(kernel!(one_hot)),
    OpDef::new("dyn.sparse_to_dense", &["sparse_indices", "sparse_values", "default_value", "output_shape"], |call| {
        dense_type(call, &call.shape_operand(3)?)
    })
    .host(kernel!(sparse_to_dense)),
    OpDef::new("dyn.strided_slice", &["data", "begin", "end", "strides", "slice_mode"], slice_type)
        .attrs("relay.attrs.StridedSliceAttrs", STRIDED_ATTRS)
        .class(FusionClass::Injective)
        .host(kernel!(slice)),
];

/// The value of operand `index` as integers, if known.
fn known(call: &Call<'_>, index: usize) -> Option<Vec<i64>> {
    call.value(index)?.to_i64s()
}

fn scalar(call: &Call<'_>, index: usize) -> Option<i64> {
    known(call, index)?.first().copied()
}

fn reshape_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = match known(call, 1) {
        Some(codes) => new_shape(call, &data.shape, &codes, false)?,
        None => call.unknown_shape(1)?,
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

fn squeeze_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape: Shape = match known(call, 1) {
        Some(axes) => {
            let drop = drop_axes(call, &data.shape, &axes)?;
            data.shape.iter().zip(drop).filter(|(_, drop)| !drop).map(|(dim, _)| *dim).collect()
        }
        None => {
            let dropped = call.unknown_shape(1)?.rank();
            let rank = data.shape.rank().checked_sub(dropped);
            (0..rank.ok_or_else(|| call.error(format!("{data} has no {dropped} axes to squeeze")))?)
                .map(|_| Dim::Any)
                .collect()
        }
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

fn expand_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (rank, count) = (data.shape.rank() as i64, call.int("num_newaxis", 1)?);
    if !(0..=32).contains(&count) {
        return Err(call.error(format!("cannot insert {count} axes")));
    }
    let shape = match scalar(call, 1) {
        Some(axis) => {
            let at = if axis < 0 { axis + rank + 1 } else { axis };
            if !(0..=rank).contains(&at) {
                return Err(call.error(format!("axis {axis} cannot be inserted into a tensor of rank {rank}")));
            }
            let (before, after) = data.shape.split_at(at as usize);
            let new = (0..count).map(|_| Dim::Known(1));
            before.iter().copied().chain(new).chain(after.iter().copied()).collect()
        }
        None => (0..rank + count).map(|_| Dim::Any).collect(),
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

fn init_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), call.shape_operand(0)?).into())
}

fn bounds(call: &Call<'_>, begin: Vec<i64>, end: Vec<i64>, strides: Vec<i64>) -> Result<Bounds, TypeError> {
    let end_is_size = call.text("slice_mode", "end")? == "size";
    Ok(Bounds { begin, end, strides, axes: call.ints("axes")?, end_is_size })
}

fn slice_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = match (known(call, 1), known(call, 2), known(call, 3)) {
        (Some(begin), Some(end), Some(strides)) => {
            sliced(&data.shape, &bounds(call, begin, end, strides)?.spans(call, &data.shape)?)
        }
        _ => {
            let count = call.unknown_shape(1)?.rank();
            data.shape.iter().enumerate().map(|(i, dim)| if i < count { Dim::Any } else { *dim }).collect()
        }
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::Typed;
    use crate::families::slice::kernel::take_spans;
    pub(super) use crate::families::{
        broadcast::kernel::broadcast,
        create::kernel::{filled, uniform},
        repeat::kernel::tile,
        scatter::kernel::{one_hot, sparse_to_dense},
        sort::kernel::topk,
        view::kernel::reshape,
    };
    use crate::kernel::indexing::integers;

    pub(super) fn slice(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = Shape::of(&inputs[0].shape().iter().map(|d| *d as u64).collect::<Vec<_>>());
        let bounds = bounds(call, integers(&inputs[1])?, integers(&inputs[2])?, integers(&inputs[3])?)?;
        let spans: Vec<_> = bounds.spans(call, &shape)?.into_iter().flatten().collect();
        Ok(tvec!(take_spans(&inputs[0], &spans)?))
    }
}
