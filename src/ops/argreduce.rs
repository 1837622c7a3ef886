//! argmax and argmin: where the extreme element along some axes is.

use tract_core::internal::*;

use super::element::{Number, for_dtype};
use super::places::{each_place, flat, strides};
use super::reduce::{reduced_axes, without};
use super::rules::per_input;
use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use crate::graph::{DType, Dim, TensorType, Type};

const ARG_ATTRS: &[AttrDef] = &[
    AttrDef::new("axis", AttrKind::OptionalInts, "None"),
    AttrDef::new("keepdims", AttrKind::Bool, "False"),
    AttrDef::new("select_last_index", AttrKind::Bool, "False"),
    AttrDef::new("exclude", AttrKind::Bool, "False"),
];

pub(super) const OPS: &[OpDef] = &[
    arg("argmax").host(|call, inputs| extreme(call, &inputs[0], true)),
    arg("argmin").host(|call, inputs| extreme(call, &inputs[0], false)),
];

const fn arg(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], arg_type)
        .attrs("relay.attrs.ArgReduceAttrs", ARG_ATTRS)
        .class(FusionClass::Reduce)
        .flops(per_input::<1>)
}

/// Indices have the integer type of TVM's dimension objects.
fn arg_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = without(call, &data.shape, &reduced_axes(call, &data.shape)?)?;
    let wide = data.shape.iter().any(|dim| matches!(dim, Dim::Wide(_)));
    Ok(TensorType::new(if wide { DType::I64 } else { DType::I32 }, shape).into())
}

/// The row-major index, among the reduced axes, of the extreme element.
///
/// As TVM compares: from the lowest finite value at index -1, which stays if nothing is above it, and away from
/// NaN at the next element.
fn extreme(call: &Typed<'_>, data: &Tensor, greatest: bool) -> TractResult<TVec<Tensor>> {
    let axes = reduced_axes(call, &call.tensor(0)?.shape)?;
    let last = call.flag("select_last_index", false)?;
    let shape = data.shape();
    let kept: TVec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
    let dims = |axes: &[usize]| -> TVec<usize> { axes.iter().map(|axis| shape[*axis]).collect() };
    let (kept_strides, inner_strides) = (strides(&dims(&kept)), strides(&dims(&axes)));
    let mut found: Vec<i64> = vec![-1; dims(&kept).iter().product()];
    for_dtype!(data.datum_type(), T in number => {
        let start = if greatest { T::LOWEST } else { T::HIGHEST };
        let mut best = vec![start; found.len()];
        let elements = data.try_as_plain_ram()?;
        let mut elements = elements.as_slice::<T>()?.iter();
        each_place(shape, |place| {
            let at = |axes: &[usize]| -> TVec<usize> { axes.iter().map(|axis| place[*axis]).collect() };
            let (out, index) = (flat(&kept_strides, &at(&kept)), flat(&inner_strides, &at(&axes)) as i64);
            if let Some(&x) = elements.next() {
                let ahead = if greatest { best[out] > x } else { best[out] < x };
                let tied = best[out] == x && !last;
                if !ahead && !tied {
                    (best[out], found[out]) = (x, index);
                }
            }
            Ok(())
        })?;
    });
    let found = Tensor::from_shape(&call.dims()?, &found)?;
    Ok(tvec!(match call.result()?.dtype {
        DType::I64 => found,
        _ => found.cast_to::<i32>()?.into_owned(),
    }))
}
