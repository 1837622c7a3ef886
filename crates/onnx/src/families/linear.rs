//! Matrix products.

use edgecut_graph::{Attr, TensorId};

use super::conv::{is_one, less, or_zero};
use crate::{
    compose::{one, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Gemm", gemm),
    ("MatMul", |call| {
        let (a, b) = (call.input(0)?, call.input(1)?);
        one(product(call, a, b)?)
    }),
    ("MatMulInteger", |call| {
        let (a, b) = (call.input(0)?, call.input(1)?);
        let (a_zero, b_zero) = (call.optional(2)?, call.optional(3)?);
        // ONNX Runtime's kernel has several zero points for the columns of one matrix only.
        let has_kernel = a_zero.is_none_or(|zero| is_one(call, zero))
            && b_zero.is_none_or(|zero| is_one(call, zero) || (call.rank(b) == 2 && call.rank(zero) == 1));
        if call.rank(a) >= 2 && call.rank(b) >= 2 && has_kernel {
            let zeros = match (a_zero, b_zero) {
                (None, None) => Vec::new(),
                _ => vec![or_zero(call, a_zero, a)?, or_zero(call, b_zero, b)?],
            };
            let operands: Vec<TensorId> = [a, b].into_iter().chain(zeros).collect();
            return one(call.op("qnn.matmul", &operands, Vec::new())?);
        }
        let (rows, columns) = (call.rank(a).saturating_sub(2), call.rank(b).saturating_sub(1));
        let (a, b) = (less(call, a, a_zero, rows)?, less(call, b, b_zero, columns)?);
        one(product(call, a, b)?)
    }),
    ("Einsum", |call| {
        let (operands, equation) = (call.all()?, call.text("equation", ""));
        one(call.on_tuple("einsum", &operands, vec![("equation", text(&equation.replace(' ', "")))])?)
    }),
];

fn gemm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a, b, c) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    one(general_product(call, a, b, c)?)
}

/// alpha A B + beta C, where A and B may be transposed.
pub(super) fn general_product(
    call: &mut Call<'_, '_>,
    a: TensorId,
    b: TensorId,
    c: Option<TensorId>,
) -> Result<TensorId> {
    let (alpha, beta) = (call.float("alpha", 1.0), call.float("beta", 1.0));
    let (transpose_a, transpose_b) = (call.int("transA", 0) != 0, call.int("transB", 0) != 0);
    let units = call.dims(b)?.get(usize::from(!transpose_b)).copied().unwrap_or(0);
    let attrs = vec![("units", Attr::Int(units as i64))];
    let mut made = match (transpose_a, transpose_b) {
        (false, true) => call.op("nn.dense", &[a, b], attrs)?,
        _ => {
            let flags = [("transpose_a", Attr::Bool(transpose_a)), ("transpose_b", Attr::Bool(transpose_b))];
            call.op("nn.matmul", &[a, b], attrs.into_iter().chain(flags).collect())?
        }
    };
    if alpha != 1.0 {
        made = call.with("multiply", made, alpha)?;
    }
    let Some(c) = c.filter(|_| beta != 0.0) else { return Ok(made) };
    let c = if beta == 1.0 { c } else { call.with("multiply", c, beta)? };
    match call.dims(c)?[..] {
        [n] if n == units && call.dtype_of(c).is_float() => {
            call.op("nn.bias_add", &[made, c], vec![("axis", Attr::Int(1))])
        }
        _ => call.map("add", &[made, c]),
    }
}

/// numpy's `matmul`: vectors gain an axis that the result loses, leading axes are broadcast.
pub(super) fn product(call: &mut Call<'_, '_>, a: TensorId, b: TensorId) -> Result<TensorId> {
    let (a_rank, b_rank) = (call.rank(a), call.rank(b));
    if a_rank == 0 || b_rank == 0 {
        return Err("a scalar is not a matrix".to_string());
    }
    if a_rank == 1 {
        let row = call.expand(a, 0, 1)?;
        let made = product(call, row, b)?;
        let axis = call.rank(made) - if b_rank == 1 { 1 } else { 2 };
        return call.squeeze(made, &[axis]);
    }
    if b_rank == 1 {
        let column = call.expand(b, 1, 1)?;
        let made = product(call, a, column)?;
        let axis = call.rank(made) - 1;
        return call.squeeze(made, &[axis]);
    }
    let (a_dims, b_dims) = (call.dims(a)?, call.dims(b)?);
    let (rows, inner, columns) = (a_dims[a_rank - 2], a_dims[a_rank - 1], b_dims[b_rank - 1]);
    if b_rank == 2 {
        let attrs = vec![("units", Attr::Int(columns as i64)), ("out_dtype", text(&call.dtype_of(a).to_string()))];
        return call.op("nn.matmul", &[a, b], attrs);
    }
    let (a_lead, b_lead) = (&a_dims[..a_rank - 2], &b_dims[..b_rank - 2]);
    let rank = a_lead.len().max(b_lead.len());
    let at = |list: &[u64], axis: usize| (axis + list.len()).checked_sub(rank).map_or(1, |at| list[at]);
    let lead: Vec<u64> = (0..rank)
        .map(|axis| match (at(a_lead, axis), at(b_lead, axis)) {
            (1, size) | (size, 1) => Ok(size),
            (x, y) if x == y => Ok(x),
            (x, y) => Err(format!("sizes {x} and {y} of a leading axis cannot be broadcast")),
        })
        .collect::<Result<_>>()?;
    let batch: u64 = lead.iter().product();
    let stack = |call: &mut Call<'_, '_>, x: TensorId, own: &[u64], matrix: [u64; 2]| {
        let whole: u64 = own.iter().product();
        // One matrix for all is broadcast by the product itself.
        let x = match whole == batch || whole == 1 {
            true => x,
            false => {
                let shape: Vec<u64> = lead.iter().copied().chain(matrix).collect();
                call.broadcast(x, &shape)?
            }
        };
        call.reshape(x, &[if whole == 1 { 1 } else { batch }, matrix[0], matrix[1]])
    };
    let a = stack(call, a, a_lead, [rows, inner])?;
    let b = stack(call, b, b_lead, [b_dims[b_rank - 2], columns])?;
    let attrs = vec![
        ("transpose_a", Attr::Bool(false)),
        ("transpose_b", Attr::Bool(false)),
        ("out_dtype", text(&call.dtype_of(a).to_string())),
    ];
    let made = call.op("nn.batch_matmul", &[a, b], attrs)?;
    let shape: Vec<u64> = lead.iter().copied().chain([rows, columns]).collect();
    call.reshape(made, &shape)
}
