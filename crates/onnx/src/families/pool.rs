//! Pooling.

use edgecut_graph::{Attr, TensorId};

use super::conv::{Windows, spatial};
use crate::{
    compose::{one, sizes},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("AveragePool", average), ("MaxPool", max), ("LpPool", norm)];

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
    let windows = windows(call, x)?;
    let name = ["nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"][windows.kernel.len() - 1];
    let mut attrs = attrs(call, &windows);
    attrs.push(("count_include_pad", Attr::Bool(padded)));
    call.op(name, &[x], attrs)
}

fn max(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if call.node.output.len() > 1 {
        return Err("the positions of maxima are not supported".to_string());
    }
    let x = call.input(0)?;
    let windows = windows(call, x)?;
    let name = ["nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"][windows.kernel.len() - 1];
    let attrs = attrs(call, &windows);
    one(call.op(name, &[x], attrs)?)
}

/// (Σ |x|^p)^(1/p) of each window: a mean of powers times the size of the window.
fn norm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, p) = (call.input(0)?, call.int("p", 2) as f64);
    let count: i64 = call.ints("kernel_shape").unwrap_or_default().iter().product();
    let size = call.map("abs", &[x])?;
    let powers = if p == 1.0 { size } else { call.with("power", size, p)? };
    let mean = averaged(call, powers, true)?;
    let sum = call.with("multiply", mean, count as f64)?;
    one(if p == 1.0 { sum } else { call.with("power", sum, 1.0 / p)? })
}
