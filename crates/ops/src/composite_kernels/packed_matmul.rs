//! `com.microsoft.MatMulNBits` in single precision: a product with weights of 2, 4 or 8 bits, quantised in blocks along
//! the reduction axis. The weights stay as they are packed.
//!
//! For a few rows, weights are unpacked in registers. For more rows, the weights of some columns at a time are unpacked to
//! single precision and multiplied as matrices.

use edgecut_graph::DType;

use super::{CompositeKernel, no_type, sizes};
use crate::{OpDef, Typed};

pub(super) const KERNEL: CompositeKernel =
    CompositeKernel { def: OpDef::new("com.microsoft.MatMulNBits", &[], no_type).host(kernel!(product)), covers };

/// Numbers of the node's inputs.
mod input {
    pub const DATA: usize = 0;
    pub const WEIGHTS: usize = 1;
    pub const SCALES: usize = 2;
    pub const ZERO_POINTS: usize = 3;
    pub const GROUPS: usize = 4;
    pub const BIAS: usize = 5;
}

/// The `accuracy_level` at which data are rounded to 8 bits.
const LEVEL_OF_8_BITS: i64 = 4;

/// The largest block of data with one scale. Larger blocks of weights are divided into blocks of this size.
const LARGEST_BLOCK: usize = 256;

/// Blocks are of multiples of this many bytes.
const LEAST_BYTES: usize = 8;

fn covers(call: &Typed<'_>) -> Option<bool> {
    let dtype = |index: usize| call.input_type(index).map(|ty| ty.dtype);
    let is_single = |index: usize| dtype(index).is_none_or(|dtype| dtype == DType::F32);
    let is_packed = dtype(input::WEIGHTS) == Some(DType::U8)
        && dtype(input::ZERO_POINTS).is_none_or(|dtype| dtype == DType::U8)
        && call.are_unset(&["weight_prepacked"]);
    let floats = [input::DATA, input::SCALES, input::BIAS].into_iter().all(is_single);
    let sizes = Sizes::of(call)?;
    // Of 2 bits, ONNX Runtime has kernels that round the data for some blocks only.
    let is_rounded_as_others = sizes.bits != 2 || (32..=128).contains(&sizes.block) || !sizes.is_rounded;
    Some(is_packed && floats && is_rounded_as_others && call.place_of_input(input::GROUPS).is_none())
}

/// The sizes of a call.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Rows of the data, length of the reduction, columns of the result.
    rows: usize,
    inner: usize,
    columns: usize,
    /// Weights with one scale.
    block: usize,
    bits: usize,
    /// Whether the data are rounded to 8 bits.
    is_rounded: bool,
}

impl Sizes {
    fn of(call: &Typed<'_>) -> Option<Sizes> {
        let number = |name: &str, default: i64| usize::try_from(call.int(name, default).ok()?).ok();
        let (columns, inner, block) = (number("N", 0)?, number("K", 0)?, number("block_size", 0)?);
        let bits = number("bits", 4)?;
        let data = sizes(call.input_type(input::DATA)?)?;
        let rows = data[..data.len().checked_sub(1)?].iter().product();
        let is_rounded = call.int("accuracy_level", 0).ok()? == LEVEL_OF_8_BITS;
        let sizes = Sizes { rows, inner, columns, block, bits, is_rounded };
        let is_whole = block > 0
            && [2, 4, 8].contains(&bits)
            && (block * bits).is_multiple_of(8 * LEAST_BYTES)
            && (block <= LARGEST_BLOCK || block.is_multiple_of(LARGEST_BLOCK))
            && data.last() == Some(&inner)
            && columns > 0;
        let has = |index: usize, count: usize| {
            call.input_type(index).and_then(super::sizes).is_none_or(|of| of.iter().product::<usize>() == count)
        };
        let matches = is_whole
            && has(input::WEIGHTS, columns * sizes.bytes_of_column())
            && has(input::SCALES, columns * sizes.blocks())
            && has(input::ZERO_POINTS, columns * sizes.zeros_of_column())
            && has(input::BIAS, columns);
        matches.then_some(sizes)
    }

    fn blocks(&self) -> usize {
        self.inner.div_ceil(self.block)
    }

    fn bytes_of_block(&self) -> usize {
        self.block * self.bits / 8
    }

    fn bytes_of_column(&self) -> usize {
        self.blocks() * self.bytes_of_block()
    }

    fn zeros_of_column(&self) -> usize {
        (self.blocks() * self.bits).div_ceil(8)
    }

