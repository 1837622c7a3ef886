//! Functions of one and two elements, and conversions, by the operators' names: tract's and our own.

use tract_core::{
    internal::*,
    ops::{binary::TypedBinOp, cast::Cast, element_wise::ElementWiseOp, math::PowConst, nn::LeakyRelu},
};

use super::{Sheet, Value, Walk, name_of, repeated_steps};
use crate::{
    engine::cuda::{
        arguments::{Binary, Unary},
        card::Threads,
        source::Family,
    },
    ops::{kernel, recipe::Recipe},
};

/// Functions of one float, by tract's name and by ours.
const OF_FLOAT: &[(&str, &str)] = &[
    ("Exp", "exp"),
    ("exp", "exp"),
    ("fast_exp", "exp"),
    ("Ln", "log"),
    ("log", "log"),
    ("log2", "log2"),
    ("log10", "log10"),
    ("Sqrt", "sqrt"),
    ("sqrt", "sqrt"),
    ("Rsqrt", "rsqrt"),
    ("rsqrt", "rsqrt"),
    ("Recip", "reciprocal"),
    ("Square", "square"),
    ("Tanh", "tanh"),
    ("tanh", "tanh"),
    ("fast_tanh", "tanh"),
    ("Sigmoid", "sigmoid"),
    ("sigmoid", "sigmoid"),
    ("Erf", "erf"),
    ("erf", "erf"),
    ("fast_erf", "erf"),
    ("sin", "sin"),
    ("cos", "cos"),
    ("tan", "tan"),
    ("asin", "asin"),
    ("acos", "acos"),
    ("atan", "atan"),
    ("sinh", "sinh"),
    ("cosh", "cosh"),
    ("asinh", "asinh"),
    ("acosh", "acosh"),
    ("atanh", "atanh"),
    ("ceil", "ceil"),
    ("floor", "floor"),
    ("round", "round"),
    ("trunc", "trunc"),
];

/// Functions of one number.
const OF_NUMBER: &[(&str, &str)] =
    &[("Abs", "abs"), ("abs", "abs"), ("Neg", "negative"), ("negative", "negative"), ("sign", "sign")];

/// Functions of two numbers with a result of their type.
const OF_TWO: &[(&str, &str)] = &[
    ("Add", "add"),
    ("add", "add"),
    ("Sub", "subtract"),
    ("subtract", "subtract"),
    ("Mul", "multiply"),
    ("multiply", "multiply"),
    ("divide", "divide"),
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("Max", "maximum"),
    ("Min", "minimum"),
    ("Pow", "power"),
    ("power", "power"),
    ("bitwise_and", "bitwise_and"),
    ("bitwise_or", "bitwise_or"),
    ("bitwise_xor", "bitwise_xor"),
];

/// Functions of two bools.
const OF_BOOLS: &[(&str, &str)] = &[
    ("And", "and_bool"),
    ("logical_and", "and_bool"),
    ("bitwise_and", "and_bool"),
    ("Or", "or_bool"),
    ("logical_or", "or_bool"),
    ("bitwise_or", "or_bool"),
    ("Xor", "xor_bool"),
    ("logical_xor", "xor_bool"),
    ("bitwise_xor", "xor_bool"),
];

const COMPARISONS: &[&str] = &["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"];

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    if let ([value], Some(op)) = (operands, node.op_as::<ElementWiseOp>()) {
        return Ok(Some(tvec![unary(sheet, node, value, op)?]));
    }
    if let ([left, right], Some(op)) = (operands, node.op_as::<TypedBinOp>()) {
        return Ok(Some(tvec![binary(sheet, node, left, right, op.0.name())?]));
    }
    if let ([value], Some(Cast { to })) = (operands, node.op_as::<Cast>()) {
        return Ok(Some(tvec![cast(sheet, value, *to)?]));
    }
    if let ([value], Some(Recipe::Clip { low, high })) = (operands, kernel::recipe(node.op.as_ref())) {
        let mut bound = |bound: f64| {
            let shape = tvec![1; value.shape.len()];
            let tensor = match value.dtype {
                DatumType::I32 => tensor0(bound as i32),
                DatumType::I64 => tensor0(bound as i64),
                other => tensor0(bound).cast_to_dt(other)?.into_owned(),
            };
            Ok::<_, TractError>(sheet.constant(&tensor.into_shape(&shape)?.into_arc_tensor()))
        };
        let (low, high) = (bound(low)?, bound(high)?);
        let below = binary(sheet, node, value, &high, "minimum")?;
        return Ok(Some(tvec![binary(sheet, node, &below, &low, "maximum")?]));
    }
    Ok(None)
}

fn found(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours)
}

