//! Tensors generated from their names: reproducible contents without a weight file.

use edgecut_graph::{DType, TensorData, TensorType};

/// Knuth's multiplicative hash constant: consecutive indices are spread over 0..2³².
const STEP: u32 = 2_654_435_761;

/// Why no content can be generated for a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error("its type {0} has unknown dimensions, so no content can be generated for it")]
    UnknownShape(TensorType),
    #[error("no content can be generated for elements of type {0}")]
    NotComputable(DType),
    #[error("a tensor of type {0} does not fit into memory")]
    TooLarge(TensorType),
}

/// The content of the tensor called `name`.
///
/// With x = (i · 2654435761 + crc32(name)) mod 2³² for the row-major index i, and u = x / 2³²: a float of rank ≤ 1
/// is 0.5 + u; a float of higher rank is (2u − 1) · √(3 / (d₁·d₂·…)) over all dimensions but the first, so that
/// activations keep their scale through layers; an integer is ⌊100 u⌋; a bool is x ≥ 2³¹.
///
/// # Errors
/// If a dimension is unknown, the dtype is exotic, or memory is exhausted.
pub fn seeded(name: &str, ty: &TensorType) -> Result<TensorData, SeedError> {
    let dims = ty.shape.fixed().ok_or_else(|| SeedError::UnknownShape(ty.clone()))?;
    if matches!(ty.dtype, DType::Exotic(_)) {
        return Err(SeedError::NotComputable(ty.dtype));
    }
    let too_large = || SeedError::TooLarge(ty.clone());
    let count = ty.bytes().and_then(|b| usize::try_from(b.0 / ty.dtype.size()).ok()).ok_or_else(too_large)?;
    let bound = match dims.len() {
        0 | 1 => None,
        _ => Some((3.0 / dims.iter().skip(1).map(|d| *d as f64).product::<f64>()).sqrt()),
    };
    let float = |x: u32| match bound {
        None => 0.5 + unit(x),
        Some(bound) => (2.0 * unit(x) - 1.0) * bound,
    };
    let int = |x: u32| ((u64::from(x) * 100) >> 32) as u8;
    let start = crc32fast::hash(name.as_bytes());
    let bytes = match ty.dtype {
        DType::Bool => fill(start, count, |x| [u8::from(x >= 1 << 31)]),
        DType::I8 | DType::U8 => fill(start, count, |x| [int(x)]),
        DType::I16 | DType::U16 => fill(start, count, |x| u16::from(int(x)).to_le_bytes()),
        DType::I32 | DType::U32 => fill(start, count, |x| u32::from(int(x)).to_le_bytes()),
        DType::I64 | DType::U64 => fill(start, count, |x| u64::from(int(x)).to_le_bytes()),
        DType::F16 => fill(start, count, |x| half::f16::from_f64(float(x)).to_le_bytes()),
        DType::Bf16 => fill(start, count, |x| half::bf16::from_f64(float(x)).to_le_bytes()),
        DType::F32 => fill(start, count, |x| (float(x) as f32).to_le_bytes()),
        DType::F64 => fill(start, count, |x| float(x).to_le_bytes()),
        DType::Exotic(_) => return Err(SeedError::NotComputable(ty.dtype)),
    }
    .ok_or_else(too_large)?;
    TensorData::new(ty.dtype, dims.to_vec(), bytes).map_err(|_| too_large())
}

/// Values of integers are below this.
const INTEGERS: i64 = 100;

/// The content of the tensor called `name` whose values, such as indices, must lie between `low` and `high`, both included:
/// that of [`seeded`] where it does; else ⌊n u⌋ above the smallest allowed value that is not negative, with n up to 100.
///
/// # Errors
/// As [`seeded`].
pub fn seeded_within(name: &str, ty: &TensorType, (low, high): (i64, i64)) -> Result<TensorData, SeedError> {
    let plain = seeded(name, ty)?;
    let is_valid = |values: Vec<i64>| values.iter().all(|value| (low..=high).contains(value));
    if ty.dtype == DType::Bool || low > high || plain.to_i64s().is_none_or(is_valid) {
        return Ok(plain);
    }
    let first = if high >= 0 { low.max(0) } else { low };
    let count = high.saturating_sub(first).saturating_add(1).clamp(1, INTEGERS) as u64;
    let mut x = crc32fast::hash(name.as_bytes());
    let mut bytes = Vec::with_capacity(plain.bytes().len());
    for _ in 0..plain.bytes().len() as u64 / ty.dtype.size() {
        let value = first + ((u64::from(x) * count) >> 32) as i64;
        match ty.dtype {
            DType::F16 => bytes.extend(half::f16::from_f64(value as f64).to_le_bytes()),
            DType::Bf16 => bytes.extend(half::bf16::from_f64(value as f64).to_le_bytes()),
            DType::F32 => bytes.extend((value as f32).to_le_bytes()),
            DType::F64 => bytes.extend((value as f64).to_le_bytes()),
            dtype => bytes.extend(value.to_le_bytes().into_iter().take(dtype.size() as usize)),
        }
        x = x.wrapping_add(STEP);
    }
    TensorData::new(ty.dtype, plain.shape(), bytes).map_err(|_| SeedError::TooLarge(ty.clone()))
}

