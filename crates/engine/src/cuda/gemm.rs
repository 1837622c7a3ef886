//! A batched matrix product in the terms of BLAS: column-major matrices with leading dimensions.

use super::arguments::Product;

/// `C = op(A) · op(B)` with column-major matrices; a row-major result is computed as the transposed product, with swapped
/// operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gemm {
    /// Whether BLAS' first operand is the product's right one.
    pub swapped: bool,
    pub first: MatrixLayout,
    pub second: MatrixLayout,
    pub rows: u32,
    pub columns: u32,
    pub depth: u32,
    pub leading: i32,
    /// Strides between the products of the batch: first operand, second operand, result.
    pub batch_strides: [i64; 3],
    pub batch: u32,
}

/// A column-major matrix, possibly transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MatrixLayout {
    pub transposed: bool,
    /// Stride of columns.
    pub leading: i32,
}

impl Gemm {
    /// `None` if a matrix has no contiguous axis.
    pub(super) fn of(product: &Product) -> Option<Gemm> {
        let p = product;
        let (rows, columns, depth) = (p.rows, p.columns, p.depth);
        let left = |row, column| layout(rows, depth, row, column);
        let straight = layout(rows, columns, p.to_row, p.to_column).filter(|to| !to.transposed);
        let strides = [p.left_batch, p.right_batch, p.to_batch].map(i64::from);
        if let Some(to) = straight {
            return Some(Gemm {
                swapped: false,
                first: left(p.left_row, p.left_depth)?,
                second: layout(depth, columns, p.right_depth, p.right_column)?,
                rows,
                columns,
                depth,
                leading: to.leading,
                batch_strides: strides,
                batch: p.batch,
            });
        }
        let to = layout(columns, rows, p.to_column, p.to_row).filter(|to| !to.transposed)?;
        Some(Gemm {
            swapped: true,
            first: layout(columns, depth, p.right_column, p.right_depth)?,
            second: layout(depth, rows, p.left_depth, p.left_row)?,
            rows: columns,
            columns: rows,
            depth,
            leading: to.leading,
            batch_strides: [strides[1], strides[0], strides[2]],
            batch: p.batch,
        })
    }
}

/// The layout of a matrix with strides `row` and `column`.
fn layout(rows: u32, columns: u32, row: i32, column: i32) -> Option<MatrixLayout> {
    let fits = |leading: i32, least: u32| u32::try_from(leading).is_ok_and(|leading| leading >= least.max(1));
    let straight = if columns == 1 { rows.max(1) as i32 } else { column };
    if (row == 1 || rows == 1) && fits(straight, rows) {
        return Some(MatrixLayout { transposed: false, leading: straight });
    }
    let across = if rows == 1 { columns.max(1) as i32 } else { row };
    ((column == 1 || columns == 1) && fits(across, columns))
        .then_some(MatrixLayout { transposed: true, leading: across })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference implementation of BLAS, for matrices that start at 0.
    fn blas(b: &Gemm, first: &[f64], second: &[f64], to: &mut [f64]) {
        let at = |layout: MatrixLayout, row: u32, column: u32| match layout.transposed {
            false => row as usize + column as usize * layout.leading as usize,
            true => column as usize + row as usize * layout.leading as usize,
        };
        for i in 0..b.batch as usize {
            let shift = b.batch_strides.map(|step| step as usize * i);
            for (row, column) in (0..b.rows).flat_map(|row| (0..b.columns).map(move |column| (row, column))) {
                let term = |k| first[shift[0] + at(b.first, row, k)] * second[shift[1] + at(b.second, k, column)];
                to[shift[2] + row as usize + column as usize * b.leading as usize] = (0..b.depth).map(term).sum();
            }
        }
    }

    #[test]
    fn every_combination_of_row_and_column_major_gives_the_same_product() {
        let value = |seed: usize, i: usize| ((i * 7 + seed * 13) % 11) as f64 - 5.0;
        let mut seen = 0;
        for (rows, columns, depth) in [(3u32, 4u32, 5u32), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (2, 2, 2)] {
            for order in 0..8 {
                let pick = |bit: u32, major: u32, minor: u32| {
                    // Strides of the two axes of a major × minor matrix.
                    if order >> bit & 1 == 0 { (minor as i32, 1) } else { (1, major as i32) }
                };
                let (left, right, to) = (pick(0, rows, depth), pick(1, depth, columns), pick(2, rows, columns));
                let product = Product {
                    left: 0,
                    right: 0,
                    to: 0,
                    batch: 2,
                    rows,
                    columns,
                    depth,
                    left_batch: (rows * depth) as i32,
                    left_row: left.0,
                    left_depth: left.1,
                    right_batch: 0,
                    right_depth: right.0,
                    right_column: right.1,
                    to_batch: (rows * columns) as i32,
                    to_row: to.0,
                    to_column: to.1,
                    _pad: 0,
                };
                let lefts: Vec<f64> = (0..2 * rows * depth).map(|i| value(1, i as usize)).collect();
                let rights: Vec<f64> = (0..depth * columns).map(|i| value(2, i as usize)).collect();
                let mut want = vec![0.0; (2 * rows * columns) as usize];
                for (b, r, c) in (0..2).flat_map(|b| (0..rows).flat_map(move |r| (0..columns).map(move |c| (b, r, c))))
                {
                    let at = |x: i32, n: u32| x as usize * n as usize;
                    let sum = (0..depth).map(|k| {
                        lefts[at(product.left_batch, b) + at(left.0, r) + at(left.1, k)]
                            * rights[at(right.0, k) + at(right.1, c)]
                    });
                    want[at(product.to_batch, b) + at(to.0, r) + at(to.1, c)] = sum.sum();
                }
                let call = Gemm::of(&product).unwrap();
                let mut made = vec![0.0; want.len()];
                let (first, second) = if call.swapped { (&rights, &lefts) } else { (&lefts, &rights) };
                blas(&call, first, second, &mut made);
                assert_eq!(made, want, "{product:?} {call:?}");
                seen += 1;
            }
        }
        assert_eq!(seen, 48);
        let strided = Product { left_row: 7, left_depth: 2, ..zeroed() };
        assert_eq!(Gemm::of(&strided), None);
    }

    fn zeroed() -> Product {
        Product {
            left: 0,
            right: 0,
            to: 0,
            batch: 1,
            rows: 3,
            columns: 3,
            depth: 3,
            left_batch: 0,
            left_row: 3,
            left_depth: 1,
            right_batch: 0,
            right_depth: 3,
            right_column: 1,
            to_batch: 0,
            to_row: 3,
            to_column: 1,
            _pad: 0,
        }
    }
}