    /// Bytes of weights that are unpacked at once.
    fn bytes_of_unit(&self) -> usize {
        if self.bytes_of_block().is_multiple_of(2 * LEAST_BYTES) { 2 * LEAST_BYTES } else { LEAST_BYTES }
    }

    /// Elements of data that are multiplied at once.
    fn unit(&self) -> usize {
        self.bytes_of_unit() * 8 / self.bits
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use multiversion::multiversion;
    use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
    use tract_core::internal::*;
    use tract_linalg::multithread::par_chunks_mut;

    use super::*;

    /// Up to this many rows, weights are unpacked again for each: with 16, a step of TinyLlama-1.1B takes 0.64 s so, and 0.65 s by
    /// matrices.
    const FEW_ROWS: usize = 16;

    /// Columns whose weights are unpacked at a time for more rows.
    const TILE: usize = 64;

    /// Sums that are computed side by side.
    const LANES: usize = 16;

    /// A block of zeros is divided by this, of which 127 times the reciprocal is finite.
    const LEAST_DIVISOR: f32 = 1e-36;

    /// Weights as they are packed.
    struct Weights<'a> {
        sizes: Sizes,
        packed: &'a [u8],
        scales: &'a [f32],
        zeros: Option<&'a [u8]>,
    }

    /// Rows of data in units, padded with zeros: quotients and scales, whose products they are. The elements of a unit come in
    /// the order in which weights are unpacked: those in the lowest bits of all bytes first.
    struct Data {
        quotients: Vec<f32>,
        /// The same, if they are rounded.
        integers: Option<Vec<i16>>,
        /// By row and unit.
        scales: Vec<f32>,
        /// By row and unit: the sum of its elements.
        sums: Vec<f32>,
    }

    pub(super) fn product(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let sizes = Sizes::of(call).context("the sizes of the operands do not match")?;
        let plain = inputs.iter().map(|input| input.try_as_plain_ram()).collect::<TractResult<Vec<_>>>()?;
        let place = |index: usize| call.place_of_input(index).context("an operand is missing");
        let zeros = call.place_of_input(input::ZERO_POINTS).map(|place| plain[place].as_slice::<u8>()).transpose()?;
        let bias = call.place_of_input(input::BIAS).map(|place| plain[place].as_slice::<f32>()).transpose()?;
        let weights = Weights {
            sizes,
            packed: plain[place(input::WEIGHTS)?].as_slice::<u8>()?,
            scales: plain[place(input::SCALES)?].as_slice::<f32>()?,
            zeros,
        };
        let data = Data::of(&sizes, plain[place(input::DATA)?].as_slice::<f32>()?);
        // By column, so that threads have columns of their own.
        let mut by_column = vec![0f32; sizes.columns * sizes.rows];
        let work = by_column.len().saturating_mul(sizes.inner);
        par_chunks_mut(&mut by_column, sizes.rows.max(1), work, |first, results| {
            match (sizes.rows <= FEW_ROWS, sizes.bits, sizes.bytes_of_unit()) {
                (false, ..) => weights.many(&data, first, results)?,
                (true, 2, 16) => weights.few::<2, 16>(&data, first, results),
                (true, 2, _) => weights.few::<2, 8>(&data, first, results),
                (true, 4, 16) => weights.few::<4, 16>(&data, first, results),
                (true, 4, _) => weights.few::<4, 8>(&data, first, results),
                (true, _, 16) => weights.few::<8, 16>(&data, first, results),
                (true, ..) => weights.few::<8, 8>(&data, first, results),
            }
            Ok(())
        })?;
        let mut out = Tensor::zero::<f32>(&call.dims()?)?;
        let mut results = out.try_as_plain_ram_mut()?;
        for (row, results) in results.as_slice_mut::<f32>()?.chunks_exact_mut(sizes.columns).enumerate() {
            for (column, result) in results.iter_mut().enumerate() {
                *result = by_column[column * sizes.rows + row] + bias.map_or(0.0, |bias| bias[column]);
            }
        }
        drop(results);
        Ok(tvec![out])
    }

