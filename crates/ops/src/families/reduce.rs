//! Reductions: `sum`, `mean`, `prod`, `max`, `min`, `all`, `any`, `variance`.

use crate::rules::per_input;
use crate::split::SplitAxis;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Dim, Shape, TensorType, Type};

const REDUCE_ATTRS: &[AttrDef] = &[
    AttrDef::new("axis", AttrKind::OptionalInts, "None"),
    AttrDef::new("keepdims", AttrKind::Bool, "False"),
    AttrDef::new("exclude", AttrKind::Bool, "False"),
];

pub(crate) static OPS: &[OpDef] = &[
    reduction("sum").split(sum_axes).wire(kernel!(sum)).recipe(kernel!(fold_recipe)),
    reduction("mean").wire(kernel!(mean)),
    reduction("prod")
        .host(kernel!(|call, inputs| {
            for_dtype!(inputs[0].datum_type(), T in number => {
                fold::<T>(call, &inputs[0], T::ONE, T::mul)
            })
        }))
        .recipe(kernel!(fold_recipe)),
    // In Relay the maximum of nothing is the lowest finite number, in ONNX −∞, and NaN stays NaN there.
    reduction("max")
        .onnx()
        .host(kernel!(|call, inputs| {
            for_dtype!(inputs[0].datum_type(), T in number => match call.is_onnx() {
                true => fold::<T>(call, &inputs[0], T::LEAST, T::max_or_nan),
                false => fold::<T>(call, &inputs[0], T::LOWEST, |most, x| most.larger(x)),
            })
        }))
        .recipe(kernel!(fold_recipe)),
    reduction("min")
        .onnx()
        .host(kernel!(|call, inputs| {
            for_dtype!(inputs[0].datum_type(), T in number => match call.is_onnx() {
                true => fold::<T>(call, &inputs[0], T::GREATEST, T::min_or_nan),
                false => fold::<T>(call, &inputs[0], T::HIGHEST, |least, x| least.smaller(x)),
            })
        }))
        .recipe(kernel!(fold_recipe)),
    reduction("all")
        .host(kernel!(|call, inputs| fold::<bool>(call, &inputs[0], true, |all, x| all & x)))
        .recipe(kernel!(fold_recipe)),
    OpDef::new("variance", &["data", "mean"], variance_type)
        .attrs(
            "relay.attrs.VarianceAttrs",
            &[
                AttrDef::new("axis", AttrKind::OptionalInts, "None"),
                AttrDef::new("keepdims", AttrKind::Bool, "False"),
                AttrDef::new("exclude", AttrKind::Bool, "False"),
                AttrDef::new("unbiased", AttrKind::Bool, "False"),
            ],
        )
        .class(FusionClass::Reduce)
        .flops(per_input::<3>)
        .host(kernel!(variance)),
    reduction("any")
        .host(kernel!(|call, inputs| fold::<bool>(call, &inputs[0], false, |any, x| any | x)))
        .recipe(kernel!(fold_recipe)),
];

const fn reduction(name: &'static str) -> OpDef {
    OpDef::new(name, &["data"], reduced_type)
        .attrs("relay.attrs.ReduceAttrs", REDUCE_ATTRS)
        .class(FusionClass::Reduce)
        .flops(per_input::<1>)
        .split(kept_axes)
}

/// The reduced axes in ascending order; all if none is listed.
pub(crate) fn reduced_axes(call: &Call<'_>, shape: &Shape) -> Result<Vec<usize>, TypeError> {
    let listed = call.ints("axis")?.unwrap_or_default();
    let mut reduced = vec![listed.is_empty(); shape.rank()];
    for axis in &listed {
        reduced[call.axis_in(*axis, shape)?] = true;
    }
    let exclude = call.flag("exclude", false)? && !listed.is_empty();
    Ok((0..shape.rank()).filter(|axis| reduced[*axis] != exclude).collect())
}

/// `shape` without `axes`, or with length 1 there under `keepdims`.
pub(crate) fn without(call: &Call<'_>, shape: &Shape, axes: &[usize]) -> Result<Shape, TypeError> {
    let keep = call.flag("keepdims", false)?;
    let dims = shape.iter().enumerate();
    Ok(match keep {
        true => dims.map(|(i, dim)| if axes.contains(&i) { Dim::Known(1) } else { *dim }).collect(),
        false => dims.filter(|(i, _)| !axes.contains(i)).map(|(_, dim)| *dim).collect(),
    })
}

/// The axes that are not reduced.
pub(crate) fn kept_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let reduced = reduced_axes(call, shape)?;
    let keep = call.flag("keepdims", false)?;
    let kept = (0..shape.rank()).filter(|axis| !reduced.contains(axis));
    let at = |axis: usize| if keep { axis } else { axis - reduced.iter().filter(|r| **r < axis).count() };
    Ok(kept.map(|axis| SplitAxis::along(call, at(axis)).operand(0, axis)).collect())
}

/// The axes that are not reduced, and partial sums over the reduced ones.
fn sum_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let partial = reduced_axes(call, shape)?.into_iter();
    let mut axes = kept_axes(call)?;
    axes.extend(partial.map(|axis| SplitAxis::summed(call, shape[axis]).operand(0, axis)));
    Ok(axes)
}

fn reduced_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let shape = without(call, &data.shape, &reduced_axes(call, &data.shape)?)?;
    Ok(TensorType::new(data.dtype, shape).into())
}

