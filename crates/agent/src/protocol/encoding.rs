//! Encodings of float32 tensors on links between servers: half precision, and 8-bit integers with a scale for each block.
//!
//! Loops over chunks and blocks without branches, which compilers vectorise: a tensor is encoded faster than links carry it.
//!
//! | format | bytes |
//! |---|---|
//! | exact | row-major and little-endian, as everywhere |
//! | f16 | IEEE half precision; finite values beyond its range are its largest ones |
//! | int8 | for each block one float32 scale, then one signed byte for each element: the element is its byte times the scale |
//!
//! A block is as few trailing axes as have 32 elements together, or all. Where the scale is negative, that is of the absolute
//! value of the scale, but 127 and -127 are infinities and -128 is not a number.

use bytes::Bytes;
use half::{f16, slice::HalfFloatSliceExt};

use super::chunks::ChunkError;
use edgecut_graph::{DType, TensorData, TensorType};
use edgecut_plan::{
    TransferFormat,
    activation::{Activation, block_length},
};

/// Elements that are converted to or from half precision at once.
const CHUNK: usize = 1024;

/// The largest finite number of half precision.
const F16_MAX: f32 = 65504.0;

/// Largest code of a block of finite numbers, and of one that has others too.
const FINITE_LEVELS: f32 = 127.0;
const SPECIAL_LEVELS: f32 = 126.0;

/// In blocks with a negative scale.
const INFINITE: i8 = 127;
const NOT_A_NUMBER: i8 = -128;

/// Added to a number below 2²² it rounds it to an integer, ties to even, whose low byte is that of the sum.
const ROUNDING: f32 = 12_582_912.0;

/// The bits of infinity: of a larger absolute value are those that are not numbers.
const INFINITY_BITS: u32 = 0x7f80_0000;

/// The content of `data` in `format`, which shares its memory if that is exact. Tensors of other types than float32 stay as
/// they are.
pub fn encode(format: TransferFormat, data: &TensorData) -> Bytes {
    let bytes = data.bytes();
    match format {
        TransferFormat::F16 if data.dtype() == DType::F32 => encode_f16(bytes).into(),
        TransferFormat::Int8 if data.dtype() == DType::F32 => {
            encode_int8(bytes, block_length(data.shape()) as usize).into()
        }
        _ => bytes.clone(),
    }
}

/// The type of the content of a tensor of type `ty` in `format`: bytes, unless it is sent as it is.
///
/// # Errors
/// If tensors of that type have no such encoding.
pub fn encoded_type(format: TransferFormat, ty: &TensorType) -> Result<TensorType, ChunkError> {
    if format.is_exact() {
        return Ok(ty.clone());
    }
    let activation = Activation::of(ty).ok_or_else(|| ChunkError::Encoding { format, ty: ty.clone() })?;
    Ok(TensorType::of(DType::U8, &[format.bytes(activation).0]))
}

/// The tensor of type `ty` with this `content`, which has the [`encoded_type`].
///
/// # Errors
/// If the content has another size.
pub fn decode(format: TransferFormat, ty: &TensorType, content: TensorData) -> Result<TensorData, ChunkError> {
    let bytes = content.bytes();
    let shape = ty.shape.fixed().ok_or_else(|| ChunkError::UnknownSize(ty.clone()))?;
    let decoded = match format {
        TransferFormat::Exact => return Ok(content),
        TransferFormat::F16 => decode_f16(bytes),
        TransferFormat::Int8 => {
            decode_int8(bytes, shape.iter().product::<u64>() as usize, block_length(&shape) as usize)
        }
    };
    Ok(TensorData::new(ty.dtype, shape.to_vec(), decoded)?)
}

/// Rounded to the nearest, ties to even; finite numbers stay finite.
fn encode_f16(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = vec![0; bytes.len() / 2];
    let (mut singles, mut halves) = ([0.0f32; CHUNK], [f16::ZERO; CHUNK]);
    for (from, to) in bytes.chunks(4 * CHUNK).zip(encoded.chunks_mut(2 * CHUNK)) {
        let (from, to) = (from.as_chunks::<4>().0, to.as_chunks_mut::<2>().0);
        for (single, bytes) in singles.iter_mut().zip(from) {
            let value = f32::from_le_bytes(*bytes);
            *single = if value.is_infinite() { value } else { value.clamp(-F16_MAX, F16_MAX) };
        }
        let count = from.len();
        halves[..count].convert_from_f32_slice(&singles[..count]);
        to.iter_mut().zip(&halves).for_each(|(bytes, half)| *bytes = half.to_le_bytes());
    }
    encoded
}

