//! Operators of training graphs: losses and gradients of pooling.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{
        builder::OnnxValue,
        scope::{Scope, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("nn.avg_pool2d_grad", One(average_gradient)),
    ("nn.cross_entropy_with_logits", One(cross_entropy)),
    ("nn.max_pool2d_grad", One(max_gradient)),
];

/// -Σ predictions × targets / batch.
fn cross_entropy(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (predictions, targets, dims) = (scope.x(0)?, scope.x(1)?, scope.dims(0)?);
    let product = scope.builder.binary("Mul", &predictions, &targets)?;
    let axes: Vec<usize> = (0..dims.len()).collect();
    let sum = scope.builder.reduce("ReduceSum", &product, &axes, false)?;
    let batch = dims.first().copied().unwrap_or(1);
    scope.builder.with_number("Div", &sum, -(batch as f64))
}

/// Kernel, strides and padding of a pooling in NCHW without dilation.
struct Windows {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    /// Begins, then ends.
    pads: Vec<i64>,
}

fn windows(scope: &Scope<'_>) -> Result<Windows> {
    if scope.text("layout", "NCHW")? != "NCHW" || scope.flag("ceil_mode", false)? {
        return Err("only layout NCHW without ceil_mode is written".to_string());
    }
    let pair = |list: Vec<i64>| match list[..] {
        [size] => vec![size, size],
        _ => list,
    };
    let kernel = pair(scope.ints("pool_size")?.ok_or("pool_size is missing")?);
    let strides = pair(scope.ints("strides")?.unwrap_or_else(|| vec![1, 1]));
    let pads = match scope.ints("padding")?.unwrap_or_else(|| vec![0, 0])[..] {
        [all] => vec![all; 4],
        [rows, columns] => vec![rows, columns, rows, columns],
        [top, left, bottom, right] => vec![top, left, bottom, right],
        ref other => return Err(format!("padding has {} sizes", other.len())),
    };
    Ok(Windows { kernel, strides, pads })
}

/// Each gradient goes to the first maximum of its window.
fn max_gradient(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (gradient, x, dims, windows) = (scope.x(0)?, scope.x(1)?, scope.dims(1)?, windows(scope)?);
    let found = scope
        .builder
        .node("MaxPool", &[&x])
        .ints("kernel_shape", &windows.kernel)
        .ints("strides", &windows.strides)
        .ints("pads", &windows.pads)
        .many(&[x.dtype, edgecut_graph::DType::I64])?;
    let [_, positions] = &found[..] else { return Err("the positions of maxima are missing".to_string()) };
    let (positions, gradient) = (scope.builder.flat(positions)?, scope.builder.flat(&gradient)?);
    let zero = scope.builder.scalar(0.0, x.dtype)?;
    let zeros = scope.builder.expand(&zero, &[dims.iter().product()])?;
    let sums = scope
        .builder
        .node("ScatterElements", &[&zeros, &positions, &gradient])
        .int("axis", 0)
        .text("reduction", "add")
        .one(x.dtype)?;
    scope.builder.reshape(&sums, &dims)
}

/// A transposed convolution of each channel with a constant kernel, of the gradient divided by the sizes of windows.
fn average_gradient(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (gradient, dims, windows) = (scope.x(0)?, scope.dims(1)?, windows(scope)?);
    let padded = windows.pads.iter().any(|pad| *pad != 0);
    if padded && !scope.flag("count_include_pad", false)? {
        return Err("windows of different sizes have no equivalent".to_string());
    }
    let grid = scope.dims(0)?;
    let ([_, channels, rows, columns], [_, _, out_rows, out_columns]) = (&dims[..], &grid[..]) else {
        return Err("data must have 4 axes".to_string());
    };
    let area: i64 = table_entries(&windows.kernel)?;
    let count = usize::try_from(table_entries(&[*channels, area])?).map_err(|_| "a size is negative".to_string())?;
    let shape = [*channels as u64, 1, windows.kernel[0] as u64, windows.kernel[1] as u64];
    let kernel = scope.builder.list_of(&vec![1.0 / area as f64; count], gradient.dtype, &shape)?;
    // Rows and columns at the end that no window reaches.
    let rest = |axis: usize, size: i64, grid: i64| {
        size + windows.pads[axis] + windows.pads[axis + 2] - ((grid - 1) * windows.strides[axis] + windows.kernel[axis])
    };
    let rest = [rest(0, *rows, *out_rows), rest(1, *columns, *out_columns)];
    scope
        .builder
        .node("ConvTranspose", &[&gradient, &kernel])
        .int("group", *channels)
        .ints("kernel_shape", &windows.kernel)
        .ints("strides", &windows.strides)
        .ints("pads", &windows.pads)
        .ints("output_padding", &rest)
        .one(gradient.dtype)
}
