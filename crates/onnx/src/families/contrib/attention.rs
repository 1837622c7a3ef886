//! Attention of ONNX Runtime's own domain, where projections, biases and caches are part of the operator; rotary position
//! embeddings by positions.

use edgecut_graph::{Attr, DType, TensorId};

use super::elementwise::added;
use crate::{
    compose::{many, one},
    error::Result,
    families::{
        attention::{allowed, counted, flat, heads_of, repeated, repeats, rotated, size, with_past},
        linear::product,
    },
    lowering::{Call, Lower, Value},
};

pub(in crate::families) const OPS: &[(&str, Lower)] = &[
    ("Attention", projected),
    ("GroupQueryAttention", grouped),
    ("MultiHeadAttention", multi_head),
    ("RotaryEmbedding", rotary),
];

/// The value that is added to the scores of masked keys, unless an attribute states another.
const MASKED: f64 = -10_000.0;

/// softmax(Q Kᵀ scale + bias) V of [batch, heads, sequence, size], as [batch, sequence, heads × size].
fn attended(call: &mut Call<'_, '_>, [query, key, value]: [TensorId; 3], bias: Option<TensorId>) -> Result<TensorId> {
    let width = size(call, query, 3)?;
    let scale = call.float("scale", 0.0);
    let scale = if scale == 0.0 { 1.0 / (width as f64).sqrt() } else { scale };
    let repeats = repeats(call, query, key)?;
    let (key, value) = (repeated(call, key, repeats)?, repeated(call, value, repeats)?);
    let key = call.transpose(key, &[0, 1, 3, 2])?;
    let scores = product(call, query, key)?;
    let mut scores = call.with("multiply", scores, scale)?;
    let cap = call.float("softcap", 0.0);
    if cap > 0.0 {
        let scaled = call.with("divide", scores, cap)?;
        let bounded = call.map("tanh", &[scaled])?;
        scores = call.with("multiply", bounded, cap)?;
    }
    let scores = added(call, scores, bias)?;
    let weights = call.op("nn.softmax", &[scores], vec![("axis", Attr::Int(-1))])?;
    let made = product(call, weights, value)?;
    flat(call, made)
}

fn sum(call: &mut Call<'_, '_>, a: Option<TensorId>, b: Option<TensorId>) -> Result<Option<TensorId>> {
    match (a, b) {
        (Some(a), b) => added(call, a, b).map(Some),
        (None, b) => Ok(b),
    }
}

/// What is added to scores: 0 where `seen` is true, else the mask value.
fn masking(call: &mut Call<'_, '_>, seen: TensorId, dtype: DType) -> Result<TensorId> {
    let value = call.float("mask_filter_value", MASKED);
    let (zero, masked) = (call.lowering.scalar(0.0, dtype)?, call.lowering.scalar(value, dtype)?);
    call.map("where", &[seen, zero, masked])
}

/// What an integer mask, input `index`, adds to the scores of `query` and `key`. It has the number of keys, the first
/// and last key, or an entry for every key.
fn key_mask(call: &mut Call<'_, '_>, index: usize, query: TensorId, key: TensorId) -> Result<Option<TensorId>> {
    let Some(mask) = call.optional(index)? else { return Ok(None) };
    let (batch, columns, dtype) = (size(call, query, 0)?, size(call, key, 2)?, call.dtype_of(query));
    let seen = match call.dims(mask)?[..] {
        [count] if count == batch || count == 2 * batch => {
            let positions = counted(call, 0, columns)?;
            let positions = call.cast(positions, call.dtype_of(mask))?;
            let limit = |call: &mut Call<'_, '_>, part: u64| {
                let limit = call.slice(mask, 0, part * batch, (part + 1) * batch)?;
                call.reshape(limit, &[batch, 1, 1, 1])
            };
            let end = limit(call, 0)?;
            let mut seen = call.map("less", &[positions, end])?;
            if count != batch {
                let begin = limit(call, 1)?;
                let begun = call.map("greater_equal", &[positions, begin])?;
                seen = call.map("logical_and", &[seen, begun])?;
            }
            seen
        }
        [of, keys] if of == batch && keys == columns => {
            let mask = call.reshape(mask, &[batch, 1, 1, columns])?;
            call.with("greater", mask, 0.0)?
        }
        [of, rows, keys] if of == batch && keys == columns => {
            let mask = call.reshape(mask, &[batch, 1, rows, columns])?;
            call.with("greater", mask, 0.0)?
        }
        ref other => return Err(format!("a mask of shape {other:?} is not supported")),
    };
    masking(call, seen, dtype).map(Some)
}

