//! `com.microsoft.GroupQueryAttention` in single precision: causal attention of query heads that share heads of keys and
//! values, with rotary embeddings and a cache that is filled up to the length of each sequence.
//!
//! Scores of a query are computed for the keys that it sees, and no key is repeated for the query heads that share it.

use edgecut_graph::DType;

use super::{CompositeKernel, no_type, sizes};
use crate::{OpDef, Typed};

pub(super) const KERNEL: CompositeKernel = CompositeKernel {
    def: OpDef::new("com.microsoft.GroupQueryAttention", &[], no_type).host(kernel!(attention)),
    covers,
};

/// Numbers of the node's inputs.
mod input {
    pub const QUERY: usize = 0;
    pub const KEY: usize = 1;
    pub const VALUE: usize = 2;
    pub const PAST_KEY: usize = 3;
    pub const PAST_VALUE: usize = 4;
    /// By sequence: the position of its last token.
    pub const LAST: usize = 5;
    pub const TOTAL: usize = 6;
    pub const COSINES: usize = 7;
    pub const SINES: usize = 8;
    /// Positions, a bias of scores, and what else the decomposition computes or refuses.
    pub const OTHERS: std::ops::RangeInclusive<usize> = 9..=16;
}

fn covers(call: &Typed<'_>) -> Option<bool> {
    let is_single = |index: usize| call.input_type(index).is_none_or(|ty| ty.dtype == DType::F32);
    let has_others = input::OTHERS.into_iter().any(|index| call.place_of_input(index).is_some());
    let lacks_angles = [input::COSINES, input::SINES].iter().any(|index| call.input_type(*index).is_none());
    let floats = [0, 1, 2, 3, 4, 7, 8].into_iter().all(is_single);
    let is_plain = call.are_unset(&["sliding_window_cache", "qk_output"])
        && call.int("smooth_softmax", 0).ok()? <= 0
        && call.int("causal", 1).ok()? != 0;
    let is_rotary = call.int("do_rotary", 0).ok()? != 0;
    let has_lengths = [input::LAST, input::TOTAL].iter().all(|index| call.input_type(*index).is_some());
    Some(
        floats
            && is_plain
            && has_lengths
            && !has_others
            && !(is_rotary && lacks_angles)
            && call.input_type(input::PAST_KEY).is_some() == call.input_type(input::PAST_VALUE).is_some()
            && call.out.tensors().len() == 3
            && Sizes::of(call).is_some(),
    )
}

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    /// New tokens.
    rows: usize,
    heads: usize,
    /// Heads of keys and values.
    shared: usize,
    /// Of a head.
    width: usize,
    /// Positions of the cache before and after.
    past: usize,
    present: usize,
    /// Whether queries, keys and values are side by side in the first input.
    is_packed: bool,
}

impl Sizes {
    fn of(call: &Typed<'_>) -> Option<Sizes> {
        let count = |name: &str| usize::try_from(call.int(name, 0).ok()?).ok().filter(|count| *count > 0);
        let (heads, shared) = (count("num_heads")?, count("kv_num_heads")?);
        let [batch, rows, all] = sizes(call.input_type(input::QUERY)?)?[..] else { return None };
        let is_packed = call.input_type(input::KEY).is_none();
        let width = all / if is_packed { heads + 2 * shared } else { heads };
        let [_, _, present, of_cache] = sizes(*call.out.tensors().get(1)?)?[..] else { return None };
        let past = match call.input_type(input::PAST_KEY) {
            Some(past) => *sizes(past)?.get(2)?,
            None => 0,
        };
        let is_flat = |index: usize| {
            is_packed || call.input_type(index).and_then(sizes).is_some_and(|of| of == [batch, rows, shared * width])
        };
        let is_known = width == of_cache
            && width > 0
            && heads.is_multiple_of(shared)
            && is_flat(input::KEY)
            && is_flat(input::VALUE);
        is_known.then_some(Sizes { batch, rows, heads, shared, width, past, present, is_packed })
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use std::ops::Range;

    use multiversion::multiversion;
    use tract_core::internal::*;
    use tract_linalg::multithread::par_chunks_mut;

    use super::*;

    /// Sums that are computed side by side.
    const LANES: usize = 16;

    /// One call on its operands.
    struct Attention<'a> {
        sizes: Sizes,
        query: &'a [f32],
        key: &'a [f32],
        value: &'a [f32],
        past: [&'a [f32]; 2],
        /// By sequence: the position of its first new token, and of its last one that is no padding.
        first: Vec<usize>,
        last: Vec<usize>,
        rotation: Option<Rotation<'a>>,
        scale: f32,
        softcap: f32,
        /// How many keys a query sees at most.
        window: usize,
    }

    /// Rotary embedding by tables with a row for each position, for pairs of elements that are neighbours or half apart.
    struct Rotation<'a> {
        cosines: &'a [f32],
        sines: &'a [f32],
        pairs: usize,
        is_interleaved: bool,
    }

