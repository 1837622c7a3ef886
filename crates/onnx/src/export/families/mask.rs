//! Triangles of matrices.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[("trilu", One(triangle))];

fn triangle(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, k, dtype) = (scope.x(0)?, scope.x(1)?, scope.out()?.dtype);
    let k = scope.builder.cast(&k, DType::I64)?;
    let upper = i64::from(scope.flag("upper", true)?);
    scope.builder.node("Trilu", &[&x, &k]).int("upper", upper).one(dtype)
}
