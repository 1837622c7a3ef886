//! Functions of two elements that broadcast: arithmetic, comparisons, logic, shifts; `where`.

use edgecut_graph::DType;

use super::unary::truncated;
use crate::export::write::Write::{self, Binary, Compare, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("add", One(|scope| arithmetic(scope, "Add", "Or"))),
    ("bitwise_and", One(|scope| bits(scope, "BitwiseAnd", "And"))),
    ("bitwise_or", One(|scope| bits(scope, "BitwiseOr", "Or"))),
    ("bitwise_xor", One(|scope| bits(scope, "BitwiseXor", "Xor"))),
    ("divide", Binary("Div")),
    ("equal", Compare("Equal")),
    ("floor_divide", One(floor_divide)),
    ("floor_mod", One(floor_mod)),
    ("greater", Compare("Greater")),
    ("greater_equal", Compare("GreaterOrEqual")),
    ("left_shift", One(left_shift)),
    ("less", Compare("Less")),
    ("less_equal", Compare("LessOrEqual")),
    ("logical_and", One(|scope| logic(scope, "And", "BitwiseAnd"))),
    ("logical_or", One(|scope| logic(scope, "Or", "BitwiseOr"))),
    ("logical_xor", One(|scope| logic(scope, "Xor", "BitwiseXor"))),
    ("maximum", One(|scope| extreme(scope, "Max", "Greater"))),
    ("minimum", One(|scope| extreme(scope, "Min", "Less"))),
    ("mod", One(remainder)),
    ("multiply", One(|scope| arithmetic(scope, "Mul", "And"))),
    ("not_equal", One(not_equal)),
    ("power", One(power)),
    ("right_shift", One(right_shift)),
    ("subtract", Binary("Sub")),
    ("trunc_divide", One(trunc_divide)),
    ("trunc_mod", One(remainder)),
    ("where", One(choose)),
];

/// `a` where `compare` says so, else `b`: as in TVM the second operand where either is not a number, which ONNX's own
/// operator, of operators that were ONNX's, returns.
fn extreme(scope: &mut Scope<'_>, of_integers: &'static str, compare: &'static str) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    if !a.dtype.is_float() || scope.call.is_onnx() {
        return scope.builder.binary(of_integers, &a, &b);
    }
    let takes_first = scope.builder.compare(compare, &a, &b)?;
    scope.builder.choose(&takes_first, &a, &b)
}

/// Arithmetic of numbers; of bools, what it amounts to.
fn arithmetic(scope: &mut Scope<'_>, op: &'static str, of_bools: &'static str) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    scope.builder.binary(if a.dtype == DType::Bool { of_bools } else { op }, &a, &b)
}

fn bits(scope: &mut Scope<'_>, op: &'static str, of_bools: &'static str) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    scope.builder.binary(if a.dtype == DType::Bool { of_bools } else { op }, &a, &b)
}

fn logic(scope: &mut Scope<'_>, op: &'static str, of_integers: &'static str) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    scope.builder.binary(if a.dtype == DType::Bool { op } else { of_integers }, &a, &b)
}

fn not_equal(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    let equal = scope.builder.compare("Equal", &a, &b)?;
    scope.builder.unary("Not", &equal)
}

/// The remainder with the sign of the dividend, as C's.
fn remainder(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    scope.builder.node("Mod", &[&a, &b]).int("fmod", 1).one(a.dtype)
}

/// The remainder with the sign of the divisor, which `Mod` has for integers only.
fn floor_mod(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    if !a.dtype.is_float() {
        return scope.builder.binary("Mod", &a, &b);
    }
    let quotient = scope.builder.binary("Div", &a, &b)?;
    let whole = scope.builder.unary("Floor", &quotient)?;
    let product = scope.builder.binary("Mul", &whole, &b)?;
    scope.builder.binary("Sub", &a, &product)
}

/// Bits of an exponent beyond which a power of int64 other than those of -1, 0 and 1 has overflowed.
const EXPONENT_BITS: usize = 6;

