//! `clip`: clamps every element.

use crate::rules::{per_output, same_type};
use crate::split::elementwise;
use crate::{Alias, AttrDef, AttrKind, FusionClass, OpDef};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("clip", &["data"], same_type)
    .attrs(
        "relay.attrs.ClipAttrs",
        &[AttrDef::required("a_min", AttrKind::Float), AttrDef::required("a_max", AttrKind::Float)],
    )
    .class(FusionClass::Elementwise)
    .alias(Alias::InPlace)
    .flops(per_output::<2>)
    .split(elementwise)
    .onnx()
    .wire(kernel!(clip))
    .recipe(kernel!(|call| {
        let (low, high) = bounds(call).ok()?;
        Some(Recipe::Clip { low, high, keeps_nan: call.is_onnx() })
    }))];

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::math;

    use crate::Typed;
    use crate::kernel::Wiring;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::pointwise::{each, maximum, minimum};
    pub(super) use crate::kernel::recipe::Recipe;

    /// `max(min(x, a_max), a_min)` in TVM's order, which turns NaN into `a_max`. In ONNX NaN stays NaN, and `a_max` wins over
    /// `a_min`.
    pub(super) fn clip(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?;
        let (dtype, rank) = (fact.datum_type, fact.rank());
        if !matches!(dtype, DatumType::F32 | DatumType::F16) {
            return wiring.host(call, clip_on_host, inputs);
        }
        let (low, high) = bounds(call)?;
        let mut bound = |value: f64| -> TractResult<OutletId> {
            let scalar = tensor0(value).cast_to_dt(dtype)?.into_owned().broadcast_into_rank(rank)?;
            wiring.constant(scalar)
        };
        let (low, high) = (bound(low)?, bound(high)?);
        if call.is_onnx() {
            let above = wiring.one(maximum(), &[inputs[0], low])?;
            return wiring.wire(minimum(), &[above, high]);
        }
        let below = wiring.one(math::min(), &[inputs[0], high])?;
        wiring.wire(math::max(), &[below, low])
    }

    pub(super) fn bounds(call: &Typed<'_>) -> TractResult<(f64, f64)> {
        Ok((call.float("a_min", f64::NEG_INFINITY)?, call.float("a_max", f64::INFINITY)?))
    }

    /// The bounds truncate to the dtype of the elements.
    fn clip_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (low, high) = bounds(call)?;
        let mut tensor = inputs[0].clone().into_tensor();
        for_dtype!(tensor.datum_type(), T in number => {
            let (low, high) = (T::of_f64(low), T::of_f64(high));
            match call.is_onnx() {
                true => each::<T>(&mut tensor, |x| x.max_or_nan(low).min_or_nan(high))?,
                false => each::<T>(&mut tensor, |x| x.smaller(high).larger(low))?,
            }
        });
        Ok(tvec!(tensor))
    }
}
