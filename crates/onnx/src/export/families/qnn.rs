//! Quantised operators. Those with ONNX's semantics are ONNX's own (`affine`), others the integers of TVM's lowering: rescaling is a product in 64 bits and a shift that rounds, as in
//! `q_multiply_shift`, so that results are equal bit for bit. Scales and zero points must be constants.

use edgecut_graph::DType;
use edgecut_ops::{FixedPoint, Ties};

use super::{affine, conv, linear, unary::round_half_away};
use crate::export::write::Write::{self, Many, One};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        scope::{Scope, axis},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("qnn.abs", One(|scope| by_real(scope, |builder, x| builder.unary("Abs", x)))),
    ("qnn.add", One(|scope| sum(scope, "Add"))),
    ("qnn.batch_matmul", One(|scope| product(scope, linear::batch_matmul))),
    ("qnn.concatenate", One(concatenate)),
    (
        "qnn.conv2d",
        One(
            |scope| {
                if scope.call.is_onnx() { affine::conv(scope) } else { product(scope, |scope| conv::conv(scope, 2)) }
            },
        ),
    ),
    ("qnn.dense", One(|scope| product(scope, linear::dense))),
    ("qnn.dequantize", One(|scope| if scope.call.is_onnx() { affine::dequantize(scope) } else { dequantize(scope) })),
    ("qnn.dynamic_quantize", Many(affine::dynamic_quantize)),
    ("qnn.erf", One(|scope| by_real(scope, |builder, x| builder.unary("Erf", x)))),
    ("qnn.exp", One(|scope| by_real(scope, |builder, x| builder.unary("Exp", x)))),
    ("qnn.log", One(|scope| by_real(scope, |builder, x| builder.unary("Log", x)))),
    ("qnn.matmul", One(affine::matmul)),
    ("qnn.mul", One(multiply)),
    ("qnn.quantize", One(|scope| if scope.call.is_onnx() { affine::quantize(scope) } else { quantize(scope) })),
    ("qnn.requantize", One(requantize)),
    ("qnn.sigmoid", One(|scope| by_real(scope, |builder, x| builder.unary("Sigmoid", x)))),
    ("qnn.sqrt", One(|scope| by_real(scope, |builder, x| builder.unary("Sqrt", x)))),
    ("qnn.subtract", One(|scope| sum(scope, "Sub"))),
    ("qnn.tanh", One(|scope| by_real(scope, |builder, x| builder.unary("Tanh", x)))),
];

/// Quantisation parameters of a tensor: per tensor, or per index along an axis.
struct Params {
    scales: Vec<f32>,
    zero_points: Vec<i64>,
    /// The shape in which one number for each index broadcasts along the axis.
    dims: Vec<u64>,
}

impl Params {
    /// Those in two operands, for a tensor of rank `rank`; the attribute `key` is the axis of several.
    fn of(scope: &Scope<'_>, scale: &OnnxValue, zero_point: &OnnxValue, rank: usize, key: &str) -> Result<Params> {
        let unknown = "scales and zero points must be constants";
        let scales = scale.content.as_ref().and_then(|content| content.to_f64s()).ok_or(unknown)?;
        let zero_points = zero_point.content.as_ref().and_then(|content| content.to_i64s()).ok_or(unknown)?;
        let count = scales.len().max(zero_points.len());
        let mut dims = Vec::new();
        if count > 1 {
            dims = vec![1; rank];
            dims[axis(scope.int(key, -1)?, rank)?] = count as u64;
        }
        Ok(Params { scales: scales.into_iter().map(|scale| scale as f32).collect(), zero_points, dims })
    }

    /// Operands `scale` and `zero_point` of the operator.
    fn at(scope: &Scope<'_>, scale: usize, zero_point: usize, rank: usize, key: &str) -> Result<Params> {
        Params::of(scope, &scope.x(scale)?, &scope.x(zero_point)?, rank, key)
    }

