//! Pointwise functions of one and two operands, and casts: by the names of tract's operators and of ours.

use tract_core::{
    internal::*,
    ops::{binary::TypedBinOp, cast::Cast, element_wise::ElementWiseOp, math::PowConst, nn::LeakyRelu},
};

use super::{
    builder::{KernelBuilder, Value, name_of},
    strides::{Walk, broadcast_strides},
};
use crate::cuda::{
    arguments::{Binary, Unary},
    driver::Grid,
    source::KernelFamily,
};
use edgecut_ops::kernel::{self, pointwise::EXACT_INTEGERS, recipe::Recipe};

/// Functions of one float: name of the operator, name of the kernel.
const FLOAT_UNARY: &[(&str, &str)] = &[
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
    ("round_half_even", "round_half_even"),
    ("trunc", "trunc"),
];

/// Functions of one number.
const NUMBER_UNARY: &[(&str, &str)] = &[
    ("Abs", "abs"),
    ("abs", "abs"),
    ("Neg", "negative"),
    ("negative", "negative"),
    ("sign", "sign"),
    ("sign_or_nan", "sign_or_nan"),
];

/// Functions of two numbers with a result of the same dtype.
const BINARY: &[(&str, &str)] = &[
    ("Add", "add"),
    ("add", "add"),
    ("Sub", "subtract"),
    ("subtract", "subtract"),
    ("Mul", "multiply"),
    ("multiply", "multiply"),
    ("divide", "divide"),
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("maximum_or_nan", "maximum_or_nan"),
    ("minimum_or_nan", "minimum_or_nan"),
    ("Max", "maximum"),
    ("Min", "minimum"),
    ("Pow", "power"),
    ("power", "power"),
    ("bitwise_and", "bitwise_and"),
    ("bitwise_or", "bitwise_or"),
    ("bitwise_xor", "bitwise_xor"),
];

/// Functions of two bools.
const BOOL_BINARY: &[(&str, &str)] = &[
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

const COMPARISONS: &[&str] =
    &["equal", "not_equal", "not_equal_or_nan", "less", "less_equal", "greater", "greater_equal"];

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    if let ([value], Some(op)) = (operands, node.op_as::<ElementWiseOp>()) {
        return Ok(Some(tvec![unary(builder, node, value, op)?]));
    }
    if let ([left, right], Some(op)) = (operands, node.op_as::<TypedBinOp>()) {
        return Ok(Some(tvec![binary(builder, node, left, right, op.0.name())?]));
    }
    if let ([value], Some(Cast { to })) = (operands, node.op_as::<Cast>()) {
        return Ok(Some(tvec![cast(builder, value, *to)?]));
    }
    if let ([value], Some(Recipe::Clip { low, high, keeps_nan })) = (operands, kernel::recipe(node.op.as_ref())) {
        let mut bound = |bound: f64| {
            let shape = tvec![1; value.shape.len()];
            let tensor = match value.dtype {
                DatumType::I32 => tensor0(bound as i32),
                DatumType::I64 => tensor0(bound as i64),
                other => tensor0(bound).cast_to_dt(other)?.into_owned(),
            };
            Ok::<_, TractError>(builder.constant(&tensor.into_shape(&shape)?.into_arc_tensor()))
        };
        let (low, high) = (bound(low)?, bound(high)?);
        if keeps_nan {
            let above = binary(builder, node, value, &low, "maximum_or_nan")?;
            return Ok(Some(tvec![binary(builder, node, &above, &high, "minimum_or_nan")?]));
        }
        let below = binary(builder, node, value, &high, "minimum")?;
        return Ok(Some(tvec![binary(builder, node, &below, &low, "maximum")?]));
    }
    Ok(None)
}

fn kernel_for(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(operator, _)| *operator == name).map(|(_, kernel)| *kernel)
}

