//! What operators mean: attributes, type rule, cost, aliasing and kernel of every Relay operator.
//!
//! One file a family; a family is a table of [`OpDef`]s. To add an operator, write its line in a family's
//! `OPS`; to add a family, write its file and its line in [`FAMILIES`]. Knows `graph`, and tract for the
//! kernels; knows nothing of text, engines, plans or files.

mod activation;
mod arrange;
pub mod attr;
mod binary;
mod cast;
mod choose;
mod clip;
mod compare;
mod create;
mod def;
mod element;
mod index;
mod join;
pub mod kernel;
mod pointwise;
mod reduce;
mod rules;
mod slice;
mod unary;
mod view;

use std::{collections::HashMap, sync::LazyLock};

pub use crate::graph::FusionClass;
pub use def::{Alias, AttrDef, AttrKind, Call, Kernel, OpDef, TypeError, Typed, Unsupported};

/// Every family's table.
const FAMILIES: &[&[OpDef]] = &[
    activation::OPS,
    arrange::OPS,
    binary::OPS,
    cast::OPS,
    choose::OPS,
    clip::OPS,
    compare::OPS,
    create::OPS,
    index::OPS,
    join::OPS,
    reduce::OPS,
    slice::OPS,
    unary::OPS,
    view::OPS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static OpDef>> =
    LazyLock::new(|| FAMILIES.iter().copied().flatten().map(|def| (def.name, def)).collect());

/// What is known of the operator `name`; `None` for one that is kept as an opaque vertex.
pub fn lookup(name: &str) -> Option<&'static OpDef> {
    BY_NAME.get(name).copied()
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
