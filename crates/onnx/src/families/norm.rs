//! Normalisation.

use edgecut_graph::{Arg, Attr, DType, TensorId};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("BatchNormalization", batch),
    ("InstanceNormalization", instance),
    ("GroupNormalization", group),
    ("LayerNormalization", layer),
    ("RMSNormalization", root_mean_square),
    ("LRN", local_response),
    ("LpNormalization", lp),
    ("MeanVarianceNormalization", mean_variance),
];

/// Whether a node stays one operator: if the graph has no operator for it.
pub(super) fn is_kept(call: &Call<'_, '_>) -> bool {
    match call.node.op_type.as_deref() {
        Some("BatchNormalization" | "InstanceNormalization" | "LRN") => false,
        Some("LayerNormalization") => !is_of_last_axis(call),
        // ONNX Runtime has no kernel for other types, and the standard no function.
        Some("MeanVarianceNormalization") => call.input(0).is_ok_and(|x| call.dtype_of(x) == DType::F32),
        _ => true,
    }
}

fn batch(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.int("training_mode", 0) != 0 {
        return Err("training mode is not supported".to_string());
    }
    if call.version < 9 && call.int("spatial", 1) == 0 {
        return Err("statistics of single elements are not supported".to_string());
    }
    let operands = (0..5).map(|index| call.input(index)).collect::<Result<Vec<_>>>()?;
    let attrs = vec![("axis", Attr::Int(1)), ("epsilon", Attr::Float(call.float("epsilon", 1e-5)))];
    let args = operands.into_iter().map(Arg::Tensor).collect();
    let results = call.lowering.add("nn.batch_norm", args, attrs)?;
    one(*results.first().ok_or("no result")?)
}

fn affine(call: &Call<'_, '_>, axis: i64) -> Vec<(&'static str, Attr)> {
    vec![("axis", Attr::Int(axis)), ("epsilon", Attr::Float(call.float("epsilon", 1e-5)))]
}

fn instance(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let operands = [call.input(0)?, call.input(1)?, call.input(2)?];
    let attrs = affine(call, 1);
    one(call.op("nn.instance_norm", &operands, attrs)?)
}

/// Until operator set 20, scale and bias are of groups, then of channels.
fn group(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let groups = call.int("num_groups", 1);
    let channels = *call.dims(x)?.get(1).ok_or("the data has no channels")?;
    let vector = |call: &mut Call<'_, '_>, v: TensorId| match call.dims(v)?[..] {
        [n] if n == channels => Ok(v),
        [n] if n > 0 && channels % n == 0 => {
            call.op("repeat", &[v], vec![("repeats", Attr::Int((channels / n) as i64)), ("axis", Attr::Int(0))])
        }
        _ => Err("scale and bias must be vectors of groups or channels".to_string()),
    };
    let operands = [x, vector(call, scale)?, vector(call, bias)?];
    let mut attrs = affine(call, 1);
    attrs.push(("num_groups", Attr::Int(groups)));
    one(call.op("nn.group_norm", &operands, attrs)?)
}

/// Whether a LayerNormalization is over the last axis, with a shift and without its statistics: the graph has that operator.
fn is_of_last_axis(call: &Call<'_, '_>) -> bool {
    let (Ok(x), Ok(scale), Ok(Some(_))) = (call.input(0), call.input(1), call.optional(2)) else { return false };
    let is_last = call.axis(call.int("axis", -1), x).is_ok_and(|axis| axis + 1 == call.rank(x));
    is_last && call.rank(scale) == 1 && call.node.output.len() == 1
}

