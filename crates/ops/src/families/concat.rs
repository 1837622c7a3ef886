//! `concatenate`, `stack` and `split`.

use crate::rules::unify;
use crate::split::SplitAxis;
use crate::{Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Attr, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("concatenate", &["data"], concatenated)
        .attrs("relay.attrs.ConcatenateAttrs", &[AttrDef::new("axis", AttrKind::Int, "0")])
        .class(FusionClass::Injective)
        .alias(Alias::Concat)
        .split(|call| {
            let joined = call.axis("axis", 0, &call.result()?.shape)?;
            Ok(axes_where(call, |axis| (axis != joined).then_some(axis)))
        })
        .wire(kernel!(concatenate)),
    OpDef::new("stack", &["data"], stacked)
        .attrs("relay.attrs.StackAttrs", &[AttrDef::new("axis", AttrKind::OptionalInt, "0")])
        .class(FusionClass::Injective)
        .split(|call| {
            let first = *call.tuple(0)?.first().ok_or_else(|| call.error("the tuple is empty"))?;
            let new = stack_axis(call, &first.shape)?;
            Ok(axes_where(call, |axis| (axis != new).then(|| axis - usize::from(axis > new))))
        })
        .wire(kernel!(stack)),
    OpDef::new("split", &["data"], parts)
        .attrs(
            "relay.attrs.SplitAttrs",
            &[AttrDef::required("indices_or_sections", AttrKind::IntOrInts), AttrDef::new("axis", AttrKind::Int, "0")],
        )
        .class(FusionClass::Injective)
        .split(|call| {
            let data = call.tensor(0)?;
            crate::split::off(call, &[call.axis("axis", 0, &data.shape)?])
        })
        .wire(kernel!(split)),
];

/// Every axis of the result for which `of` gives the corresponding axis of all operands.
pub(crate) fn axes_where(call: &Typed<'_>, of: impl Fn(usize) -> Option<usize>) -> Vec<SplitAxis> {
    let rank = call.out.tensor().map_or(0, |t| t.shape.rank());
    let axis = |axis: usize| {
        let at = of(axis)?;
        let split = SplitAxis::along(call, axis);
        let operands = split.operands.len();
        Some((0..operands).fold(split, |split, index| split.operand(index, at)))
    };
    (0..rank).filter_map(axis).collect()
}

/// The fields of the tuple operand: at least one, all of the same dtype and rank. Also returns the first.
fn fields<'a>(call: &Call<'a>) -> Result<(&'a TensorType, Vec<&'a TensorType>), TypeError> {
    let fields = call.tuple(0)?;
    let first = *fields.first().ok_or_else(|| call.error("the tuple is empty"))?;
    for field in &fields {
        call.same_dtype(first, field)?;
        if field.shape.rank() != first.shape.rank() {
            return Err(call.error(format!("{first} and {field} have different ranks")));
        }
    }
    Ok((first, fields))
}

/// The type of a concatenation of the tuple operand's fields along `axis`.
pub(crate) fn concatenated(call: &Call<'_>) -> Result<Type, TypeError> {
    let (first, fields) = fields(call)?;
    let axis = call.axis("axis", 0, &first.shape)?;
    let mut shape = first.shape.clone();
    let mut total = Some(0u64);
    for field in &fields {
        for (i, dim) in field.shape.iter().enumerate().filter(|(i, _)| *i != axis) {
            shape[i] = unify(shape[i], *dim).ok_or_else(|| {
                call.error(format!("{first} and {field} differ in axis {i}, which is not the concatenated axis"))
            })?;
        }
        total = total.zip(field.shape[axis].get()).and_then(|(a, b)| a.checked_add(b));
    }
    shape[axis] = like(total, fields.iter().map(|f| f.shape[axis]));
    Ok(TensorType::new(first.dtype, shape).into())
}

/// A computed dimension: wide if one of its `sources` is.
pub(crate) fn like(size: Option<u64>, mut sources: impl Iterator<Item = Dim>) -> Dim {
    match size {
        Some(n) if sources.any(|d| matches!(d, Dim::Wide(_))) => Dim::Wide(n),
        other => other.into(),
    }
}