/// What is added to scores for a causal mask, if the attribute `unidirectional` is set.
fn causal_mask(call: &mut Call<'_, '_>, query: TensorId, key: TensorId) -> Result<Option<TensorId>> {
    if call.int("unidirectional", 0) == 0 {
        return Ok(None);
    }
    let (rows, columns, dtype) = (size(call, query, 2)?, size(call, key, 2)?, call.dtype_of(query));
    let (positions, last) = (counted(call, 0, columns)?, counted(call, columns.saturating_sub(rows), rows)?);
    let last = call.reshape(last, &[rows, 1])?;
    let seen = call.map("less_equal", &[positions, last])?;
    allowed(call, seen, dtype).map(Some)
}

fn head_count(call: &Call<'_, '_>, attribute: &str) -> u64 {
    u64::try_from(call.int(attribute, 0)).unwrap_or(0)
}

/// Attention whose queries, keys and values are projected by one matrix.
fn projected(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.int("do_rotary", 0) != 0 || call.int("past_present_share_buffer", 0) != 0 || call.optional(6)?.is_some() {
        return Err("rotary embeddings and shared buffers in Attention are not supported".to_string());
    }
    let (x, weights) = (call.input(0)?, call.input(1)?);
    let made = product(call, x, weights)?;
    let bias = call.optional(2)?;
    let made = added(call, made, bias)?;
    let width = size(call, made, 2)?;
    let widths = match call.ints("qkv_hidden_sizes") {
        Some(widths) => widths.iter().map(|n| u64::try_from(*n).unwrap_or(0)).collect(),
        None => vec![width / 3; 3],
    };
    if widths.len() != 3 || widths.iter().try_fold(0u64, |all, n| all.checked_add(*n)) != Some(width) {
        return Err(format!("attribute qkv_hidden_sizes: expected three sizes whose sum is {width}, not {widths:?}"));
    }
    let count = head_count(call, "num_heads");
    let mut parts = Vec::new();
    for part in call.split(made, 2, &widths)? {
        parts.push(heads_of(call, part, count)?);
    }
    let [query, mut key, mut value] = parts[..] else { return Err("3 projections are expected".to_string()) };
    if let Some(past) = call.optional(4)? {
        let halves = call.split(past, 0, &[1, 1])?;
        let joined = |call: &mut Call<'_, '_>, half: TensorId, new: TensorId| {
            let half = call.squeeze(half, &[0])?;
            call.concat(&[half, new], 2)
        };
        (key, value) = (joined(call, halves[0], key)?, joined(call, halves[1], value)?);
    }
    let (mask, causal) = (key_mask(call, 3, query, key)?, causal_mask(call, query, key)?);
    let bias = sum(call, mask, causal)?;
    let more = call.optional(5)?;
    let bias = sum(call, bias, more)?;
    let made = attended(call, [query, key, value], bias)?;
    let is_named = call.node.output.get(1).is_some_and(|name| !name.is_empty());
    if !is_named {
        return one(made);
    }
    let (keys, values) = (call.expand(key, 0, 1)?, call.expand(value, 0, 1)?);
    many([made, call.concat(&[keys, values], 0)?])
}

