//! `com.microsoft.GroupQueryAttention` in float32: causal attention in which query heads share KV heads, with rotary
//! embedding and a KV cache.
//!
//! Scores are computed for visible keys only. KV heads are read where they are, not repeated for their query heads.

use edgecut_graph::{Attr, DType};

use super::definition::{CompositeKernel, dims, no_type_rule};
use crate::{OpDef, Typed};

pub(super) const KERNEL: CompositeKernel = CompositeKernel {
    def: OpDef::new("com.microsoft.GroupQueryAttention", &[], no_type_rule).host(kernel!(grouped_attention)),
    supports,
};

/// Indices of the operator's inputs.
mod input {
    /// [batch, new tokens, query heads × head size]; with KEY and VALUE omitted, KV heads follow on the last axis.
    pub const QUERY: usize = 0;
    /// [batch, new tokens, KV heads × head size].
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    /// [batch, KV heads, positions, head size].
    pub const PAST_KEY: usize = 3;
    pub const PAST_VALUE: usize = 4;
    /// [batch]: total length − 1 of each sequence.
    pub const SEQLENS_K: usize = 5;
    pub const TOTAL_SEQUENCE_LENGTH: usize = 6;
    /// [positions, pairs].
    pub const COS_CACHE: usize = 7;
    pub const SIN_CACHE: usize = 8;
    pub const FLOATS: [usize; 7] = [QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, COS_CACHE, SIN_CACHE];
    /// `position_ids`, `attention_bias` and later inputs, which are left to the decomposition.
    pub const UNSUPPORTED: std::ops::RangeInclusive<usize> = 9..=16;
}

fn supports(call: &Typed<'_>) -> Option<bool> {
    let is_float32 = |index: usize| call.input_type(index).is_none_or(|ty| ty.dtype == DType::F32);
    let has_unsupported = input::UNSUPPORTED.into_iter().any(|index| call.arg_index(index).is_some());
    let has_lengths =
        [input::SEQLENS_K, input::TOTAL_SEQUENCE_LENGTH].iter().all(|index| call.arg_index(*index).is_some());
    // An integer is no value of these.
    let has_floats =
        ["scale", "softcap"].into_iter().all(|name| matches!(call.attr(name), None | Some(Attr::Float(_))));
    let has_integers = call.int("local_window_size", -1).is_ok() && call.int("rotary_interleaved", 0).is_ok();
    let is_plain = call.are_zero_or_absent(&["sliding_window_cache", "qk_output"])
        && call.int("smooth_softmax", 0).ok()? <= 0
        && call.int("causal", 1).ok()? != 0;
    let is_supported = input::FLOATS.into_iter().all(is_float32)
        && call.out.tensors().iter().all(|ty| ty.dtype == DType::F32)
        && has_lengths
        && !has_unsupported
        && has_floats
        && has_integers
        && is_plain;
    Some(is_supported && Sizes::of(call).is_some())
}

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    new_tokens: usize,
    query_heads: usize,
    kv_heads: usize,
    head_size: usize,
    /// Positions of the cache that comes in.
    past: usize,
    /// Positions of the cache that goes out.
    present: usize,
    /// Whether queries, keys and values are in the first input.
    is_packed: bool,
    /// Pairs of elements that are rotated; `None` without rotary embedding.
    pairs: Option<usize>,
}

