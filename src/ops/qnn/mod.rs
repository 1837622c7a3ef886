//! Quantised operators: real number = scale · (value - zero point). Scales and zero points are operands, one for a
//! tensor or one for each channel.
//!
//! What TVM lowers a quantised operator to decides its last bit, so these compute what the lowering computes:
//! fixed-point rescaling in 64 bits with ties upward, lookup of real functions, integer softmax.

pub(super) mod convert;
pub(super) mod elementwise;
pub(super) mod fixed_point;
pub(super) mod linear;
mod params;
