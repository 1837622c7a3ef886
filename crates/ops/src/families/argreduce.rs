//! `argmax` and `argmin`: the index of the extreme element along some axes.

use crate::families::reduce::{kept_axes, reduced_axes, without};
use crate::rules::per_input;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, Dim, TensorType, Type};

const ARG_ATTRS: &[AttrDef] = &[
    AttrDef::new("axis", AttrKind::OptionalInts, "None"),
    AttrDef::new("keepdims", AttrKind::Bool, "False"),
    AttrDef::new("select_last_index", AttrKind::Bool, "False"),
    AttrDef::new("exclude", AttrKind::Bool, "False"),
];

pub(crate) static OPS: &[OpDef] = &[
    arg("argmax").host(kernel!(|call, inputs| extreme(call, &inputs[0], true))),
    arg("argmin").host(kernel!(|call, inputs| extreme(call, &inputs[0], false))),
];

const fn arg(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], arg_type)
        .attrs("relay.attrs.ArgReduceAttrs", ARG_ATTRS)
        .class(FusionClass::Reduce)
        .flops(per_input::<1>)
        .split(kept_axes)
        .onnx()
}

/// Indices have the integer type of TVM's dimension objects: int64 if a dimension is wide, else int32.
fn arg_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = without(call, &data.shape, &reduced_axes(call, &data.shape)?)?;
    let wide = data.shape.iter().any(|dim| matches!(dim, Dim::Wide(_)));
    Ok(TensorType::new(if wide { DType::I64 } else { DType::I32 }, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::with_last;

    /// The row-major index over the reduced axes of the extreme element.
    ///
    /// Compares as TVM does: starts from the lowest finite value with index -1, which remains if no element is greater, and
    /// replaces a NaN by the next element. In ONNX the first element is where the search starts, −∞ too.
    pub(super) fn extreme(call: &Typed<'_>, data: &Tensor, greatest: bool) -> TractResult<TVec<Tensor>> {
        let last = call.flag("select_last_index", false)?;
        let (dims, is_onnx) = (call.dims()?, call.is_onnx());
        let (rows, length) = with_last(data, &reduced_axes(call, &call.tensor(0)?.shape)?)?;
        let mut found: Vec<i64> = vec![-1; dims.iter().product()];
        for_dtype!(rows.datum_type(), T in number => {
            let plain = rows.try_as_plain_ram()?;
            for (found, row) in found.iter_mut().zip(plain.as_slice::<T>()?.chunks_exact(length.max(1))) {
                let mut best = if greatest { T::LOWEST } else { T::HIGHEST };
                if let (true, Some(&first)) = (is_onnx, row.first()) {
                    (best, *found) = (first, 0);
                }
                for (index, &x) in row.iter().enumerate() {
                    let ahead = if greatest { best > x } else { best < x };
                    if !ahead && (last || best != x) {
                        (best, *found) = (x, index as i64);
                    }
                }
            }
        });
        let found = Tensor::from_shape(&dims, &found)?;
        Ok(tvec!(match call.result()?.dtype {
            DType::I64 => found,
            _ => found.cast_to::<i32>()?.into_owned(),
        }))
    }
}
