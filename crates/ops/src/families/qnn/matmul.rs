//! `qnn.matmul`: ONNX's MatMulInteger on matrices and batches of them: numpy's `matmul` of 8-bit integers minus their
//! zero points, as int32.

use crate::{
    Call, FusionClass, OpDef, TypeError, Typed,
    rules::unify,
    split::{SplitAxis, aligned},
};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] =
    &[OpDef::new("qnn.matmul", &["tensor_a", "tensor_b", "a_zero_point", "b_zero_point"], result_type)
        .class(FusionClass::OutFusable)
        .flops(flops)
        .split(axes)
        .wire(kernel!(wire))];

/// Rows, the length of the contracted axis, columns.
fn sizes(call: &Call<'_>) -> Result<[Dim; 3], TypeError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (&[.., m, k], &[.., found, n]) = (&a.shape[..], &b.shape[..]) else {
        return Err(call.error(format!("operands are {a} and {b}, expected matrices")));
    };
    match unify(k, found) {
        Some(k) => Ok([m, k, n]),
        None => Err(call.error(format!("{a} and {b} differ in the contracted dimension"))),
    }
}

fn result_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    for operand in [a, b] {
        if !matches!(operand.dtype, DType::I8 | DType::U8) {
            return Err(call.error(format!("an operand is {operand}, expected int8 or uint8")));
        }
    }
    let [m, _, n] = sizes(call)?;
    let lead = |ty: &TensorType| ty.shape[..ty.shape.rank() - 2].iter().copied().collect::<Shape>();
    let lead = call.broadcast(&lead(a), &lead(b))?;
    for (index, expected) in [(2, m), (3, n)] {
        if index < call.args.len() {
            let zero_point = call.tensor(index)?;
            let count = zero_point.shape.elements();
            if zero_point.shape.rank() > 1 || (count != Some(1) && count != expected.get()) {
                return Err(call.error(format!("a zero point is {zero_point}, expected one or {expected}")));
            }
        }
    }
    Ok(TensorType::new(DType::I32, lead.iter().copied().chain([m, n]).collect()).into())
}

fn flops(call: &Typed<'_>) -> u64 {
    let outputs = call.out.tensors().iter().filter_map(|ty| ty.shape.elements()).sum::<u64>();
    let terms = sizes(call).ok().and_then(|[_, k, _]| k.get()).unwrap_or(0);
    outputs.saturating_mul(terms).saturating_mul(2)
}

/// Leading axes of operands that have them, rows of the first operand, columns of the second.
fn axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.result()?.shape;
    let rank = shape.rank();
    let mut axes = Vec::with_capacity(rank);
    for axis in 0..rank {
        let mut split = SplitAxis::along(call, axis);
        for operand in [0, 1] {
            let ty = call.tensor(operand)?;
            // The last two axes belong to one operand each.
            let is_own = axis + 2 < rank || axis + 2 - rank == operand;
            if let Some(at) = aligned(ty, rank, axis, shape[axis]).filter(|_| is_own) {
                split = split.operand(operand, at);
            }
        }
        for index in [2, 3].into_iter().filter(|index| *index < call.args.len()) {
            let is_vector = call.tensor(index)?.shape.elements() != Some(1);
            if is_vector && axis + 4 == rank + index {
                split = split.operand(index, 0);
            }
        }
        axes.push(split);
    }
    Ok(axes)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::einsum::EinSum;

    use crate::families::qnn::exact::{fits, less_zero_point, sum_of_blocks};
    use crate::kernel::Wiring;

    pub(super) fn wire(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let out = call.dims()?;
        let lead: Vec<char> = ('a'..'k').take(out.len() - 2).collect();
        ensure!(lead.len() + 2 == out.len(), "stacks of more than 10 axes are not supported");
        let (mut operands, mut names, mut contracted) = (Vec::new(), Vec::new(), Vec::new());
        let length = *wiring.concrete(inputs[0])?.last().context("a matrix has columns")?;
        let dtype = if fits(length, 1) { DatumType::F32 } else { DatumType::I32 };
        for (index, own) in [['m', 'k'], ['k', 'n']].into_iter().enumerate() {
            let shape = wiring.concrete(inputs[index])?;
            let mut per_channel = vec![1; shape.len()];
            let zero_point = inputs.get(index + 2).copied();
            if let Some(zero) = zero_point {
                per_channel[shape.len() - 2 + index] = wiring.fact(zero)?.shape.volume().to_usize()?;
            }
            let mut operand = less_zero_point(wiring, inputs[index], zero_point, &per_channel, dtype)?;
            let mut axes: Vec<char> = lead[out.len() - shape.len()..].iter().copied().chain(own).collect();
            // A broadcast axis of size 1 does not belong to this operand.
            for axis in (0..shape.len() - 2).rev() {
                if shape[axis] == 1 && out[out.len() - shape.len() + axis] != 1 {
                    operand = wiring.one(AxisOp::Rm(axis), &[operand])?;
                    axes.remove(axis);
                }
            }
            contracted.push(axes.iter().position(|name| *name == 'k').context("it has an axis k")?);
            names.push(axes.into_iter().collect::<String>());
            operands.push(operand);
        }
        let result: String = lead.into_iter().chain(['m', 'n']).collect();
        let expression = format!("{},{}->{result}", names[0], names[1]);
        if dtype == DatumType::I32 {
            return wiring.wire(EinSum::new(expression.parse()?, dtype), &operands);
        }
        let axes = [contracted[0], contracted[1]];
        let sum = sum_of_blocks(wiring, [operands[0], operands[1]], axes, 1, |wiring, blocks| {
            wiring.one(EinSum::new(expression.parse()?, DatumType::F32), &blocks)
        })?;
        Ok(tvec![sum])
    }
}
