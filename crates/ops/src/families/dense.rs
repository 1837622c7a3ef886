//! Matrix products: `nn.dense`, `nn.matmul`, `nn.batch_matmul`, and dense layers with a packed weight.

use crate::{
    AttrDef, Call, FusionClass, OpDef, TypeError, Typed,
    def::AttrKind::{Bool, DType, OptionalInt, Str},
    rules::unify,
    split::{SplitAxis, batch},
};
use edgecut_graph::{Attr, Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.dense", &["data", "weight"], |call| matmul_type(call, false, true))
        .attrs("relay.attrs.DenseAttrs", DENSE)
        .operand_types(|call, known| weight_type(call, known, false, true))
        .flops(|call| product_flops(call, false))
        .class(FusionClass::OutFusable)
        .split(|call| matmul_axes(call, false, true))
        .wire(kernel!(|wiring, call, inputs| matmul(wiring, call, inputs, false, true))),
    OpDef::new("nn.matmul", &["tensor_a", "tensor_b"], |call| {
        matmul_type(call, call.flag("transpose_a", false)?, call.flag("transpose_b", false)?)
    })
    .attrs(
        "relay.attrs.MatmulAttrs",
        &[
            AttrDef::required("units", OptionalInt),
            AttrDef::new("out_dtype", DType, "\"\""),
            AttrDef::new("transpose_a", Bool, "False"),
            AttrDef::new("transpose_b", Bool, "False"),
        ],
    )
    .operand_types(|call, known| {
        weight_type(call, known, call.flag("transpose_a", false)?, call.flag("transpose_b", false)?)
    })
    .flops(|call| product_flops(call, call.flag("transpose_a", false).unwrap_or(false)))
    .class(FusionClass::OutFusable)
    .split(|call| matmul_axes(call, call.flag("transpose_a", false)?, call.flag("transpose_b", false)?))
    .wire(kernel!(|wiring, call, inputs| {
        matmul(wiring, call, inputs, call.flag("transpose_a", false)?, call.flag("transpose_b", false)?)
    })),
    OpDef::new("nn.batch_matmul", &["tensor_a", "tensor_b"], batch_type)
        .attrs("relay.attrs.BatchMatmulAttrs", BATCH_MATMUL)
        .flops(|call| product_flops(call, call.flag("transpose_a", false).unwrap_or(false)))
        .class(FusionClass::OutFusable)
        .split(batch_axes)
        .wire(kernel!(batch_matmul)),
    OpDef::new("nn.contrib_dense_pack", &["data", "weight"], packed_type)
        .attrs("relay.attrs.DensePackAttrs", DENSE_PACK)
        .attrs_in_metadata()
        .flops(|call| product_flops(call, false))
        .class(FusionClass::OutFusable)
        .split(|call| Ok(batch(call, &[0])))
        .wire(kernel!(dense_pack)),
];

pub(crate) const DENSE: &[AttrDef] =
    &[AttrDef::required("units", OptionalInt), AttrDef::new("out_dtype", DType, "\"\"")];

pub(crate) const BATCH_MATMUL: &[AttrDef] = &[
    AttrDef::new("out_dtype", DType, "\"\""),
    AttrDef::new("transpose_a", Bool, "False"),
    AttrDef::new("transpose_b", Bool, "False"),
];

pub(crate) const DENSE_PACK: &[AttrDef] = &[
    AttrDef::required("units", OptionalInt),
    AttrDef::new("out_dtype", DType, "\"\""),
    AttrDef::new("weight_layout", Str, "\"NC\""),
];

/// The last two dimensions of an operand as (outer, contracted).
fn matrix(call: &Call<'_>, operand: &TensorType, contracted_first: bool) -> Result<(Dim, Dim), TypeError> {
    match operand.shape[..] {
        [.., k, m] if contracted_first => Ok((m, k)),
        [.., m, k] => Ok((m, k)),
        [k] if !contracted_first => Ok((Dim::Known(1), k)),
        _ => Err(call.error(format!("{operand} is not a matrix"))),
    }
}