    pub(super) fn attention(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let sizes = Sizes::of(call).context("the sizes of the operands do not match")?;
        let plain = inputs.iter().map(|input| input.try_as_plain_ram()).collect::<TractResult<Vec<_>>>()?;
        let floats = |index: usize| match call.place_of_input(index) {
            Some(place) => plain[place].as_slice::<f32>(),
            None => Ok(&[][..]),
        };
        let numbers = |index: usize| -> TractResult<Vec<i64>> {
            let place = call.place_of_input(index).context("a length is missing")?;
            Ok(inputs[place].cast_to::<i64>()?.try_as_plain_ram()?.as_slice::<i64>()?.to_vec())
        };
        let (total, last) = (numbers(input::TOTAL)?, numbers(input::LAST)?);
        ensure!(last.len() == sizes.batch && total.len() == 1, "lengths of {} sequences are expected", sizes.batch);
        let first_of = |last: &i64| match total[0].max(sizes.rows as i64) == sizes.rows as i64 {
            true => 0,
            false => last + 1 - sizes.rows as i64,
        };
        let first: Vec<i64> = last.iter().map(first_of).collect();
        let fits = |(first, last): (&i64, &i64)| {
            *first >= 0 && *last >= 0 && *first as usize + sizes.rows <= sizes.present && *first as usize <= sizes.past
        };
        let (given, rows) = (&last, sizes.rows);
        ensure!(
            first.iter().zip(&last).all(fits),
            "last positions {given:?} of sequences with {rows} new tokens do not fit into the cache"
        );
        let pairs = call.input_type(input::COSINES).and_then(super::sizes).and_then(|of| of.get(1).copied());
        let rotation = match call.int("do_rotary", 0)? {
            0 => None,
            _ => Some(Rotation {
                cosines: floats(input::COSINES)?,
                sines: floats(input::SINES)?,
                pairs: pairs.context("there are no angles")?,
                is_interleaved: call.int("rotary_interleaved", 0)? != 0,
            }),
        };
        let scale = call.float("scale", 0.0)? as f32;
        let attention = Attention {
            sizes,
            query: floats(input::QUERY)?,
            key: floats(input::KEY)?,
            value: floats(input::VALUE)?,
            past: [floats(input::PAST_KEY)?, floats(input::PAST_VALUE)?],
            first: first.into_iter().map(|first| first as usize).collect(),
            last: last.into_iter().map(|last| last as usize).collect(),
            rotation,
            scale: if scale == 0.0 { 1.0 / (sizes.width as f32).sqrt() } else { scale },
            softcap: call.float("softcap", 0.0)? as f32,
            window: usize::try_from(call.int("local_window_size", -1)?).unwrap_or(usize::MAX),
        };
        attention.run()
    }

    impl Attention<'_> {
        fn run(&self) -> TractResult<TVec<Tensor>> {
            let Sizes { batch, rows, heads, shared, width, present, .. } = self.sizes;
            let of_cache = [batch, shared, present, width];
            let mut caches = [Tensor::zero::<f32>(&of_cache)?, Tensor::zero::<f32>(&of_cache)?];
            for (part, cache) in caches.iter_mut().enumerate() {
                self.fill(part, cache.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)?;
            }
            let mut by_head = vec![0f32; batch * heads * rows * width];
            {
                let [keys, values] = [&caches[0], &caches[1]].map(|cache| cache.try_as_plain_ram());
                let (keys, values) = (keys?, values?);
                let caches = [keys.as_slice::<f32>()?, values.as_slice::<f32>()?];
                let work = by_head.len().saturating_mul(self.last.iter().max().map_or(1, |last| last + 1));
                par_chunks_mut(&mut by_head, rows * width, work, |first, results| {
                    (first..)
                        .zip(results.chunks_exact_mut(rows * width))
                        .try_for_each(|(head, results)| self.attend(head / heads, head % heads, caches, results))
                })?;
            }
            let mut out = Tensor::zero::<f32>(&[batch, rows, heads * width])?;
            let mut plain = out.try_as_plain_ram_mut()?;
            for (at, result) in plain.as_slice_mut::<f32>()?.chunks_exact_mut(width).enumerate() {
                let (head, row, sequence) = (at % heads, at / heads % rows, at / heads / rows);
                let from = ((sequence * heads + head) * rows + row) * width;
                result.copy_from_slice(&by_head[from..from + width]);
            }
            let [keys, values] = caches;
            Ok(tvec![out, keys, values])
        }

        /// The elements of head `head` of new token `row`: of queries, then of keys, then of values, if they are packed.
        fn packed(&self, sequence: usize, row: usize, head: usize) -> &[f32] {
            let Sizes { rows, heads, shared, width, .. } = self.sizes;
            let all = heads + 2 * shared;
            &self.query[((sequence * rows + row) * all + head) * width..][..width]
        }

