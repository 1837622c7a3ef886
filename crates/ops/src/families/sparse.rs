//! Products and sums with sparse matrices in compressed row format, of elements (CSR) or blocks (BSR).

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, layout::map_dim, rules::per_input};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    dense("nn.sparse_dense", &["dense_data", "sparse_data", "sparse_indices", "sparse_indptr"]),
    dense("nn.internal.sparse_dense_padded", &["data", "weight_data", "weight_indices", "weight_indptr"]),
    OpDef::new("nn.sparse_conv2d", &["dense_data", "sparse_data", "sparse_indices", "sparse_indptr"], conv_type)
        .attrs(
            "relay.attrs.SparseConv2DAttrs",
            &[AttrDef::new("layout", AttrKind::Str, "\"NHWC\""), AttrDef::new("kernel_size", AttrKind::Ints, "[1, 1]")],
        )
        .class(FusionClass::OutFusable)
        .flops(|call| {
            let pixels = call.tensor(0).ok().zip(conv_axes(call).ok());
            let pixels = pixels
                .and_then(|(data, (channels, _))| Some(data.shape.elements()? / data.shape[channels].get()?.max(1)));
            pixels.unwrap_or(0).saturating_mul(2 * stored(call))
        })
        .wire(kernel!(sparse_conv)),
    OpDef::new("nn.sparse_transpose", &["sparse_data", "sparse_indices", "sparse_indptr"], |call| {
        let operand = |index| Ok(Type::from(call.tensor(index)?.clone()));
        Ok(Type::Tuple(vec![operand(0)?, operand(1)?, operand(2)?]))
    })
    .attrs("relay.attrs.SparseTransposeAttrs", &[])
    .class(FusionClass::OutFusable)
    .wire(kernel!(sparse_transpose)),
    OpDef::new("nn.sparse_add", &["dense_data", "sparse_data", "sparse_indices", "sparse_indptr"], |call| {
        let (data, sparse) = (call.tensor(0)?, call.tensor(1)?);
        call.same_dtype(data, sparse)?;
        match (data.shape.rank(), sparse.shape.rank()) {
            (2, 1) => Ok(data.clone().into()),
            _ => Err(call.error(format!("cannot add {sparse} to {data}, expected a CSR matrix and a matrix"))),
        }
    })
    .flops(per_input::<1>)
    .wire(kernel!(sparse_add)),
];

const fn dense(name: &'static str, operands: &'static [&'static str]) -> OpDef {
    OpDef::new(name, operands, dense_type)
        .attrs("relay.attrs.SparseDenseAttrs", LHS)
        .class(FusionClass::OutFusable)
        .flops(|call| {
            let rows = call.tensor(0).ok().and_then(|t| t.shape.first()?.get());
            rows.unwrap_or(0).saturating_mul(2 * stored(call))
        })
        .wire(kernel!(sparse_dense))
}

const LHS: &[AttrDef] = &[AttrDef::new("sparse_lhs", AttrKind::Bool, "False")];

/// Number of stored elements.
fn stored(call: &Call<'_>) -> u64 {
    call.tensor(1).ok().and_then(|t| t.shape.elements()).unwrap_or(0)
}

/// Number of rows of the sparse matrix, in elements.
fn sparse_rows(call: &Call<'_>) -> Result<Dim, TypeError> {
    let (data, pointers) = (call.tensor(1)?, call.tensor(3)?);
    let block = match data.shape[..] {
        [_] => 1,
        [_, rows] | [_, rows, _] => rows.get().unwrap_or(1),
        _ => return Err(call.error(format!("the stored elements are {data}, expected rank 1 to 3"))),
    };
    match pointers.shape[..] {
        [count] => Ok(map_dim(count, |n| n.saturating_sub(1).saturating_mul(block))),
        _ => Err(call.error(format!("the row pointers are {pointers}, expected a vector"))),
    }
}

fn dense_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let [outer, _] = data.shape[..] else {
        return Err(call.error(format!("the dense operand is {data}, expected a matrix")));
    };
    let rows = sparse_rows(call)?;
    let shape = if call.flag("sparse_lhs", false)? { [rows, outer] } else { [outer, rows] };
    Ok(TensorType::new(data.dtype, Shape::from_iter(shape)).into())
}

