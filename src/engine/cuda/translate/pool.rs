//! Pooling, sliding and adaptive, and resampling along axes.

use tract_core::internal::*;

use super::{Sheet, Value, name_of};
use crate::{
    engine::cuda::{
        arguments::{Pool, Resample},
        card::Threads,
        source::Family,
    },
    ops::{
        kernel,
        recipe::{Pooling, Recipe, Taps},
    },
};

pub(super) fn translate(
    sheet: &mut Sheet<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let Some(data) = operands.first() else { return Ok(None) };
    match kernel::recipe(node.op.as_ref()) {
        Some(Recipe::Pool(pooling)) => Ok(Some(tvec![pooled(sheet, node, data, &pooling)?])),
        Some(Recipe::Resample(axes)) => {
            let mut made = data.clone();
            for (axis, taps) in &axes {
                made = resampled(sheet, &made, *axis, taps)?;
            }
            Ok(Some(tvec![made]))
        }
        _ => Ok(None),
    }
}

fn pooled(sheet: &mut Sheet<'_>, node: &TypedNode, data: &Value, pooling: &Pooling) -> TractResult<Value> {
    let kinds: &[&str] = if pooling.largest { &["f32", "f64", "i32", "i8", "u8"] } else { &["f32", "f64", "i32"] };
    let dtype = name_of(data.dtype).filter(|name| kinds.contains(name));
    let dtype = dtype.with_context(|| format!("no kernel pools elements of type {:?}", data.dtype))?;
    let made = sheet.value(&sheet.made(node, 0)?.clone())?;
    let rows = pooling.axes.iter().flatten();
    let entries: Vec<i32> =
        rows.flat_map(|seen| [seen.first, seen.count, seen.distance, seen.divisor]).map(|n| n as i32).collect();
    let windows = sheet.table(&entries);
    let (count, pixel) = (made.count(), pooling.pixel as u32);
    let plane = pooling.plane.map(|n| n as u32);
    let sizes = [0, 1, 2].map(|axis| pooling.axes[axis].len() as u32);
    let kernel = Family::Window.kernel(format!("{}_pool_{dtype}", if pooling.largest { "max" } else { "mean" }));
    sheet.launch(kernel, &[data, &windows], &made, Threads::Each(count), move |at| Pool {
        from: at[0],
        to: at[2],
        windows: at[1],
        count,
        pixel,
        plane,
        made: sizes,
    });
    Ok(made)
}

fn resampled(sheet: &mut Sheet<'_>, data: &Value, axis: usize, taps: &Taps) -> TractResult<Value> {
    let dtype = name_of(data.dtype).filter(|_| data.dtype.is_float()).context("elements that are no floats")?;
    let mut shape = data.shape.clone();
    let length = std::mem::replace(&mut shape[axis], taps.len()) as u32;
    let inner = shape[axis + 1..].iter().product::<usize>() as u32;
    let most = taps.iter().map(|taps| taps.len()).max().unwrap_or(0);
    // Elements with fewer taps get some that weigh nothing.
    let padded = taps.iter().flat_map(|taps| (0..most).map(|i| taps.get(i).copied().unwrap_or((0, 0.0))));
    let (indices, weights): (Vec<i32>, Vec<f32>) = padded.map(|(index, weight)| (index as i32, weight)).unzip();
    let indices = sheet.table(&indices);
    let weights = sheet.constant(&Arc::new(tensor1(&weights)));
    let made = sheet.tensor(&shape, data.dtype)?;
    let (count, size, taps) = (made.count(), shape[axis] as u32, most as u32);
    let kernel = Family::Window.kernel(format!("resample_{dtype}"));
    sheet.launch(kernel, &[data, &indices, &weights], &made, Threads::Each(count), move |at| Resample {
        from: at[0],
        indices: at[1],
        weights: at[2],
        to: at[3],
        count,
        length,
        made: size,
        inner,
        taps,
        _pad: 0,
    });
    Ok(made)
}
