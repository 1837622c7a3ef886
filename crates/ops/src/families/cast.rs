//! Dtype conversions: `cast`, `cast_like`, `reinterpret`.

use crate::rules::per_output;
use crate::split::elementwise_on;
use crate::{Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{TensorType, Type};

const CAST_ATTRS: &[AttrDef] = &[AttrDef::required("dtype", AttrKind::DType)];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("cast", &["data"], cast_type)
        .attrs("relay.attrs.CastAttrs", CAST_ATTRS)
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(|call| elementwise_on(call, &[0]))
        .wire(kernel!(cast)),
    OpDef::new("cast_like", &["data", "dtype_like"], cast_like_type)
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(|call| elementwise_on(call, &[0]))
        .wire(kernel!(cast)),
    OpDef::new("reinterpret", &["data"], reinterpret_type)
        .attrs("relay.attrs.CastAttrs", CAST_ATTRS)
        .class(FusionClass::Elementwise)
        .alias(Alias::View)
        .split(|call| elementwise_on(call, &[0]))
        .host(kernel!(reinterpret)),
];

fn cast_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let dtype = call.dtype("dtype")?.ok_or_else(|| call.error("dtype is missing"))?;
    Ok(TensorType::new(dtype, call.tensor(0)?.shape.clone()).into())
}

fn cast_like_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(TensorType::new(call.tensor(1)?.dtype, call.tensor(0)?.shape.clone()).into())
}

fn reinterpret_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, dtype) = (call.tensor(0)?, call.dtype("dtype")?.ok_or_else(|| call.error("dtype is missing"))?);
    match data.dtype.size() == dtype.size() {
        true => Ok(TensorType::new(dtype, data.shape.clone()).into()),
        false => Err(call.error(format!("{} and {dtype} differ in size", data.dtype))),
    }
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::cast::cast as tract_cast;

    use crate::Typed;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::pointwise::{convert, each_into};
    use crate::kernel::{Wiring, datum_type};

    pub(super) fn cast(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        cast_to(wiring, to, inputs[0]).map(|outlet| tvec!(outlet))
    }

    /// Converts `outlet` to another dtype: floats truncate to integers, integers wrap, and everything but zero and NaN is
    /// true.
    pub(crate) fn cast_to(wiring: &mut Wiring<'_>, to: DatumType, outlet: OutletId) -> TractResult<OutletId> {
        let from = wiring.fact(outlet)?.datum_type;
        if from == to {
            Ok(outlet)
        } else if to == DatumType::Bool || (from.is_float() && to.is_integer()) {
            wiring.one(convert("cast", to, narrow), &[outlet])
        } else {
            wiring.one(tract_cast(to), &[outlet])
        }
    }

    /// The conversions that TVM defines differently from tract.
    fn narrow(tensor: &Tensor, to: DatumType) -> TractResult<Tensor> {
        if to == DatumType::Bool {
            let zero = 0.0;
            return for_dtype!(tensor.datum_type(), T in number => {
                each_into(tensor, |x: T| x.to_f64() > zero || x.to_f64() < zero)
            });
        }
        for_dtype!(tensor.datum_type(), T in number => {
            match to {
                DatumType::U64 => each_into(tensor, |x: T| u64::of_f64(x.to_f64())),
                _ => for_dtype!(to, U in integer => each_into(tensor, |x: T| U::of_i64(x.to_i64()))),
            }
        })
    }

    pub(super) fn reinterpret(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        // SAFETY: both dtypes are plain and of the same size (checked by the type rule), and every bit pattern is a valid
        // number; bool is the exception and is refused.
        ensure!(to != DatumType::Bool, "bits cannot be reinterpreted as bool");
        ensure!(inputs[0].datum_type().size_of() == to.size_of());
        Ok(tvec!(unsafe { Tensor::from_raw_dt(to, inputs[0].shape(), inputs[0].as_bytes())? }))
    }
}
