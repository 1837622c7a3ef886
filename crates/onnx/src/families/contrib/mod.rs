//! Operators of ONNX Runtime's own domain, `com.microsoft`, which its optimiser and its quantisation tools write: composite
//! operators, one file a family.

pub(super) mod attention;
pub(super) mod elementwise;
mod fused_activation;
pub(super) mod norm;
mod packed_bits;
pub(super) mod product;
