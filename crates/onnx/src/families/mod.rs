//! The registry of ONNX operators: one file a family, each with a table of names and functions.

mod activation;
mod attention;
mod constant;
mod control;
mod conv;
mod elementwise;
mod gather;
mod grid;
mod linear;
mod loss;
mod norm;
mod pool;
mod qlinear;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod reverse;
mod scatter;
mod sequence;
mod shape;
mod slice;
mod sort;

use crate::lowering::Lower;

/// The operators of one family.
type Family = &'static [(&'static str, Lower)];

const FAMILIES: &[Family] = &[
    activation::OPS,
    attention::OPS,
    constant::OPS,
    control::OPS,
    conv::OPS,
    elementwise::OPS,
    gather::OPS,
    grid::OPS,
    linear::OPS,
    loss::OPS,
    norm::OPS,
    pool::OPS,
    qlinear::OPS,
    quantize::OPS,
    random::OPS,
    recurrent::OPS,
    reduce::OPS,
    resize::OPS,
    reverse::OPS,
    scatter::OPS,
    sequence::OPS,
    shape::OPS,
    slice::OPS,
    sort::OPS,
];

/// The function for an operator of the default domain, or of ONNX Runtime's where that has the same operator.
pub(crate) fn find(domain: &str, kind: &str) -> Option<Lower> {
    let known = matches!(domain, "" | "com.microsoft");
    let mut all = FAMILIES.iter().flat_map(|family| family.iter());
    all.find(|(name, _)| known && *name == kind).map(|(_, lower)| *lower)
}
