//! Normalisation of sums: residual connections and embeddings.

use edgecut_graph::{Attr, DType, TensorId};

use super::elementwise::added;
use crate::{
    compose::many,
    error::Result,
    families::norm::root_mean_square_of,
    lowering::{Call, Lower, Value},
};

pub(in crate::families) const OPS: &[(&str, Lower)] = &[
    ("SkipLayerNormalization", |call| {
        let (scale, shift, bias) = (call.input(2)?, call.optional(3)?, call.optional(4)?);
        skip(call, bias, |call, sum| layer_norm(call, sum, scale, shift))
    }),
    ("SkipSimplifiedLayerNormalization", |call| {
        let (scale, bias) = (call.input(2)?, call.optional(3)?);
        skip(call, bias, |call, sum| {
            let axis = call.rank(sum).saturating_sub(1);
            let epsilon = call.float("epsilon", EPSILON);
            Ok(root_mean_square_of(call, sum, scale, axis, epsilon)?.0)
        })
    }),
    ("EmbedLayerNormalization", embeddings),
];

/// Operators that ONNX Runtime defines in ONNX's own domain.
pub(in crate::families) const ONNX_OPS: &[(&str, Lower)] = &[("SimplifiedLayerNormalization", |call| {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", -1), x)?;
    let epsilon = call.float("epsilon", 1e-5);
    let (made, inverse) = root_mean_square_of(call, x, scale, axis, epsilon)?;
    many([made, inverse])
})];

/// The default that the schemas of this domain have.
const EPSILON: f64 = 1e-12;

/// The sum of the first two operands and a bias, normalised; the sum is the fourth result.
fn skip(
    call: &mut Call<'_, '_>,
    bias: Option<TensorId>,
    normalised: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<Vec<Value>> {
    let (x, more) = (call.input(0)?, call.input(1)?);
    let sum = call.map("add", &[x, more])?;
    let sum = added(call, sum, bias)?;
    let made = normalised(call, sum)?;
    let statistics = || Value::Refused("statistics of a fused normalisation are not supported".into());
    Ok(vec![Value::Tensor(made), statistics(), statistics(), Value::Tensor(sum)])
}

/// Along the last axis.
fn layer_norm(call: &mut Call<'_, '_>, x: TensorId, scale: TensorId, shift: Option<TensorId>) -> Result<TensorId> {
    let shift = match shift {
        Some(shift) => shift,
        None => {
            let (dtype, dims) = (call.dtype_of(scale), call.dims(scale)?);
            call.full(0.0, dtype, &dims)?
        }
    };
    let epsilon = Attr::Float(call.float("epsilon", EPSILON));
    call.op("nn.layer_norm", &[x, scale, shift], vec![("axis", Attr::Int(-1)), ("epsilon", epsilon)])
}

/// The sum of the embeddings of words, positions and segments, normalised; the sequence lengths by a mask; the sum
/// itself.
fn embeddings(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (words, table) = (call.input(0)?, call.input(2)?);
    let [batch, length] = call.dims(words)?[..] else { return Err("words must have 2 axes".to_string()) };
    let rows = |call: &mut Call<'_, '_>, table: TensorId, at: TensorId| {
        call.op("take", &[table, at], vec![("axis", Attr::Int(0))])
    };
    let words = rows(call, table, words)?;
    let places = call.input(3)?;
    let places = match call.optional(8)? {
        Some(at) => rows(call, places, at)?,
        None => call.slice(places, 0, 0, length)?,
    };
    let mut sum = call.map("add", &[words, places])?;
    if let (Some(segments), Some(table)) = (call.optional(1)?, call.optional(4)?) {
        let segments = rows(call, table, segments)?;
        sum = call.map("add", &[sum, segments])?;
    }
    let (scale, shift) = (call.input(5)?, call.input(6)?);
    let made = layer_norm(call, sum, scale, Some(shift))?;
    let lengths = match call.optional(7)? {
        Some(mask) => {
            let one = call.like(1.0, mask)?;
            let present = call.map("equal", &[mask, one])?;
            let present = call.cast(present, DType::I32)?;
            call.reduce("sum", present, &[1], false)?
        }
        None => call.full(0.0, DType::I32, &[batch])?,
    };
    many([made, lengths, sum])
}
