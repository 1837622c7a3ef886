//! `com.microsoft.MatMulNBits` in float32: a product with weights of 2, 4 or 8 bits, quantised in blocks along the reduction
//! axis, which stay packed.
//!
//! For a few rows, weights are unpacked in registers (GEMV). For more, a tile of columns at a time is dequantised to float32
//! and multiplied by GEMM. The meaning, with the accuracy level, is that of ONNX Runtime's MLAS (`qnbitgemm`).

use edgecut_graph::DType;

use super::{
    definition::{CompositeKernel, dims, no_type_rule},
    int8_activations,
};
use crate::{OpDef, Typed};

pub(super) const KERNEL: CompositeKernel = CompositeKernel {
    def: OpDef::new("com.microsoft.MatMulNBits", &[], no_type_rule).host(kernel!(matmul_nbits)),
    supports,
};

/// Indices of the operator's inputs.
mod input {
    /// [..., K].
    pub const A: usize = 0;
    /// [N, blocks, bytes of a block].
    pub const B: usize = 1;
    /// [N, blocks].
    pub const SCALES: usize = 2;
    /// [N, bytes], packed as the weights.
    pub const ZERO_POINTS: usize = 3;
    pub const G_IDX: usize = 4;
    /// [N].
    pub const BIAS: usize = 5;
}

/// Maximum number of activations with one scale.
const MAX_ACTIVATION_BLOCK: usize = int8_activations::MAX_BLOCK as usize;

/// Packed blocks have a multiple of this many bytes.
const MIN_CHUNK_BYTES: usize = 8;

fn supports(call: &Typed<'_>) -> Option<bool> {
    let dtype = |index: usize| call.input_type(index).map(|ty| ty.dtype);
    let is_float32 = |index: usize| dtype(index).is_none_or(|dtype| dtype == DType::F32);
    let is_packed = dtype(input::B) == Some(DType::U8)
        && dtype(input::ZERO_POINTS).is_none_or(|dtype| dtype == DType::U8)
        && call.are_zero_or_absent(&["weight_prepacked"]);
    let floats = [input::A, input::SCALES, input::BIAS].into_iter().all(is_float32)
        && call.out.tensors().iter().all(|ty| ty.dtype == DType::F32);
    Some(is_packed && floats && call.arg_index(input::G_IDX).is_none() && Sizes::of(call).is_some())
}

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    /// K, the length of the reduction.
    depth: usize,
    columns: usize,
    /// Weights with one scale.
    block: usize,
    bits: usize,
    quantises_activations: bool,
}

impl Sizes {
    /// `None` if they contradict each other, or the kernel does not support them.
    fn of(call: &Typed<'_>) -> Option<Sizes> {
        let number = |name: &str, default: i64| usize::try_from(call.int(name, default).ok()?).ok();
        let (columns, depth, block) = (number("N", 0)?, number("K", 0)?, number("block_size", 0)?);
        let bits = number("bits", 4)?;
        let a = dims(call.input_type(input::A)?)?;
        let rows = product(&a[..a.len().checked_sub(1)?])?;
        let level = call.int("accuracy_level", 0).ok()?;
        let quantises_activations = int8_activations::are_quantised(level, bits as i64, block as u64);
        let sizes = Sizes { rows, depth, columns, block, bits, quantises_activations };
        let is_supported = a.last() == Some(&depth)
            && (1..=MAX_SIZE).contains(&depth)
            && (1..=MAX_SIZE).contains(&columns)
            && (1..=MAX_SIZE).contains(&block)
            && [2, 4, 8].contains(&bits)
            && (block * bits).is_multiple_of(8 * MIN_CHUNK_BYTES)
            && (block <= MAX_ACTIVATION_BLOCK || block.is_multiple_of(MAX_ACTIVATION_BLOCK));
        if !is_supported {
            return None;
        }
        let result = [&a[..a.len() - 1], &[columns]].concat();
        let has_result = matches!(call.out.tensors()[..], [out] if dims(out) == Some(result));
        let has_len = |index: usize, len: usize| {
            call.input_type(index).is_none_or(|ty| dims(ty).and_then(|dims| product(&dims)) == Some(len))
        };
        let is_consistent = has_len(input::B, columns * sizes.column_bytes())
            && has_len(input::SCALES, columns * sizes.blocks())
            && has_len(input::ZERO_POINTS, columns * sizes.zero_point_bytes())
            && call.input_type(input::BIAS).is_none_or(|bias| dims(bias) == Some(vec![columns]))
            && has_result
            // Then padding at most doubles a row of activations.
            && depth >= sizes.chunk();
        is_consistent.then_some(sizes)
    }