/// The channel axis, and whether it is the last one.
fn conv_axes(call: &Call<'_>) -> Result<(usize, bool), TypeError> {
    match call.text("layout", "NHWC")? {
        "NHWC" => Ok((3, true)),
        "NCHW" => Ok((1, false)),
        other => Err(call.error(format!("layout is {other:?}, expected NHWC or NCHW"))),
    }
}

fn conv_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let mut out = call.tensor(0)?.clone();
    let (channels, _) = conv_axes(call)?;
    if out.shape.rank() != 4 {
        return Err(call.error(format!("the data is {out}, expected rank 4")));
    }
    out.shape[channels] = sparse_rows(call)?;
    Ok(out.into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{
            Wiring,
            element::{Number, for_dtype},
        },
    };

    /// A sparse matrix with validated structure.
    struct Compressed<'a, T> {
        data: &'a [T],
        columns: Vec<usize>,
        pointers: Vec<usize>,
        /// Rows and columns of one block.
        block: [usize; 2],
    }

    impl<'a, T: Number> Compressed<'a, T> {
        /// Validates the structure of a matrix of `width` columns.
        fn read(
            data: &'a [T],
            shape: &[usize],
            columns: &Tensor,
            pointers: &Tensor,
            width: usize,
        ) -> TractResult<Self> {
            let indices = |tensor: &Tensor| -> TractResult<Vec<usize>> {
                let wide = tensor.cast_to::<i64>()?;
                let plain = wide.try_as_plain_ram()?;
                plain.as_slice::<i64>()?.iter().map(|n| Ok(usize::try_from(*n)?)).collect()
            };
            let block = [shape.get(1).copied().unwrap_or(1), shape.get(2).copied().unwrap_or(1)];
            let (columns, pointers) = (indices(columns)?, indices(pointers)?);
            // A row that ends before it starts is empty, as in TVM.
            let spans = || pointers.windows(2).filter(|span| span[0] < span[1]).map(|span| span[0]..span[1]);
            let stored = columns.len().min(shape[0]);
            ensure!(spans().all(|span| span.end <= stored), "a row pointer exceeds the {stored} stored elements");
            let inside = |at: usize| columns[at] < width / block[1].max(1);
            ensure!(spans().flatten().all(inside), "a column index exceeds the width {width}");
            Ok(Compressed { data, columns, pointers, block })
        }

        fn rows(&self) -> usize {
            self.pointers.len().saturating_sub(1) * self.block[0]
        }

        /// Calls `visit` with the row, column and value of every stored element, row by row.
        fn each(&self, mut visit: impl FnMut(usize, usize, T)) {
            let [height, width] = self.block;
            for (row, span) in self.pointers.windows(2).enumerate() {
                for at in span[0]..span[1] {
                    for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
                        let value = self.data[(at * height + i) * width + j];
                        visit(row * height + i, self.columns[at] * width + j, value);
                    }
                }
            }
        }
    }

    /// `dense · Sᵀ`, or its transpose.
    fn multiplied<T: Number>(inputs: &[TValue], shape: &[usize], sparse_lhs: bool) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), shape)?;
        {
            let width = inputs[0].shape().last().copied().unwrap_or(0);
            let (dense, data) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
            let dense = dense.as_slice::<T>()?;
            let matrix = Compressed::read(data.as_slice::<T>()?, inputs[1].shape(), &inputs[2], &inputs[3], width)?;
            let (rows, outer) = (matrix.rows(), dense.len() / width.max(1));
            let mut made = result.try_as_plain_ram_mut()?;
            let made = made.as_slice_mut::<T>()?;
            matrix.each(|row, column, value| {
                for m in 0..outer {
                    let at = if sparse_lhs { row * outer + m } else { m * rows + row };
                    made[at] = made[at].add(dense[m * width + column].mul(value));
                }
            });
        }
        Ok(tvec![result])
    }

    pub(super) fn sparse_dense(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let dtype = wiring.fact(inputs[0])?.datum_type;
        let (shape, sparse_lhs) = (call.dims()?, call.flag("sparse_lhs", false)?);
        wiring.custom(
            "SparseDense",
            tvec![dtype.fact(&*shape)],
            inputs,
            move |inputs| for_dtype!(dtype, T in number => multiplied::<T>(inputs, &shape, sparse_lhs)),
        )
    }

    /// A 1×1 convolution as a matrix product over the channels.
    pub(super) fn sparse_conv(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let size = call.steps("kernel_size", 2, 1)?;
        ensure!(size == [1, 1], "kernel_size is {size:?}, expected 1 by 1");
        let (_, last) = conv_axes(call)?;
        let data = if last { inputs[0] } else { wiring.permute(inputs[0], &[0, 2, 3, 1])? };
        let dtype = wiring.fact(data)?.datum_type;
        let mut shape = wiring.concrete(data)?;
        shape[3] = sparse_rows(call)?.get().context("the rows are unknown")? as usize;
        let operands = [data, inputs[1], inputs[2], inputs[3]];
        let made = wiring.custom(
            "SparseConvolution",
            tvec![dtype.fact(&shape)],
            &operands,
            move |inputs| for_dtype!(dtype, T in number => multiplied::<T>(inputs, &shape, false)),
        )?[0];
        Ok(tvec![if last { made } else { wiring.permute(made, &[0, 3, 1, 2])? }])
    }

    /// The transpose of a square matrix, in the same format.
    pub(super) fn sparse_transpose(
        wiring: &mut Wiring<'_>,
        _call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let facts = inputs.iter().map(|i| Ok(wiring.fact(*i)?.without_value())).collect::<TractResult<TVec<_>>>()?;
        wiring.custom(
            "SparseTranspose",
            facts,
            inputs,
            |inputs| for_dtype!(inputs[0].datum_type(), T in number => transposed::<T>(inputs)),
        )
    }

    fn transposed<T: Number>(inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let rows = inputs[2].shape()[0].saturating_sub(1);
        let plain = inputs[0].try_as_plain_ram()?;
        let matrix = Compressed::read(plain.as_slice::<T>()?, inputs[0].shape(), &inputs[1], &inputs[2], rows)?;
        let mut columns: Vec<Vec<(i64, T)>> = vec![Vec::new(); rows];
        matrix.each(|row, column, value| columns[column].push((row as i64, value)));
        let mut pointers = vec![0i64];
        columns.iter().for_each(|column| pointers.push(pointers.last().unwrap_or(&0) + column.len() as i64));
        let (mut indices, mut data): (Vec<i64>, Vec<T>) = columns.into_iter().flatten().unzip();
        // Elements beyond the last row pointer stay zero.
        indices.resize(inputs[1].shape()[0], 0);
        data.resize(inputs[0].shape()[0], T::default());
        let to = |numbers: &[i64], like: &Tensor| {
            Ok::<_, TractError>(tensor1(numbers).cast_to_dt(like.datum_type())?.into_owned())
        };
        Ok(tvec![tensor1(&data), to(&indices, &inputs[1])?, to(&pointers, &inputs[2])?])
    }

    pub(super) fn sparse_add(
        wiring: &mut Wiring<'_>,
        _call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?.without_value();
        let dtype = fact.datum_type;
        wiring.custom(
            "SparseAdd",
            tvec![fact],
            inputs,
            move |inputs| for_dtype!(dtype, T in number => added::<T>(inputs)),
        )
    }

    fn added<T: Number>(inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let mut result = inputs[0].clone().into_tensor();
        {
            let width = inputs[0].shape()[1];
            let plain = inputs[1].try_as_plain_ram()?;
            let matrix = Compressed::read(plain.as_slice::<T>()?, inputs[1].shape(), &inputs[2], &inputs[3], width)?;
            ensure!(matrix.rows() <= inputs[0].shape()[0], "the sparse matrix has more rows than the dense one");
            let mut made = result.try_as_plain_ram_mut()?;
            let made = made.as_slice_mut::<T>()?;
            matrix.each(|row, column, value| made[row * width + column] = made[row * width + column].add(value));
        }
        Ok(tvec![result])
    }
}