/// Normalised over all axes from `axis` on.
fn layer(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let axis = call.axis(call.int("axis", -1), x)?;
    if is_of_last_axis(call)
        && let Some(bias) = bias
    {
        let attrs = affine(call, -1);
        return one(call.op("nn.layer_norm", &[x, scale, bias], attrs)?);
    }
    // Narrow data is computed with in float32 and rounded once, as ONNX Runtime does.
    let dtype = call.dtype_of(x);
    let wide = if matches!(dtype, DType::F16 | DType::Bf16) { DType::F32 } else { dtype };
    let (x, scale) = (call.cast(x, wide)?, call.cast(scale, wide)?);
    let axes: Vec<usize> = (axis..call.rank(x)).collect();
    let mean = call.reduce("mean", x, &axes, true)?;
    let centred = call.map("subtract", &[x, mean])?;
    let square = call.map("multiply", &[centred, centred])?;
    let variance = call.reduce("mean", square, &axes, true)?;
    let variance = call.with("add", variance, call.float("epsilon", 1e-5))?;
    let inverse = call.map("rsqrt", &[variance])?;
    let made = call.map("multiply", &[centred, inverse])?;
    let made = call.map("multiply", &[made, scale])?;
    let made = match bias {
        Some(bias) => {
            let bias = call.cast(bias, wide)?;
            call.map("add", &[made, bias])?
        }
        None => made,
    };
    let made = call.cast(made, dtype)?;
    // The statistics are float32, whatever the data.
    let (mean, inverse) = (call.cast(mean, DType::F32)?, call.cast(inverse, DType::F32)?);
    Ok([made, mean, inverse].into_iter().map(Value::Tensor).collect())
}

fn root_mean_square(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", -1), x)?;
    let epsilon = call.float("epsilon", 1e-5);
    one(root_mean_square_of(call, x, scale, axis, epsilon)?.0)
}

/// The data normalised over all axes from `axis` on, and the factor.
pub(super) fn root_mean_square_of(
    call: &mut Call<'_, '_>,
    x: TensorId,
    scale: TensorId,
    axis: usize,
    epsilon: f64,
) -> Result<(TensorId, TensorId)> {
    let axes: Vec<usize> = (axis..call.rank(x)).collect();
    let square = call.map("multiply", &[x, x])?;
    let mean = call.reduce("mean", square, &axes, true)?;
    let mean = call.with("add", mean, epsilon)?;
    let inverse = call.map("rsqrt", &[mean])?;
    let made = call.map("multiply", &[x, inverse])?;
    Ok((call.map("multiply", &[made, scale])?, inverse))
}

fn local_response(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let attrs = vec![
        ("size", Attr::Int(call.int("size", 1))),
        ("axis", Attr::Int(1)),
        ("bias", Attr::Float(call.float("bias", 1.0))),
        ("alpha", Attr::Float(call.float("alpha", 1e-4))),
        ("beta", Attr::Float(call.float("beta", 0.75))),
    ];
    one(call.op("nn.lrn", &[x], attrs)?)
}

/// Divided by the 1-norm or the 2-norm along an axis; 0 where that is 0.
fn lp(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis", -1), x)?;
    let size = if call.int("p", 2) == 1 {
        let size = call.map("abs", &[x])?;
        call.reduce("sum", size, &[axis], true)?
    } else {
        let square = call.map("multiply", &[x, x])?;
        let sum = call.reduce("sum", square, &[axis], true)?;
        call.map("sqrt", &[sum])?
    };
    let zero = call.like(0.0, size)?;
    let is_zero = call.map("equal", &[size, zero])?;
    let made = call.map("divide", &[x, size])?;
    one(call.map("where", &[is_zero, zero, made])?)
}

/// (x - mean) / (sqrt(variance) + 1e-9).
fn mean_variance(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axes = call.ints("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes: Vec<usize> = axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?;
    let mean = call.reduce("mean", x, &axes, true)?;
    let centred = call.map("subtract", &[x, mean])?;
    let square = call.map("multiply", &[centred, centred])?;
    let variance = call.reduce("mean", square, &axes, true)?;
    let deviation = call.map("sqrt", &[variance])?;
    let deviation = call.with("add", deviation, 1e-9)?;
    one(call.map("divide", &[centred, deviation])?)
}
