//! Products fused with what follows them, and products with packed weights.

use edgecut_graph::{DType, TensorId};
use edgecut_ops::int8_activations;

use super::{elementwise::added, fused_activation::activated, packed_bits::unpacked};
use crate::{
    compose::one,
    error::Result,
    families::{
        conv,
        elementwise::half_even,
        linear::{general_product, product},
    },
    lowering::{Call, Lower, Value},
};

pub(in crate::families) const OPS: &[(&str, Lower)] =
    &[("FusedConv", convolution), ("FusedGemm", gemm), ("FusedMatMul", matmul), ("MatMulNBits", packed_matmul)];

/// The activation of the sum of a convolution, its bias and a further operand.
fn convolution(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, w, bias, more) = (call.input(0)?, call.input(1)?, call.optional(2)?, call.optional(3)?);
    let made = conv::product(call, x, w, None)?;
    let made = conv::biased(call, made, bias)?;
    let made = added(call, made, more)?;
    let parameters = call.floats("activation_params").unwrap_or_default();
    one(activated(call, made, |at| parameters.get(at).copied())?)
}

fn gemm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a, b, c) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let made = general_product(call, a, b, c)?;
    let parameters = ["activation_alpha", "activation_beta", "activation_gamma"];
    let parameters = parameters.map(|name| call.has(name).then(|| call.float(name, 0.0)));
    one(activated(call, made, |at| parameters.get(at).copied().flatten())?)
}

/// alpha A B, where A and B may be transposed.
fn matmul(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let a = transposed(call, a, "transA", "transBatchA")?;
    let b = transposed(call, b, "transB", "transBatchB")?;
    let made = product(call, a, b)?;
    match call.float("alpha", 1.0) {
        1.0 => one(made),
        alpha => one(call.with("multiply", made, alpha)?),
    }
}

/// With the first axis moved before the last one if `batch` says so, then the last two axes exchanged if `matrix` does.
fn transposed(call: &mut Call<'_, '_>, x: TensorId, matrix: &str, batch: &str) -> Result<TensorId> {
    let rank = call.rank(x);
    let mut axes: Vec<usize> = (0..rank).collect();
    if rank >= 2 && call.int(batch, 0) != 0 {
        axes[..rank - 1].rotate_left(1);
    }
    if rank >= 2 && call.int(matrix, 0) != 0 {
        axes.swap(rank - 2, rank - 1);
    }
    call.transpose(x, &axes)
}

/// A product with weights in rows, quantised in blocks along them: (weight - zero point) scale. At one accuracy level the data are
/// rounded to 8 bits in blocks, where ONNX Runtime has kernels for that (MLAS, `qnbitgemm`).
fn packed_matmul(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.int("weight_prepacked", 0) != 0 || call.optional(4)?.is_some() {
        return Err("prepacked weights and group indices are not supported".to_string());
    }
    let (a, packed, scales) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let bits = call.int("bits", 4);
    let sizes = ["N", "K", "block_size"].map(|name| u64::try_from(call.int(name, 0)).unwrap_or(0));
    let [rows, inner, block] = sizes;
    let blocks = inner.checked_div(block).map_or(0, |whole| whole + u64::from(inner % block.max(1) != 0));
    let stored = call.dtype_of(scales);
    let expected = || format!("expected weights in {rows} rows of {blocks} blocks of {block} numbers of {bits} bits");
    let numbers = unpacked(call, packed, bits)?;
    if call.dims(numbers)?[..] != [rows, blocks, block] || rows == 0 || block == 0 {
        return Err(expected());
    }
    let zero = call.optional(3)?;
    let has_kernel = zero.is_none_or(|zero| call.dtype_of(zero) == DType::U8)
        && int8_activations::are_quantised(call.int("accuracy_level", 0), bits, block);
    let is_known = call.ty(a).shape.fixed().is_some() && call.dtype_of(a) == stored;
    let is_quantised = has_kernel && is_known;
    // The kernels for 8 bits convert half-precision data and scales.
    let dtype = if is_quantised { DType::F32 } else { stored };
    let scales = call.cast(scales, dtype)?;
    let a = call.cast(a, dtype)?;
    let a = if is_quantised { rounded_to_8_bits(call, a, block.min(int8_activations::MAX_BLOCK))? } else { a };
    let zero = match zero {
        Some(zero) if call.dtype_of(zero) == DType::U8 => {
            let width = (blocks * bits.unsigned_abs()).div_ceil(8);
            let zero = call.reshape(zero, &[rows, width])?;
            let zero = unpacked(call, zero, bits)?;
            let zero = call.slice(zero, 1, 0, blocks)?;
            call.cast(zero, dtype)?
        }
        Some(zero) => zero,
        None => call.lowering.scalar(f64::from(1 << (bits - 1)), dtype)?,
    };
    let zero = if call.rank(zero) == 0 { zero } else { call.reshape(zero, &[rows, blocks, 1])? };
    let scales = call.reshape(scales, &[rows, blocks, 1])?;
    let numbers = call.cast(numbers, dtype)?;
    let centred = call.map("subtract", &[numbers, zero])?;
    let weights = call.map("multiply", &[centred, scales])?;
    let weights = call.reshape(weights, &[rows, blocks * block])?;
    let weights = if blocks * block == inner { weights } else { call.slice(weights, 1, 0, inner)? };
    let columns = call.transpose(weights, &[1, 0])?;
    let made = product(call, a, columns)?;
    let bias = call.optional(5)?.map(|bias| call.cast(bias, dtype)).transpose()?;
    let made = added(call, made, bias)?;
    one(call.cast(made, stored)?)
}

/// `x` with each `block` numbers of its rows in 8 bits with one scale: `QuantizeARow_CompInt8` of ONNX Runtime's MLAS
/// (`qnbitgemm`). The last block of a row may have fewer.
fn rounded_to_8_bits(call: &mut Call<'_, '_>, x: TensorId, block: u64) -> Result<TensorId> {
    let rank = call.rank(x);
    let mut shape = call.dims(x)?;
    let Some(inner) = shape.pop() else { return Ok(x) };
    let blocks = inner.div_ceil(block);
    let missing = blocks * block - inner;
    let padded = if missing == 0 {
        x
    } else {
        let zeros = call.full(0.0, DType::F32, &[&shape[..], &[missing]].concat())?;
        call.concat(&[x, zeros], rank - 1)?
    };
    let padded = call.reshape(padded, &[&shape[..], &[blocks, block]].concat())?;
    let size = call.map("abs", &[padded])?;
    let most = call.reduce("max", size, &[rank], true)?;
    let divisor = call.with("maximum", most, int8_activations::MIN_DIVISOR)?;
    let largest = call.lowering.scalar(127.0, DType::F32)?;
    let inverse = call.map("divide", &[largest, divisor])?;
    let scaled = call.map("multiply", &[padded, inverse])?;
    let rounded = half_even(call, scaled)?;
    let rounded = call.cast(rounded, DType::I8)?;
    let rounded = call.cast(rounded, DType::F32)?;
    let scale = call.with("divide", most, 127.0)?;
    let rounded = call.map("multiply", &[rounded, scale])?;
    let rows = call.reshape(rounded, &[&shape[..], &[blocks * block]].concat())?;
    if missing == 0 { Ok(rows) } else { call.slice(rows, rank - 1, 0, inner) }
}