fn unary(builder: &mut KernelBuilder<'_>, node: &TypedNode, value: &Value, op: &ElementWiseOp) -> TractResult<Value> {
    let name = op.0.name();
    if name == EXACT_INTEGERS {
        return cast(builder, value, DatumType::I32);
    }
    let dtype = name_of(value.dtype).with_context(|| format!("elements of type {:?}", value.dtype))?;
    let (kernel, constant) = match value.dtype {
        DatumType::F32 | DatumType::F64 => match (op.0.downcast_ref::<LeakyRelu>(), kernel_for(FLOAT_UNARY, &name)) {
            (Some(leaky), _) => (format!("leaky_{dtype}"), f64::from(leaky.alpha)),
            (None, Some(kernel)) => (format!("{kernel}_{dtype}"), 0.0),
            (None, None) if name == "isnan" => (format!("isnan_{dtype}"), 0.0),
            (None, None) => {
                let kernel =
                    kernel_for(NUMBER_UNARY, &name).with_context(|| format!("no kernel for {name} of floats"))?;
                (format!("{kernel}_{dtype}"), 0.0)
            }
        },
        DatumType::Bool if matches!(&*name, "Not" | "logical_not" | "bitwise_not") => ("not_bool".to_string(), 0.0),
        DatumType::I32 | DatumType::I64 => {
            let kernel =
                kernel_for(NUMBER_UNARY, &name).with_context(|| format!("no kernel for {name} of integers"))?;
            (format!("{kernel}_{dtype}"), 0.0)
        }
        other => bail!("no kernel for {name} of elements of type {other:?}"),
    };
    ensure!(op.0.downcast_ref::<PowConst>().is_none(), "no kernel for powers of a constant exponent");
    let output = builder.output(node)?;
    apply(builder, kernel, constant, value, &output);
    Ok(output)
}

fn apply(builder: &mut KernelBuilder<'_>, kernel: String, constant: f64, value: &Value, output: &Value) {
    let count = output.count();
    builder.launch(KernelFamily::Pointwise.kernel(kernel), &[value], output, Grid::Threads(count), move |at| Unary {
        from: at[0],
        to: at[1],
        constant,
        count,
        _pad: 0,
    });
}

/// Casts `value`, unless it has this dtype already.
pub(super) fn cast(builder: &mut KernelBuilder<'_>, value: &Value, to: DatumType) -> TractResult<Value> {
    if value.dtype == to {
        return Ok(value.clone());
    }
    let name = |dtype| name_of(dtype).with_context(|| format!("no kernel casts elements of type {dtype:?}"));
    let target = if to == DatumType::Bool { "bool" } else { name(to)? };
    let kernel = format!("cast_{}_{target}", name(value.dtype)?);
    let output = builder.tensor(&value.shape, to)?;
    apply(builder, kernel, 0.0, value, &output);
    Ok(output)
}

fn binary(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    left: &Value,
    right: &Value,
    name: &str,
) -> TractResult<Value> {
    ensure!(left.dtype == right.dtype, "operands of different dtypes");
    let dtype = name_of(left.dtype).with_context(|| format!("elements of type {:?}", left.dtype))?;
    let compared = COMPARISONS.contains(&name);
    let (floats, integers) = (left.dtype.is_float(), matches!(left.dtype, DatumType::I32 | DatumType::I64));
    let kernel = match left.dtype {
        DatumType::Bool if compared => format!("{name}_{dtype}"),
        DatumType::Bool => {
            kernel_for(BOOL_BINARY, name).with_context(|| format!("no kernel for {name} of bools"))?.to_string()
        }
        _ if !floats && !integers => bail!("no kernel for {name} of elements of type {:?}", left.dtype),
        _ if compared => format!("{name}_{dtype}"),
        _ => {
            let kernel = kernel_for(BINARY, name).with_context(|| format!("no kernel for {name}"))?;
            let is_unsupported = kernel.starts_with("bitwise") && floats || kernel == "power" && integers;
            ensure!(!is_unsupported, "no kernel for {name} of elements of type {:?}", left.dtype);
            format!("{kernel}_{dtype}")
        }
    };
    let output = builder.output(node)?;
    zip_with(builder, kernel, left, right, &output)?;
    Ok(output)
}

/// Computes `output`, which may be one of the operands, from two tensors that are broadcast to its shape.
pub(super) fn zip_with(
    builder: &mut KernelBuilder<'_>,
    kernel: String,
    left: &Value,
    right: &Value,
    output: &Value,
) -> TractResult<()> {
    let strides = [left, right].map(|value| broadcast_strides(&value.shape, &output.shape));
    let walk = Walk::new(&output.shape, [&strides[0][..], &strides[1][..]])?;
    let count = output.count();
    builder.launch(KernelFamily::Pointwise.kernel(kernel), &[left, right], output, Grid::Threads(count), move |at| {
        Binary {
            left: at[0],
            right: at[1],
            to: at[2],
            count,
            rank: walk.rank,
            shape: walk.shape,
            left_strides: walk.strides[0],
            right_strides: walk.strides[1],
        }
    });
    Ok(())
}