/// Attention of queries, keys and values that have been projected, with the biases of their projections.
fn multi_head(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.optional(8)?.is_some() || call.optional(9)?.is_some() {
        return Err("shared buffers and beam search are not supported".to_string());
    }
    let count = head_count(call, "num_heads");
    let mut parts = [call.input(0)?, call.input(1)?, call.input(2)?];
    if let Some(bias) = call.optional(3)? {
        let mut begin = 0;
        for part in &mut parts {
            if let [_, _, width] = call.dims(*part)?[..] {
                let own = call.slice(bias, 0, begin, begin + width)?;
                *part = call.map("add", &[*part, own])?;
                begin += width;
            }
        }
    }
    for part in &mut parts {
        *part = heads_of(call, *part, count)?;
    }
    let [query, key, value] = parts;
    let (key, value) = (with_past(call, 6, key)?, with_past(call, 7, value)?);
    let (mask, causal) = (key_mask(call, 4, query, key)?, causal_mask(call, query, key)?);
    let bias = sum(call, mask, causal)?;
    let more = call.optional(5)?;
    let bias = sum(call, bias, more)?;
    let made = attended(call, [query, key, value], bias)?;
    many([made, key, value])
}

/// Grouped-query attention, with a cache that is filled up to the length of each sequence.
fn grouped(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let has_more = (11..=16).any(|index| call.inputs.get(index).is_some_and(Option::is_some));
    let is_flagged = ["sliding_window_cache", "qk_output"].iter().any(|name| call.int(name, 0) != 0);
    if has_more || is_flagged || call.int("smooth_softmax", 0) > 0 || call.int("causal", 1) == 0 {
        return Err("attention sinks, norms, and quantised or windowed caches are not supported".to_string());
    }
    let [mut query, mut key, value] = grouped_heads(call)?;
    let (batch, rows, dtype) = (size(call, query, 0)?, size(call, query, 2)?, call.dtype_of(query));
    let total = call.content_ints(6, "the total length of sequences")?.unwrap_or_default();
    let total = match total[..] {
        [total] => u64::try_from(total).unwrap_or(0).max(rows),
        _ => return Err("the total length of sequences must be one number".to_string()),
    };
    let (past_key, past_value) = (call.optional(3)?, call.optional(4)?);
    let past = past_key.map(|past| size(call, past, 2)).transpose()?.unwrap_or(0);
    // By sequence: the keys that are in the cache before the new ones.
    let before = if total == rows {
        call.full(0.0, DType::I64, &[batch, 1, 1, 1])?
    } else {
        let lengths = call.input(5)?;
        let lengths = call.cast(lengths, DType::I64)?;
        let lengths = call.with("add", lengths, 1.0 - rows as f64)?;
        call.reshape(lengths, &[batch, 1, 1, 1])?
    };
    let steps = counted(call, 0, rows)?;
    let steps = call.reshape(steps, &[rows, 1])?;
    let positions = call.map("add", &[before, steps])?;
    if call.int("do_rotary", 0) != 0 {
        let at = match call.optional(9)? {
            Some(at) => at,
            None => call.reshape(positions, &[batch, rows])?,
        };
        let angles = [rows_at(call, 7, at)?, rows_at(call, 8, at)?];
        let interleaved = call.int("rotary_interleaved", 0) != 0;
        (query, key) = (rotated(call, query, angles, interleaved)?, rotated(call, key, angles, interleaved)?);
    }
    let most = total.max(past);
    let key = cached(call, past_key, key, before, most)?;
    let value = cached(call, past_value, value, before, most)?;
    let columns = counted(call, 0, total)?;
    let seen = call.map("less_equal", &[columns, positions])?;
    // Prompts of a batch may be of different lengths.
    let last = call.input(5)?;
    let last = call.cast(last, DType::I64)?;
    let last = call.reshape(last, &[batch, 1, 1, 1])?;
    let is_filled = call.map("less_equal", &[columns, last])?;
    let mut seen = call.map("logical_and", &[seen, is_filled])?;
    let window = call.int("local_window_size", -1);
    if window >= 0 {
        let first = call.with("subtract", positions, window as f64)?;
        let near = call.map("greater", &[columns, first])?;
        seen = call.map("logical_and", &[seen, near])?;
    }
    let mask = allowed(call, seen, dtype)?;
    let more = call.optional(10)?;
    let bias = added(call, mask, more)?;
    let visible = [key, value].map(|x| if most == total { Ok(x) } else { call.slice(x, 2, 0, total) });
    let [keys, values] = visible;
    let made = attended(call, [query, keys?, values?], Some(bias))?;
    many([made, key, value])
}