fn decode_f16(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = vec![0; 2 * bytes.len()];
    let (mut singles, mut halves) = ([0.0f32; CHUNK], [f16::ZERO; CHUNK]);
    for (from, to) in bytes.chunks(2 * CHUNK).zip(decoded.chunks_mut(4 * CHUNK)) {
        let (from, to) = (from.as_chunks::<2>().0, to.as_chunks_mut::<4>().0);
        halves.iter_mut().zip(from).for_each(|(half, bytes)| *half = f16::from_le_bytes(*bytes));
        let count = from.len();
        halves[..count].convert_to_f32_slice(&mut singles[..count]);
        to.iter_mut().zip(&singles).for_each(|(bytes, single)| *bytes = single.to_le_bytes());
    }
    decoded
}

/// The scales of all blocks of `length` elements, then the codes.
fn encode_int8(bytes: &[u8], length: usize) -> Vec<u8> {
    // Shapes without elements may have blocks of any length.
    let length = length.clamp(1, (bytes.len() / 4).max(1));
    let blocks = bytes.len() / 4 / length;
    let mut encoded = vec![0; 4 * blocks + bytes.len() / 4];
    let (scales, codes) = encoded.split_at_mut(4 * blocks);
    let scales = scales.as_chunks_mut::<4>().0;
    for ((from, codes), scale) in bytes.chunks(4 * length).zip(codes.chunks_mut(length)).zip(scales) {
        *scale = encode_block(from.as_chunks::<4>().0, codes).to_le_bytes();
    }
    encoded
}

/// Writes the codes of a block, and returns its scale.
fn encode_block(from: &[[u8; 4]], codes: &mut [u8]) -> f32 {
    // Absolute values are in the order of their bits.
    let largest = from.iter().map(|bytes| u32::from_le_bytes(*bytes) << 1 >> 1).fold(0, u32::max);
    if largest >= INFINITY_BITS {
        return encode_special_block(from, codes);
    }
    let (scale, inverse) = scale(f32::from_bits(largest), FINITE_LEVELS);
    for (code, bytes) in codes.iter_mut().zip(from) {
        *code = (f32::from_le_bytes(*bytes) * inverse + ROUNDING).to_bits() as u8;
    }
    scale
}

/// The scale of numbers up to `largest`, and by what they are multiplied; both zero where that would not be normal.
fn scale(largest: f32, levels: f32) -> (f32, f32) {
    let scale = largest / levels;
    if scale < f32::MIN_POSITIVE {
        return (0.0, 0.0);
    }
    // Rounded up, the largest numbers would become infinite.
    let scale = if (levels * scale).is_finite() { scale } else { scale.next_down() };
    (scale, levels / largest)
}

/// As [`encode_block`], of a block with infinities or NaN: these have codes of their own, and the scale is negative.
fn encode_special_block(from: &[[u8; 4]], codes: &mut [u8]) -> f32 {
    let values = || from.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let largest = values().map(f32::abs).filter(|value| value.is_finite()).fold(0.0, f32::max);
    let (scale, inverse) = scale(largest, SPECIAL_LEVELS);
    for (code, value) in codes.iter_mut().zip(values()) {
        *code = match value {
            _ if value.is_nan() => NOT_A_NUMBER,
            f32::INFINITY => INFINITE,
            f32::NEG_INFINITY => -INFINITE,
            _ => (value * inverse).round_ties_even() as i8,
        } as u8;
    }
    -scale
}

fn decode_int8(bytes: &[u8], elements: usize, length: usize) -> Vec<u8> {
    let length = length.clamp(1, elements.max(1));
    let mut decoded = vec![0; 4 * elements];
    let (scales, codes) = bytes.split_at(bytes.len().saturating_sub(elements));
    let scales = scales.as_chunks::<4>().0;
    for ((codes, to), scale) in codes.chunks(length).zip(decoded.chunks_mut(4 * length)).zip(scales) {
        let (scale, to) = (f32::from_le_bytes(*scale), to.as_chunks_mut::<4>().0);
        if scale.is_sign_negative() {
            to.iter_mut().zip(codes).for_each(|(to, code)| *to = special_value(*code as i8, -scale).to_le_bytes());
        } else {
            to.iter_mut().zip(codes).for_each(|(to, code)| *to = (f32::from(*code as i8) * scale).to_le_bytes());
        }
    }
    decoded
}