    /// One number for each index, or one for all.
    fn integers(&self, builder: &ModelBuilder, values: &[i64], dtype: DType) -> Result<OnnxValue> {
        let one = values.first().filter(|first| values.iter().all(|value| value == *first));
        match one {
            Some(only) => builder.integers(&[*only], dtype, &[]),
            None => builder.integers(values, dtype, &self.dims),
        }
    }

    fn scales(&self, builder: &ModelBuilder) -> Result<OnnxValue> {
        let values: Vec<f64> = self.scales.iter().map(|scale| f64::from(*scale)).collect();
        match values[..] {
            [only] => builder.list_of(&[only], DType::F32, &[]),
            _ => builder.list_of(&values, DType::F32, &self.dims),
        }
    }

    /// `q − zero point` in 64 bits.
    fn shifted(&self, builder: &mut ModelBuilder, q: &OnnxValue) -> Result<OnnxValue> {
        let q = builder.cast(q, DType::I64)?;
        if self.zero_points.iter().all(|zero_point| *zero_point == 0) {
            return Ok(q);
        }
        let zero_points = self.integers(builder, &self.zero_points, DType::I64)?;
        builder.binary("Sub", &q, &zero_points)
    }

    /// `(q − zero point) · scale`.
    fn dequantized(&self, builder: &mut ModelBuilder, q: &OnnxValue) -> Result<OnnxValue> {
        let shifted = self.shifted(builder, q)?;
        let real = builder.cast(&shifted, DType::F32)?;
        let scales = self.scales(builder)?;
        builder.binary("Mul", &real, &scales)
    }

    /// `round(x) + zero point`, saturated to `dtype`; `x` is divided by the scale already.
    fn quantized(&self, builder: &mut ModelBuilder, x: &OnnxValue, dtype: DType) -> Result<OnnxValue> {
        let (low, high) = bounds(dtype)?;
        let rounded = round_half_away(builder, x)?;
        let zero_points = self.integers(builder, &self.zero_points, DType::F32)?;
        let sum = builder.binary("Add", &rounded, &zero_points)?;
        let wide = builder.cast(&sum, DType::F64)?;
        let (low, high) = (builder.scalar(low as f64, DType::F64)?, builder.scalar(high as f64, DType::F64)?);
        // A comparison with what is not a number is false, which leaves the upper bound.
        let is_below = builder.compare("Less", &wide, &high)?;
        let within = builder.choose(&is_below, &wide, &high)?;
        let within = builder.binary("Max", &within, &low)?;
        let whole = builder.cast(&within, DType::I64)?;
        builder.cast(&whole, dtype)
    }

    /// `q` with these parameters as 64-bit integers with the parameters `to`; not saturated.
    fn rescaled(&self, builder: &mut ModelBuilder, q: &OnnxValue, to: &Params, ties: Ties) -> Result<OnnxValue> {
        let shifted = self.shifted(builder, q)?;
        let count = self.scales.len().max(to.scales.len());
        let at = |list: &[f32], index: usize| f64::from(if list.len() == 1 { list[0] } else { list[index] });
        let ratio = |index| FixedPoint::of(at(&self.scales, index) / at(&to.scales, index));
        let numbers: Vec<FixedPoint> = (0..count).map(ratio).collect();
        if numbers.iter().any(|number| !(1..=62).contains(&(31 - number.shift))) {
            return Err("the ratio of two scales is too large or too small".to_string());
        }
        let along = if self.scales.len() == count { self } else { to };
        let each = |of: &dyn Fn(&FixedPoint) -> i64| numbers.iter().map(of).collect::<Vec<i64>>();
        let multipliers = along.integers(builder, &each(&|number| number.multiplier), DType::I64)?;
        let divisors = along.integers(builder, &each(&|number| 1 << (31 - number.shift)), DType::I64)?;
        let mut halves = along.integers(builder, &each(&|number| 1 << (30 - number.shift)), DType::I64)?;
        let product = builder.binary("Mul", &shifted, &multipliers)?;
        if ties == Ties::AwayFromZero {
            let zero = builder.scalar(0.0, DType::I64)?;
            let is_negative = builder.compare("Less", &product, &zero)?;
            let one = builder.cast(&is_negative, DType::I64)?;
            halves = builder.binary("Sub", &halves, &one)?;
        }
        let sum = builder.binary("Add", &product, &halves)?;
        let scaled = builder.floor_divide(&sum, &divisors)?;
        let zero_points = to.integers(builder, &to.zero_points, DType::I64)?;
        builder.binary("Add", &scaled, &zero_points)
    }
}