impl Sizes {
    /// `None` if they contradict each other.
    fn of(call: &Typed<'_>) -> Option<Sizes> {
        let count =
            |name: &str| usize::try_from(call.int(name, 0).ok()?).ok().filter(|count| (1..=1 << 20).contains(count));
        let (query_heads, kv_heads) = (count("num_heads")?, count("kv_num_heads")?);
        let [batch, new_tokens, hidden_size] = dims(call.input_type(input::QUERY)?)?[..] else { return None };
        let is_packed = call.arg_index(input::KEY).is_none();
        let heads = if is_packed { query_heads + 2 * kv_heads } else { query_heads };
        let head_size = hidden_size / heads;
        let [out, present_key, present_value] = call.out.tensors()[..] else { return None };
        let [_, _, present, _] = dims(present_key)?[..] else { return None };
        let cache = |positions: usize| [batch, kv_heads, positions, head_size];
        let past = match [input::PAST_KEY, input::PAST_VALUE].map(|index| call.input_type(index)) {
            [Some(key), Some(value)] => {
                let past = *dims(key)?.get(2)?;
                (dims(key)? == cache(past) && dims(value)? == cache(past)).then_some(past)?
            }
            [None, None] => 0,
            _ => return None,
        };
        let pairs = match call.int("do_rotary", 0).ok()? {
            0 => None,
            _ => match [input::COS_CACHE, input::SIN_CACHE].map(|index| call.input_type(index).and_then(dims)) {
                [Some(cos), Some(sin)] if cos == sin && cos.len() == 2 && 2 * cos[1] <= head_size => Some(cos[1]),
                _ => return None,
            },
        };
        let kv = [batch, new_tokens, kv_heads * head_size];
        let has_kv_shape =
            |index: usize| is_packed || call.input_type(index).and_then(dims).is_some_and(|dims| dims == kv);
        let is_consistent = head_size * heads == hidden_size
            && is_packed == call.arg_index(input::VALUE).is_none()
            && head_size > 0
            && query_heads.is_multiple_of(kv_heads)
            && has_kv_shape(input::KEY)
            && has_kv_shape(input::VALUE)
            && dims(out)? == [batch, new_tokens, query_heads * head_size]
            && dims(present_key)? == cache(present)
            && dims(present_value)? == cache(present);
        is_consistent.then_some(Sizes {
            batch,
            new_tokens,
            query_heads,
            kv_heads,
            head_size,
            past,
            present,
            is_packed,
            pairs,
        })
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use std::ops::Range;

    use multiversion::multiversion;
    use tract_core::internal::*;
    use tract_linalg::multithread::par_chunks_mut;

    use super::*;

    /// Independent sums, one a SIMD lane.
    const LANES: usize = 16;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum KvPart {
        Key,
        Value,
    }

    /// One call on its operands.
    struct Attention<'a> {
        sizes: Sizes,
        query: &'a [f32],
        key: &'a [f32],
        value: &'a [f32],
        past_key: &'a [f32],
        past_value: &'a [f32],
        /// By sequence: the position of its first new token.
        first_positions: Vec<usize>,
        /// By sequence: the position of its last token that is no padding, or of the last one that is counted in the total length.
        last_positions: Vec<usize>,
        rotary: Option<RotaryEmbedding<'a>>,
        scale: f32,
        softcap: f32,
        /// Sliding window: the maximum number of keys visible to a query.
        window: usize,
    }