    /// Blocks of a column.
    fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// Bytes of a column's weights.
    fn column_bytes(&self) -> usize {
        self.blocks() * self.block * self.bits / 8
    }

    /// Bytes of a column's zero points.
    fn zero_point_bytes(&self) -> usize {
        (self.blocks() * self.bits).div_ceil(8)
    }

    /// Bytes of a chunk: the packed weights that are unpacked at once.
    fn chunk_bytes(&self) -> usize {
        let is_wide = (self.block * self.bits / 8).is_multiple_of(2 * MIN_CHUNK_BYTES);
        if is_wide { 2 * MIN_CHUNK_BYTES } else { MIN_CHUNK_BYTES }
    }

    /// Weights of a chunk.
    fn chunk(&self) -> usize {
        self.chunk_bytes() * 8 / self.bits
    }

    /// Chunks of a column that are not padding alone.
    fn chunks(&self) -> usize {
        self.depth.div_ceil(self.chunk())
    }
}

/// No size is larger, so that products of two do not overflow.
const MAX_SIZE: usize = 1 << 30;

fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size))
}

#[cfg(feature = "kernels")]
mod kernel {
    use multiversion::multiversion;
    use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
    use tract_core::internal::*;
    use tract_linalg::multithread::par_chunks_mut;

    use super::*;

    /// Maximum number of rows for which every row unpacks the weights itself. At 16 rows, a step of TinyLlama-1.1B takes
    /// 0.64 s this way and 0.65 s through GEMM (EPYC with AVX-512, one thread).
    const MAX_GEMV_ROWS: usize = 16;

    /// Columns that are dequantised at a time for GEMM.
    const TILE: usize = 64;