fn special_value(code: i8, scale: f32) -> f32 {
    match code {
        NOT_A_NUMBER => f32::NAN,
        INFINITE => f32::INFINITY,
        code if code == -INFINITE => f32::NEG_INFINITY,
        code => f32::from(code) * scale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tensor(shape: &[u64], values: &[f32]) -> TensorData {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TensorData::new(DType::F32, shape, bytes).unwrap()
    }

    fn round_trip(format: TransferFormat, data: &TensorData) -> Vec<f32> {
        let ty = data.ty();
        let encoded = encode(format, data);
        let wire = encoded_type(format, &ty).unwrap();
        assert_eq!(wire.bytes().unwrap().0, encoded.len() as u64, "{ty}");
        let shape = wire.shape.fixed().unwrap();
        let decoded = decode(format, &ty, TensorData::new(wire.dtype, shape.to_vec(), encoded).unwrap()).unwrap();
        assert_eq!(decoded.ty(), ty);
        decoded.bytes().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Whether `found` stands for `value` in a block whose largest finite absolute value is `largest`.
    fn is_near(format: TransferFormat, found: f32, value: f32, largest: f32) -> bool {
        if !value.is_finite() {
            return found == value || (found.is_nan() && value.is_nan());
        }
        let error = (f64::from(found) - f64::from(value)).abs();
        let size = f64::from(value.abs());
        match format {
            TransferFormat::Exact => found.to_bits() == value.to_bits(),
            TransferFormat::F16 if value.abs() > F16_MAX => found == F16_MAX.copysign(value),
            // Half a unit in the last place, of subnormal numbers that of the smallest normal one.
            TransferFormat::F16 => error <= (size / 2048.0).max(2f64.powi(-25)),
            // Half a step, and the rounding of the scale and its inverse; numbers near the smallest normal one become zero.
            TransferFormat::Int8 => error <= (f64::from(largest) / 252.0 * (1.0 + 1e-4)).max(2e-36),
        }
    }

    fn check(shape: &[u64], values: &[f32]) {
        let data = tensor(shape, values);
        let block = block_length(shape) as usize;
        for format in [TransferFormat::Exact, TransferFormat::F16, TransferFormat::Int8] {
            let found = round_trip(format, &data);
            for (found, values) in found.chunks(block).zip(values.chunks(block)) {
                let largest = values.iter().map(|v| v.abs()).filter(|v| v.is_finite()).fold(0.0, f32::max);
                for (found, value) in found.iter().zip(values) {
                    assert!(
                        is_near(format, *found, *value, largest),
                        "{format}: {found:e} for {value:e} of {largest:e}"
                    );
                }
            }
        }
    }

    fn any_float() -> impl Strategy<Value = f32> {
        prop_oneof![
            8 => -10.0..10.0f32,
            4 => any::<u32>().prop_map(f32::from_bits),
            1 => prop::sample::select(vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45]),
        ]
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_near_what_was_encoded(
            shape in prop::collection::vec(0u64..9, 0..5), values in prop::collection::vec(any_float(), 4096)
        ) {
            check(&shape, &values[..shape.iter().product::<u64>() as usize]);
        }

        #[test]
        fn finite_blocks_of_any_scale_stay_near(
            exponent in -130..128i32, values in prop::collection::vec(-1.0..1.0f32, 2 * CHUNK + 6)
        ) {
            let values: Vec<f32> = values.iter().map(|value| value * 2f32.powi(exponent)).collect();
            check(&[2, (values.len() / 2) as u64], &values);
        }
    }

    #[test]
    fn numbers_that_are_not_finite_and_large_ones_keep_their_kind() {
        let mut values = [0.5f32; 32];
        values[..6].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 0.0]);
        check(&[32], &values);
        let data = tensor(&[32], &values);
        let halves = round_trip(TransferFormat::F16, &data);
        assert!(halves[0].is_nan());
        assert_eq!(halves[1..7], [f32::INFINITY, f32::NEG_INFINITY, F16_MAX, -F16_MAX, 0.0, 0.5]);
        let bytes = round_trip(TransferFormat::Int8, &data);
        assert!(bytes[0].is_nan() && bytes[1..3] == [f32::INFINITY, f32::NEG_INFINITY]);
        assert!((bytes[3] - 1e30).abs() < 1e24 && bytes[5..7] == [0.0, 0.0], "{:?}", &bytes[..7]);
        for all in [[f32::MAX; 32], [f32::MIN; 32], [0.0; 32], [1e-45; 32], [f32::NAN; 32], [f32::INFINITY; 32]] {
            check(&[32], &all);
        }
    }

    #[test]
    fn scales_are_of_blocks_and_integers_stay_integers() {
        // A large channel leaves the others as exact as they are without it.
        let mut values: Vec<f32> = (0..128).map(|i| (i % 64) as f32 / 63.0).collect();
        values[64..].iter_mut().for_each(|value| *value *= 1e6);
        let found = round_trip(TransferFormat::Int8, &tensor(&[1, 2, 8, 8], &values));
        let error = found.iter().zip(&values).take(64).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error <= 1.0 / 254.0 + 1e-6, "{error}");
        let integers = TensorData::new(DType::I32, [2], vec![1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        for format in [TransferFormat::F16, TransferFormat::Int8] {
            assert_eq!(encode(format, &integers), integers.bytes());
            assert!(encoded_type(format, &integers.ty()).is_err());
        }
    }
}
