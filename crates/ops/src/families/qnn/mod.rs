//! Quantised operators (affine quantisation): real = scale · (value − zero point). Scales and zero points are operands, per
//! tensor or per channel.
//!
//! Calls with ONNX's semantics are computed as ONNX says ([`affine`]). The results of others are bit-exact with TVM's lowering:
//! fixed-point rescaling in 64 bits with ties upward, table lookup of real functions, integer softmax.

pub(crate) mod affine;
pub(crate) mod convert;
pub(crate) mod elementwise;
#[cfg(feature = "kernels")]
mod exact;
pub(crate) mod fixed_point;
pub(crate) mod linear;
pub(crate) mod matmul;
#[cfg(feature = "kernels")]
mod params;
