//! How an operator is written: by one ONNX operator, or by a function of its family.

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