    /// Rotates pairs of elements, which are adjacent, or `pairs` elements apart.
    struct RotaryEmbedding<'a> {
        /// [positions, pairs].
        cos: &'a [f32],
        sin: &'a [f32],
        pairs: usize,
        is_interleaved: bool,
    }

    pub(super) fn grouped_attention(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let sizes = Sizes::of(call).context("operand shapes do not agree with num_heads and kv_num_heads")?;
        let plain = inputs.iter().map(|input| input.try_as_plain_ram()).collect::<TractResult<Vec<_>>>()?;
        let floats = |index: usize| match call.arg_index(index) {
            Some(arg) => plain[arg].as_slice::<f32>(),
            None => Ok(&[][..]),
        };
        let (first_positions, last_positions) = positions(call, &sizes, inputs)?;
        let rotary = match sizes.pairs {
            None => None,
            Some(pairs) => {
                let is_interleaved = call.int("rotary_interleaved", 0)? != 0;
                let (cos, sin) = (floats(input::COS_CACHE)?, floats(input::SIN_CACHE)?);
                Some(RotaryEmbedding { cos, sin, pairs, is_interleaved })
            }
        };
        let scale = call.float("scale", 0.0)? as f32;
        let attention = Attention {
            sizes,
            query: floats(input::QUERY)?,
            key: floats(input::KEY)?,
            value: floats(input::VALUE)?,
            past_key: floats(input::PAST_KEY)?,
            past_value: floats(input::PAST_VALUE)?,
            first_positions,
            last_positions,
            rotary,
            scale: if scale == 0.0 { 1.0 / (sizes.head_size as f32).sqrt() } else { scale },
            softcap: call.float("softcap", 0.0)? as f32,
            window: usize::try_from(call.int("local_window_size", -1)?).unwrap_or(usize::MAX),
        };
        attention.run()
    }

    /// By sequence, the positions of the first new token and of the last token that is no padding.
    fn positions(call: &Typed<'_>, sizes: &Sizes, inputs: &[TValue]) -> TractResult<(Vec<usize>, Vec<usize>)> {
        let numbers = |index: usize| -> TractResult<Vec<i64>> {
            let arg = call.arg_index(index).context("seqlens_k or total_sequence_length is missing")?;
            Ok(inputs[arg].cast_to::<i64>()?.try_as_plain_ram()?.as_slice::<i64>()?.to_vec())
        };
        let (total, seqlens) = (numbers(input::TOTAL_SEQUENCE_LENGTH)?, numbers(input::SEQLENS_K)?);
        let Sizes { batch, new_tokens, past, present, .. } = *sizes;
        ensure!(
            seqlens.len() == batch && total.len() == 1,
            "expected seqlens_k of {batch} sequences and one total_sequence_length, not {} and {}",
            seqlens.len(),
            total.len()
        );
        // Without past tokens, all sequences begin at position 0: those of a batch may be padded.
        let has_past = total[0] > new_tokens as i64;
        let first_of = |last: &i64| if has_past { last.saturating_add(1).saturating_sub(new_tokens as i64) } else { 0 };
        let fits = |last: &i64| {
            let first = usize::try_from(first_of(last));
            let is_in_cache = |first: usize| first <= past && first.saturating_add(new_tokens) <= present;
            (0..present as i64).contains(last) && first.is_ok_and(is_in_cache)
        };
        ensure!(
            seqlens.iter().all(fits),
            "seqlens_k {seqlens:?} with {new_tokens} new tokens: expected positions of a cache of {past} positions before and \
             {present} after"
        );
        let first = seqlens.iter().map(|last| first_of(last) as usize).collect();
        let total = total[0].max(new_tokens as i64);
        Ok((first, seqlens.iter().map(|last| (*last).min(total - 1).max(0) as usize).collect()))
    }

    impl Attention<'_> {
        fn run(&self) -> TractResult<TVec<Tensor>> {
            let Sizes { batch, new_tokens, query_heads, kv_heads, head_size, present, .. } = self.sizes;
            let cache_shape = [batch, kv_heads, present, head_size];
            let (mut keys, mut values) = (Tensor::zero::<f32>(&cache_shape)?, Tensor::zero::<f32>(&cache_shape)?);
            self.write_cache(KvPart::Key, keys.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)?;
            self.write_cache(KvPart::Value, values.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)?;
            let mut out = Tensor::zero::<f32>(&[batch, new_tokens, query_heads * head_size])?;
            if out.len() == 0 {
                return Ok(tvec![out, keys, values]);
            }
            let mut by_head = vec![0f32; out.len()];
            let of_head = new_tokens * head_size;
            {
                let caches = (keys.try_as_plain_ram()?, values.try_as_plain_ram()?);
                let caches = (caches.0.as_slice::<f32>()?, caches.1.as_slice::<f32>()?);
                let work = by_head.len().saturating_mul(self.last_positions.iter().max().map_or(1, |last| last + 1));
                par_chunks_mut(&mut by_head, of_head, work, |first_head, results| {
                    let mut heads = (first_head..).zip(results.chunks_exact_mut(of_head));
                    heads.try_for_each(|(head, results)| {
                        self.attend(head / query_heads, head % query_heads, caches, results)
                    })
                })?;
            }
            let mut plain = out.try_as_plain_ram_mut()?;
            for (at, result) in plain.as_slice_mut::<f32>()?.chunks_exact_mut(head_size).enumerate() {
                let (head, token, sequence) =
                    (at % query_heads, at / query_heads % new_tokens, at / query_heads / new_tokens);
                let from = ((sequence * query_heads + head) * new_tokens + token) * head_size;
                result.copy_from_slice(&by_head[from..from + head_size]);
            }
            Ok(tvec![out, keys, values])
        }

        /// A head of a packed first input: query heads, then those of keys, then those of values.
        fn packed_head(&self, sequence: usize, token: usize, head: usize) -> &[f32] {
            let Sizes { new_tokens, query_heads, kv_heads, head_size, .. } = self.sizes;
            let heads = query_heads + 2 * kv_heads;
            &self.query[((sequence * new_tokens + token) * heads + head) * head_size..][..head_size]
        }

        fn query_head(&self, sequence: usize, token: usize, head: usize) -> &[f32] {
            let Sizes { new_tokens, query_heads, head_size, is_packed, .. } = self.sizes;
            if is_packed {
                return self.packed_head(sequence, token, head);
            }
            &self.query[((sequence * new_tokens + token) * query_heads + head) * head_size..][..head_size]
        }

        fn new_kv_head(&self, part: KvPart, sequence: usize, token: usize, head: usize) -> &[f32] {
            let Sizes { new_tokens, query_heads, kv_heads, head_size, is_packed, .. } = self.sizes;
            let (offset, separate) = match part {
                KvPart::Key => (query_heads, self.key),
                KvPart::Value => (query_heads + kv_heads, self.value),
            };
            if is_packed {
                return self.packed_head(sequence, token, offset + head);
            }
            &separate[((sequence * new_tokens + token) * kv_heads + head) * head_size..][..head_size]
        }

        /// Writes the past keys or values, and the new ones after them, to `cache`, which is zero.
        fn write_cache(&self, part: KvPart, cache: &mut [f32]) -> TractResult<()> {
            let Sizes { new_tokens, kv_heads, head_size, past, present, .. } = self.sizes;
            let (held, rotary) = match part {
                KvPart::Key => (self.past_key, self.rotary.as_ref()),
                KvPart::Value => (self.past_value, None),
            };
            for (at, cache) in cache.chunks_exact_mut((present * head_size).max(1)).enumerate() {
                let (sequence, head) = (at / kv_heads, at % kv_heads);
                let first = self.first_positions[sequence];
                cache[..first * head_size].copy_from_slice(&held[at * past * head_size..][..first * head_size]);
                for token in 0..new_tokens {
                    let cell = &mut cache[(first + token) * head_size..][..head_size];
                    cell.copy_from_slice(self.new_kv_head(part, sequence, token, head));
                    if let Some(rotary) = rotary {
                        rotary.rotate(cell, first + token)?;
                    }
                }
            }
            Ok(())
        }

        /// Writes the results of one query head, by new token.
        fn attend(
            &self,
            sequence: usize,
            head: usize,
            (keys, values): (&[f32], &[f32]),
            results: &mut [f32],
        ) -> TractResult<()> {
            let Sizes { query_heads, kv_heads, head_size, present, .. } = self.sizes;
            let of_head = (sequence * kv_heads + head / (query_heads / kv_heads)) * present * head_size;
            let mut scores = Vec::with_capacity(present);
            let mut query = vec![0f32; head_size];
            for (token, result) in results.chunks_exact_mut(head_size).enumerate() {
                let position = self.first_positions[sequence] + token;
                let visible = self.visible_keys(sequence, position);
                // Padding beyond the window, and every query of a window of 0: its result is 0.
                if visible.is_empty() {
                    continue;
                }
                query.copy_from_slice(self.query_head(sequence, token, head));
                if let Some(rotary) = &self.rotary {
                    rotary.rotate(&mut query, position)?;
                }
                let elements = of_head + visible.start * head_size..of_head + visible.end * head_size;
                scores.resize(visible.len(), 0.0);
                dot_products(&query, &keys[elements.clone()], &mut scores);
                self.softmax(&mut scores);
                weighted_sum(&scores, &values[elements], result);
            }
            Ok(())
        }

        /// The keys that the query at `position` sees.
        fn visible_keys(&self, sequence: usize, position: usize) -> Range<usize> {
            let end = position.min(self.last_positions[sequence]) + 1;
            (position + 1).saturating_sub(self.window).min(end)..end
        }

        /// In place: scale, softcap, softmax.
        fn softmax(&self, scores: &mut [f32]) {
            scores.iter_mut().for_each(|score| *score *= self.scale);
            if self.softcap > 0.0 {
                scores.iter_mut().for_each(|score| *score = (*score / self.softcap).tanh() * self.softcap);
            }
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|score| *score = (*score - max).exp());
            let sum: f32 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
    }

    impl RotaryEmbedding<'_> {
        /// Rotates a head by the angles of `position`.
        fn rotate(&self, head: &mut [f32], position: usize) -> TractResult<()> {
            let of =
                |cache: &'_ [f32]| cache.get(position * self.pairs..(position + 1) * self.pairs).map(<[f32]>::to_vec);
            let angles = of(self.cos).zip(of(self.sin));
            let (cos, sin) =
                angles.with_context(|| format!("position {position} is beyond cos_cache and sin_cache"))?;
            for (pair, (cos, sin)) in cos.into_iter().zip(sin).enumerate() {
                let (a, b) = if self.is_interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + self.pairs) };
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * cos - y * sin, x * sin + y * cos);
            }
            Ok(())
        }
    }

    /// The dot products of `query` with the rows of `keys`.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn dot_products(query: &[f32], keys: &[f32], scores: &mut [f32]) {
        let (queries, last_queries) = query.as_chunks::<LANES>();
        for (key, score) in keys.chunks_exact(query.len()).zip(scores) {
            let (keys, last_keys) = key.as_chunks::<LANES>();
            let mut lanes = [0f32; LANES];
            for (query, key) in queries.iter().zip(keys) {
                for lane in 0..LANES {
                    lanes[lane] += query[lane] * key[lane];
                }
            }
            let last: f32 = last_queries.iter().zip(last_keys).map(|(query, key)| query * key).sum();
            *score = lanes.iter().sum::<f32>() + last;
        }
    }

    /// Adds the rows of `values`, each times its weight, to `sum`.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn weighted_sum(weights: &[f32], values: &[f32], sum: &mut [f32]) {
        for (weight, value) in weights.iter().zip(values.chunks_exact(sum.len())) {
            for (sum, value) in sum.iter_mut().zip(value) {
                *sum += weight * value;
            }
        }
    }
}