    impl Data {
        fn of(sizes: &Sizes, data: &[f32]) -> Data {
            let (unit, bytes, per_byte) = (sizes.unit(), sizes.bytes_of_unit(), 8 / sizes.bits);
            let length = sizes.blocks() * sizes.block;
            let rounded = sizes.block.min(LARGEST_BLOCK);
            let mut quotients = vec![0f32; sizes.rows * length];
            let mut scales = vec![1f32; sizes.rows * length / unit];
            for (row, data) in data.chunks_exact(sizes.inner.max(1)).enumerate() {
                for (number, elements) in data.chunks(rounded).enumerate() {
                    let (factor, scale) = if sizes.is_rounded { rounding(elements) } else { (1.0, 1.0) };
                    let first = row * length + number * rounded;
                    scales[first / unit..(first + rounded) / unit].fill(scale);
                    for (index, element) in elements.iter().enumerate() {
                        let (of_unit, at) = (index / unit, index % unit);
                        let place = first + of_unit * unit + at % per_byte * bytes + at / per_byte;
                        let quotient = element * factor;
                        quotients[place] = if sizes.is_rounded { quotient.round_ties_even() } else { quotient };
                    }
                }
            }
            let integers = sizes.is_rounded.then(|| quotients.iter().map(|quotient| *quotient as i16).collect());
            let units = quotients.chunks_exact(unit).zip(&scales);
            let sums = units.map(|(unit, scale)| unit.iter().sum::<f32>() * scale).collect();
            Data { quotients, integers, scales, sums }
        }
    }

    /// The factor and the scale by which a block of data is rounded to 8 bits (`QuantizeARow_CompInt8` of ONNX Runtime's MLAS).
    fn rounding(block: &[f32]) -> (f32, f32) {
        let most = block.iter().fold(0f32, |most, x| most.max(x.abs()));
        (127.0 / most.max(LEAST_DIVISOR), most / 127.0)
    }

    impl Weights<'_> {
        fn zero(&self, column: usize, block: usize) -> f32 {
            let Sizes { bits, .. } = self.sizes;
            let Some(zeros) = self.zeros else { return (1u32 << (bits - 1)) as f32 };
            let byte = zeros[column * self.sizes.zeros_of_column() + block * bits / 8];
            f32::from(byte >> (block * bits % 8) & (u8::MAX >> (8 - bits)))
        }

        /// The results of some columns from `first` on, by column and row.
        fn few<const BITS: usize, const BYTES: usize>(&self, data: &Data, first: usize, results: &mut [f32]) {
            let Sizes { rows, .. } = self.sizes;
            let (blocks, bytes) = (self.sizes.blocks(), self.sizes.bytes_of_column());
            let (units, unit) = (bytes / BYTES, self.sizes.unit());
            let per_block = units / blocks.max(1);
            // By unit.
            let (mut scales, mut zeros) = (vec![0f32; units], vec![self.zero(0, 0); units]);
            for (column, results) in (first..).zip(results.chunks_exact_mut(rows)) {
                let of_column = &self.scales[column * blocks..][..blocks];
                match per_block {
                    1 => scales.copy_from_slice(of_column),
                    _ => scales.iter_mut().enumerate().for_each(|(at, scale)| *scale = of_column[at / per_block]),
                }
                if self.zeros.is_some() {
                    zeros.iter_mut().enumerate().for_each(|(at, zero)| *zero = self.zero(column, at / per_block));
                }
                let packed = &self.packed[column * bytes..][..bytes];
                for (row, result) in results.iter_mut().enumerate() {
                    let [of_row, sums] = [&data.scales, &data.sums].map(|all| &all[row * units..][..units]);
                    let elements = row * units * unit..(row + 1) * units * unit;
                    let products = match &data.integers {
                        Some(all) => integer_products::<BITS, BYTES>(packed, &all[elements], [of_row, &scales]),
                        None => products::<BITS, BYTES>(packed, &data.quotients[elements], &scales),
                    };
                    *result = products - zero_products(&zeros, &scales, sums);
                }
            }
        }

        /// The same for more rows.
        fn many(&self, data: &Data, first: usize, results: &mut [f32]) -> TractResult<()> {
            let Sizes { rows, bits, .. } = self.sizes;
            let (length, unit) = (self.sizes.blocks() * self.sizes.block, self.sizes.unit());
            let units = data.quotients.chunks_exact(unit).zip(&data.scales);
            let scaled: Vec<f32> =
                units.flat_map(|(unit, scale)| unit.iter().map(move |quotient| quotient * scale)).collect();
            let scaled = ArrayView2::from_shape((rows, length), &scaled)?;
            let mut unpacked = vec![0f32; TILE * length];
            for (tile, results) in results.chunks_mut(TILE * rows).enumerate() {
                let count = results.len() / rows;
                let from = first + tile * TILE;
                for (column, unpacked) in (from..from + count).zip(unpacked.chunks_exact_mut(length)) {
                    match bits {
                        2 => self.unpack::<2>(column, unpacked),
                        4 => self.unpack::<4>(column, unpacked),
                        _ => self.unpack::<8>(column, unpacked),
                    }
                }
                let weights = ArrayView2::from_shape((count, length), &unpacked[..count * length])?;
                let mut results = ArrayViewMut2::from_shape((count, rows), results)?;
                general_mat_mul(1.0, &weights, &scaled.t(), 0.0, &mut results);
            }
            Ok(())
        }

