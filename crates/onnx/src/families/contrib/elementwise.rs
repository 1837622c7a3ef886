//! Activations, fused with the addition of a bias.

use edgecut_graph::TensorId;

use crate::{
    compose::one,
    error::Result,
    families::activation::gelu_of,
    lowering::{Call, Lower, Value},
};

pub(in crate::families) const OPS: &[(&str, Lower)] = &[
    ("Gelu", |call| gelu(call, false)),
    ("BiasGelu", |call| gelu(call, false)),
    ("FastGelu", |call| gelu(call, true)),
    ("QuickGelu", |call| {
        let x = call.input(0)?;
        // The default is the value that the schema has in single precision.
        let scaled = call.with("multiply", x, call.float("alpha", f64::from(1.702_f32)))?;
        let gate = call.map("sigmoid", &[scaled])?;
        one(call.map("multiply", &[x, gate])?)
    }),
];

/// Gelu of the sum of both operands, if there is a second.
fn gelu(call: &mut Call<'_, '_>, by_tanh: bool) -> Result<Vec<Value>> {
    let (x, bias) = (call.input(0)?, call.optional(1)?);
    let x = added(call, x, bias)?;
    one(gelu_of(call, x, by_tanh)?)
}

/// The sum, if there is something to add.
pub(super) fn added(call: &mut Call<'_, '_>, x: TensorId, more: Option<TensorId>) -> Result<TensorId> {
    match more {
        Some(more) => call.map("add", &[x, more]),
        None => Ok(x),
    }
}