fn unit(x: u32) -> f64 {
    f64::from(x) / 4_294_967_296.0
}

/// `count` elements for x = start, start + STEP, …; `None` if memory is exhausted.
fn fill<const N: usize>(start: u32, count: usize, element: impl Fn(u32) -> [u8; N]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count.checked_mul(N)?).ok()?;
    let mut x = start;
    for _ in 0..count {
        bytes.extend_from_slice(&element(x));
        x = x.wrapping_add(STEP);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Dim, Shape};

    /// The definition, written as it stands: 64-bit product, modulo, division.
    fn by_the_formula(name: &str, dims: &[u64], i: u64) -> f64 {
        let x = (i * 2_654_435_761 + u64::from(crc32fast::hash(name.as_bytes()))) % (1 << 32);
        let u = x as f64 / (1u64 << 32) as f64;
        match dims.len() {
            0 | 1 => 0.5 + u,
            _ => (2.0 * u - 1.0) * (3.0 / dims[1..].iter().product::<u64>() as f64).sqrt(),
        }
    }

    #[test]
    fn floats_follow_the_formula() {
        for dims in [&[] as &[u64], &[7], &[3, 5], &[4, 3, 7, 7]] {
            let tensor = seeded("bn0.w::x", &TensorType::of(DType::F64, dims)).unwrap();
            let values = tensor.to_f64s().unwrap();
            assert_eq!(values.len() as u64, dims.iter().product::<u64>());
            for (i, value) in values.iter().enumerate() {
                assert_eq!(*value, by_the_formula("bn0.w::x", dims, i as u64), "{dims:?} {i}");
            }
            let narrow = seeded("bn0.w::x", &TensorType::of(DType::F32, dims)).unwrap().to_f64s().unwrap();
            assert!(values.iter().zip(&narrow).all(|(wide, n)| f64::from(*wide as f32) == *n));
        }
    }

    #[test]
    fn every_computable_dtype_is_generated() {
        for dtype in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32".split(' ') {
            let ty = TensorType::of(dtype.parse().unwrap(), &[2, 50]);
            let values = seeded("data", &ty).unwrap().to_f64s().unwrap();
            let float = ty.dtype.is_float();
            assert!(values.iter().all(|v| (-1.0..100.0).contains(v) && (float || v.fract() == 0.0)), "{dtype}");
            assert!(values.iter().any(|v| *v != values[0]), "{dtype}");
        }
    }

    #[test]
    fn values_within_a_range_are_those_of_the_formula_where_they_can_be() {
        let ty = TensorType::of(DType::I64, &[40]);
        let plain = seeded("ids", &ty).unwrap();
        for (range, is_plain) in
            [((0, 1000), true), ((0, 99), true), ((0, 5), false), ((-6, 5), false), ((7, 7), false)]
        {
            let found = seeded_within("ids", &ty, range).unwrap();
            let (low, high) = (range.0.max(0), range.1);
            assert_eq!(found == plain, is_plain, "{range:?}");
            assert!(found.to_i64s().unwrap().iter().all(|value| (low..=high).contains(value)), "{range:?}");
        }
        for dtype in [DType::F32, DType::F16, DType::U8, DType::I32] {
            let found = seeded_within("ids", &TensorType::of(dtype, &[40]), (3, 4)).unwrap().to_f64s().unwrap();
            assert!(found.contains(&3.0) && found.contains(&4.0) && found.iter().all(|x| *x == 3.0 || *x == 4.0));
        }
    }

    #[test]
    fn what_has_no_content_is_refused() {
        let unknown = TensorType::new(DType::F32, [Dim::Any].into_iter().collect::<Shape>());
        assert!(matches!(seeded("x", &unknown), Err(SeedError::UnknownShape(_))));
        let huge = TensorType::of(DType::F32, &[1 << 40, 1 << 20]);
        assert!(matches!(seeded("x", &huge), Err(SeedError::TooLarge(_))));
        let exotic = TensorType::of("int4".parse().unwrap(), &[2]);
        assert!(matches!(seeded("x", &exotic), Err(SeedError::NotComputable(_))));
        assert_eq!(seeded("x", &TensorType::of(DType::F32, &[0, 3])).unwrap().bytes().len(), 0);
    }
}
