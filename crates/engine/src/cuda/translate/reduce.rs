//! Reductions, softmax, normalisation.

use tract_core::{
    internal::*,
    ops::nn::{Reduce, Reducer, Softmax, SoftmaxKind},
};

use super::builder::{KernelBuilder, Value, name_of};
use crate::cuda::{
    arguments::{self, Normalise},
    driver::Grid,
    source::KernelFamily,
};
use edgecut_ops::kernel::{
    self,
    recipe::{NormGroups, Recipe},
};

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(first) = operands.first() else { return Ok(None) };
    if let Some(Reduce { axes, reducer, .. }) = node.op_as::<Reduce>() {
        let name = match reducer {
            Reducer::Sum => "sum",
            Reducer::Prod => "prod",
            Reducer::Max => "max",
            Reducer::Min => "min",
            Reducer::All => "all",
            Reducer::Any => "any",
            other => bail!("no kernel for {other:?}"),
        };
        return Ok(Some(tvec![reduced(builder, node, first, axes, name)?]));
    }
    if let Some(op) = node.op_as::<Softmax>() {
        return Ok(Some(tvec![softmax(builder, node, first, op)?]));
    }
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Fold { name, axes }) => Ok(Some(tvec![reduced(builder, node, first, &axes, name)?])),
        Some(Recipe::Normalise { groups, epsilon, scale, center }) => {
            Ok(Some(tvec![normalised(builder, node, operands, groups, (epsilon, scale, center))?]))
        }
        _ => Ok(None),
    }
}

/// Reduces contiguous axes at once; other axes are transposed to the end first.
fn reduced(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    value: &Value,
    axes: &[usize],
    name: &str,
) -> TractResult<Value> {
    let dtype = match (name, value.dtype) {
        ("all" | "any", DatumType::Bool) => "bool",
        (_, dtype) => name_of(dtype)
            .filter(|name| matches!(*name, "f32" | "f64" | "i32" | "i64"))
            .context("no kernel for elements of this type")?,
    };
    let output = builder.output(node)?;
    ensure!(output.dtype == value.dtype, "the result has another dtype");
    let mut axes: Vec<usize> = axes.to_vec();
    axes.sort_unstable();
    let (Some(first), Some(last)) = (axes.first().copied(), axes.last().copied()) else {
        return Ok(value.viewed(&output.shape));
    };
    let (value, outer, length, inner) = match last - first + 1 == axes.len() {
        true => {
            let product = |dims: &[usize]| dims.iter().product::<usize>();
            let shape = &value.shape;
            (value.clone(), product(&shape[..first]), product(&shape[first..=last]), product(&shape[last + 1..]))
        }
        false => {
            let kept = (0..value.shape.len()).filter(|axis| !axes.contains(axis));
            let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
            let length: usize = axes.iter().map(|axis| value.shape[*axis]).product();
            let moved = builder.transposed(value, &order)?;
            let outer = moved.shape[..moved.shape.len() - axes.len()].iter().product::<usize>();
            (moved, outer, length, 1)
        }
    };
    let lines = (outer * inner) as u32;
    // In a short line, most threads of a block would be idle.
    let by_block = inner == 1 && length >= 32;
    let (variant, grid) =
        if by_block { ("by_block", Grid::Blocks(lines)) } else { ("by_thread", Grid::Threads(lines)) };
    let kernel = KernelFamily::Reduce.kernel(format!("{name}_{dtype}_{variant}"));
    let (length, inner) = (length as u32, inner as u32);
    builder.launch(kernel, &[&value], &output, grid, move |at| arguments::Reduction {
        from: at[0],
        to: at[1],
        lines,
        length,
        inner,
        _pad: 0,
    });
    Ok(output)
}

fn softmax(builder: &mut KernelBuilder<'_>, node: &TypedNode, value: &Value, op: &Softmax) -> TractResult<Value> {
    let [axis] = op.axes[..] else { bail!("softmax over several axes") };
    ensure!(op.quant_output_dt.is_none() && value.dtype.is_float(), "quantised softmax is not supported on a GPU");
    let dtype = name_of(value.dtype).context("no kernel for elements of this type")?;
    let output = builder.output(node)?;
    let length = value.shape[axis] as u32;
    let inner = value.shape[axis + 1..].iter().product::<usize>() as u32;
    let logarithm = u32::from(op.kind == SoftmaxKind::LogSoftmax);
    let lines = value.count() / length.max(1);
    let kernel = KernelFamily::Reduce.kernel(format!("softmax_{dtype}"));
    builder.launch(kernel, &[value], &output, Grid::Blocks(lines), move |at| arguments::Softmax {
        from: at[0],
        to: at[1],
        length,
        inner,
        logarithm,
        _pad: 0,
    });
    Ok(output)
}

fn normalised(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
    groups: NormGroups,
    (epsilon, scale, center): (f64, bool, bool),
) -> TractResult<Value> {
    let [value, scales, shifts] = operands else { bail!("a normalisation has three operands") };
    let dtype = name_of(value.dtype).filter(|_| value.dtype.is_float()).context("elements are not floats")?;
    let output = builder.output(node)?;
    let NormGroups { count, channels, inner } = groups;
    let runs = value.count() / ((channels * inner).max(1) as u32);
    let kernel = KernelFamily::Reduce.kernel(format!("normalise_{dtype}"));
    builder.launch(kernel, &[value, scales, shifts], &output, Grid::Blocks(runs), move |at| Normalise {
        from: at[0],
        scales: at[1],
        shifts: at[2],
        to: at[3],
        epsilon,
        groups: count as u32,
        channels: channels as u32,
        inner: inner as u32,
        scaled: u32::from(scale),
        shifted: u32::from(center),
        _pad: 0,
    });
    Ok(output)
}
