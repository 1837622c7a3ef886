//! How the activations of MatMulNBits are quantised to 8 bits: what its decomposition and its kernel share. The source is ONNX
//! Runtime's MLAS (`qnbitgemm`).

/// The `accuracy_level` at which activations are quantised.
const ACCURACY_LEVEL: i64 = 4;

/// Maximum number of activations with one scale: larger blocks of weights have several blocks of activations.
pub const MAX_BLOCK: u64 = 256;

/// Minimum divisor, for blocks of zeros: 127 / 1e-36 is finite in float32.
pub const MIN_DIVISOR: f64 = 1e-36;

/// Whether activations are quantised for weights of `bits` in blocks of `block`: for 2 bits, ONNX Runtime has kernels for some blocks
/// only.
pub fn are_quantised(accuracy_level: i64, bits: i64, block: u64) -> bool {
    accuracy_level == ACCURACY_LEVEL && (bits != 2 || (32..=128).contains(&block))
}
