//! The registry of operators that can be written: one file a family, each with a table of names and functions.

mod activation;
mod binary;
mod conv;
mod create;
mod gather;
mod linear;
mod norm;
mod pad;
mod pool;
mod reduce;
mod resize;
mod sparse;
mod train;
mod unary;
mod view;

use super::{builder::OnnxValue, scope::Scope};
use crate::error::Result;

/// How an operator is written.
#[derive(Clone, Copy)]
pub(super) enum Write {
    /// By one ONNX operator on one operand, without attributes.
    Unary(&'static str),
    /// By one ONNX operator on two operands that broadcast, without attributes.
    Binary(&'static str),
    /// The same with a bool result.
    Compare(&'static str),
    /// By nodes with one result.
    One(fn(&mut Scope<'_>) -> Result<OnnxValue>),
    /// By nodes with several results.
    Many(fn(&mut Scope<'_>) -> Result<Vec<OnnxValue>>),
}

/// The operators of one family.
type Family = &'static [(&'static str, Write)];

const FAMILIES: &[Family] = &[
    activation::OPS,
    binary::OPS,
    conv::OPS,
    create::OPS,
    gather::OPS,
    linear::OPS,
    norm::OPS,
    pad::OPS,
    pool::OPS,
    reduce::OPS,
    resize::OPS,
    sparse::OPS,
    train::OPS,
    unary::OPS,
    view::OPS,
];

/// How the operator `name` is written.
pub(super) fn find(name: &str) -> Option<Write> {
    FAMILIES.iter().flat_map(|family| family.iter()).find(|(known, _)| *known == name).map(|(_, write)| *write)
}

impl Write {
    /// Adds the operator's nodes, and returns its results.
    pub fn write(self, scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
        let one = match self {
            Write::Unary(op) => {
                let x = scope.x(0)?;
                scope.builder.unary(op, &x)
            }
            Write::Binary(op) => {
                let (a, b) = (scope.x(0)?, scope.x(1)?);
                scope.builder.binary(op, &a, &b)
            }
            Write::Compare(op) => {
                let (a, b) = (scope.x(0)?, scope.x(1)?);
                scope.builder.compare(op, &a, &b)
            }
            Write::One(write) => write(scope),
            Write::Many(write) => return write(scope),
        };
        Ok(vec![one?])
    }
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