/// The axis of the result that `stack` inserts.
fn stack_axis(call: &Call<'_>, shape: &Shape) -> Result<usize, TypeError> {
    let (axis, rank) = (call.int("axis", 0)?, shape.rank() as i64);
    let at = if axis < 0 { axis + rank + 1 } else { axis };
    match (0..=rank).contains(&at) {
        true => Ok(at as usize),
        false => Err(call.error(format!("axis {axis} cannot be inserted into tensors of rank {rank}"))),
    }
}

fn stacked(call: &Call<'_>) -> Result<Type, TypeError> {
    let (first, fields) = fields(call)?;
    let axis = stack_axis(call, &first.shape)?;
    let mut shape = first.shape.clone();
    for field in &fields {
        for (i, dim) in field.shape.iter().enumerate() {
            shape[i] = unify(shape[i], *dim)
                .ok_or_else(|| call.error(format!("{first} and {field} differ, expected one shape")))?;
        }
    }
    shape.insert(axis, Dim::Known(fields.len() as u64));
    Ok(TensorType::new(first.dtype, shape).into())
}

/// The ranges of the sections of a split; `None` where the split dimension is unknown.
fn cuts(call: &Call<'_>, size: Option<u64>) -> Result<Vec<Option<(u64, u64)>>, TypeError> {
    let sections = call.attr("indices_or_sections").ok_or_else(|| call.error("indices_or_sections is missing"))?;
    if let Attr::List(_) = sections {
        let indices = call.ints("indices_or_sections")?.unwrap_or_default();
        let mut bounds = vec![0u64];
        for index in indices {
            let begin = bounds.last().copied().unwrap_or(0);
            let index = u64::try_from(index).ok().filter(|i| *i >= begin && size.is_none_or(|n| *i <= n));
            bounds.push(
                index.ok_or_else(|| call.error("indices_or_sections must be ascending indices within the axis"))?,
            );
        }
        let mut parts: Vec<_> = bounds.windows(2).map(|w| Some((w[0], w[1]))).collect();
        parts.push(size.map(|n| (bounds.last().copied().unwrap_or(0), n)));
        return Ok(parts);
    }
    let count = call.int("indices_or_sections", 1)?;
    let count = u64::try_from(count)
        .ok()
        .filter(|n| (1..=1 << 20).contains(n))
        .ok_or_else(|| call.error(format!("cannot split into {count} sections")))?;
    match size {
        Some(n) if n % count != 0 => Err(call.error(format!("{n} is not divisible into {count} equal sections"))),
        Some(n) => Ok((0..count).map(|i| Some((i * (n / count), (i + 1) * (n / count)))).collect()),
        None => Ok(vec![None; count as usize]),
    }
}

fn parts(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let axis = call.axis("axis", 0, &data.shape)?;
    let whole = data.shape[axis];
    let fields = cuts(call, whole.get())?.into_iter().map(|part| {
        let mut shape = data.shape.clone();
        shape[axis] = like(part.map(|(begin, end)| end - begin), [whole].into_iter());
        TensorType::new(data.dtype, shape).into()
    });
    Ok(Type::Tuple(fields.collect()))
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::{Slice, TypedConcat};

    use crate::kernel::Wiring;

    pub(super) fn concatenate(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let axis = call.axis("axis", 0, &call.result()?.shape)?;
        concat_inputs(wiring, call, axis, inputs)
    }

    /// Concatenates the inputs. tract drops empty inputs, so an empty result is wired as a constant.
    fn concat_inputs(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        axis: usize,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let dims = call.dims()?;
        if dims.contains(&0) {
            let empty = Tensor::zero_dt(wiring.fact(inputs[0])?.datum_type, &dims)?;
            return Ok(tvec!(wiring.constant(empty)?));
        }
        wiring.wire(TypedConcat::new(axis), inputs)
    }

    pub(super) fn stack(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let first = *call.tuple(0)?.first().context("the tuple is empty")?;
        let axis = stack_axis(call, &first.shape)?;
        let lifted = inputs.iter().map(|i| wiring.one(AxisOp::Add(axis), &[*i])).collect::<TractResult<TVec<_>>>()?;
        concat_inputs(wiring, call, axis, &lifted)
    }

    pub(super) fn split(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let data = call.tensor(0)?;
        let axis = call.axis("axis", 0, &data.shape)?;
        let parts = cuts(call, data.shape[axis].get())?;
        parts
            .into_iter()
            .map(|part| {
                let (begin, end) = part.context("the split dimension is unknown")?;
                wiring.one(Slice::new(axis, begin as usize, end as usize), inputs)
            })
            .collect()
    }
}