/// The least and the greatest value of a quantised type.
fn bounds(dtype: DType) -> Result<(i64, i64)> {
    let bits = dtype.size() * 8;
    match (dtype.is_integer() && bits <= 32, dtype.is_signed()) {
        (true, true) => Ok((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        (true, false) => Ok((0, (1 << bits) - 1)),
        (false, _) => Err(format!("{dtype} is not a type of quantised values")),
    }
}

/// 64-bit integers saturated to `dtype`.
fn saturated(builder: &mut ModelBuilder, x: &OnnxValue, dtype: DType) -> Result<OnnxValue> {
    let (low, high) = bounds(dtype)?;
    let low = builder.integers(&[low], DType::I64, &[])?;
    let high = builder.integers(&[high], DType::I64, &[])?;
    let x = builder.binary("Max", x, &low)?;
    let x = builder.binary("Min", &x, &high)?;
    builder.cast(&x, dtype)
}

fn quantize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    let params = Params::at(scope, 1, 2, scope.rank(0)?, "axis")?;
    let x = scope.builder.cast(&x, DType::F32)?;
    let divided = match params.scales[..] {
        // TVM rewrites the division by a constant to a multiplication (`arith/rewrite_simplify.cc`).
        [scale] => scope.builder.with_number("Mul", &x, f64::from((1.0 / f64::from(scale)) as f32))?,
        _ => {
            let scales = params.scales(scope.builder)?;
            scope.builder.binary("Div", &x, &scales)?
        }
    };
    params.quantized(scope.builder, &divided, dtype)
}

fn dequantize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (q, dtype) = (scope.x(0)?, scope.out()?.dtype);
    let params = Params::at(scope, 1, 2, scope.rank(0)?, "axis")?;
    let real = params.dequantized(scope.builder, &q)?;
    scope.builder.cast(&real, dtype)
}

fn requantize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (q, dtype, rank) = (scope.x(0)?, scope.out()?.dtype, scope.rank(0)?);
    let ties = match scope.text("rounding", "None")? {
        "None" | "UPWARD" => Ties::Up,
        "TONEAREST" => Ties::AwayFromZero,
        other => return Err(format!("rounding `{other}` has no equivalent")),
    };
    match scope.text("compute_dtype", "None")? {
        "None" | "int64" => {}
        other => return Err(format!("compute_dtype `{other}` has no composition")),
    }
    let (from, to) = (Params::at(scope, 1, 2, rank, "axis")?, Params::at(scope, 3, 4, rank, "axis")?);
    let rescaled = from.rescaled(scope.builder, &q, &to, ties)?;
    saturated(scope.builder, &rescaled, dtype)
}

/// A sum or difference: both operands with the result's parameters, whose zero point is then there twice or never.
fn sum(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (a, b, dtype) = (scope.x(0)?, scope.x(1)?, scope.out()?.dtype);
    let rank = scope.out()?.shape.rank();
    let to = Params::at(scope, 6, 7, rank, "lhs_axis")?;
    let from = Params::at(scope, 2, 3, scope.rank(0)?, "lhs_axis")?;
    let a = from.rescaled(scope.builder, &a, &to, Ties::Up)?;
    let from = Params::at(scope, 4, 5, scope.rank(1)?, "rhs_axis")?;
    let b = from.rescaled(scope.builder, &b, &to, Ties::Up)?;
    let joined = scope.builder.binary(op, &a, &b)?;
    let zero_points = to.integers(scope.builder, &to.zero_points, DType::I64)?;
    let corrected = scope.builder.binary(if op == "Add" { "Sub" } else { "Add" }, &joined, &zero_points)?;
    saturated(scope.builder, &corrected, dtype)
}

