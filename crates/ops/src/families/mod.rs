//! The operator families, one file each: schema, type rule, FLOPs, split axes and kernel of every operator of a family.
//!
//! A new family is its file and its line in [`FAMILIES`]. Kernels are in the module `kernel` of a family, which the feature
//! `kernels` compiles.

pub(crate) mod activation;
pub(crate) mod annotate;
pub(crate) mod argreduce;
pub(crate) mod binary;
pub(crate) mod bitserial;
pub(crate) mod broadcast;
pub(crate) mod cast;
pub(crate) mod clip;
pub(crate) mod collapse_sum;
pub(crate) mod comparison;
pub(crate) mod concat;
pub(crate) mod conv;
pub(crate) mod correlation;
pub(crate) mod create;
pub(crate) mod dense;
pub(crate) mod dynamic;
pub(crate) mod dynamic_attrs;
pub(crate) mod einsum;
pub(crate) mod fifo;
pub(crate) mod fourier;
pub(crate) mod gather;
pub(crate) mod image;
pub(crate) mod layout_transform;
pub(crate) mod lookup;
pub(crate) mod loss;
pub(crate) mod mask;
pub(crate) mod norm;
pub(crate) mod pad;
pub(crate) mod pool;
pub(crate) mod qnn;
pub(crate) mod random;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod repeat;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod seeded_random;
pub(crate) mod select;
pub(crate) mod slice;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod space_depth;
pub(crate) mod sparse;
pub(crate) mod sparse_coo;
pub(crate) mod transpose;
pub(crate) mod unary;
pub(crate) mod view;
pub(crate) mod vision;

use crate::OpDef;

/// Every family's table. Tables are statics: the generic kernels of a constant table would be instantiated in every crate that
/// uses it.
pub(crate) static FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    annotate::OPS,
    argreduce::OPS,
    binary::OPS,
    bitserial::OPS,
    broadcast::OPS,
    cast::OPS,
    clip::OPS,
    collapse_sum::OPS,
    comparison::OPS,
    concat::OPS,
    conv::OPS,
    conv::deformable::OPS,
    conv::packed::OPS,
    correlation::OPS,
    create::OPS,
    dense::OPS,
    dynamic::OPS,
    dynamic_attrs::OPS,
    einsum::OPS,
    fifo::OPS,
    fourier::OPS,
    gather::OPS,
    image::crop::OPS,
    image::dilation::OPS,
    image::grid::OPS,
    image::resize::OPS,
    layout_transform::OPS,
    lookup::OPS,
    loss::OPS,
    mask::OPS,
    norm::OPS,
    pad::OPS,
    pool::OPS,
    qnn::affine::OPS,
    qnn::convert::OPS,
    qnn::elementwise::OPS,
    qnn::fixed_point::OPS,
    qnn::linear::OPS,
    qnn::matmul::OPS,
    random::OPS,
    recurrent::OPS,
    reduce::OPS,
    repeat::OPS,
    scan::OPS,
    scatter::OPS,
    seeded_random::OPS,
    select::OPS,
    slice::OPS,
    softmax::OPS,
    sort::OPS,
    space_depth::OPS,
    sparse::OPS,
    sparse_coo::OPS,
    transpose::OPS,
    unary::OPS,
    view::OPS,
    vision::anchors::OPS,
    vision::classes::OPS,
    vision::proposal::OPS,
    vision::regions::OPS,
    vision::reorg::OPS,
    vision::suppression::OPS,
];
