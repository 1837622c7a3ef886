//! Attention of ONNX's operator sets 23 and later, and rotary position embeddings.

use edgecut_graph::{Attr, DType, TensorId};

use super::linear::product;
use crate::{
    compose::{many, one},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Attention", attention), ("RotaryEmbedding", rotary)];

/// Whether a node stays one operator: if ONNX Runtime's kernel takes it, which it finds out only when it runs.
pub(super) fn is_kept(call: &Call<'_, '_>) -> bool {
    match call.node.op_type.as_deref() {
        Some("Attention") => has_attention_kernel(call).unwrap_or(false),
        _ => has_rotary_kernel(call).unwrap_or(false),
    }
}

/// Masks are broadcast along batches and heads only, past keys give present ones, and there are no numbers of keys by batch entry
/// (`nonpad_kv_seqlen`).
fn has_attention_kernel(call: &Call<'_, '_>) -> Result<bool> {
    let named = |names: &[String], at: usize| names.get(at).is_some_and(|name| !name.is_empty());
    let (inputs, outputs) = (&call.node.input, &call.node.output);
    let positions = |call: &Call<'_, '_>, at: usize| {
        let tensor = call.input(at)?;
        size(call, tensor, call.rank(tensor).saturating_sub(2))
    };
    let past = if named(inputs, 4) { positions(call, 4)? } else { 0 };
    let scores = [positions(call, 0)?, past + positions(call, 1)?];
    let fits = match call.optional(3)? {
        Some(mask) => call.dims(mask)?.ends_with(&scores),
        None => true,
    };
    let has_present = named(outputs, 1) && named(outputs, 2);
    Ok(fits && !named(inputs, 6) && (!named(inputs, 4) || has_present))
}

/// Tables have a row for each position of the sequence.
fn has_rotary_kernel(call: &Call<'_, '_>) -> Result<bool> {
    let (x, table) = (call.input(0)?, call.input(1)?);
    let positions = size(call, x, call.rank(x).saturating_sub(2))?;
    Ok(call.optional(3)?.is_none() || positions <= size(call, table, 0)?)
}

/// softmax(Q Kᵀ scale + bias) V, over heads. Results: the product, the keys and values with the past ones before them,
/// and the scores at the stage that `qk_matmul_output_mode` names.
fn attention(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (query, key, value) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let is_flat = call.rank(query) == 3;
    let query = heads(call, query, "q_num_heads")?;
    let (key, value) = (heads(call, key, "kv_num_heads")?, heads(call, value, "kv_num_heads")?);
    let dtype = call.dtype_of(query);
    let past = match call.optional(4)? {
        Some(past) => size(call, past, 2)?,
        None => 0,
    };
    let key = with_past(call, 4, key)?;
    let value = with_past(call, 5, value)?;
    let bias = bias(call, query, key, past)?;
    let width = size(call, query, 3)?;
    let scale = if call.has("scale") { call.float("scale", 1.0) } else { 1.0 / (width as f64).sqrt() };
    let repeats = repeats(call, query, key)?;
    let (all_keys, all_values) = (repeated(call, key, repeats)?, repeated(call, value, repeats)?);
    // Scaled on both sides, as the definition does, so that narrow types do not overflow.
    let (query, all_keys) =
        (call.with("multiply", query, scale.sqrt())?, call.with("multiply", all_keys, scale.sqrt())?);
    let all_keys = call.transpose(all_keys, &[0, 1, 3, 2])?;
    let scores = product(call, query, all_keys)?;
    let biased = match bias {
        Some(bias) => call.map("add", &[scores, bias])?,
        None => scores,
    };
    let cap = call.float("softcap", 0.0);
    let capped = if cap > 0.0 {
        let scaled = call.with("divide", biased, cap)?;
        let bounded = call.map("tanh", &[scaled])?;
        call.with("multiply", bounded, cap)?
    } else {
        biased
    };
    let precision = call.dtype("softmax_precision")?.unwrap_or(dtype);
    let exact = call.cast(capped, precision)?;
    let weights = call.op("nn.softmax", &[exact], vec![("axis", Attr::Int(-1))])?;
    let weights = call.cast(weights, dtype)?;
    let shown = match call.int("qk_matmul_output_mode", 0) {
        0 => scores,
        1 => biased,
        2 => capped,
        3 => weights,
        other => return Err(format!("attribute qk_matmul_output_mode: {other} is not 0 to 3")),
    };
    let made = product(call, weights, all_values)?;
    let made = if is_flat { flat(call, made)? } else { made };
    many([made, key, value, shown])
}

pub(super) fn size(call: &Call<'_, '_>, tensor: TensorId, axis: usize) -> Result<u64> {
    call.dims(tensor)?
        .get(axis)
        .copied()
        .ok_or_else(|| format!("a tensor of {} axes, expected more", call.rank(tensor)))
}

/// [batch, sequence, heads × size] as [batch, heads, sequence, size]; what has four axes is as it is.
fn heads(call: &mut Call<'_, '_>, tensor: TensorId, attribute: &str) -> Result<TensorId> {
    let count = u64::try_from(call.int(attribute, 0)).unwrap_or(0);
    heads_of(call, tensor, count).map_err(|what| format!("attribute {attribute}: {what}"))
}

/// The same for `count` heads.
pub(super) fn heads_of(call: &mut Call<'_, '_>, tensor: TensorId, count: u64) -> Result<TensorId> {
    match call.dims(tensor)?[..] {
        [_, _, _, _] => Ok(tensor),
        [batch, sequence, width] => {
            if count == 0 || width % count != 0 {
                return Err(format!("a width of {width} cannot be divided into {count} heads"));
            }
            let split = call.reshape(tensor, &[batch, sequence, count, width / count])?;
            call.transpose(split, &[0, 2, 1, 3])
        }
        _ => Err(format!("a tensor of {} axes, expected 3 or 4", call.rank(tensor))),
    }
}

/// The reverse of [`heads`].
pub(super) fn flat(call: &mut Call<'_, '_>, tensor: TensorId) -> Result<TensorId> {
    let moved = call.transpose(tensor, &[0, 2, 1, 3])?;
    match call.dims(moved)?[..] {
        [batch, sequence, heads, width] => call.reshape(moved, &[batch, sequence, heads * width]),
        _ => Err("a product of heads must have 4 axes".to_string()),
    }
}

pub(super) fn with_past(call: &mut Call<'_, '_>, index: usize, tensor: TensorId) -> Result<TensorId> {
    match call.optional(index)? {
        Some(past) => call.concat(&[past, tensor], 2),
        None => Ok(tensor),
    }
}

/// Query heads for each head of keys, if they differ.
pub(super) fn repeats(call: &Call<'_, '_>, query: TensorId, key: TensorId) -> Result<u64> {
    let (queries, keys) = (size(call, query, 1)?, size(call, key, 1)?);
    match queries.checked_rem(keys) {
        Some(0) => Ok(queries / keys),
        _ => Err(format!("{queries} heads of queries cannot share {keys} heads of keys")),
    }
}

pub(super) fn repeated(call: &mut Call<'_, '_>, tensor: TensorId, repeats: u64) -> Result<TensorId> {
    match repeats {
        1 => Ok(tensor),
        _ => call.op("repeat", &[tensor], vec![("repeats", Attr::Int(repeats as i64)), ("axis", Attr::Int(1))]),
    }
}

/// What is added to the scores: the mask (truth values become 0 or -∞), the causal one, and that of padded keys.
fn bias(call: &mut Call<'_, '_>, query: TensorId, key: TensorId, past: u64) -> Result<Option<TensorId>> {
    let (rows, columns, dtype) = (size(call, query, 2)?, size(call, key, 2)?, call.dtype_of(query));
    let mut bias = None;
    let add = |call: &mut Call<'_, '_>, bias: Option<TensorId>, more: TensorId| match bias {
        None => Ok(Some(more)),
        Some(bias) => call.map("add", &[bias, more]).map(Some),
    };
    if let Some(mask) = call.optional(3)? {
        let mask = padded(call, mask, columns)?;
        let mask = if call.dtype_of(mask) == DType::Bool { allowed(call, mask, dtype)? } else { mask };
        bias = add(call, bias, mask)?;
    }
    if call.int("is_causal", 0) != 0 {
        let (positions, last) = (counted(call, 0, columns)?, counted(call, past, rows)?);
        let last = call.reshape(last, &[rows, 1])?;
        let seen = call.map("less_equal", &[positions, last])?;
        let causal = allowed(call, seen, dtype)?;
        bias = add(call, bias, causal)?;
    }
    if let Some(lengths) = call.optional(6)? {
        let batch = size(call, lengths, 0)?;
        let lengths = call.cast(lengths, DType::I64)?;
        let (positions, lengths) = (counted(call, 0, columns)?, call.reshape(lengths, &[batch, 1, 1, 1])?);
        let present = call.map("less", &[positions, lengths])?;
        let padding = allowed(call, present, dtype)?;
        bias = add(call, bias, padding)?;
    }
    Ok(bias)
}

/// The integers from `first` on.
pub(super) fn counted(call: &mut Call<'_, '_>, first: u64, count: u64) -> Result<TensorId> {
    call.lowering.charge_constant(count.saturating_mul(DType::I64.size()))?;
    let numbers: Vec<i64> = (first..first.saturating_add(count)).map(|n| n as i64).collect();
    call.vector(&numbers)
}

/// 0 where `mask` holds, else -∞.
pub(super) fn allowed(call: &mut Call<'_, '_>, mask: TensorId, dtype: DType) -> Result<TensorId> {
    let (zero, least) = (call.lowering.scalar(0.0, dtype)?, call.lowering.scalar(f64::NEG_INFINITY, dtype)?);
    call.map("where", &[mask, zero, least])
}

/// A mask for fewer keys hides the others.
fn padded(call: &mut Call<'_, '_>, mask: TensorId, columns: u64) -> Result<TensorId> {
    let mut shape = call.dims(mask)?;
    let Some(last) = shape.last_mut() else { return Ok(mask) };
    let missing = columns.saturating_sub(*last);
    if missing == 0 {
        return Ok(mask);
    }
    *last = missing;
    let (dtype, axis) = (call.dtype_of(mask), shape.len() - 1);
    let hidden = if dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let hidden = call.full(hidden, dtype, &shape)?;
    call.concat(&[mask, hidden], axis)
}

/// Rotates pairs of elements of each head by the angles of their position: halves, or neighbours if `interleaved`.
fn rotary(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let is_flat = call.rank(x) == 3;
    let x = heads(call, x, "num_heads")?;
    let (sequence, width) = (size(call, x, 2)?, size(call, x, 3)?);
    let half = match u64::try_from(call.int("rotary_embedding_dim", 0)) {
        Ok(0) => width / 2,
        Ok(rotated) => rotated / 2,
        Err(_) => return Err("attribute rotary_embedding_dim is negative".to_string()),
    };
    let angles = [angles(call, 1, sequence, half)?, angles(call, 2, sequence, half)?];
    let interleaved = call.int("interleaved", 0) != 0;
    let made = rotated(call, x, angles, interleaved)?;
    one(if is_flat { flat(call, made)? } else { made })
}

/// Rotates pairs of elements of each head of `x` by `angles`, whose cosines and sines are given for each position.
/// There are twice as many rotated elements as angles; the others stay.
pub(super) fn rotated(
    call: &mut Call<'_, '_>,
    x: TensorId,
    [cosine, sine]: [TensorId; 2],
    interleaved: bool,
) -> Result<TensorId> {
    let (width, half) = (size(call, x, 3)?, size(call, cosine, 3)?);
    let rotated = 2 * half;
    if rotated > width {
        return Err(format!("rotary angles for {rotated} elements, but heads have {width}"));
    }
    let turned = call.slice(x, 3, 0, rotated)?;
    let shape = call.dims(turned)?;
    let pairs: Vec<u64> = shape[..3].iter().copied().chain([half, 2]).collect();
    let (a, b) = if interleaved {
        let pairs = call.reshape(turned, &pairs)?;
        let (a, b) = (call.slice(pairs, 4, 0, 1)?, call.slice(pairs, 4, 1, 2)?);
        (call.squeeze(a, &[4])?, call.squeeze(b, &[4])?)
    } else {
        (call.slice(turned, 3, 0, half)?, call.slice(turned, 3, half, rotated)?)
    };
    let mut mixed = |name: &'static str, left: TensorId, right: TensorId| {
        let (left, right) = (call.map("multiply", &[left, a])?, call.map("multiply", &[right, b])?);
        call.map(name, &[left, right])
    };
    let (real, imaginary) = (mixed("subtract", cosine, sine)?, mixed("add", sine, cosine)?);
    let turned = if interleaved {
        let (real, imaginary) = (call.expand(real, 4, 1)?, call.expand(imaginary, 4, 1)?);
        let pairs = call.concat(&[real, imaginary], 4)?;
        call.reshape(pairs, &shape)?
    } else {
        call.concat(&[real, imaginary], 3)?
    };
    if rotated == width {
        return Ok(turned);
    }
    let rest = call.slice(x, 3, rotated, width)?;
    call.concat(&[turned, rest], 3)
}

/// Cosines or sines, input `index`, by positions: [batch, 1, sequence, half].
fn angles(call: &mut Call<'_, '_>, index: usize, sequence: u64, half: u64) -> Result<TensorId> {
    let cache = call.input(index)?;
    let found = match call.optional(3)? {
        Some(positions) => call.op("take", &[cache, positions], vec![("axis", Attr::Int(0))])?,
        None => cache,
    };
    match call.dims(found)?[..] {
        [batch, rows, columns] if rows == sequence && columns == half => {
            call.reshape(found, &[batch, 1, sequence, half])
        }
        ref other => Err(format!("angles of shape {other:?}, expected [batch, {sequence}, {half}]")),
    }
}
