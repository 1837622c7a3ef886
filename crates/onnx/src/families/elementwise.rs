//! Elementwise arithmetic, comparisons, logic and conversions.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Abs", unary),
    ("Acos", unary),
    ("Acosh", unary),
    ("Asin", unary),
    ("Asinh", unary),
    ("Atan", unary),
    ("Atanh", unary),
    ("BitwiseNot", unary),
    ("Ceil", unary),
    ("Cos", unary),
    ("Cosh", unary),
    ("Erf", unary),
    ("Exp", unary),
    ("Floor", unary),
    ("IsNaN", unary),
    ("Log", unary),
    ("Neg", unary),
    ("Not", unary),
    ("Sigmoid", unary),
    ("Sign", unary),
    ("Sin", unary),
    ("Sinh", unary),
    ("Sqrt", unary),
    ("Tan", unary),
    ("Tanh", unary),
    ("Round", round),
    ("Reciprocal", reciprocal),
    ("IsInf", is_infinite),
    ("Add", binary),
    ("And", binary),
    ("BitwiseAnd", binary),
    ("BitwiseOr", binary),
    ("BitwiseXor", binary),
    ("Div", binary),
    ("Equal", binary),
    ("Greater", binary),
    ("GreaterOrEqual", binary),
    ("Less", binary),
    ("LessOrEqual", binary),
    ("Mul", binary),
    ("Or", binary),
    ("Sub", binary),
    ("Xor", binary),
    ("Mod", modulo),
    ("Pow", power),
    ("BitShift", shift),
    ("Max", variadic),
    ("Mean", variadic),
    ("Min", variadic),
    ("Sum", variadic),
    ("Where", select),
    ("Clip", clip),
    ("Cast", cast),
    ("CastLike", cast_like),
];

/// Operators of one operand that the graph has too.
const UNARY: &[(&str, &str)] = &[
    ("Abs", "abs"),
    ("Acos", "acos"),
    ("Acosh", "acosh"),
    ("Asin", "asin"),
    ("Asinh", "asinh"),
    ("Atan", "atan"),
    ("Atanh", "atanh"),
    ("BitwiseNot", "bitwise_not"),
    ("Ceil", "ceil"),
    ("Cos", "cos"),
    ("Cosh", "cosh"),
    ("Erf", "erf"),
    ("Exp", "exp"),
    ("Floor", "floor"),
    ("IsNaN", "isnan"),
    ("Log", "log"),
    ("Neg", "negative"),
    ("Not", "logical_not"),
    ("Sigmoid", "sigmoid"),
    ("Sign", "sign"),
    ("Sin", "sin"),
    ("Sinh", "sinh"),
    ("Sqrt", "sqrt"),
    ("Tan", "tan"),
    ("Tanh", "tanh"),
];

/// Operators of two operands that the graph has too.
const BINARY: &[(&str, &str)] = &[
    ("Add", "add"),
    ("And", "logical_and"),
    ("BitwiseAnd", "bitwise_and"),
    ("BitwiseOr", "bitwise_or"),
    ("BitwiseXor", "bitwise_xor"),
    ("Div", "divide"),
    ("Equal", "equal"),
    ("Greater", "greater"),
    ("GreaterOrEqual", "greater_equal"),
    ("Less", "less"),
    ("LessOrEqual", "less_equal"),
    ("Mul", "multiply"),
    ("Or", "logical_or"),
    ("Sub", "subtract"),
    ("Xor", "logical_xor"),
];

