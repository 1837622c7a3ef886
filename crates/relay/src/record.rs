//! Tensors as serialised by TVM: a binary record, base64-encoded in the metadata section and plain in `.params` files.

use bytes::Bytes;

use edgecut_graph::{DType, Shape, TensorData};

/// First eight bytes of every record.
const MAGIC: u64 = 0xDD5E_40F0_96B4_A13F;

/// Bytes of the record before the shape.
const FIXED: usize = 32;

/// Reads the record at the start of `bytes`; returns the tensor, which shares the buffer, and the length of the record.
///
/// # Errors
/// A description of what is wrong.
pub fn decode(bytes: &Bytes) -> Result<(TensorData, usize), String> {
    let short = || format!("the record ends after {} bytes", bytes.len());
    let word = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
    let half = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
    if word(0).ok_or_else(short)? != MAGIC {
        return Err("it does not begin with TVM's magic number".to_string());
    }
    let rank = half(24).ok_or_else(short)?;
    if rank as usize > Shape::MAX_DIMS {
        return Err(format!("it claims {rank} dimensions"));
    }
    let ty = half(28).ok_or_else(short)?.to_le_bytes();
    let (code, bits, lanes) = (ty[0], ty[1], u16::from_le_bytes([ty[2], ty[3]]));
    if lanes != 1 {
        return Err(format!("its elements are vectors of {lanes} lanes, which no constant has"));
    }
    let dtype = DType::from_dlpack(code, bits, lanes);
    let shape: Option<Vec<u64>> = (0..rank as usize).map(|i| word(FIXED + 8 * i)).collect();
    let shape = shape.ok_or_else(short)?;
    let start = FIXED + 8 * shape.len() + 8;
    let len = word(start - 8).ok_or_else(short)?;
    let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len)).filter(|end| *end <= bytes.len());
    let end = end.ok_or_else(|| format!("its payload of {len} bytes is longer than the record"))?;
    let tensor = TensorData::new(dtype, shape, bytes.slice(start..end)).map_err(|error| error.to_string())?;
    Ok((tensor, end))
}

/// Reads a record from base64.
///
/// # Errors
/// As [`decode`], or if the text is not valid base64.
pub fn decode_base64(text: &str) -> Result<TensorData, String> {
    let bytes = base64_simd::STANDARD
        .decode_to_vec(text)
        .map_err(|_| "it is not valid base64: the file may be cut or damaged".to_string())?;
    Ok(decode(&Bytes::from(bytes))?.0)
}

/// The record of `tensor`.
pub fn encode(tensor: &TensorData) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED + 8 * tensor.shape().len() + 8 + tensor.bytes().len());
    let (code, bits, lanes) = tensor.dtype().dlpack();
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1i32.to_le_bytes());
    bytes.extend(0i32.to_le_bytes());
    bytes.extend((tensor.shape().len() as u32).to_le_bytes());
    bytes.extend([code, bits]);
    bytes.extend(lanes.to_le_bytes());
    tensor.shape().iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
    bytes.extend((tensor.bytes().len() as u64).to_le_bytes());
    bytes.extend_from_slice(tensor.bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str =
        "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAgAAAAIgAQACAAAAAAAAAAMAAAAAAAAAGAAAAAAAAAAAAAAAAACAPwAAAEAAAEBAAACAQAAAoEA=";

    #[test]
    fn the_record_that_tvm_writes_for_zero_to_five() {
        let tensor = decode_base64(EXAMPLE).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (DType::F32, [2, 3].as_slice()));
        assert_eq!(tensor.to_i64s(), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(base64_simd::STANDARD.encode_to_string(encode(&tensor)), EXAMPLE);
    }

    #[test]
    fn a_record_cut_anywhere_is_refused() {
        let whole = base64_simd::STANDARD.decode_to_vec(EXAMPLE).unwrap();
        for len in 0..whole.len() {
            assert!(decode(&Bytes::copy_from_slice(&whole[..len])).is_err(), "{len} bytes");
        }
        let mut lying = whole.clone();
        lying[32] = 0xff;
        assert!(decode(&Bytes::from(lying)).is_err(), "a shape that the payload does not fill");
    }
}
