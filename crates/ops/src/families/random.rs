//! Random numbers: typed, so that models with them can be read and planned. TVM's random streams are not reproduced, so
//! there are no kernels.

use crate::{AttrDef, AttrKind, Call, OpDef, TypeError};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

const NOT_REPRODUCED: &str = "the random stream of TVM is not reproduced";

const FLOAT_ATTRS: &[AttrDef] =
    &[AttrDef::required("out_shape", AttrKind::Ints), AttrDef::new("out_dtype", AttrKind::DType, "\"\"")];

pub(crate) static OPS: &[OpDef] = &[
    random("random.threefry_generate", &["key"], |call| with_key(call, TensorType::new(DType::U64, shape(call)?)))
        .attrs("relay.attrs.ThreefryGenerateAttrs", &[AttrDef::required("out_shape", AttrKind::Ints)]),
    random("random.threefry_split", &["key"], |call| with_key(call, call.tensor(0)?.clone())),
    random("random.uniform", &["key", "low", "high"], float_type).attrs("relay.attrs.UniformAttrs", FLOAT_ATTRS),
    random("random.normal", &["key", "mean", "scale"], float_type).attrs("relay.attrs.NormalAttrs", FLOAT_ATTRS),
    random("random.multinomial", &["key", "probs"], multinomial_type)
        .attrs("relay.attrs.MultinomialAttrs", &[AttrDef::new("num_samples", AttrKind::OptionalInt, "1")]),
];

const fn random(
    name: &'static str,
    operands: &'static [&'static str],
    infer: fn(&Call<'_>) -> Result<Type, TypeError>,
) -> OpDef {
    OpDef::new(name, operands, infer).random().without_kernel(NOT_REPRODUCED)
}

/// The next key and the sample.
fn with_key(call: &Call<'_>, sample: TensorType) -> Result<Type, TypeError> {
    Ok(Type::Tuple(vec![call.tensor(0)?.clone().into(), sample.into()]))
}

fn shape(call: &Call<'_>) -> Result<Shape, TypeError> {
    call.shape("out_shape")?.ok_or_else(|| call.error("out_shape is missing"))
}

fn float_type(call: &Call<'_>) -> Result<Type, TypeError> {
    with_key(call, TensorType::new(call.dtype("out_dtype")?.unwrap_or(DType::F32), shape(call)?))
}

fn multinomial_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let samples = call.int("num_samples", 1)?;
    let samples = u64::try_from(samples).map_err(|_| call.error(format!("cannot draw {samples} samples")))?;
    let Some((_, batch)) = call.tensor(1)?.shape.split_last() else {
        return Err(call.error("probs must have at least one axis"));
    };
    let shape = batch.iter().copied().chain([Dim::Known(samples)]).collect();
    with_key(call, TensorType::new(DType::I32, shape))
}
