//! `transpose`: permutes axes.

use crate::split::{Linearity, SplitAxis};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("transpose", &["data"], transposed)
    .attrs("relay.attrs.TransposeAttrs", &[AttrDef::required("axes", AttrKind::OptionalInts)])
    .class(FusionClass::Injective)
    .split(transpose_axes)
    .linearity(Linearity::Linear(&[0]))
    .wire(kernel!(transpose))];

/// By axis of the result: the corresponding axis of the operand.
fn permutation(call: &Call<'_>, shape: &Shape) -> Result<Vec<usize>, TypeError> {
    let Some(axes) = call.ints("axes")?.filter(|axes| !axes.is_empty()) else {
        return Ok((0..shape.rank()).rev().collect());
    };
    let axes = axes.into_iter().map(|axis| call.axis_in(axis, shape)).collect::<Result<Vec<usize>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    match sorted.into_iter().eq(0..shape.rank()) {
        true => Ok(axes),
        false => Err(call.error(format!("axes must be a permutation of the {} axes", shape.rank()))),
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

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::Wiring;

    pub(super) fn transpose(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let permutation = permutation(call, &call.tensor(0)?.shape)?;
        let mut outlet = inputs[0];
        for step in tract_core::ops::change_axes::perm_to_ops(&permutation) {
            outlet = wiring.one(step, &[outlet])?;
        }
        Ok(tvec!(outlet))
    }
}
