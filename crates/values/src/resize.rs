//! Tensors cropped or padded with zeros at the end of their axes.

use edgecut_graph::TensorData;

/// `data` cropped or zero-padded to `shape`. `None` if the rank differs, or the result exceeds the address space.
pub fn resized(data: &TensorData, shape: &[u64]) -> Option<TensorData> {
    if shape == data.shape() {
        return Some(data.clone());
    }
    let element = data.dtype().size();
    let bytes = shape.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size))?;
    let mut resized = vec![0; usize::try_from(bytes).ok().filter(|_| shape.len() == data.shape().len())?];
    let common: Vec<u64> = data.shape().iter().zip(shape).map(|(a, b)| *a.min(b)).collect();
    let (inner, outer) = common.split_last()?;
    let row = (inner * element) as usize;
    let rows = if row == 0 { 0 } else { outer.iter().product() };
    for at in 0..rows {
        let (from, to) = (offset(at, outer, data.shape()), offset(at, outer, shape));
        let (from, to) = ((from * element) as usize, (to * element) as usize);
        resized[to..to + row].copy_from_slice(&data.bytes()[from..from + row]);
    }
    TensorData::new(data.dtype(), shape, resized).ok()
}

/// The offset, in a tensor of the given shape, of row `at` in the row-major order of `outer`: all axes of the block but the last.
fn offset(at: u64, outer: &[u64], shape: &[u64]) -> u64 {
    let (mut left, mut offset) = (at, 0);
    let mut stride = shape.last().copied().unwrap_or(1);
    for (size, whole) in outer.iter().zip(shape).rev() {
        offset += left % size * stride;
        left /= size;
        stride *= whole;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn axes_are_cropped_and_padded_at_their_ends() {
        let of = |shape: &[u64], bytes: &[u8]| TensorData::new(DType::U8, shape, bytes.to_vec()).unwrap();
        let data = of(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        for (shape, want) in [
            (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..]),
            (&[3, 4], &[1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 0]),
            (&[1, 2], &[1, 2]),
            (&[3, 2], &[1, 2, 4, 5, 0, 0]),
            (&[0, 3], &[]),
        ] {
            assert_eq!(resized(&data, shape), Some(of(shape, want)), "{shape:?}");
        }
        let wide = TensorData::new(DType::I16, [1, 2, 1], vec![1, 2, 3, 4]).unwrap();
        assert_eq!(resized(&wide, &[2, 1, 2]).unwrap().bytes().as_ref(), [1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(resized(&of(&[], &[7]), &[]), Some(of(&[], &[7])));
        assert_eq!((resized(&data, &[6]), resized(&data, &[u64::MAX, 3])), (None, None));
    }
}
