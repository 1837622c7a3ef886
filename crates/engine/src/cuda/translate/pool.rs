//! Pooling (sliding and adaptive) and resampling along axes.

use tract_core::internal::*;

use super::builder::{KernelBuilder, Value, name_of};
use crate::cuda::{
    arguments::{Pool, Resample},
    driver::Grid,
    source::KernelFamily,
};
use edgecut_ops::kernel::{
    self,
    recipe::{Pooling, Recipe, Taps},
};

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(data) = operands.first() else { return Ok(None) };
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Pool(pooling)) => Ok(Some(tvec![pooled(builder, node, data, &pooling)?])),
        Some(Recipe::Resample(axes)) => {
            let mut output = data.clone();
            for (axis, taps) in &axes {
                output = resampled(builder, &output, *axis, taps)?;
            }
            Ok(Some(tvec![output]))
        }
        _ => Ok(None),
    }
}

fn pooled(builder: &mut KernelBuilder<'_>, node: &TypedNode, data: &Value, pooling: &Pooling) -> TractResult<Value> {
    let kinds: &[&str] = if pooling.largest { &["f32", "f64", "i32", "i8", "u8"] } else { &["f32", "f64", "i32"] };
    let dtype = name_of(data.dtype).filter(|name| kinds.contains(name));
    let dtype = dtype.with_context(|| format!("no kernel for elements of type {:?}", data.dtype))?;
    let output = builder.output(node)?;
    let rows = pooling.axes.iter().flatten();
    let entries: Vec<i32> =
        rows.flat_map(|span| [span.first, span.count, span.step, span.divisor]).map(|n| n as i32).collect();
    let windows = builder.table(&entries);
    let (count, pixel) = (output.count(), pooling.inner as u32);
    let plane = pooling.plane.map(|n| n as u32);
    let sizes = [0, 1, 2].map(|axis| pooling.axes[axis].len() as u32);
    let kernel = KernelFamily::Window.kernel(format!("{}_pool_{dtype}", if pooling.largest { "max" } else { "mean" }));
    builder.launch(kernel, &[data, &windows], &output, Grid::Threads(count), move |at| Pool {
        from: at[0],
        to: at[2],
        windows: at[1],
        count,
        pixel,
        plane,
        result: sizes,
    });
    Ok(output)
}

fn resampled(builder: &mut KernelBuilder<'_>, data: &Value, axis: usize, taps: &Taps) -> TractResult<Value> {
    let dtype = name_of(data.dtype).filter(|_| data.dtype.is_float()).context("elements are not floats")?;
    let mut shape = data.shape.clone();
    let length = std::mem::replace(&mut shape[axis], taps.len()) as u32;
    let inner = shape[axis + 1..].iter().product::<usize>() as u32;
    let most = taps.iter().map(|taps| taps.len()).max().unwrap_or(0);
    // Elements with fewer taps get additional ones with weight 0.
    let padded = taps.iter().flat_map(|taps| (0..most).map(|i| taps.get(i).copied().unwrap_or((0, 0.0))));
    let (indices, weights): (Vec<i32>, Vec<f32>) = padded.map(|(index, weight)| (index as i32, weight)).unzip();
    let indices = builder.table(&indices);
    let weights = builder.constant(&Arc::new(tensor1(&weights)));
    let output = builder.tensor(&shape, data.dtype)?;
    let (count, size, taps) = (output.count(), shape[axis] as u32, most as u32);
    let kernel = KernelFamily::Window.kernel(format!("resample_{dtype}"));
    builder.launch(kernel, &[data, &indices, &weights], &output, Grid::Threads(count), move |at| Resample {
        from: at[0],
        indices: at[1],
        weights: at[2],
        to: at[3],
        count,
        length,
        result: size,
        inner,
        taps,
        _pad: 0,
    });
    Ok(output)
}