/// Powers of int64 by repeated squaring: ONNX Runtime computes them in float64, which has 53 bits.
fn power(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (base, exponent) = (scope.x(0)?, scope.x(1)?);
    let rough = scope.builder.binary("Pow", &base, &exponent)?;
    if base.dtype != DType::I64 {
        return Ok(rough);
    }
    let [zero, one, two] = [0, 1, 2].map(|n| scope.builder.integers(&[n], DType::I64, &[]));
    let (zero, one, two) = (zero?, one?, two?);
    let (mut square, mut rest, mut made) = (base, exponent.clone(), one.clone());
    for _ in 0..EXPONENT_BITS {
        let bit = scope.builder.binary("Mod", &rest, &two)?;
        let is_set = scope.builder.compare("Equal", &bit, &one)?;
        let factor = scope.builder.choose(&is_set, &square, &one)?;
        made = scope.builder.binary("Mul", &made, &factor)?;
        square = scope.builder.binary("Mul", &square, &square)?;
        rest = scope.builder.binary("Div", &rest, &two)?;
    }
    let is_negative = scope.builder.compare("Less", &exponent, &zero)?;
    scope.builder.choose(&is_negative, &rough, &made)
}

fn floor_divide(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    if !a.dtype.is_float() {
        return scope.builder.floor_divide(&a, &b);
    }
    let quotient = scope.builder.binary("Div", &a, &b)?;
    scope.builder.unary("Floor", &quotient)
}

fn trunc_divide(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    let quotient = scope.builder.binary("Div", &a, &b)?;
    truncated(scope.builder, &quotient)
}

/// The unsigned type in which bits are shifted.
fn shifted_in(dtype: DType) -> DType {
    if dtype.size() > 4 { DType::U64 } else { DType::U32 }
}

fn left_shift(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    let wide = shifted_in(a.dtype);
    let (bits, by) = (scope.builder.cast(&a, wide)?, scope.builder.cast(&b, wide)?);
    let shifted = scope.builder.node("BitShift", &[&bits, &by]).text("direction", "LEFT").one(wide)?;
    scope.builder.cast(&shifted, a.dtype)
}

/// Of signed integers, the floor of the quotient by a power of two. `BitShift` takes unsigned ones only.
fn right_shift(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    let dtype = a.dtype;
    if !dtype.is_signed() {
        let wide = shifted_in(dtype);
        let (bits, by) = (scope.builder.cast(&a, wide)?, scope.builder.cast(&b, wide)?);
        let shifted = scope.builder.node("BitShift", &[&bits, &by]).text("direction", "RIGHT").one(wide)?;
        return scope.builder.cast(&shifted, dtype);
    }
    if dtype.size() > 4 {
        let counts = scope.content_ints(1, "the number of bits to shift int64 by")?;
        let powers: Vec<i64> = counts.iter().map(|n| 1i64 << (*n).clamp(0, 62)).collect();
        let dims = scope.dims(1)?.iter().map(|n| *n as u64).collect::<Vec<_>>();
        let by = scope.builder.integers(&powers, dtype, &dims)?;
        return scope.builder.floor_divide(&a, &by);
    }
    // Exact in float64, and many times faster than divisions of integers.
    let wide = scope.builder.cast(&a, DType::F64)?;
    let by = match &b.content {
        Some(counts) => {
            let counts = counts.to_f64s().ok_or("the number of bits to shift by has an unsupported type")?;
            let dims = scope.dims(1)?.iter().map(|n| *n as u64).collect::<Vec<_>>();
            let factors: Vec<f64> = counts.iter().map(|n| (-n).exp2()).collect();
            scope.builder.list_of(&factors, DType::F64, &dims)?
        }
        None => {
            let count = scope.builder.cast(&b, DType::F64)?;
            let half = scope.builder.scalar(0.5, DType::F64)?;
            scope.builder.binary("Pow", &half, &count)?
        }
    };
    let scaled = scope.builder.binary("Mul", &wide, &by)?;
    let floor = scope.builder.unary("Floor", &scaled)?;
    scope.builder.cast(&floor, dtype)
}

fn choose(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (condition, yes, no) = (scope.x(0)?, scope.x(1)?, scope.x(2)?);
    let condition = scope.builder.cast(&condition, DType::Bool)?;
    scope.builder.choose(&condition, &yes, &no)
}
