//! The registry of operators that can be written: one file a family, each with a table of names and functions.

mod activation;
mod affine;
mod binary;
mod conv;
mod create;
mod gather;
mod grid;
mod linear;
mod mask;
mod norm;
mod pad;
mod pool;
mod qnn;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod reorg;
mod resize;
mod select;
mod sparse;
mod train;
mod unary;
mod view;

use super::write::Write;

/// The operators of one family.
type Family = &'static [(&'static str, Write)];

const FAMILIES: &[Family] = &[
    activation::OPS,
    binary::OPS,
    conv::OPS,
    create::OPS,
    gather::OPS,
    grid::OPS,
    linear::OPS,
    mask::OPS,
    norm::OPS,
    pad::OPS,
    pool::OPS,
    qnn::OPS,
    random::OPS,
    rearrange::OPS,
    recurrent::OPS,
    reduce::OPS,
    reorg::OPS,
    resize::OPS,
    select::OPS,
    sparse::OPS,
    train::OPS,
    unary::OPS,
    view::OPS,
];

/// How the operator `name` is written.
pub(super) fn find(name: &str) -> Option<Write> {
    FAMILIES.iter().flat_map(|family| family.iter()).find(|(known, _)| *known == name).map(|(_, write)| *write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn operators_are_known_and_listed_once() {
        let mut seen = HashSet::new();
        for (name, _) in FAMILIES.iter().flat_map(|family| family.iter()) {
            assert!(edgecut_ops::lookup(name).is_some(), "{name} is no operator");
            assert!(seen.insert(*name), "{name} is listed twice");
        }
    }
}
