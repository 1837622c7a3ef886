//! Activation functions and softmax.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Relu", |call| {
        let x = call.input(0)?;
        one(call.map("nn.relu", &[x])?)
    }),
    ("LeakyRelu", |call| {
        let (x, alpha) = (call.input(0)?, call.float("alpha", 0.01));
        one(call.op("nn.leaky_relu", &[x], vec![("alpha", Attr::Float(alpha))])?)
    }),
    ("PRelu", prelu),
    ("Softmax", softmax),
    ("LogSoftmax", softmax),
    ("Dropout", dropout),
];

/// Of several operators of the graph, which stay one.
pub(super) const COMPOSED_OPS: &[(&str, Lower)] = &[
    ("Elu", |call| {
        let (x, alpha) = (call.input(0)?, call.float("alpha", 1.0));
        one(elu(call, x, alpha, 1.0)?)
    }),
    ("Celu", |call| {
        let (x, alpha) = (call.input(0)?, call.float("alpha", 1.0));
        one(elu(call, x, alpha, alpha)?)
    }),
    ("Selu", |call| {
        let x = call.input(0)?;
        let (alpha, gamma) =
            (call.float("alpha", 1.673_263_192_176_818_8), call.float("gamma", 1.050_700_983_047_485_4));
        let made = elu(call, x, alpha, 1.0)?;
        one(call.with("multiply", made, gamma)?)
    }),
    ("ThresholdedRelu", |call| {
        let (x, alpha) = (call.input(0)?, call.float("alpha", 1.0));
        let (limit, zero) = (call.like(alpha, x)?, call.like(0.0, x)?);
        let above = call.map("greater", &[x, limit])?;
        one(call.map("where", &[above, x, zero])?)
    }),
    ("HardSigmoid", |call| {
        let (x, alpha, beta) = (call.input(0)?, call.float("alpha", 0.2), call.float("beta", 0.5));
        one(hard_sigmoid(call, x, alpha, beta)?)
    }),
    ("HardSwish", |call| {
        let x = call.input(0)?;
        let gate = hard_sigmoid(call, x, 1.0 / 6.0, 0.5)?;
        one(call.map("multiply", &[x, gate])?)
    }),
    ("Softplus", |call| {
        let x = call.input(0)?;
        one(softplus(call, x)?)
    }),
    ("Softsign", |call| {
        let x = call.input(0)?;
        let size = call.map("abs", &[x])?;
        let size = call.with("add", size, 1.0)?;
        one(call.map("divide", &[x, size])?)
    }),
    ("Mish", |call| {
        let x = call.input(0)?;
        let soft = softplus(call, x)?;
        let gate = call.map("tanh", &[soft])?;
        one(call.map("multiply", &[x, gate])?)
    }),
    ("Swish", |call| {
        let (x, alpha) = (call.input(0)?, call.float("alpha", 1.0));
        let scaled = if alpha == 1.0 { x } else { call.with("multiply", x, alpha)? };
        let gate = call.map("sigmoid", &[scaled])?;
        one(call.map("multiply", &[x, gate])?)
    }),
    ("Gelu", gelu),
    ("Shrink", shrink),
    ("Hardmax", hardmax),
];

/// `scale (exp(x / divisor) - 1)` below zero, else x.
fn elu(call: &mut Call<'_, '_>, x: TensorId, scale: f64, divisor: f64) -> Result<TensorId> {
    let zero = call.like(0.0, x)?;
    let below = call.map("minimum", &[x, zero])?;
    let below = if divisor == 1.0 { below } else { call.with("divide", below, divisor)? };
    let below = call.map("exp", &[below])?;
    let below = call.with("subtract", below, 1.0)?;
    let below = call.with("multiply", below, scale)?;
    let above = call.map("nn.relu", &[x])?;
    call.map("add", &[above, below])
}

pub(super) fn hard_sigmoid(call: &mut Call<'_, '_>, x: TensorId, alpha: f64, beta: f64) -> Result<TensorId> {
    let scaled = call.with("multiply", x, alpha)?;
    let shifted = call.with("add", scaled, beta)?;
    call.op("clip", &[shifted], vec![("a_min", Attr::Float(0.0)), ("a_max", Attr::Float(1.0))])
}

/// log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
fn softplus(call: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId> {
    let size = call.map("abs", &[x])?;
    let size = call.map("negative", &[size])?;
    let small = call.map("exp", &[size])?;
    let small = call.with("add", small, 1.0)?;
    let small = call.map("log", &[small])?;
    let above = call.map("nn.relu", &[x])?;
    call.map("add", &[above, small])
}

/// slope x below zero, else x, with a slope that is broadcast.
fn prelu(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, slope) = (call.input(0)?, call.input(1)?);
    let (zero, dims) = (call.like(0.0, x)?, call.dims(slope)?);
    if dims.len() + 1 == call.rank(x) && dims.iter().skip(1).all(|dim| *dim == 1) && call.dtype_of(x).is_float() {
        let channels = dims[0];
        if call.ty(x).shape.get(1).and_then(|dim| dim.get()) == Some(channels) && call.rank(x) > 1 {
            let vector = call.reshape(slope, &[channels])?;
            return one(call.op("nn.prelu", &[x, vector], vec![("axis", Attr::Int(1))])?);
        }
    }
    // Until operator set 6, a vector of slopes was one of channels.
    let slope = match call.version < 7 && dims.len() == 1 && call.rank(x) > 1 {
        true => call.expand(slope, 1, call.rank(x) - 2)?,
        false => slope,
    };
    let (is_below, below) = (call.map("less", &[x, zero])?, call.map("multiply", &[slope, x])?);
    one(call.map("where", &[is_below, below, x])?)
}

