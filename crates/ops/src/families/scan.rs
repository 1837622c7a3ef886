//! Prefix sums and products: `cumsum`, `cumprod`.

use crate::rules::per_output;
use crate::split::off;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{Dim, TensorType, Type};

const SCAN_ATTRS: &[AttrDef] = &[
    AttrDef::new("axis", AttrKind::OptionalInt, "None"),
    AttrDef::new("dtype", AttrKind::DType, "\"\""),
    AttrDef::new("exclusive", AttrKind::Bool, "False"),
];

pub(crate) static OPS: &[OpDef] = &[scan("cumsum"), scan("cumprod")];

const fn scan(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], scan_type)
        .attrs("relay.attrs.ScanopAttrs", SCAN_ATTRS)
        .attrs_in_metadata()
        .class(FusionClass::Opaque)
        .flops(per_output::<1>)
        .split(|call| match call.optional_int("axis")? {
            Some(axis) => off(call, &[call.axis_in(axis, &call.tensor(0)?.shape)?]),
            None => Ok(Vec::new()),
        })
        .wire(kernel!(wire))
}

/// Without an axis the data is flattened.
fn scan_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = match call.optional_int("axis")? {
        Some(axis) => {
            call.axis_in(axis, &data.shape)?;
            data.shape.clone()
        }
        None => [Dim::from(data.shape.elements())].into_iter().collect(),
    };
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(data.dtype), shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::families::cast::kernel::cast_to;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::{Wiring, datum_type};

    pub(super) fn wire(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let data = cast_to(wiring, to, inputs[0])?;
        wiring.host(call, accumulate, &[data])
    }

    fn accumulate(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let dims = call.dims()?;
        let axis = call.optional_int("axis")?.map_or(Ok(0), |axis| call.axis_in(axis, &call.tensor(0)?.shape))?;
        let (exclusive, product) = (call.flag("exclusive", false)?, call.def.name == "cumprod");
        let mut tensor = inputs[0].clone().into_tensor().into_shape(&dims)?;
        let (len, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
        if tensor.len() == 0 {
            return Ok(tvec!(tensor));
        }
        for_dtype!(tensor.datum_type(), T in number => {
            let (start, step) = match product {
                true => (T::ONE, T::mul as fn(T, T) -> T),
                false => (T::default(), T::add as fn(T, T) -> T),
            };
            let mut plain = tensor.try_as_plain_ram_mut()?;
            for block in plain.as_slice_mut::<T>()?.chunks_exact_mut(len * inner) {
                let mut running = vec![start; inner];
                for row in block.chunks_exact_mut(inner) {
                    for (x, total) in row.iter_mut().zip(&mut running) {
                        let next = step(*total, *x);
                        *x = if exclusive { *total } else { next };
                        *total = next;
                    }
                }
            }
        });
        Ok(tvec!(tensor))
    }
}