/// The type of the product of `(…, m, k)` and a matrix `(k, n)`, each optionally transposed.
fn matmul_type(call: &Call<'_>, transpose_a: bool, transpose_b: bool) -> Result<Type, TypeError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (m, k) = matrix(call, a, transpose_a)?;
    if b.shape.rank() != 2 {
        return Err(call.error(format!("the second operand is {b}, expected a matrix")));
    }
    let (n, found) = matrix(call, b, !transpose_b)?;
    if unify(k, found).is_none() {
        return Err(call.error(format!("{a} and {b} differ in the contracted dimension")));
    }
    let units = call.optional_int("units")?.and_then(|n| u64::try_from(n).ok()).map(Dim::Known);
    let n = unify(units.unwrap_or(n), n)
        .ok_or_else(|| call.error(format!("units is {}, the second operand is {b}", units.unwrap_or(n))))?;
    let mut shape = a.shape.clone();
    if let [.., last_m, last_n] = &mut shape[..] {
        (*last_m, *last_n) = (m, n);
    } else if let [last] = &mut shape[..] {
        *last = n;
    }
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(a.dtype), shape).into())
}

/// The weight's type from `units`.
fn weight_type(
    call: &Call<'_>,
    known: &mut [Option<Type>],
    transpose_a: bool,
    transpose_b: bool,
) -> Result<(), TypeError> {
    if let [Some(Type::Tensor(a)), weight @ None, ..] = known
        && let Some(units) = call.optional_int("units")?.and_then(|n| u64::try_from(n).ok())
    {
        let (_, k) = matrix(call, a, transpose_a)?;
        let n = Dim::Known(units);
        let shape = if transpose_b { [n, k] } else { [k, n] };
        *weight = Some(TensorType::new(a.dtype, shape.into_iter().collect()).into());
    }
    Ok(())
}

/// Leading axes and rows (of the first operand), columns (of the second), and partial sums over the contracted dimension.
fn matmul_axes(call: &Typed<'_>, transpose_a: bool, transpose_b: bool) -> Result<Vec<SplitAxis>, TypeError> {
    let a = &call.tensor(0)?.shape;
    let rank = call.result()?.shape.rank();
    let (terms, row) = match (rank, transpose_a) {
        (1, _) => (0, None),
        (_, true) => (rank - 2, Some(rank - 1)),
        (_, false) => (rank - 1, Some(rank - 2)),
    };
    let mut axes: Vec<SplitAxis> =
        (0..rank.saturating_sub(2)).map(|axis| SplitAxis::along(call, axis).operand(0, axis)).collect();
    axes.extend(row.map(|row| SplitAxis::along(call, rank - 2).operand(0, row)));
    let columns = SplitAxis::along(call, rank - 1).operand(1, usize::from(!transpose_b));
    axes.push(match call.attr("units") {
        Some(_) => columns.attr("units", |range| Attr::Int((range.end - range.start) as i64)),
        None => columns,
    });
    axes.push(SplitAxis::summed(call, a[terms]).operand(0, terms).operand(1, usize::from(transpose_b)));
    Ok(axes)
}

/// The batch axis, rows, columns, and partial sums over the contracted dimension.
fn batch_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (a, b) = (&call.tensor(0)?.shape, &call.tensor(1)?.shape);
    let (transpose_a, transpose_b) = (call.flag("transpose_a", false)?, call.flag("transpose_b", false)?);
    let whole = SplitAxis::along(call, 0);
    let batch = [a, b].into_iter().enumerate().fold(whole, |split, (index, shape)| match shape[0].get() {
        Some(1) => split,
        _ => split.operand(index, 0),
    });
    let (row, terms_a) = if transpose_a { (2, 1) } else { (1, 2) };
    let (column, terms_b) = if transpose_b { (1, 2) } else { (2, 1) };
    Ok(vec![
        batch,
        SplitAxis::along(call, 1).operand(0, row),
        SplitAxis::along(call, 2).operand(1, column),
        SplitAxis::summed(call, a[terms_a]).operand(0, terms_a).operand(1, terms_b),
    ])
}

