//! Multi-indices in row-major order, and gathering elements of any dtype.

use tract_core::internal::*;

/// Row-major strides, in elements.
pub(crate) fn strides(shape: &[usize]) -> TVec<usize> {
    let mut strides: TVec<usize> = shape.iter().map(|_| 1).collect();
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Strides along each axis of `to` of a dense tensor of shape `from`, right-aligned; 0 where it is broadcast.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> TVec<usize> {
    let mut strides: TVec<usize> = tvec![0; to.len()];
    let mut step = 1;
    for (stride, dim) in strides.iter_mut().rev().zip(from.iter().rev()) {
        *stride = if *dim == 1 { 0 } else { step };
        step *= dim;
    }
    strides
}

/// The linear index of the multi-index `place`.
pub(crate) fn flat(strides: &[usize], place: &[usize]) -> usize {
    strides.iter().zip(place).map(|(stride, at)| stride * at).sum()
}

/// The multi-index of the linear index `flat`.
pub(crate) fn place(shape: &[usize], mut flat: usize) -> TVec<usize> {
    let mut place: TVec<usize> = shape.iter().map(|_| 0).collect();
    for (at, dim) in place.iter_mut().zip(shape).rev() {
        *at = flat % dim.max(&1);
        flat /= dim.max(&1);
    }
    place
}

/// Calls `visit` with every multi-index of a tensor of `shape`, in row-major order.
pub(crate) fn each_place(shape: &[usize], mut visit: impl FnMut(&[usize])) {
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

/// An empty list with room for `len` elements.
///
/// # Errors
/// If there is no memory for it: `len` follows from sizes in a file, and an allocation that fails ends the process.
pub(crate) fn with_room<T>(len: usize) -> TractResult<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).with_context(|| format!("there is no memory for {len} indices"))?;
    Ok(list)
}

/// `len` times `value`.
///
/// # Errors
/// As [`with_room`].
pub(crate) fn filled<T: Clone>(len: usize, value: T) -> TractResult<Vec<T>> {
    let mut list = with_room(len)?;
    list.resize(len, value);
    Ok(list)
}

/// A tensor of `shape` whose element at each multi-index is the element of `data` with the linear index `from` of it.
///
/// # Errors
/// If `from` fails or returns an index out of range.
pub(crate) fn pick(
    data: &Tensor,
    shape: &[usize],
    mut from: impl FnMut(&[usize]) -> TractResult<usize>,
) -> TractResult<Tensor> {
    let mut indices = Ok(with_room(shape.iter().product())?);
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

/// As [`pick`], with a list of linear indices.
pub(crate) fn pick_flat(data: &Tensor, shape: &[usize], indices: &[usize]) -> TractResult<Tensor> {
    let size = data.datum_type().size_of();
    let mut out = Tensor::zero_dt(data.datum_type(), shape)?;
    let (bytes, len) = (data.as_bytes(), data.len());
    for (to, &at) in out.as_bytes_mut().chunks_exact_mut(size).zip(indices) {
        ensure!(at < len, "element {at} is out of range for a tensor of {len}");
        to.copy_from_slice(&bytes[at * size..][..size]);
    }
    Ok(out)
}

/// `data` with `axes` moved to the end in their order, and the product of their lengths.
pub(crate) fn with_last(data: &Tensor, axes: &[usize]) -> TractResult<(Tensor, usize)> {
    let length = axes.iter().map(|axis| data.shape()[*axis]).product();
    let order: TVec<usize> = (0..data.rank()).filter(|i| !axes.contains(i)).chain(axes.iter().copied()).collect();
    let ascending = order.is_sorted();
    Ok((if ascending { data.clone() } else { data.clone().permute_axes(&order)? }, length))
}

/// A possibly negative index into an axis of `len`.
///
/// # Errors
/// If it is out of range.
pub(crate) fn index_in(index: i64, len: usize) -> TractResult<usize> {
    let at = if index < 0 { index + len as i64 } else { index };
    match usize::try_from(at) {
        Ok(at) if at < len => Ok(at),
        _ => bail!("index {index} is out of range for an axis of {len}"),
    }
}

/// The elements of an integer tensor.
pub(crate) fn integers(tensor: &Tensor) -> TractResult<Vec<i64>> {
    let mut list = with_room(tensor.len())?;
    list.extend_from_slice(tensor.cast_to::<i64>()?.try_as_plain_ram()?.as_slice::<i64>()?);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_row_major() {
        for (shape, want) in [(&[2, 3, 4][..], &[12, 4, 1][..]), (&[5], &[1]), (&[], &[]), (&[3, 1, 2], &[2, 2, 1])] {
            assert_eq!(&*strides(shape), want, "{shape:?}");
        }
    }

    #[test]
    fn negative_indices_count_from_the_end() {
        for (index, at) in [(0, Some(0)), (2, Some(2)), (-1, Some(2)), (-3, Some(0)), (3, None), (-4, None)] {
            assert_eq!(index_in(index, 3).ok(), at, "{index}");
        }
    }

    #[test]
    fn picked_elements_must_be_in_range() {
        let data = tensor1(&[10u8, 11, 12]);
        assert_eq!(pick_flat(&data, &[2, 2], &[2, 0, 1, 2]).unwrap(), tensor2(&[[12u8, 10], [11, 12]]));
        assert!(pick_flat(&data, &[1], &[3]).is_err());
    }

    #[test]
    fn axes_move_to_the_end() {
        let data = tensor2(&[[1i32, 2, 3], [4, 5, 6]]);
        let (moved, length) = with_last(&data, &[0]).unwrap();
        assert_eq!((moved, length), (tensor2(&[[1i32, 4], [2, 5], [3, 6]]), 2));
        let (kept, length) = with_last(&data, &[0, 1]).unwrap();
        assert_eq!((kept, length), (data, 6));
    }

    #[test]
    fn multi_indices_are_in_row_major_order() {
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