        /// A new head of keys (`part` 0) or values (1).
        fn new_head(&self, part: usize, sequence: usize, row: usize, head: usize) -> &[f32] {
            let Sizes { rows, heads, shared, width, is_packed, .. } = self.sizes;
            if is_packed {
                return self.packed(sequence, row, heads + part * shared + head);
            }
            let all = if part == 0 { self.key } else { self.value };
            &all[((sequence * rows + row) * shared + head) * width..][..width]
        }

        fn query_head(&self, sequence: usize, row: usize, head: usize) -> &[f32] {
            let Sizes { rows, heads, width, is_packed, .. } = self.sizes;
            match is_packed {
                true => self.packed(sequence, row, head),
                false => &self.query[((sequence * rows + row) * heads + head) * width..][..width],
            }
        }

        /// Writes what is held of keys (`part` 0) or values (1), and the new ones after it, to `cache`, which is zero.
        fn fill(&self, part: usize, cache: &mut [f32]) -> TractResult<()> {
            let Sizes { rows, shared, width, past, present, .. } = self.sizes;
            for (at, cache) in cache.chunks_exact_mut(present * width).enumerate() {
                let (sequence, head) = (at / shared, at % shared);
                let first = self.first[sequence];
                cache[..first * width].copy_from_slice(&self.past[part][at * past * width..][..first * width]);
                for row in 0..rows {
                    let cell = &mut cache[(first + row) * width..][..width];
                    cell.copy_from_slice(self.new_head(part, sequence, row, head));
                    if let Some(rotation) = self.rotation.as_ref().filter(|_| part == 0) {
                        rotation.turn(cell, first + row)?;
                    }
                }
            }
            Ok(())
        }

        /// Writes the results of one query head, by new token.
        fn attend(&self, sequence: usize, head: usize, caches: [&[f32]; 2], results: &mut [f32]) -> TractResult<()> {
            let Sizes { heads, shared, width, present, .. } = self.sizes;
            let of_head = (sequence * shared + head / (heads / shared)) * present * width;
            let mut scores = Vec::with_capacity(present);
            let mut query = vec![0f32; width];
            for (row, result) in results.chunks_exact_mut(width).enumerate() {
                let position = self.first[sequence] + row;
                let seen = self.seen(sequence, position);
                if seen.is_empty() {
                    continue;
                }
                query.copy_from_slice(self.query_head(sequence, row, head));
                if let Some(rotation) = &self.rotation {
                    rotation.turn(&mut query, position)?;
                }
                let [keys, values] = caches.map(|cache| &cache[of_head..][seen.start * width..seen.end * width]);
                scores.resize(seen.len(), 0.0);
                products(&query, keys, &mut scores);
                self.weigh(&mut scores);
                weighted_sum(&scores, values, result);
            }
            Ok(())
        }

        /// The keys that the query at `position` sees.
        fn seen(&self, sequence: usize, position: usize) -> Range<usize> {
            let end = position.min(self.last[sequence]) + 1;
            (position + 1).saturating_sub(self.window).min(end)..end
        }

        /// The softmax of scaled scores.
        fn weigh(&self, scores: &mut [f32]) {
            scores.iter_mut().for_each(|score| *score *= self.scale);
            if self.softcap > 0.0 {
                scores.iter_mut().for_each(|score| *score = (*score / self.softcap).tanh() * self.softcap);
            }
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|score| *score = (*score - most).exp());
            let sum: f32 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
        }
    }

    impl Rotation<'_> {
        /// Rotates a head by the angles of `position`.
        fn turn(&self, head: &mut [f32], position: usize) -> TractResult<()> {
            let of = |table: &[f32]| table.get(position * self.pairs..(position + 1) * self.pairs).map(<[f32]>::to_vec);
            let angles = of(self.cosines).zip(of(self.sines));
            let (cosines, sines) = angles.with_context(|| format!("there are no angles for position {position}"))?;
            for (pair, (cosine, sine)) in cosines.into_iter().zip(sines).enumerate() {
                let (a, b) = if self.is_interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + self.pairs) };
                let (x, y) = (head[a], head[b]);
                (head[a], head[b]) = (x * cosine - y * sine, x * sine + y * cosine);
            }
            Ok(())
        }
    }

    /// The products of `query` with the rows of `keys`.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn products(query: &[f32], keys: &[f32], scores: &mut [f32]) {
        for (key, score) in keys.chunks_exact(query.len()).zip(scores) {
            let (queries, keys) = (query.chunks_exact(LANES), key.chunks_exact(LANES));
            let rest = queries.remainder().iter().zip(keys.remainder()).map(|(a, b)| a * b).sum::<f32>();
            let mut lanes = [0f32; LANES];
            for (a, b) in queries.zip(keys) {
                for lane in 0..LANES {
                    lanes[lane] += a[lane] * b[lane];
                }
            }
            *score = lanes.iter().sum::<f32>() + rest;
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
