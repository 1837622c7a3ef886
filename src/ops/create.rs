//! Making tensors from shapes and numbers: zeros, ones, full, and their like.

use tract_core::internal::*;

use super::arrange::broadcast;
use super::cast::cast_to;
use super::kernel::{Wiring, datum_type};
use super::rules::same_type;
use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use crate::graph::{DType, TensorType, Type};

pub(super) const INIT_ATTRS: &[AttrDef] =
    &[AttrDef::required("shape", AttrKind::OptionalInts), AttrDef::new("dtype", AttrKind::DType, "\"\"")];

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("zeros", &[], init_type).attrs("relay.attrs.InitOpAttrs", INIT_ATTRS).wire(|w, c, _| uniform(w, c, 0)),
    OpDef::new("ones", &[], init_type).attrs("relay.attrs.InitOpAttrs", INIT_ATTRS).wire(|w, c, _| uniform(w, c, 1)),
    OpDef::new("zeros_like", &["data"], same_type).class(FusionClass::Elementwise).wire(|w, c, _| uniform(w, c, 0)),
    OpDef::new("ones_like", &["data"], same_type).class(FusionClass::Elementwise).wire(|w, c, _| uniform(w, c, 1)),
    OpDef::new("full", &["fill_value"], full_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .class(FusionClass::Elementwise)
        .wire(|w, c, i| filled(w, c, i[0])),
    OpDef::new("full_like", &["data", "fill_value"], same_type)
        .class(FusionClass::Elementwise)
        .wire(|w, c, i| filled(w, c, i[1])),
];

fn init_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), shape).into())
}

fn full_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let value = call.tensor(0)?;
    if value.shape.rank() != 0 {
        return Err(call.error(format!("fill_value is {value}, expected a scalar")));
    }
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(value.dtype), shape).into())
}

/// A constant of the result's type with every element `value`.
fn uniform(wiring: &mut Wiring<'_>, call: &Typed<'_>, value: u8) -> TractResult<TVec<OutletId>> {
    let to = datum_type(call.result()?.dtype).context("the dtype cannot be computed with")?;
    let shape = call.dims()?;
    let scalar = match to {
        DatumType::Bool => tensor0(value != 0),
        _ => tensor0(value).cast_to_dt(to)?.into_owned(),
    };
    Ok(tvec!(wiring.constant(scalar.broadcast_scalar_to_shape(&shape)?)?))
}

/// The scalar `value` in the dtype and shape of the result.
fn filled(wiring: &mut Wiring<'_>, call: &Typed<'_>, value: OutletId) -> TractResult<TVec<OutletId>> {
    let to = datum_type(call.result()?.dtype).context("the dtype cannot be computed with")?;
    let value = cast_to(wiring, to, value)?;
    broadcast(wiring, call, &[value])
}
