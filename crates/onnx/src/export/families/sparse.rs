//! Products with sparse matrices, which ONNX lacks: constant ones are written densely.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{
        builder::OnnxValue,
        scope::{Scope, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[("nn.sparse_dense", One(sparse_dense))];

/// data · Wᵀ, or with `sparse_lhs` W · dataᵀ, of a constant W in rows of compressed elements.
fn sparse_dense(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let left = scope.flag("sparse_lhs", false)?;
    // The dense operand is the last one if the sparse one stands on the left.
    let (dense, first) = if left { (3, 0) } else { (0, 1) };
    let dtype = scope.ty(first)?.dtype;
    let inner = *scope.dims(dense)?.last().ok_or("the dense operand is a scalar")?;
    let inner = usize::try_from(inner).map_err(|_| "a size is negative".to_string())?;
    if scope.rank(first)? != 1 {
        return Err("blocks of sparse matrices have no equivalent".to_string());
    }
    let values = scope.content_numbers(first, "the sparse matrix")?;
    let columns = scope.content_ints(first + 1, "the columns of the sparse matrix")?;
    let starts = scope.content_ints(first + 2, "the rows of the sparse matrix")?;
    let rows = starts.len().saturating_sub(1);
    table_entries(&[rows as i64, inner as i64])?;
    let mut matrix = vec![0.0; rows * inner];
    for row in 0..rows {
        let range = usize::try_from(starts[row]).ok().zip(usize::try_from(starts[row + 1]).ok());
        for at in range.map_or(0..0, |(begin, end)| begin..end.min(values.len())) {
            let column = columns.get(at).and_then(|column| usize::try_from(*column).ok());
            let column = column.filter(|column| *column < inner).ok_or("a column is outside the sparse matrix")?;
            matrix[row * inner + column] += values.get(at).copied().unwrap_or(0.0);
        }
    }
    let matrix = scope.builder.list_of(&matrix, dtype, &[rows as u64, inner as u64])?;
    let x = scope.x(dense)?;
    let (a, b) = if left { (matrix, x) } else { (x, matrix) };
    let b = scope.builder.transpose(&b, &[1, 0])?;
    scope.builder.matmul(&a, &b)
}
