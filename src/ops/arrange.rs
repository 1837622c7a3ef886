//! Moving and repeating elements by a rule that does not depend on their values: transpose, broadcast_to.

use tract_core::internal::*;
use tract_core::ops::array::MultiBroadcastTo;

use super::create::{INIT_ATTRS, shape_attr};
use super::kernel::Wiring;
use super::split::{SplitAxis, aligned, elementwise};
use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use crate::graph::{Dim, Shape, TensorType, Type};

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("transpose", &["data"], transposed)
        .attrs("relay.attrs.TransposeAttrs", &[AttrDef::required("axes", AttrKind::OptionalInts)])
        .class(FusionClass::Injective)
        .split(transpose_axes)
        .wire(transpose),
    OpDef::new("broadcast_to", &["data"], broadcast_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .class(FusionClass::Broadcast)
        .split(broadcast_axes)
        .wire(broadcast),
    OpDef::new("broadcast_to_like", &["data", "broadcast_type"], broadcast_like_type)
        .class(FusionClass::Broadcast)
        .split(elementwise)
        .wire(broadcast),
];

/// The operand's axis for each axis of the result of a transpose.
fn permutation(call: &Call<'_>, shape: &Shape) -> Result<Vec<usize>, TypeError> {
    let Some(axes) = call.ints("axes")?.filter(|axes| !axes.is_empty()) else {
        return Ok((0..shape.rank()).rev().collect());
    };
    let axes = axes.into_iter().map(|axis| call.axis_in(axis, shape)).collect::<Result<Vec<usize>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    match sorted.into_iter().eq(0..shape.rank()) {
        true => Ok(axes),
        false => Err(call.error(format!("axes must name each of the {} axes once", shape.rank()))),
    }
}

fn transposed(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = permutation(call, &data.shape)?.into_iter().map(|axis| data.shape[axis]).collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

fn transpose_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let from = permutation(call, &call.tensor(0)?.shape)?;
    Ok(from.into_iter().enumerate().map(|(axis, from)| SplitAxis::along(call, axis).operand(0, from)).collect())
}

/// The shape is an attribute, which a shard has its own of.
fn broadcast_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (data, shape) = (call.tensor(0)?, &call.result()?.shape);
    let axis = |axis: usize| {
        let split = SplitAxis::along(call, axis).attr("shape", shape_attr(shape, axis));
        match aligned(data, shape.rank(), axis, shape[axis]) {
            Some(at) => split.operand(0, at),
            None => split,
        }
    };
    Ok((0..shape.rank()).map(axis).collect())
}

fn transpose(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let permutation = permutation(call, &call.tensor(0)?.shape)?;
    let mut outlet = inputs[0];
    for step in tract_core::ops::change_axes::perm_to_ops(&permutation) {
        outlet = wiring.one(step, &[outlet])?;
    }
    Ok(tvec!(outlet))
}

fn broadcast_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    broadcast_result(call, data, &shape)
}

fn broadcast_like_type(call: &Call<'_>) -> Result<Type, TypeError> {
    broadcast_result(call, call.tensor(0)?, &call.tensor(1)?.shape)
}

/// `data` broadcast to exactly `shape`.
pub(super) fn broadcast_result(call: &Call<'_>, data: &TensorType, shape: &Shape) -> Result<Type, TypeError> {
    let joined = call.broadcast(&data.shape, shape)?;
    let fits =
        joined.rank() == shape.rank() && joined.iter().zip(shape.iter()).all(|(j, s)| j.same(*s) || *s == Dim::Any);
    match fits {
        true => Ok(TensorType::new(data.dtype, shape.clone()).into()),
        false => Err(call.error(format!("shape {} cannot be broadcast to {shape}", data.shape))),
    }
}

/// Broadcasts the first operand to the shape of the result.
pub(super) fn broadcast(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let shape = call.dims()?;
    let mut outlet = inputs[0];
    for _ in wiring.fact(outlet)?.rank()..shape.len() {
        outlet = wiring.one(AxisOp::Add(0), &[outlet])?;
    }
    if wiring.fact(outlet)?.shape.as_concrete() != Some(&*shape) {
        outlet = wiring.one(MultiBroadcastTo::new(ShapeFact::from_dims(shape)), &[outlet])?;
    }
    Ok(tvec!(outlet))
}
