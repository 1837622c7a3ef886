//! Walking over the places of a tensor in row-major order, and moving elements from place to place whatever
//! their dtype is.

use tract_core::internal::*;

/// The distance in elements between neighbours along each axis of a dense tensor.
pub(super) fn strides(shape: &[usize]) -> TVec<usize> {
    let mut strides: TVec<usize> = shape.iter().map(|_| 1).collect();
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// The row-major index of `place`.
pub(super) fn flat(strides: &[usize], place: &[usize]) -> usize {
    strides.iter().zip(place).map(|(stride, at)| stride * at).sum()
}

/// The place of row-major index `flat`.
pub(super) fn place(shape: &[usize], mut flat: usize) -> TVec<usize> {
    let mut place: TVec<usize> = shape.iter().map(|_| 0).collect();
    for (at, dim) in place.iter_mut().zip(shape).rev() {
        *at = flat % dim.max(&1);
        flat /= dim.max(&1);
    }
    place
}

/// Calls `visit` with every place of a tensor of `shape`, in row-major order.
pub(super) fn each_place(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let mut place: TVec<usize> = shape.iter().map(|_| 0).collect();
    for _ in 0..shape.iter().product::<usize>() {
        visit(&place);
        for (at, dim) in place.iter_mut().zip(shape).rev() {
            *at += 1;
            if *at < *dim {
                break;
            }
            *at = 0;
        }
    }
}

/// A tensor of `shape` whose element at each place is the element of `data` with the row-major index `from(place)`.
///
/// # Errors
/// If `from` fails or gives an index outside of `data`.
pub(super) fn pick(
    data: &Tensor,
    shape: &[usize],
    mut from: impl FnMut(&[usize]) -> TractResult<usize>,
) -> TractResult<Tensor> {
    let mut indices = Ok(Vec::with_capacity(shape.iter().product()));
    each_place(shape, |place| {
        if let Ok(list) = &mut indices {
            match from(place) {
                Ok(index) => list.push(index),
                Err(e) => indices = Err(e),
            }
        }
    });
    pick_flat(data, shape, &indices?)
}

/// As [`pick`], with the row-major indices in a list.
pub(super) fn pick_flat(data: &Tensor, shape: &[usize], indices: &[usize]) -> TractResult<Tensor> {
    let size = data.datum_type().size_of();
    let mut out = Tensor::zero_dt(data.datum_type(), shape)?;
    let (bytes, len) = (data.as_bytes(), data.len());
    for (to, &at) in out.as_bytes_mut().chunks_exact_mut(size).zip(indices) {
        ensure!(at < len, "element {at} of a tensor of {len} was asked for");
        to.copy_from_slice(&bytes[at * size..][..size]);
    }
    Ok(out)
}

/// `data` with `axes` moved to the end in their order, and the length of what they span.
pub(super) fn with_last(data: &Tensor, axes: &[usize]) -> TractResult<(Tensor, usize)> {
    let length = axes.iter().map(|axis| data.shape()[*axis]).product();
    let order: TVec<usize> = (0..data.rank()).filter(|i| !axes.contains(i)).chain(axes.iter().copied()).collect();
    let ascending = order.is_sorted();
    Ok((if ascending { data.clone() } else { data.clone().permute_axes(&order)? }, length))
}

/// A possibly negative index into an axis of `len`.
///
/// # Errors
/// If it is outside of the axis.
pub(super) fn index_in(index: i64, len: usize) -> TractResult<usize> {
    let at = if index < 0 { index + len as i64 } else { index };
    match usize::try_from(at) {
        Ok(at) if at < len => Ok(at),
        _ => bail!("index {index} is outside of an axis of {len}"),
    }
}

/// The elements of an integer tensor.
pub(super) fn integers(tensor: &Tensor) -> TractResult<Vec<i64>> {
    Ok(tensor.cast_to::<i64>()?.try_as_plain_ram()?.as_slice::<i64>()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_run_in_row_major_order() {
        let shape = [2, 3, 2];
        let strides = strides(&shape);
        let mut seen = 0;
        each_place(&shape, |at| {
            assert_eq!(flat(&strides, at), seen);
            assert_eq!(&*place(&shape, seen), at);
            seen += 1;
        });
        assert_eq!(seen, 12);
        let mut scalars = 0;
        each_place(&[], |_| scalars += 1);
        assert_eq!(scalars, 1);
    }
}
