//! `collapse_sum_like` and `collapse_sum_to`: sums over broadcast axes, the adjoint of broadcasting.

use crate::families::broadcast::INIT_ATTRS;
use crate::rules::per_input;
use crate::{Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("collapse_sum_like", &["data", "collapse_type"], like_type)
        .class(FusionClass::Reduce)
        .flops(per_input::<1>)
        .wire(kernel!(collapse)),
    OpDef::new("collapse_sum_to", &["data", "shape"], to_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .attrs_in_metadata()
        .class(FusionClass::Reduce)
        .flops(per_input::<1>)
        .wire(kernel!(collapse)),
];

fn like_type(call: &Call<'_>) -> Result<Type, TypeError> {
    collapsed(call, &call.tensor(1)?.shape)
}

/// The shape is an attribute, or the value of the operand; else its rank is the length of the operand.
fn to_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let shape = call.shape("shape")?.map_or_else(|| call.shape_operand(1), Ok)?;
    collapsed(call, &shape)
}

fn collapsed(call: &Call<'_>, shape: &Shape) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let whole = call.broadcast(&data.shape, shape)?;
    match whole.rank() == data.shape.rank()
        && whole.iter().zip(data.shape.iter()).all(|(w, d)| w.same(*d) || *d == Dim::Any)
    {
        true => Ok(TensorType::new(data.dtype, shape.clone()).into()),
        false => Err(call.error(format!("{data} is not a broadcast of shape {shape}"))),
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::nn::{Reduce, Reducer};

    use crate::Typed;
    use crate::kernel::Wiring;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::with_last;

    pub(super) fn collapse(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?;
        let axes = summed_axes(fact.shape.as_concrete().context("the shape is unknown")?, &call.dims()?);
        if fact.datum_type != DatumType::F32 {
            return wiring.host(call, collapse_on_host, &inputs[..1]);
        }
        let mut outlet = inputs[0];
        if !axes.is_empty() {
            outlet = wiring.one(Reduce::new(axes, Reducer::Sum), &[outlet])?;
        }
        Ok(tvec!(wiring.reshape(outlet, &call.dims()?)?))
    }

    /// The axes of `data` that `to` lacks or has with length 1.
    fn summed_axes(data: &[usize], to: &[usize]) -> TVec<usize> {
        let lead = data.len() - to.len();
        (0..data.len()).filter(|axis| *axis < lead || (to[axis - lead] == 1 && data[*axis] != 1)).collect()
    }

    fn collapse_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let dims = call.dims()?;
        let (rows, length) = with_last(&inputs[0], &summed_axes(inputs[0].shape(), &dims))?;
        for_dtype!(rows.datum_type(), T in number => {
            let plain = rows.try_as_plain_ram()?;
            let mut totals = vec![T::default(); dims.iter().product()];
            for (total, row) in totals.iter_mut().zip(plain.as_slice::<T>()?.chunks_exact(length.max(1))) {
                *total = row.iter().fold(T::default(), |a, b| Number::add(a, *b));
            }
            Ok(tvec!(Tensor::from_shape(&dims, &totals)?))
        })
    }
}