fn batch_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (&[batch_a, ..], &[batch_b, ..]) = (&a.shape[..], &b.shape[..]) else {
        return Err(call.error("a scalar is not a matrix"));
    };
    if a.shape.rank() != 3 || b.shape.rank() != 3 {
        return Err(call.error(format!("operands are {a} and {b}, expected rank 3")));
    }
    let (m, k) = matrix(call, a, call.flag("transpose_a", false)?)?;
    let (n, found) = matrix(call, b, !call.flag("transpose_b", false)?)?;
    if unify(k, found).is_none() {
        return Err(call.error(format!("{a} and {b} differ in the contracted dimension")));
    }
    let batch = match (batch_a.get(), batch_b.get()) {
        (None, _) | (_, None) => Dim::Any,
        (Some(x), Some(y)) if x == y || y == 1 => batch_a,
        (Some(1), Some(_)) => batch_b,
        _ => return Err(call.error(format!("batch sizes {batch_a} and {batch_b} are incompatible"))),
    };
    let dtype = call.dtype("out_dtype")?.unwrap_or(a.dtype);
    Ok(TensorType::new(dtype, [batch, m, n].into_iter().collect()).into())
}

fn packed_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, weight) = (call.tensor(0)?, call.tensor(1)?);
    let layout = call.layout("weight_layout", "NC", "NC")?;
    let sizes = call.sizes_in(&layout, weight, "NC")?;
    let [rows, k] = data.shape[..] else {
        return Err(call.error(format!("the data is {data}, expected a matrix")));
    };
    if unify(k, sizes[1]).is_none() {
        return Err(call.error(format!("a weight of {} columns does not fit {data}", sizes[1])));
    }
    let dtype = call.dtype("out_dtype")?.unwrap_or(data.dtype);
    Ok(TensorType::new(dtype, [rows, sizes[0]].into_iter().collect()).into())
}

