//! Padding.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[("nn.mirror_pad", One(mirror)), ("nn.pad", One(pad))];

/// `pad_width` by axis: how much before it and after it.
fn widths(scope: &Scope<'_>) -> Result<Vec<(i64, i64)>> {
    scope.checked(scope.call.pairs("pad_width", scope.rank(0)?))
}

fn pad(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, widths) = (scope.x(0)?, widths(scope)?);
    match scope.text("pad_mode", "constant")? {
        "constant" => {
            let value = scope.x(1)?;
            let value = scope.builder.cast(&value, x.dtype)?;
            let value = scope.builder.reshape(&value, &[])?;
            scope.builder.pad(&x, &widths, &value)
        }
        mode @ ("edge" | "reflect") => by_mode(scope, &x, &widths, mode),
        other => Err(format!("pad_mode `{other}` has no equivalent")),
    }
}

/// Reflection with repetition of the edges has no equivalent.
fn mirror(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, widths) = (scope.x(0)?, widths(scope)?);
    match scope.text("mode", "SYMMETRIC")? {
        "REFLECT" => by_mode(scope, &x, &widths, "reflect"),
        other => Err(format!("mode `{other}` has no equivalent")),
    }
}

fn by_mode(scope: &mut Scope<'_>, x: &OnnxValue, widths: &[(i64, i64)], mode: &str) -> Result<OnnxValue> {
    let pads: Vec<i64> = widths.iter().map(|pair| pair.0).chain(widths.iter().map(|pair| pair.1)).collect();
    let pads = scope.builder.ints(&pads)?;
    scope.builder.node("Pad", &[x, &pads]).text("mode", mode).one(x.dtype)
}
