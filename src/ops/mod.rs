//! What operators mean: attributes, type rule, cost, aliasing and kernel of every Relay operator.
//!
//! One file a family; a family is a table of [`OpDef`]s. To add an operator, write its line in a family's
//! `OPS`; to add a family, write its file and its line in [`FAMILIES`]. Knows `graph`, and tract for the
//! kernels; knows nothing of text, engines, plans or files.

mod activation;
mod annotate;
mod argreduce;
mod arrange;
pub mod attr;
mod bfloat;
mod binary;
mod bitserial;
mod blocks;
mod cast;
mod choose;
mod clip;
mod collapse;
mod compare;
mod conv;
mod coordinates;
mod correlation;
mod create;
mod def;
mod dense;
mod dynamic;
mod einsum;
mod element;
mod fifo;
mod fourier;
mod image;
mod index;
mod join;
pub mod kernel;
mod layout;
mod layout_transform;
mod loss;
mod mask;
mod norm;
mod own;
mod pad;
pub(crate) mod phases;
mod places;
mod pointwise;
mod pool;
mod qnn;
mod random;
pub mod recipe;
mod reduce;
mod remap;
mod repeat;
mod restated;
pub mod retype;
mod rows;
mod rules;
mod scan;
mod scatter;
mod search;
pub mod shard;
pub mod sharded;
mod slice;
mod softmax;
mod sort;
mod sparse;
pub mod split;
mod statistics;
pub mod summary;
pub mod tiled;
mod unary;
mod view;
mod vision;
pub(crate) mod window;

use std::{collections::HashMap, sync::LazyLock};

use crate::graph::Operator;

pub use crate::graph::FusionClass;
pub use def::{Alias, AttrDef, AttrKind, Call, Kernel, OpDef, TypeError, Typed, Unsupported};
pub use join::joins_in_a_row;

/// Every family's table.
const FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    annotate::OPS,
    argreduce::OPS,
    arrange::OPS,
    binary::OPS,
    bitserial::OPS,
    blocks::OPS,
    cast::OPS,
    choose::OPS,
    clip::OPS,
    collapse::OPS,
    compare::OPS,
    conv::OPS,
    conv::deformable::OPS,
    conv::packed::OPS,
    correlation::OPS,
    coordinates::OPS,
    create::OPS,
    dense::OPS,
    dynamic::OPS,
    einsum::OPS,
    fifo::OPS,
    fourier::OPS,
    image::crop::OPS,
    image::dilation::OPS,
    image::grid::OPS,
    image::resize::OPS,
    index::OPS,
    join::OPS,
    layout_transform::OPS,
    loss::OPS,
    mask::OPS,
    norm::OPS,
    pad::OPS,
    pool::OPS,
    qnn::convert::OPS,
    qnn::elementwise::OPS,
    qnn::fixed_point::OPS,
    qnn::linear::OPS,
    random::OPS,
    reduce::OPS,
    repeat::OPS,
    restated::OPS,
    scan::OPS,
    scatter::OPS,
    search::OPS,
    slice::OPS,
    softmax::OPS,
    sort::OPS,
    sparse::OPS,
    unary::OPS,
    view::OPS,
    vision::anchors::OPS,
    vision::classes::OPS,
    vision::proposal::OPS,
    vision::regions::OPS,
    vision::reorg::OPS,
    vision::suppression::OPS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static OpDef>> =
    LazyLock::new(|| FAMILIES.iter().copied().flatten().map(|def| (def.name, def)).collect());

/// What is known of the operator `name`; `None` for one that is kept as an opaque vertex.
pub fn lookup(name: &str) -> Option<&'static OpDef> {
    BY_NAME.get(name).copied()
}

/// Whether an operator's output is its first operand's bytes under another shape.
pub fn is_view(operator: &Operator) -> bool {
    lookup(&operator.name).is_some_and(|def| def.alias == Alias::View)
}

/// All known operators, family by family.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        assert_eq!(all().count(), BY_NAME.len());
    }
}
