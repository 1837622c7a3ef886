//! Lines made into one element, softmax, normalisation.

use tract_core::{
    internal::*,
    ops::nn::{Reduce, Reducer, Softmax, SoftmaxKind},
};

use super::{Sheet, Value, name_of};
use crate::{
    engine::cuda::{
        arguments::{self, Normalise},
        card::Threads,
        source::Family,
    },
    ops::{
        kernel,
        recipe::{Groups, Recipe},
    },
};

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(first) = operands.first() else { return Ok(None) };
    if let Some(Reduce { axes, reducer, .. }) = node.op_as::<Reduce>() {
        let name = match reducer {
            Reducer::Sum => "sum",
            Reducer::Prod => "product",
            Reducer::Max => "largest",
            Reducer::Min => "smallest",
            Reducer::All => "all",
            Reducer::Any => "any",
            other => bail!("no kernel for {other:?}"),
        };
        return Ok(Some(tvec![folded(sheet, node, first, axes, name)?]));
    }
    if let Some(op) = node.op_as::<Softmax>() {
        return Ok(Some(tvec![softmax(sheet, node, first, op)?]));
    }
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Fold { name, axes }) => {
            let name = match name {
                "max" => "largest",
                "min" => "smallest",
                "prod" => "product",
                other => other,
            };
            Ok(Some(tvec![folded(sheet, node, first, &axes, name)?]))
        }
        Some(Recipe::Normalise { groups, epsilon, scale, center }) => {
            Ok(Some(tvec![normalised(sheet, node, operands, groups, (epsilon, scale, center))?]))
        }
        _ => Ok(None),
    }
}

/// Folds axes that stand together at once; others are brought to the end first.
fn folded(sheet: &mut Sheet<'_>, node: &TypedNode, value: &Value, axes: &[usize], name: &str) -> TractResult<Value> {
    let dtype = match (name, value.dtype) {
        ("all" | "any", DatumType::Bool) => "bool",
        (_, dtype) => name_of(dtype)
            .filter(|name| matches!(*name, "f32" | "f64" | "i32" | "i64"))
            .context("elements of a type that is not folded")?,
    };
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    ensure!(made.dtype == value.dtype, "a fold into another type");
    let mut axes: Vec<usize> = axes.to_vec();
    axes.sort_unstable();
    let (Some(first), Some(last)) = (axes.first().copied(), axes.last().copied()) else {
        return Ok(value.viewed(&made.shape));
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
            let moved = sheet.transposed(value, &order)?;
            let outer = moved.shape[..moved.shape.len() - axes.len()].iter().product::<usize>();
            (moved, outer, length, 1)
        }
    };
    let lines = (outer * inner) as u32;
    // A team has little to do in a short line.
    let together = inner == 1 && length >= 32;
    let (way, threads) = if together { ("team", Threads::Teams(lines)) } else { ("apart", Threads::Each(lines)) };
    let kernel = Family::Reduce.kernel(format!("{name}_{dtype}_{way}"));
    let (length, inner) = (length as u32, inner as u32);
    sheet.launch(kernel, &[&value], &made, threads, move |at| arguments::Fold {
        from: at[0],
        to: at[1],
        lines,
        length,
        inner,
        _pad: 0,
    });
    Ok(made)
}

fn softmax(sheet: &mut Sheet<'_>, node: &TypedNode, value: &Value, op: &Softmax) -> TractResult<Value> {
    let [axis] = op.axes[..] else { bail!("softmax over several axes") };
    ensure!(op.quant_output_dt.is_none() && value.dtype.is_float(), "softmax of quantised tensors");
    let dtype = name_of(value.dtype).context("elements of a type that has no softmax")?;
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    let length = value.shape[axis] as u32;
    let inner = value.shape[axis + 1..].iter().product::<usize>() as u32;
    let logarithm = u32::from(op.kind == SoftmaxKind::LogSoftmax);
    let lines = value.count() / length.max(1);
    let kernel = Family::Reduce.kernel(format!("softmax_{dtype}"));
    sheet.launch(kernel, &[value], &made, Threads::Teams(lines), move |at| arguments::Softmax {
        from: at[0],
        to: at[1],
        length,
        inner,
        logarithm,
        _pad: 0,
    });
    Ok(made)
}

fn normalised(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
    groups: Groups,
    (epsilon, scale, center): (f64, bool, bool),
) -> TractResult<Value> {
    let [value, scales, shifts] = operands else { bail!("a normalisation has three operands") };
    let dtype = name_of(value.dtype).filter(|_| value.dtype.is_float()).context("elements that are no floats")?;
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    let Groups { count, channels, inner } = groups;
    let runs = value.count() / ((channels * inner).max(1) as u32);
    let kernel = Family::Reduce.kernel(format!("normalise_{dtype}"));
    sheet.launch(kernel, &[value, scales, shifts], &made, Threads::Teams(runs), move |at| Normalise {
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
    Ok(made)
}
