//! Pooling.

use edgecut_graph::{Attr, TensorId};

use super::conv::{Windows, spatial};
use crate::{
    compose::{one, sizes},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] =
    &[("AveragePool", average), ("MaxPool", max), ("LpPool", norm), ("GlobalLpPool", global_norm)];

/// Operators of ONNX Runtime's domain.
pub(super) const MICROSOFT_OPS: &[(&str, Lower)] = &[("NhwcMaxPool", |call| {
    let x = call.input(0)?;
    one(in_nchw(call, x, maximum)?)
})];

fn windows(call: &Call<'_, '_>, x: TensorId) -> Result<Windows> {
    let kernel = call.ints("kernel_shape").ok_or("attribute kernel_shape is missing")?;
    let kernel: Vec<u64> = kernel
        .iter()
        .map(|size| u64::try_from(*size))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| "a size of the kernel is negative".to_string())?;
    if kernel.is_empty() {
        return Err("attribute kernel_shape is empty".to_string());
    }
    Windows::read(call, &spatial(call, x)?, kernel)
}

fn attrs(call: &Call<'_, '_>, windows: &Windows) -> Vec<(&'static str, Attr)> {
    let mut attrs = windows.attrs();
    attrs.push(("pool_size", sizes(&windows.kernel)));
    attrs.push(("ceil_mode", Attr::Bool(call.int("ceil_mode", 0) != 0)));
    attrs
}

fn average(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    one(averaged(call, x, call.int("count_include_pad", 0) != 0)?)
}

pub(super) fn averaged(call: &mut Call<'_, '_>, x: TensorId, padded: bool) -> Result<TensorId> {
    pooled(call, x, ("count_include_pad", Attr::Bool(padded)))
}

/// The sums of windows, or their means: `divided` says by what.
fn pooled(call: &mut Call<'_, '_>, x: TensorId, divided: (&'static str, Attr)) -> Result<TensorId> {
    let windows = windows(call, x)?;
    let name = ["nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"][windows.kernel.len() - 1];
    let mut attrs = attrs(call, &windows);
    attrs.push(divided);
    call.op(name, &[x], attrs)
}

fn max(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.node.output.len() > 1 {
        return Err("the positions of maxima are not supported".to_string());
    }
    let x = call.input(0)?;
    one(maximum(call, x)?)
}

fn maximum(call: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId> {
    let windows = windows(call, x)?;
    let name = ["nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"][windows.kernel.len() - 1];
    let attrs = attrs(call, &windows);
    call.op(name, &[x], attrs)
}

/// Applies `f` in the layout NCHW to `x`, whose layout is NHWC, with any number of spatial axes.
pub(super) fn in_nchw(
    call: &mut Call<'_, '_>,
    x: TensorId,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<TensorId> {
    let last = call.rank(x).checked_sub(1).filter(|last| *last > 0).ok_or("the data has no channels")?;
    let first: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
    let x = call.transpose(x, &first)?;
    let result = f(call, x)?;
    let back: Vec<usize> = std::iter::once(0).chain(2..=last).chain([1]).collect();
    call.transpose(result, &back)
}

/// The exponent of a norm, until operator set 1 a float.
fn exponent(call: &Call<'_, '_>) -> f64 {
    match call.version {
        ..2 => call.float("p", 2.0),
        _ => call.int("p", 2) as f64,
    }
}

/// (Σ |x|^p)^(1/p) by a function that sums.
fn norm_by(
    call: &mut Call<'_, '_>,
    sum: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<Vec<Value>> {
    let (x, p) = (call.input(0)?, exponent(call));
    let size = call.map("abs", &[x])?;
    let powers = if p == 1.0 { size } else { call.with("power", size, p)? };
    let sum = sum(call, powers)?;
    one(if p == 1.0 { sum } else { call.with("power", sum, 1.0 / p)? })
}

/// The norm of each window.
fn norm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    norm_by(call, |call, powers| pooled(call, powers, ("divisor_override", Attr::Int(1))))
}

/// The norm over all spatial axes.
fn global_norm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    norm_by(call, |call, powers| {
        let axes: Vec<usize> = (2..call.rank(powers)).collect();
        call.reduce("sum", powers, &axes, true)
    })
}