fn unary(sheet: &mut Sheet<'_>, node: &TypedNode, value: &Value, op: &ElementWiseOp) -> TractResult<Value> {
    let name = op.0.name();
    let dtype = name_of(value.dtype).with_context(|| format!("elements of type {:?}", value.dtype))?;
    let (kernel, constant) = match value.dtype {
        DatumType::F32 | DatumType::F64 => match (op.0.downcast_ref::<LeakyRelu>(), found(OF_FLOAT, &name)) {
            (Some(leaky), _) => (format!("leaky_{dtype}"), f64::from(leaky.alpha)),
            (None, Some(kernel)) => (format!("{kernel}_{dtype}"), 0.0),
            (None, None) if name == "isnan" => (format!("isnan_{dtype}"), 0.0),
            (None, None) => {
                let kernel = found(OF_NUMBER, &name).with_context(|| format!("no kernel for {name} of floats"))?;
                (format!("{kernel}_{dtype}"), 0.0)
            }
        },
        DatumType::Bool if matches!(&*name, "Not" | "logical_not" | "bitwise_not") => ("not_bool".to_string(), 0.0),
        DatumType::I32 | DatumType::I64 => {
            let kernel = found(OF_NUMBER, &name).with_context(|| format!("no kernel for {name} of integers"))?;
            (format!("{kernel}_{dtype}"), 0.0)
        }
        other => bail!("no kernel for {name} of elements of type {other:?}"),
    };
    ensure!(op.0.downcast_ref::<PowConst>().is_none(), "no kernel for powers of a constant exponent");
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    apply(sheet, kernel, constant, value, &made);
    Ok(made)
}

fn apply(sheet: &mut Sheet<'_>, kernel: String, constant: f64, value: &Value, made: &Value) {
    let count = made.count();
    sheet.launch(Family::Pointwise.kernel(kernel), &[value], made, Threads::Each(count), move |at| Unary {
        from: at[0],
        to: at[1],
        constant,
        count,
        _pad: 0,
    });
}

/// Converts `value`, if it is of another type.
pub(super) fn cast(sheet: &mut Sheet<'_>, value: &Value, to: DatumType) -> TractResult<Value> {
    if value.dtype == to {
        return Ok(value.clone());
    }
    let name = |dtype| name_of(dtype).with_context(|| format!("no kernel converts elements of type {dtype:?}"));
    let target = if to == DatumType::Bool { "bool" } else { name(to)? };
    let kernel = format!("cast_{}_{target}", name(value.dtype)?);
    let made = sheet.tensor(&value.shape, to)?;
    apply(sheet, kernel, 0.0, value, &made);
    Ok(made)
}

fn binary(sheet: &mut Sheet<'_>, node: &TypedNode, left: &Value, right: &Value, name: &str) -> TractResult<Value> {
    ensure!(left.dtype == right.dtype, "operands of different types");
    let dtype = name_of(left.dtype).with_context(|| format!("elements of type {:?}", left.dtype))?;
    let compared = COMPARISONS.contains(&name);
    let (floats, integers) = (left.dtype.is_float(), matches!(left.dtype, DatumType::I32 | DatumType::I64));
    let kernel = match left.dtype {
        DatumType::Bool if compared => format!("{name}_{dtype}"),
        DatumType::Bool => found(OF_BOOLS, name).with_context(|| format!("no kernel for {name} of bools"))?.to_string(),
        _ if !floats && !integers => bail!("no kernel for {name} of elements of type {:?}", left.dtype),
        _ if compared => format!("{name}_{dtype}"),
        _ => {
            let kernel = found(OF_TWO, name).with_context(|| format!("no kernel for {name}"))?;
            let one_kind = kernel.starts_with("bitwise") && floats || kernel == "power" && integers;
            ensure!(!one_kind, "no kernel for {name} of elements of type {:?}", left.dtype);
            format!("{kernel}_{dtype}")
        }
    };
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    zipped(sheet, kernel, left, right, &made)?;
    Ok(made)
}

/// Computes `made`, which may be one of the operands, of two tensors that repeat to its shape.
pub(super) fn zipped(
    sheet: &mut Sheet<'_>,
    kernel: String,
    left: &Value,
    right: &Value,
    made: &Value,
) -> TractResult<()> {
    let steps = [left, right].map(|value| repeated_steps(&value.shape, &made.shape));
    let walk = Walk::new(&made.shape, [&steps[0][..], &steps[1][..]])?;
    let count = made.count();
    sheet.launch(Family::Pointwise.kernel(kernel), &[left, right], made, Threads::Each(count), move |at| Binary {
        left: at[0],
        right: at[1],
        to: at[2],
        count,
        rank: walk.rank,
        shape: walk.shape,
        left_steps: walk.steps[0],
        right_steps: walk.steps[1],
    });
    Ok(())
}
