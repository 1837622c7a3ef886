//! Numbers of 2 or 4 bits, several in a byte.

use edgecut_graph::TensorId;

use crate::{error::Result, lowering::Call};

/// Unpacks numbers of `bits` bits from bytes along the last axis, lowest bits first, to one byte each.
///
/// # Errors
/// If that width is not supported.
pub(super) fn unpacked(call: &mut Call<'_, '_>, bytes: TensorId, bits: i64) -> Result<TensorId> {
    let (count, mask) = match bits {
        2 => (4, 3.0),
        4 => (2, 15.0),
        8 => return Ok(bytes),
        other => return Err(format!("weights of {other} bits; 2, 4 and 8 are supported")),
    };
    let mut shape = call.dims(bytes)?;
    let axis = shape.len();
    let mut parts = Vec::new();
    for at in 0..count {
        let shifted = if at == 0 { bytes } else { call.with("right_shift", bytes, (at * bits) as f64)? };
        let part = call.with("bitwise_and", shifted, mask)?;
        parts.push(call.expand(part, axis, 1)?);
    }
    let all = call.concat(&parts, axis)?;
    if let Some(last) = shape.last_mut() {
        *last *= count as u64;
    }
    call.reshape(all, &shape)
}
