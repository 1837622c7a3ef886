//! `broadcast_to` and `broadcast_to_like`: numpy broadcasting to a given shape.

use crate::{
    AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed,
    split::{SplitAxis, aligned, elementwise, with_entry},
};
use edgecut_graph::{Attr, Dim, Shape, TensorType, Type};
use std::ops::Range;

/// Attributes of the operators that create a tensor of a given shape (`relay.attrs.InitOpAttrs`).
pub(crate) const INIT_ATTRS: &[AttrDef] =
    &[AttrDef::required("shape", AttrKind::OptionalInts), AttrDef::new("dtype", AttrKind::DType, "\"\"")];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("broadcast_to", &["data"], broadcast_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .class(FusionClass::Broadcast)
        .split(broadcast_axes)
        .wire(kernel!(broadcast)),
    OpDef::new("broadcast_to_like", &["data", "broadcast_type"], broadcast_like_type)
        .class(FusionClass::Broadcast)
        .split(elementwise)
        .wire(kernel!(broadcast)),
];

/// Every axis; a shard has its own attribute `shape`.
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

/// The attribute `shape` of a shard of a tensor of `shape`, split along `axis`.
pub(crate) fn shape_attr(shape: &Shape, axis: usize) -> impl Fn(&Range<u64>) -> Attr + Send + Sync + 'static {
    let sizes: Vec<i64> = shape.iter().map(|d| d.get().unwrap_or(0) as i64).collect();
    move |range| with_entry(&sizes, axis, (range.end - range.start) as i64)
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
pub(crate) fn broadcast_result(call: &Call<'_>, data: &TensorType, shape: &Shape) -> Result<Type, TypeError> {
    let joined = call.broadcast(&data.shape, shape)?;
    let fits =
        joined.rank() == shape.rank() && joined.iter().zip(shape.iter()).all(|(j, s)| j.same(*s) || *s == Dim::Any);
    match fits {
        true => Ok(TensorType::new(data.dtype, shape.clone()).into()),
        false => Err(call.error(format!("shape {} cannot be broadcast to {shape}", data.shape))),
    }
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::{internal::*, ops::array::MultiBroadcastTo};

    use crate::kernel::Wiring;

    /// Broadcasts the first operand to the shape of the result.
    pub(crate) fn broadcast(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
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
}