fn named(table: &[(&str, &'static str)], call: &Call<'_, '_>) -> Result<&'static str> {
    let kind = call.node.op_type.as_deref().unwrap_or_default();
    let found = table.iter().find(|(onnx, _)| *onnx == kind);
    found.map(|(_, name)| *name).ok_or_else(|| format!("{kind} has no equivalent"))
}

fn unary(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (name, x) = (named(UNARY, call)?, call.input(0)?);
    one(call.map(name, &[x])?)
}

fn binary(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (name, a, b) = (named(BINARY, call)?, call.input(0)?, call.input(1)?);
    // Until operator set 6, the second operand was aligned to an axis of the first.
    let b = if call.version < 7 { aligned(call, a, b)? } else { b };
    one(call.map(name, &[a, b])?)
}

fn aligned(call: &mut Call<'_, '_>, a: TensorId, b: TensorId) -> Result<TensorId> {
    let Some(axis) = call.optional_int("axis") else { return Ok(b) };
    let (axis, rank) = (call.axis(axis, a)?, call.rank(a));
    let trailing = rank.saturating_sub(axis + call.rank(b));
    let end = call.rank(b);
    call.expand(b, end, trailing)
}

fn round(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    one(half_even(call, x)?)
}

/// To the nearest integer, halves to even ones.
pub(super) fn half_even(call: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId> {
    call.map("round", &[x])
}

fn reciprocal(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let unit = call.like(1.0, x)?;
    one(call.map("divide", &[unit, x])?)
}

fn is_infinite(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let (negative, positive) = (call.int("detect_negative", 1) != 0, call.int("detect_positive", 1) != 0);
    let infinite = call.map("isinf", &[x])?;
    if negative && positive {
        return one(infinite);
    }
    let sign = if positive { "greater" } else { "less" };
    let zero = call.like(0.0, x)?;
    let side = call.map(sign, &[x, zero])?;
    let side = call.map("logical_and", &[infinite, side])?;
    match positive || negative {
        true => one(side),
        false => {
            let other = call.map("logical_not", &[infinite])?;
            one(call.map("logical_and", &[infinite, other])?)
        }
    }
}

/// With `fmod` it is C's function, exact for floats too; otherwise the result has the sign of the divisor.
fn modulo(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let name = if call.int("fmod", 0) != 0 { "mod" } else { "floor_mod" };
    one(call.map(name, &[a, b])?)
}

/// The exponent may have another element type than the base, which the result has.
fn power(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, exponent) = (call.input(0)?, call.input(1)?);
    let dtype = call.dtype_of(x);
    if call.dtype_of(exponent) == dtype {
        return one(call.map("power", &[x, exponent])?);
    }
    // Powers of integers are exact, and wrap as products do.
    if dtype.is_integer() && call.dtype_of(exponent).is_integer() {
        let (base, exponent) = (call.cast(x, DType::I64)?, call.cast(exponent, DType::I64)?);
        let made = call.map("power", &[base, exponent])?;
        return one(call.cast(made, dtype)?);
    }
    let wide = if dtype.is_float() && dtype != DType::F64 { DType::F32 } else { DType::F64 };
    let (base, exponent) = (call.cast(x, wide)?, call.cast(exponent, wide)?);
    let made = call.map("power", &[base, exponent])?;
    one(call.cast(made, dtype)?)
}

fn shift(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let name = match call.text("direction", "") {
        "LEFT" => "left_shift",
        "RIGHT" => "right_shift",
        other => return Err(format!("attribute direction is `{other}`, expected LEFT or RIGHT")),
    };
    let (a, b) = (call.input(0)?, call.input(1)?);
    one(call.map(name, &[a, b])?)
}

fn variadic(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let operands = call.all()?;
    let kind = call.node.op_type.as_deref().unwrap_or_default();
    let name = match kind {
        "Max" => "maximum",
        "Min" => "minimum",
        _ => "add",
    };
    let (&first, rest) = operands.split_first().ok_or("it needs at least one input")?;
    let mut total = first;
    for operand in rest {
        total = call.map(name, &[total, *operand])?;
    }
    match kind {
        "Mean" => one(call.with("divide", total, operands.len() as f64)?),
        _ => one(total),
    }
}

fn select(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (condition, x, y) = (call.input(0)?, call.input(1)?, call.input(2)?);
    one(call.map("where", &[condition, x, y])?)
}

/// Bounds are attributes until operator set 10, then optional inputs; those of floats that are absent are the least and the
/// greatest finite number.
fn clip(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let mut x = call.input(0)?;
    let (low, high) = (call.optional(1)?, call.optional(2)?);
    let low = match low {
        None if call.has("min") => Some(call.like(call.float("min", 0.0), x)?),
        low => low,
    };
    let high = match high {
        None if call.has("max") => Some(call.like(call.float("max", 0.0), x)?),
        high => high,
    };
    if let Some(most) = most_finite(call.dtype_of(x)) {
        let bound = |bound: Option<TensorId>, absent: f64| bound.map_or(Some(absent), |bound| number(call, bound));
        if let (Some(low), Some(high)) = (bound(low, -most), bound(high, most)) {
            return one(call.op("clip", &[x], vec![("a_min", Attr::Float(low)), ("a_max", Attr::Float(high))])?);
        }
        let absent = |call: &mut Call<'_, '_>, bound: Option<TensorId>, absent: f64| match bound {
            Some(bound) => Ok(bound),
            None => call.like(absent, x),
        };
        let (low, high) = (absent(call, low, -most)?, absent(call, high, most)?);
        let above = call.map("maximum", &[x, low])?;
        return one(call.map("minimum", &[above, high])?);
    }
    if let Some(low) = low {
        x = call.map("maximum", &[x, low])?;
    }
    if let Some(high) = high {
        x = call.map("minimum", &[x, high])?;
    }
    one(x)
}

/// The greatest finite number of a float type.
fn most_finite(dtype: DType) -> Option<f64> {
    Some(match dtype {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::Bf16 => half::bf16::MAX.to_f64(),
        DType::F32 => f64::from(f32::MAX),
        DType::F64 => f64::MAX,
        _ => return None,
    })
}

/// The value of a constant scalar.
pub(super) fn number(call: &Call<'_, '_>, tensor: TensorId) -> Option<f64> {
    match call.lowering.known(tensor)?.to_f64s()?[..] {
        [value] => Some(value),
        _ => None,
    }
}

fn cast(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let to = call.dtype("to")?.ok_or("attribute to is missing")?;
    one(converted(call, x, to)?)
}

fn cast_like(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, like) = (call.input(0)?, call.input(1)?);
    let to = call.dtype_of(like);
    one(converted(call, x, to)?)
}

/// A conversion in which every number but 0 is true.
fn converted(call: &mut Call<'_, '_>, x: TensorId, to: DType) -> Result<TensorId> {
    if to == DType::Bool && call.dtype_of(x) != DType::Bool {
        let zero = call.like(0.0, x)?;
        return call.map("not_equal", &[x, zero]);
    }
    call.cast(x, to)
}
