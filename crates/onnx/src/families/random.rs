//! Random operators. The seed is the node's, else derived from the name of its result.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::{one, sizes, text},
    error::Result,
    lowering::{Call, Lower, Value},
    seed::seed,
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Bernoulli", bernoulli),
    ("RandomNormal", |call| filled(call, "random_normal", NORMAL)),
    ("RandomNormalLike", |call| like(call, "random_normal_like", NORMAL)),
    ("RandomUniform", |call| filled(call, "random_uniform", UNIFORM)),
    ("RandomUniformLike", |call| {
        before_set_22(call)?;
        like(call, "random_uniform_like", UNIFORM)
    }),
];

/// The attributes of a distribution, and their defaults.
type Distribution = [(&'static str, f64); 2];

const NORMAL: Distribution = [("mean", 0.0), ("scale", 1.0)];
const UNIFORM: Distribution = [("low", 0.0), ("high", 1.0)];

/// Refuses operator set 22, of which ONNX Runtime has no kernel: there is no reference for the numbers that are drawn.
fn before_set_22(call: &Call<'_, '_>) -> Result<()> {
    match call.version {
        ..22 => Ok(()),
        version => Err(format!("its random numbers in operator set {version} are not defined")),
    }
}

/// Numbers in the shape that an attribute states.
fn filled(call: &mut Call<'_, '_>, name: &'static str, distribution: Distribution) -> Result<Vec<Value>> {
    let stated = call.ints("shape").ok_or("attribute shape is missing")?;
    let size = |size: &i64| u64::try_from(*size).map_err(|_| format!("{size} is not a size"));
    let shape: Vec<u64> = stated.iter().map(size).collect::<Result<_>>()?;
    let mut attrs = vec![("shape", sizes(&shape))];
    attrs.extend(distribution_attrs(call, distribution, call.dtype("dtype")?.unwrap_or(DType::F32)));
    one(call.op(name, &[], attrs)?)
}

/// Numbers in the shape of the operand and, unless an attribute states another, of its type.
fn like(call: &mut Call<'_, '_>, name: &'static str, distribution: Distribution) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dtype = call.dtype("dtype")?.unwrap_or(call.dtype_of(x));
    let attrs = distribution_attrs(call, distribution, dtype);
    one(call.op(name, &[x], attrs)?)
}

fn distribution_attrs(call: &Call<'_, '_>, distribution: Distribution, dtype: DType) -> Vec<(&'static str, Attr)> {
    let mut attrs = vec![("dtype", text(&dtype.to_string()))];
    attrs.extend(distribution.map(|(key, default)| (key, Attr::Float(call.float(key, default)))));
    attrs.push(("seed", Attr::Float(call.float("seed", seed(call.node)))));
    attrs
}

/// By the standard's own function: 1 where a uniform number exceeds the operand.
fn bernoulli(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    before_set_22(call)?;
    let x = call.input(0)?;
    let (dtype, result) = (call.dtype_of(x), call.dtype("dtype")?.unwrap_or(call.dtype_of(x)));
    let attrs = distribution_attrs(call, UNIFORM, dtype);
    let drawn: TensorId = call.op("random_uniform_like", &[x], attrs)?;
    let exceeds = call.map("greater", &[drawn, x])?;
    one(call.cast(exceeds, result)?)
}