        /// Writes the weights of a column, in the order of [`Data`].
        fn unpack<const BITS: usize>(&self, column: usize, weights: &mut [f32]) {
            let (blocks, unit, bytes) = (self.sizes.blocks(), self.sizes.unit(), self.sizes.bytes_of_unit());
            let packed = &self.packed[column * self.sizes.bytes_of_column()..];
            for (at, (weights, packed)) in weights.chunks_exact_mut(unit).zip(packed.chunks_exact(bytes)).enumerate() {
                let block = at * unit / self.sizes.block;
                unpack::<BITS>(packed, self.zero(column, block), self.scales[column * blocks + block], weights);
            }
        }
    }

    /// The weights of one unit.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn unpack<const BITS: usize>(packed: &[u8], zero: f32, scale: f32, weights: &mut [f32]) {
        for (plane, weights) in weights.chunks_exact_mut(packed.len()).enumerate() {
            for (weight, byte) in weights.iter_mut().zip(packed) {
                let number = byte >> (plane * BITS) & (u8::MAX >> (8 - BITS));
                *weight = (f32::from(number) - zero) * scale;
            }
        }
    }

    /// The sum over units: the products of packed weights, without their zero points, with quotients, times both scales.
    /// Quotients have 8 bits and a sign, so that the products of a byte fit in 16 bits.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn integer_products<const BITS: usize, const BYTES: usize>(
        packed: &[u8],
        quotients: &[i16],
        [of_row, of_column]: [&[f32]; 2],
    ) -> f32 {
        let mut sums = [0f32; BYTES];
        let planes = quotients.as_chunks::<BYTES>().0.chunks_exact(8 / BITS);
        let units = packed.as_chunks::<BYTES>().0.iter().zip(planes);
        for ((packed, planes), (of_row, of_column)) in units.zip(of_row.iter().zip(of_column)) {
            let mut products = [0i16; BYTES];
            for plane in 0..8 / BITS {
                let quotients = &planes[plane];
                for lane in 0..BYTES {
                    let weight = packed[lane] >> (plane * BITS) & (u8::MAX >> (8 - BITS));
                    products[lane] = products[lane].wrapping_add(i16::from(weight).wrapping_mul(quotients[lane]));
                }
            }
            for lane in 0..BYTES {
                sums[lane] += f32::from(products[lane]) * (of_row * of_column);
            }
        }
        sums.iter().sum()
    }

    /// The same with data that are not rounded, whose scales are 1.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn products<const BITS: usize, const BYTES: usize>(packed: &[u8], quotients: &[f32], scales: &[f32]) -> f32 {
        let mut sums = [0f32; BYTES];
        let planes = quotients.as_chunks::<BYTES>().0.chunks_exact(8 / BITS);
        let units = packed.as_chunks::<BYTES>().0.iter().zip(planes);
        for ((packed, planes), scale) in units.zip(scales) {
            let mut products = [0f32; BYTES];
            for plane in 0..8 / BITS {
                let quotients = &planes[plane];
                for lane in 0..BYTES {
                    let weight = packed[lane] >> (plane * BITS) & (u8::MAX >> (8 - BITS));
                    products[lane] += f32::from(weight) * quotients[lane];
                }
            }
            for lane in 0..BYTES {
                sums[lane] += products[lane] * scale;
            }
        }
        sums.iter().sum()
    }

    /// The sum of zero points times scales times sums of data.
    #[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2+fma", "aarch64+neon"))]
    fn zero_products(zeros: &[f32], scales: &[f32], sums: &[f32]) -> f32 {
        let [(zeros, last_zeros), (scales, last_scales), (sums, last_sums)] =
            [zeros, scales, sums].map(|all| all.as_chunks::<LANES>());
        let mut lanes = [0f32; LANES];
        for ((zeros, scales), sums) in zeros.iter().zip(scales).zip(sums) {
            for lane in 0..LANES {
                lanes[lane] += zeros[lane] * scales[lane] * sums[lane];
            }
        }
        let last = last_zeros.iter().zip(last_scales).zip(last_sums);
        lanes.iter().sum::<f32>() + last.map(|((zero, scale), sum)| zero * scale * sum).sum::<f32>()
    }
}