fn variance_type(call: &Call<'_>) -> Result<Type, TypeError> {
    call.same_dtype(call.tensor(0)?, call.tensor(1)?)?;
    call.broadcast(&call.tensor(0)?.shape, &call.tensor(1)?.shape)?;
    reduced_type(call)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::math;
    use tract_core::ops::nn::{Reduce, Reducer};

    use crate::kernel::Wiring;
    pub(super) use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::with_last;
    use crate::kernel::pointwise::{each, pairs};
    use crate::kernel::recipe::Recipe;

    /// The recipe of a reduction that folds elements one by one.
    pub(super) fn fold_recipe(call: &Typed<'_>) -> Option<Recipe> {
        let axes = reduced_axes(call, &call.tensor(0).ok()?.shape).ok()?;
        Some(Recipe::Fold { name: call.def.name, axes })
    }

    pub(super) fn sum(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        if wiring.fact(inputs[0])?.datum_type != DatumType::F32 || count(call)? == 0 {
            return wiring.host(call, sum_on_host, inputs);
        }
        let axes = reduced_axes(call, &call.tensor(0)?.shape)?;
        let total = wiring.one(Reduce::new(axes.into_iter().collect(), Reducer::Sum), inputs)?;
        Ok(tvec!(wiring.reshape(total, &call.dims()?)?))
    }

    pub(super) fn mean(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        if wiring.fact(inputs[0])?.datum_type != DatumType::F32 || count(call)? == 0 {
            return wiring.host(call, mean_on_host, inputs);
        }
        let total = sum(wiring, call, inputs)?;
        let scale = tensor0(1.0 / count(call)? as f32).broadcast_into_rank(wiring.fact(total[0])?.rank())?;
        let scale = wiring.constant(scale)?;
        wiring.wire(math::mul(), &[total[0], scale])
    }

    /// Number of elements that are reduced to one.
    fn count(call: &Typed<'_>) -> TractResult<u64> {
        let shape = &call.tensor(0)?.shape;
        let axes = reduced_axes(call, shape)?;
        axes.iter().try_fold(1u64, |n, axis| n.checked_mul(shape[*axis].get()?)).context("the shape is unknown")
    }

    fn sum_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        match inputs[0].datum_type() {
            DatumType::F16 => through_f32(call, &inputs[0], |total, _| total),
            dt => for_dtype!(dt, T in number => fold::<T>(call, &inputs[0], T::default(), T::add)),
        }
    }

    fn mean_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let count = count(call)?;
        match inputs[0].datum_type() {
            DatumType::F16 => through_f32(call, &inputs[0], |total, count| total / count),
            dt => for_dtype!(dt, T in number => {
                let mut totals = fold::<T>(call, &inputs[0], T::default(), T::add)?;
                each::<T>(&mut totals[0], |total| total.div(T::of_i64(count as i64)))?;
                Ok(totals)
            }),
        }
    }

    /// Half floats accumulate in single precision.
    fn through_f32(call: &Typed<'_>, data: &Tensor, last: fn(f32, f32) -> f32) -> TractResult<TVec<Tensor>> {
        let wide = data.cast_to::<f32>()?;
        let mut totals = fold::<f32>(call, &wide, 0.0, |a, b| a + b)?;
        let count = count(call)? as f32;
        each::<f32>(&mut totals[0], |total| last(total, count))?;
        Ok(tvec!(totals[0].cast_to::<half::f16>()?.into_owned()))
    }

    /// Reduces `data` over the call's axes, in row-major order from `start`.
    pub(super) fn fold<T: Datum + Copy>(
        call: &Typed<'_>,
        data: &Tensor,
        start: T,
        step: impl Fn(T, T) -> T,
    ) -> TractResult<TVec<Tensor>> {
        let (rows, length) = with_last(data, &reduced_axes(call, &call.tensor(0)?.shape)?)?;
        let dims = call.dims()?;
        let plain = rows.try_as_plain_ram()?;
        let elements = plain.as_slice::<T>()?;
        let mut totals = vec![start; dims.iter().product()];
        for (total, row) in totals.iter_mut().zip(elements.chunks_exact(length.max(1))) {
            *total = row.iter().fold(start, |total, x| step(total, *x));
        }
        Ok(tvec!(Tensor::from_shape(&dims, &totals)?))
    }

    /// The mean squared deviation from the given mean; `unbiased` divides by one less.
    pub(super) fn variance(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        if inputs[0].datum_type() == DatumType::F16 {
            let wide = inputs.iter().map(|t| Ok(t.cast_to::<f32>()?.into_owned().into_tvalue()));
            let found = variance(call, &wide.collect::<TractResult<TVec<TValue>>>()?)?;
            return Ok(tvec!(found[0].cast_to::<half::f16>()?.into_owned()));
        }
        let count = count(call)?.saturating_sub(u64::from(call.flag("unbiased", false)?));
        for_dtype!(inputs[0].datum_type(), T in number => {
            let mut squares = Tensor::zero_dt(inputs[0].datum_type(), inputs[0].shape())?;
            pairs(&mut squares, &inputs[0], &inputs[1], |x: T, mean: T| x.sub(mean).mul(x.sub(mean)))?;
            let mut totals = fold::<T>(call, &squares, T::default(), T::add)?;
            each::<T>(&mut totals[0], |total| total.div(T::of_i64(count as i64)))?;
            Ok(totals)
        })
    }
}