/// Queries, keys and values by heads: three operands, or one that has them side by side.
fn grouped_heads(call: &mut Call<'_, '_>) -> Result<[TensorId; 3]> {
    let (count, key_count) = (head_count(call, "num_heads"), head_count(call, "kv_num_heads"));
    let query = call.input(0)?;
    let parts = match (call.optional(1)?, call.optional(2)?) {
        (Some(key), Some(value)) => [query, key, value],
        _ => {
            let all = count.saturating_add(key_count.saturating_mul(2));
            let width = size(call, query, 2)?.checked_div(all).ok_or("it has no heads")?;
            let sizes = [width.saturating_mul(count), width.saturating_mul(key_count), width.saturating_mul(key_count)];
            match call.split(query, 2, &sizes)?[..] {
                [query, key, value] => [query, key, value],
                _ => return Err("3 projections are expected".to_string()),
            }
        }
    };
    let [query, key, value] = parts;
    Ok([heads_of(call, query, count)?, heads_of(call, key, key_count)?, heads_of(call, value, key_count)?])
}

/// The first `length` keys of a cache with `new` ones written at position `before` of each sequence, and 0 after them.
fn cached(
    call: &mut Call<'_, '_>,
    past: Option<TensorId>,
    new: TensorId,
    before: TensorId,
    length: u64,
) -> Result<TensorId> {
    let Some(past) = past else { return Ok(new) };
    let (held, rows) = (size(call, past, 2)?, size(call, new, 2)?);
    if held == 0 && length == rows {
        return Ok(new);
    }
    let all = call.concat(&[past, new], 2)?;
    let places = counted(call, 0, length)?;
    let places = call.reshape(places, &[length, 1])?;
    let behind = call.map("subtract", &[places, before])?;
    let is_held = call.with("less", behind, 0.0)?;
    let added = call.with("add", behind, held as f64)?;
    let at = call.map("where", &[is_held, places, added])?;
    let at = call.with("minimum", at, (held + rows).saturating_sub(1) as f64)?;
    let mut shape = call.dims(all)?;
    shape[2] = length;
    let at = call.broadcast(at, &shape)?;
    let found = call.op("gather", &[all, at], vec![("axis", Attr::Int(2))])?;
    let (is_beyond, zero) = (call.with("greater_equal", behind, rows as f64)?, call.like(0.0, found)?);
    call.map("where", &[is_beyond, zero, found])
}

/// The rows of a table of cosines or sines, input `index`, at positions: [batch, 1, sequence, half].
fn rows_at(call: &mut Call<'_, '_>, index: usize, at: TensorId) -> Result<TensorId> {
    let table = call.input(index)?;
    let found = call.op("take", &[table, at], vec![("axis", Attr::Int(0))])?;
    call.expand(found, 1, 1)
}

/// Rotates heads by the angles of given positions, or of the positions from a given one on.
fn rotary(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.int("is_packed_batching", 0) != 0 || call.float("scale", 1.0) != 1.0 {
        return Err("packed batches and scales are not supported".to_string());
    }
    let (x, mut at, table) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let is_flat = call.rank(x) == 3;
    let x = if is_flat {
        let count = match head_count(call, "num_heads") {
            0 => size(call, x, 2)?.checked_div(2 * size(call, table, 1)?).unwrap_or(0),
            count => count,
        };
        heads_of(call, x, count)?
    } else {
        x
    };
    if call.rank(at) == 1 {
        let rows = size(call, x, 2)?;
        let steps = counted(call, 0, rows)?;
        at = call.cast(at, DType::I64)?;
        at = call.map("add", &[at, steps])?;
        at = call.reshape(at, &[1, rows])?;
    }
    let angles = [rows_at(call, 2, at)?, rows_at(call, 3, at)?];
    let interleaved = call.int("interleaved", 0) != 0;
    let made = rotated(call, x, angles, interleaved)?;
    one(if is_flat { flat(call, made)? } else { made })
}