/// Two operations per output element and element of the contracted dimension.
fn product_flops(call: &Typed<'_>, transpose_a: bool) -> u64 {
    let outputs: u64 = call.out.tensors().iter().filter_map(|t| t.shape.elements()).sum();
    let terms = call.tensor(0).and_then(|a| matrix(call, a, transpose_a)).ok().and_then(|(_, k)| k.get());
    outputs.saturating_mul(terms.unwrap_or(0)).saturating_mul(2)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::{internal::*, ndarray::Dimension, ops::einsum::EinSum};

    use crate::{
        families::conv::forward::Arithmetic,
        kernel::{
            self, Wiring,
            element::{Number, for_dtype},
        },
        layout::Layout,
    };

    pub(super) fn matmul(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        transpose_a: bool,
        transpose_b: bool,
    ) -> TractResult<TVec<OutletId>> {
        let rank = call.tensor(0)?.shape.rank();
        let weight = if transpose_b { "nk" } else { "kn" };
        if rank > 2
            && !transpose_a
            && let Some(&[ref lead @ .., terms]) = wiring.fact(inputs[0])?.shape.as_concrete()
        {
            // One product of all rows: tract repeats a product for each index of leading axes.
            let flat = wiring.reshape(inputs[0], &[lead.iter().product(), terms])?;
            let made = product(wiring, call, &[flat, inputs[1]], ["mk", weight, "mn"])?;
            return Ok(tvec![wiring.reshape(made[0], &call.dims()?)?]);
        }
        let lead: String = ('a'..'k').take(rank.saturating_sub(2)).collect();
        ensure!(lead.len() + 2 >= rank, "a product of rank {rank}");
        let a = match (rank, transpose_a) {
            (1, _) => "k".to_string(),
            (_, true) => format!("{lead}km"),
            (_, false) => format!("{lead}mk"),
        };
        let out = if rank == 1 { "n".to_string() } else { format!("{lead}mn") };
        product(wiring, call, inputs, [&a, weight, &out])
    }

    pub(super) fn batch_matmul(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let mut operands = tvec![inputs[0], inputs[1]];
        let flags = [call.flag("transpose_a", false)?, !call.flag("transpose_b", false)?];
        let mut axes = flags
            .iter()
            .zip(["m", "n"])
            .map(|(first, own)| match first {
                true => format!("bk{own}"),
                false => format!("b{own}k"),
            })
            .collect::<TVec<String>>();
        let batch = call.result()?.shape.first().and_then(|d| d.get());
        for (operand, axes) in operands.iter_mut().zip(&mut axes) {
            if batch != Some(1) && wiring.concrete(*operand)?.first() == Some(&1) {
                *operand = wiring.one(AxisOp::Rm(0), &[*operand])?;
                axes.remove(0);
            }
        }
        product(wiring, call, &operands, [&axes[0], &axes[1], "bmn"])
    }

    pub(super) fn dense_pack(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let layout = call.layout("weight_layout", "NC", "NC")?;
        let plain = Layout::parse("NC").map_err(TractError::msg)?;
        let weight = layout.wire(&plain, wiring, inputs[1])?;
        product(wiring, call, &[inputs[0], weight], ["mk", "nk", "mn"])
    }

    /// Wires the product of two tensors, summed over the axis `k`. `axes` names the axes of both operands and the result.
    fn product(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        operands: &[OutletId],
        axes: [&str; 3],
    ) -> TractResult<TVec<OutletId>> {
        let out = kernel::fact(call.result()?)?;
        let (a, b) = (wiring.fact(operands[0])?.datum_type, wiring.fact(operands[1])?.datum_type);
        let terms = axes[0].find('k').map(|at| wiring.concrete(operands[0]).map(|shape| shape[at])).transpose()?;
        let mut sum = |operate: DatumType, cast_to: Option<DatumType>| {
            let mut inputs = tvec![];
            for operand in operands {
                inputs.push(cast_to.map_or(Ok(*operand), |dt| wiring.cast(*operand, dt))?);
            }
            let axes = format!("{},{}->{}", axes[0], axes[1], axes[2]).parse()?;
            let sums = wiring.one(EinSum::new(axes, operate), &inputs)?;
            // Via int32: conversion from float saturates where integers must wrap.
            let whole = if operate.is_float() && !out.datum_type.is_float() {
                wiring.cast(sums, DatumType::I32)?
            } else {
                sums
            };
            Ok(tvec![wiring.cast(whole, out.datum_type)?])
        };
        match Arithmetic::choose(a, b, out.datum_type, terms.unwrap_or(1) as u64) {
            Arithmetic::Float(dt) => sum(dt, Some(dt)),
            Arithmetic::ExactFloat => sum(DatumType::F32, Some(DatumType::F32)),
            Arithmetic::Bytes if a == DatumType::I8 && b == DatumType::I8 => sum(DatumType::I32, None),
            Arithmetic::Bytes => sum(DatumType::I32, Some(DatumType::I32)),
            Arithmetic::Wrapping => {
                let dtype = out.datum_type;
                let inputs = [wiring.cast(operands[0], dtype)?, wiring.cast(operands[1], dtype)?];
                let shapes = [wiring.concrete(operands[0])?, wiring.concrete(operands[1])?];
                let size = |axis: char| (0..2).find_map(|at| Some(shapes[at][axes[at].find(axis)?]));
                let shape: Vec<usize> = axes[2].chars().filter_map(size).collect();
                let axes = axes.map(str::to_string);
                wiring.custom(
                    "MatrixProduct",
                    tvec![dtype.fact(&shape)],
                    &inputs,
                    move |inputs| for_dtype!(dtype, T in number => summed::<T>(inputs, &axes, &shape)),
                )
            }
        }
    }

    /// The product by definition: one strided dot product per element of the result.
    fn summed<T: Number>(inputs: &[TValue], axes: &[String; 3], shape: &[usize]) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), shape)?;
        let steps = |operand: usize, axis: char| {
            axes[operand].find(axis).map_or(0, |at| inputs[operand].shape()[at + 1..].iter().product::<usize>())
        };
        let terms = axes[0].find('k').map_or(1, |at| inputs[0].shape()[at]);
        let contracted = [steps(0, 'k'), steps(1, 'k')];
        let outer: Vec<[usize; 2]> = axes[2].chars().map(|axis| [steps(0, axis), steps(1, axis)]).collect();
        let (a, b) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        for (at, out) in
            tract_core::ndarray::indices(shape).into_iter().zip(result.try_as_plain_ram_mut()?.as_slice_mut::<T>()?)
        {
            let start = |operand: usize| outer.iter().zip(at.slice()).map(|(s, i)| s[operand] * i).sum::<usize>();
            let (from_a, from_b) = (start(0), start(1));
            *out = (0..terms)
                .fold(T::default(), |sum, k| sum.add(a[from_a + k * contracted[0]].mul(b[from_b + k * contracted[1]])));
        }
        Ok(tvec![result])
    }
}