    /// Weights as they are packed.
    struct Weights<'a> {
        sizes: Sizes,
        packed: &'a [u8],
        scales: &'a [f32],
        zero_points: Option<&'a [u8]>,
    }

    /// Rows of activations, padded with zeros to whole chunks. Dequantised, an element is value × scale. In a chunk, the elements
    /// are in the order in which weights are unpacked: those of the lowest bits of each byte first.
    struct Activations {
        values: Vec<f32>,
        /// The values, if they are quantised to 8 bits.
        quantised: Option<Vec<i16>>,
        /// By row and chunk.
        scales: Vec<f32>,
    }

    pub(super) fn matmul_nbits(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let sizes = Sizes::of(call).context("operand shapes do not agree with N, K, bits and block_size")?;
        let plain = inputs.iter().map(|input| input.try_as_plain_ram()).collect::<TractResult<Vec<_>>>()?;
        let arg = |index: usize| call.arg_index(index).with_context(|| format!("input {index} is missing"));
        let zero_points = call.arg_index(input::ZERO_POINTS).map(|arg| plain[arg].as_slice::<u8>()).transpose()?;
        let bias = call.arg_index(input::BIAS).map(|arg| plain[arg].as_slice::<f32>()).transpose()?;
        let weights = Weights {
            sizes,
            packed: plain[arg(input::B)?].as_slice::<u8>()?,
            scales: plain[arg(input::SCALES)?].as_slice::<f32>()?,
            zero_points,
        };
        let mut out = Tensor::zero::<f32>(&call.dims()?)?;
        if sizes.rows == 0 {
            return Ok(tvec![out]);
        }
        let mut activations = Activations::of(&sizes, plain[arg(input::A)?].as_slice::<f32>()?)?;
        if sizes.rows > MAX_GEMV_ROWS {
            activations.dequantise(&sizes);
        }
        // By column, so that each thread has columns of its own.
        let mut by_column = filled(0f32, sizes.columns * sizes.rows)?;
        let work = by_column.len().saturating_mul(sizes.depth);
        par_chunks_mut(&mut by_column, sizes.rows, work, |first_column, results| {
            match (sizes.rows <= MAX_GEMV_ROWS, sizes.bits, sizes.chunk_bytes()) {
                (false, ..) => weights.gemm(&activations.values, first_column, results)?,
                (true, 2, 16) => weights.gemv::<2, 16>(&activations, first_column, results),
                (true, 2, _) => weights.gemv::<2, 8>(&activations, first_column, results),
                (true, 4, 16) => weights.gemv::<4, 16>(&activations, first_column, results),
                (true, 4, _) => weights.gemv::<4, 8>(&activations, first_column, results),
                (true, _, 16) => weights.gemv::<8, 16>(&activations, first_column, results),
                (true, ..) => weights.gemv::<8, 8>(&activations, first_column, results),
            }
            Ok(())
        })?;
        let mut results = out.try_as_plain_ram_mut()?;
        for (row, results) in results.as_slice_mut::<f32>()?.chunks_exact_mut(sizes.columns).enumerate() {
            for (column, result) in results.iter_mut().enumerate() {
                *result = by_column[column * sizes.rows + row] + bias.map_or(0.0, |bias| bias[column]);
            }
        }
        Ok(tvec![out])
    }

    impl Activations {
        fn of(sizes: &Sizes, a: &[f32]) -> TractResult<Activations> {
            let (chunk, chunk_bytes, per_byte) = (sizes.chunk(), sizes.chunk_bytes(), 8 / sizes.bits);
            let length = sizes.chunks() * chunk;
            let block = sizes.block.min(MAX_ACTIVATION_BLOCK);
            let mut values = filled(0f32, sizes.rows * length)?;
            let mut scales = filled(1f32, sizes.rows * sizes.chunks())?;
            for (row, a) in a.chunks_exact(sizes.depth).enumerate() {
                for (number, elements) in a.chunks(block).enumerate() {
                    let (inverse, scale) =
                        if sizes.quantises_activations { quantisation_scales(elements) } else { (1.0, 1.0) };
                    let first = row * length + number * block;
                    scales[first / chunk..(first + elements.len()).div_ceil(chunk)].fill(scale);
                    for (index, element) in elements.iter().enumerate() {
                        let (of_chunk, at) = (index / chunk, index % chunk);
                        let place = first + of_chunk * chunk + at % per_byte * chunk_bytes + at / per_byte;
                        let value = element * inverse;
                        values[place] = if sizes.quantises_activations { value.round_ties_even() } else { value };
                    }
                }
            }
            let mut quantised = None;
            if sizes.quantises_activations && sizes.rows <= MAX_GEMV_ROWS {
                let mut integers = filled(0i16, values.len())?;
                integers.iter_mut().zip(&values).for_each(|(integer, value)| *integer = *value as i16);
                quantised = Some(integers);
            }
            Ok(Activations { values, quantised, scales })
        }

        /// Multiplies the values by their scales.
        fn dequantise(&mut self, sizes: &Sizes) {
            for (values, scale) in self.values.chunks_exact_mut(sizes.chunk()).zip(&self.scales) {
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
    }

    /// `len` elements, or an error if there is no memory for them.
    fn filled<T: Clone>(element: T, len: usize) -> TractResult<Vec<T>> {
        let mut elements = Vec::new();
        elements.try_reserve_exact(len)?;
        elements.resize(len, element);
        Ok(elements)
    }

    /// 1 / scale and the scale of a block of activations in symmetric quantisation to 8 bits, as `QuantizeARow_CompInt8` of ONNX
    /// Runtime's MLAS; NaN if an element is.
    fn quantisation_scales(block: &[f32]) -> (f32, f32) {
        let max_abs = block.iter().fold(0f32, |max, x| if x.abs() > max || x.is_nan() { x.abs() } else { max });
        (127.0 / max_abs.max(int8_activations::MIN_DIVISOR as f32), max_abs / 127.0)
    }

    impl Weights<'_> {
        /// The zero point of a block: 2^(bits − 1) if the input is omitted.
        fn zero_point(&self, column: usize, block: usize) -> i16 {
            let Sizes { bits, .. } = self.sizes;
            let Some(zero_points) = self.zero_points else { return 1 << (bits - 1) };
            let byte = zero_points[column * self.sizes.zero_point_bytes() + block * bits / 8];
            i16::from(byte >> (block * bits % 8) & (u8::MAX >> (8 - bits)))
        }

        /// Columns of the result from `first_column` on, by column and row.
        fn gemv<const BITS: usize, const BYTES: usize>(
            &self,
            activations: &Activations,
            first_column: usize,
            results: &mut [f32],
        ) {
            let (rows, blocks, bytes) = (self.sizes.rows, self.sizes.blocks(), self.sizes.column_bytes());
            let (chunks, chunk) = (self.sizes.chunks(), self.sizes.chunk());
            let per_block = self.sizes.block / chunk;
            // By chunk.
            let (mut scales, mut zero_points) = (vec![0f32; chunks], vec![self.zero_point(0, 0); chunks]);
            for (column, results) in (first_column..).zip(results.chunks_exact_mut(rows)) {
                let of_column = &self.scales[column * blocks..][..blocks];
                match per_block {
                    1 => scales.copy_from_slice(&of_column[..chunks]),
                    _ => scales.iter_mut().enumerate().for_each(|(at, scale)| *scale = of_column[at / per_block]),
                }
                if self.zero_points.is_some() {
                    let zero_points = zero_points.iter_mut().enumerate();
                    zero_points.for_each(|(at, zero_point)| *zero_point = self.zero_point(column, at / per_block));
                }
                let packed = &self.packed[column * bytes..][..chunks * BYTES];
                for (row, result) in results.iter_mut().enumerate() {
                    let elements = row * chunks * chunk..(row + 1) * chunks * chunk;
                    *result = match &activations.quantised {
                        Some(all) => {
                            let scales = [&activations.scales[row * chunks..][..chunks], &scales];
                            dot_i8::<BITS, BYTES>(packed, &zero_points, &all[elements], scales)
                        }
                        None => dot_f32::<BITS, BYTES>(packed, &zero_points, &activations.values[elements], &scales),
                    };
                }
            }
        }

        /// [`Weights::gemv`] for more rows.
        fn gemm(&self, a: &[f32], first_column: usize, results: &mut [f32]) -> TractResult<()> {
            let Sizes { rows, bits, .. } = self.sizes;
            let length = self.sizes.chunks() * self.sizes.chunk();
            let a = ArrayView2::from_shape((rows, length), a)?;
            let mut b = filled(0f32, TILE.min(results.len() / rows) * length)?;
            for (tile, results) in results.chunks_mut(TILE * rows).enumerate() {
                let columns = results.len() / rows;
                let first = first_column + tile * TILE;
                for (column, b) in (first..first + columns).zip(b.chunks_exact_mut(length)) {
                    match bits {
                        2 => self.dequantise_column::<2>(column, b),
                        4 => self.dequantise_column::<4>(column, b),
                        _ => self.dequantise_column::<8>(column, b),
                    }
                }
                let b = ArrayView2::from_shape((columns, length), &b[..columns * length])?;
                let mut results = ArrayViewMut2::from_shape((columns, rows), results)?;
                general_mat_mul(1.0, &b, &a.t(), 0.0, &mut results);
            }
            Ok(())
        }

        /// Writes the weights of a column, in the order of [`Activations`].
        fn dequantise_column<const BITS: usize>(&self, column: usize, weights: &mut [f32]) {
            let (blocks, chunk, bytes) = (self.sizes.blocks(), self.sizes.chunk(), self.sizes.chunk_bytes());
            let packed = &self.packed[column * self.sizes.column_bytes()..];
            let chunks = weights.chunks_exact_mut(chunk).zip(packed.chunks_exact(bytes));
            for (at, (weights, packed)) in chunks.enumerate() {
                let block = at * chunk / self.sizes.block;
                let scale = self.scales[column * blocks + block];
                dequantise_chunk::<BITS>(packed, f32::from(self.zero_point(column, block)), scale, weights);
            }
        }
    }

    /// (q − zero point) × scale.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn dequantise_chunk<const BITS: usize>(packed: &[u8], zero_point: f32, scale: f32, weights: &mut [f32]) {
        for (plane, weights) in weights.chunks_exact_mut(packed.len()).enumerate() {
            for (weight, byte) in weights.iter_mut().zip(packed) {
                let q = byte >> (plane * BITS) & (u8::MAX >> (8 - BITS));
                *weight = (f32::from(q) - zero_point) * scale;
            }
        }
    }

    /// The dot product of a column with a row of quantised activations: by chunk, a product of integers times both scales.
    /// Activations lie in −127..=127 and weights in −255..=255, of fewer bits in proportion, so the products of one byte sum to an
    /// i16.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn dot_i8<const BITS: usize, const BYTES: usize>(
        packed: &[u8],
        zero_points: &[i16],
        values: &[i16],
        [of_row, of_column]: [&[f32]; 2],
    ) -> f32 {
        let mut sums = [0f32; BYTES];
        // Plane p of a chunk has bits p · BITS and on of each byte.
        let planes = values.as_chunks::<BYTES>().0.chunks_exact(8 / BITS);
        let chunks = packed.as_chunks::<BYTES>().0.iter().zip(planes).zip(zero_points);
        for (((packed, planes), zero_point), (of_row, of_column)) in chunks.zip(of_row.iter().zip(of_column)) {
            let mut products = [0i16; BYTES];
            // By number, so that the loop is unrolled: 14 GB/s of weights of 4 bits, and 10 with an iterator (EPYC with AVX-512).
            for plane in 0..8 / BITS {
                let Some(values) = planes.get(plane) else { break };
                for lane in 0..BYTES {
                    let q = i16::from(packed[lane] >> (plane * BITS) & (u8::MAX >> (8 - BITS)));
                    products[lane] = products[lane].wrapping_add((q - zero_point).wrapping_mul(values[lane]));
                }
            }
            for lane in 0..BYTES {
                sums[lane] += f32::from(products[lane]) * (of_row * of_column);
            }
        }
        sums.iter().sum()
    }

    /// The same with activations that are not quantised.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn dot_f32<const BITS: usize, const BYTES: usize>(
        packed: &[u8],
        zero_points: &[i16],
        values: &[f32],
        scales: &[f32],
    ) -> f32 {
        let mut sums = [0f32; BYTES];
        let planes = values.as_chunks::<BYTES>().0.chunks_exact(8 / BITS);
        let chunks = packed.as_chunks::<BYTES>().0.iter().zip(planes);
        for ((packed, planes), (zero_point, scale)) in chunks.zip(zero_points.iter().zip(scales)) {
            let mut products = [0f32; BYTES];
            for plane in 0..8 / BITS {
                let Some(values) = planes.get(plane) else { break };
                for lane in 0..BYTES {
                    let q = i16::from(packed[lane] >> (plane * BITS) & (u8::MAX >> (8 - BITS)));
                    products[lane] += f32::from(q - zero_point) * values[lane];
                }
            }
            for lane in 0..BYTES {
                sums[lane] += products[lane] * scale;
            }
        }
        sums.iter().sum()
    }
}
