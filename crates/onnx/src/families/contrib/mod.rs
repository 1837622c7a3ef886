//! Operators of ONNX Runtime's own domain, `com.microsoft`, which its optimiser and quantisation tools write, as
//! composite operators: one file a family.

pub(super) mod attention;
pub(super) mod elementwise;
mod fused_activation;
pub(super) mod norm;
mod packed_bits;
pub(super) mod product;