fn gelu(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, by_tanh) = (call.input(0)?, call.text("approximate", "none") == "tanh");
    one(gelu_of(call, x, by_tanh)?)
}

/// x Φ(x), where Φ is computed by the error function, or approximated by the hyperbolic tangent.
pub(super) fn gelu_of(call: &mut Call<'_, '_>, x: TensorId, by_tanh: bool) -> Result<TensorId> {
    let inner = match by_tanh {
        true => {
            let square = call.map("multiply", &[x, x])?;
            let scaled = call.with("multiply", square, 0.044715)?;
            let scaled = call.with("add", scaled, 1.0)?;
            let scaled = call.map("multiply", &[x, scaled])?;
            let scaled = call.with("multiply", scaled, (2.0 / std::f64::consts::PI).sqrt())?;
            call.map("tanh", &[scaled])?
        }
        false => {
            let scaled = call.with("multiply", x, std::f64::consts::FRAC_1_SQRT_2)?;
            call.map("erf", &[scaled])?
        }
    };
    let inner = call.with("add", inner, 1.0)?;
    let half = call.with("multiply", x, 0.5)?;
    call.map("multiply", &[half, inner])
}

fn shrink(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, bias, limit) = (call.input(0)?, call.float("bias", 0.0), call.float("lambd", 0.5));
    let dtype = call.dtype_of(x);
    // Limits between integers are between them for integers too.
    let x = if dtype.is_float() { x } else { call.cast(x, DType::F64)? };
    let (low, high, zero) = (call.like(-limit, x)?, call.like(limit, x)?, call.like(0.0, x)?);
    let (below, above) = (call.map("less", &[x, low])?, call.map("greater", &[x, high])?);
    let (raised, lowered) = (call.with("add", x, bias)?, call.with("subtract", x, bias)?);
    let inner = call.map("where", &[above, lowered, zero])?;
    let made = call.map("where", &[below, raised, inner])?;
    one(call.cast(made, dtype)?)
}

fn softmax(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let name = if call.node.op_type.as_deref() == Some("LogSoftmax") { "nn.log_softmax" } else { "nn.softmax" };
    by_rows(call, x, |call, x, axis| call.op(name, &[x], vec![("axis", Attr::Int(axis as i64))]))
}

/// `f` along the axis; until operator set 12 over all axes from it on.
fn by_rows(
    call: &mut Call<'_, '_>,
    x: TensorId,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId, usize) -> Result<TensorId>,
) -> Result<Vec<Value>> {
    let old = call.version < 13;
    let axis = call.axis(call.int("axis", if old { 1 } else { -1 }), x)?;
    if !old || axis + 1 == call.rank(x) {
        return one(f(call, x, axis)?);
    }
    let dims = call.dims(x)?;
    let flat = call.reshape(x, &[dims[..axis].iter().product(), dims[axis..].iter().product()])?;
    let made = f(call, flat, 1)?;
    one(call.reshape(made, &dims)?)
}

/// 1 at the first largest element, 0 elsewhere.
fn hardmax(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dtype = call.dtype_of(x);
    by_rows(call, x, |call, x, axis| {
        let depth = call.dims(x)?[axis];
        let at = call.op("argmax", &[x], vec![("axis", crate::compose::list(&[axis as i64]))])?;
        let (on, off) = (call.lowering.scalar(1.0, dtype)?, call.lowering.scalar(0.0, dtype)?);
        let attrs = vec![
            ("depth", Attr::Int(depth as i64)),
            ("axis", Attr::Int(axis as i64)),
            ("dtype", crate::compose::text(&dtype.to_string())),
        ];
        call.op("one_hot", &[at, on, off], attrs)
    })
}

/// Inference: the identity, and a mask of ones, until operator set 9 in the type of the data.
fn dropout(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    if call.content(2, "whether to train")?.is_some_and(|mode| mode.to_i64s().is_some_and(|mode| mode == [1])) {
        let ratio = call.content_floats(1, "the ratio")?.map_or(0.5, |ratio| ratio.first().copied().unwrap_or(0.5));
        if ratio > 0.0 {
            return Err("a dropout that is training draws random numbers".to_string());
        }
    }
    let mut results = vec![Value::Tensor(x)];
    if call.node.output.len() > 1 {
        let dims = call.dims(x)?;
        let dtype = if call.version < 10 { call.dtype_of(x) } else { DType::Bool };
        results.push(Value::Tensor(call.full(1.0, dtype, &dims)?));
    }
    Ok(results)
}
