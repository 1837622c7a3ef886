//! Sparse tensors in coordinate format (COO): `sparse_reshape`, `sparse_fill_empty_rows`.

use crate::families::gather::integer;
use crate::{Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};
use std::collections::BTreeSet;

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("sparse_reshape", &["sparse_indices", "prev_shape", "new_shape"], reshape_type)
        .class(FusionClass::Injective)
        .host(kernel!(reshape)),
    OpDef::new(
        "sparse_fill_empty_rows",
        &["sparse_indices", "sparse_values", "dense_shape", "default_value"],
        fill_type,
    )
    .host(kernel!(fill)),
];

/// The coordinates in the new shape, and the new shape with its -1 resolved.
fn reshape_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (indices, new_shape) = (call.tensor(0)?, call.tensor(2)?);
    integer(call, indices)?;
    let (Some(count), Some(rank)) = (indices.shape.first(), new_shape.shape.first()) else {
        return Err(call.error(format!("{indices} and {new_shape}: expected a matrix and a vector")));
    };
    let found = TensorType::new(indices.dtype, [*count, *rank].into_iter().collect());
    Ok(Type::Tuple(vec![found.into(), new_shape.clone().into()]))
}

/// The coordinates and values with one more for each empty row, and which rows were empty.
fn fill_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (indices, values, shape) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    integer(call, indices)?;
    if indices.shape.rank() != 2 || values.shape.rank() != 1 || shape.shape.rank() != 1 {
        return Err(call.error(format!("{indices}, {values}, {shape}: expected a matrix and two vectors")));
    }
    let rows = call.value(2).and_then(|v| v.to_i64s()).and_then(|v| u64::try_from(*v.first()?).ok());
    let count = match (call.value(0).and_then(|v| v.to_i64s()), indices.shape[1].get(), rows) {
        (Some(all), Some(width), Some(rows)) => {
            let taken: BTreeSet<i64> = all.chunks_exact((width as usize).max(1)).map(|at| at[0]).collect();
            let more = (0..rows as i64).filter(|row| !taken.contains(row)).count() as u64;
            Dim::from(indices.shape[0].get().map(|n| n + more))
        }
        _ => Dim::Any,
    };
    let coordinates: Shape = [count, indices.shape[1]].into_iter().collect();
    Ok(Type::Tuple(vec![
        TensorType::new(indices.dtype, coordinates).into(),
        TensorType::new(values.dtype, [count].into_iter().collect()).into(),
        TensorType::new(DType::Bool, [Dim::from(rows)].into_iter().collect()).into(),
    ]))
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::indexing::{index_in, integers, pick_flat};

    fn product(mut dims: impl Iterator<Item = i64>) -> TractResult<i64> {
        dims.try_fold(1i64, |n, dim| n.checked_mul(dim)).context("the number of elements overflows")
    }

    pub(super) fn reshape(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (indices, from, mut to) = (integers(&inputs[0])?, integers(&inputs[1])?, integers(&inputs[2])?);
        let elements = product(from.iter().copied())?;
        let known = product(to.iter().copied().filter(|d| *d != -1))?;
        ensure!(
            from.iter().chain(&to).all(|d| *d >= -1) && known != 0,
            "the shapes {from:?} and {to:?} are incompatible"
        );
        to.iter_mut().filter(|d| **d == -1).for_each(|d| *d = elements / known);
        ensure!(product(to.iter().copied())? == elements, "{elements} elements cannot be reshaped to {to:?}");
        let count = inputs[0].shape()[0];
        let mut found = vec![0i64; count * to.len()];
        if !from.is_empty() && !to.is_empty() {
            for (row, moved) in indices.chunks_exact(from.len()).zip(found.chunks_exact_mut(to.len())) {
                let mut flat =
                    row.iter().zip(&from).fold(0i64, |flat: i64, (at, dim)| flat.wrapping_mul(*dim).wrapping_add(*at));
                for (at, dim) in moved.iter_mut().zip(&to).rev() {
                    *at = flat % (*dim).max(1);
                    flat /= (*dim).max(1);
                }
            }
        }
        let found = Tensor::from_shape(&[count, to.len()], &found)?.cast_to_dt(inputs[0].datum_type())?.into_owned();
        let to = Tensor::from_shape(inputs[2].shape(), &to)?.cast_to_dt(inputs[2].datum_type())?.into_owned();
        Ok(tvec!(found, to))
    }

    /// Keeps the order within a row; an empty row gets the default value at column 0.
    pub(super) fn fill(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (indices, shape) = (integers(&inputs[0])?, integers(&inputs[2])?);
        let width = inputs[0].shape()[1];
        let rows = usize::try_from(*shape.first().context("the dense shape is empty")?)?;
        ensure!(width > 0, "coordinates of rank 0 have no rows");
        let values = &inputs[1];
        let mut of_row: Vec<Vec<usize>> = vec![Vec::new(); rows];
        for (number, at) in indices.chunks_exact(width).enumerate() {
            of_row[index_in(at[0], rows)?].push(number);
        }
        let (mut coordinates, mut sources) = (Vec::new(), Vec::new());
        for (row, numbers) in of_row.iter().enumerate() {
            if numbers.is_empty() {
                coordinates.extend((0..width).map(|axis| if axis == 0 { row as i64 } else { 0 }));
                sources.push(values.len());
            }
            for number in numbers {
                coordinates.extend(&indices[number * width..][..width]);
                sources.push(*number);
            }
        }
        let default = inputs[3].cast_to_dt(values.datum_type())?.into_owned().into_shape(&[1])?;
        let all = Tensor::stack_tensors(0, &[values.clone().into_tensor(), default])?;
        let coordinates = Tensor::from_shape(&[sources.len(), width], &coordinates)?;
        let empty: Vec<bool> = of_row.iter().map(Vec::is_empty).collect();
        Ok(tvec!(
            coordinates.cast_to_dt(inputs[0].datum_type())?.into_owned(),
            pick_flat(&all, &[sources.len()], &sources)?,
            tensor1(&empty)
        ))
    }
}