fn multiply(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b, dtype) = (scope.x(0)?, scope.x(1)?, scope.out()?.dtype);
    let to = Params::at(scope, 6, 7, scope.out()?.shape.rank(), "lhs_axis")?;
    let left = Params::at(scope, 2, 3, scope.rank(0)?, "lhs_axis")?;
    let right = Params::at(scope, 4, 5, scope.rank(1)?, "rhs_axis")?;
    let ([left_scale], [right_scale]) = (&left.scales[..], &right.scales[..]) else {
        return Err("a product with a scale for each channel has no composition".to_string());
    };
    let from = Params { scales: vec![left_scale * right_scale], zero_points: vec![0], dims: Vec::new() };
    let (a, b) = (left.shifted(scope.builder, &a)?, right.shifted(scope.builder, &b)?);
    let joined = scope.builder.binary("Mul", &a, &b)?;
    let rescaled = from.rescaled(scope.builder, &joined, &to, Ties::Up)?;
    saturated(scope.builder, &rescaled, dtype)
}

/// Dequantises, applies `function` and quantises.
fn by_real(
    scope: &mut Scope<'_>,
    function: fn(&mut ModelBuilder, &OnnxValue) -> Result<OnnxValue>,
) -> Result<OnnxValue> {
    let (q, dtype, rank) = (scope.x(0)?, scope.out()?.dtype, scope.rank(0)?);
    let (from, to) = (Params::at(scope, 1, 2, rank, "axis")?, Params::at(scope, 3, 4, rank, "axis")?);
    let real = from.dequantized(scope.builder, &q)?;
    let computed = function(scope.builder, &real)?;
    let scales = to.scales(scope.builder)?;
    let divided = scope.builder.binary("Div", &computed, &scales)?;
    to.quantized(scope.builder, &divided, dtype)
}

/// The integer operator of the same name, on operands without their zero points.
fn product(scope: &mut Scope<'_>, write: fn(&mut Scope<'_>) -> Result<OnnxValue>) -> Result<OnnxValue> {
    for at in 0..2 {
        let (operand, zero_point) = (scope.x(at)?, scope.x(at + 2)?);
        let zero_points = zero_point.content.as_ref().and_then(|content| content.to_i64s());
        let zero_points = zero_points.ok_or("zero points must be constants")?;
        let [zero_point] = zero_points[..] else {
            return Err("a zero point for each channel has no composition".to_string());
        };
        if zero_point != 0 {
            let wide = scope.builder.cast(&operand, DType::I32)?;
            scope.args[at] = vec![scope.builder.with_number("Sub", &wide, zero_point as f64)?];
        }
    }
    write(scope)
}

/// The fields with the result's parameters. Their scales and zero points are tuples.
fn concatenate(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (fields, scales, zero_points) = (scope.tuple(0)?, scope.tuple(1)?, scope.tuple(2)?);
    let (dtype, rank) = (scope.out()?.dtype, scope.out()?.shape.rank());
    let to = Params::at(scope, 3, 4, rank, "axis")?;
    let mut rescaled = Vec::with_capacity(fields.len());
    for ((field, scale), zero_point) in fields.iter().zip(&scales).zip(&zero_points) {
        let from = Params::of(scope, scale, zero_point, rank, "axis")?;
        let field = from.rescaled(scope.builder, field, &to, Ties::Up)?;
        rescaled.push(saturated(scope.builder, &field, dtype)?);
    }
    let axis = scope.axis("axis", 0, rank)?;
    scope.builder.concat(&rescaled, axis)
}
