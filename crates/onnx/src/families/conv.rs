//! Convolutions, and convolutions' transposes.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::{list, one, sizes, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Conv", conv), ("ConvTranspose", transposed), ("ConvInteger", integer)];

/// Windows along the spatial axes: strides, dilations, and padding before and after.
pub(super) struct Windows {
    pub kernel: Vec<u64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub before: Vec<i64>,
    pub after: Vec<i64>,
}

impl Windows {
    /// As the attributes say, on data of the sizes `spatial`.
    pub fn read(call: &Call<'_, '_>, spatial: &[u64], kernel: Vec<u64>) -> Result<Windows> {
        let rank = kernel.len();
        let list = |name: &str, default: i64| match call.ints(name) {
            Some(values) if values.len() == rank => Ok(values),
            Some(values) => Err(format!("attribute {name} has {} values, expected {rank}", values.len())),
            None => Ok(vec![default; rank]),
        };
        let (strides, dilations) = (list("strides", 1)?, list("dilations", 1)?);
        if strides.iter().chain(&dilations).any(|n| *n < 1) || spatial.len() != rank {
            return Err("strides and dilations must be positive, one for each spatial axis".to_string());
        }
        let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
        match call.text("auto_pad", "NOTSET") {
            "NOTSET" => {
                let pads = call.ints("pads").unwrap_or_else(|| vec![0; 2 * rank]);
                if pads.len() != 2 * rank {
                    return Err(format!("attribute pads has {} values, expected {}", pads.len(), 2 * rank));
                }
                (before, after) = (pads[..rank].to_vec(), pads[rank..].to_vec());
            }
            "VALID" => {}
            side @ ("SAME_UPPER" | "SAME_LOWER") => {
                for axis in 0..rank {
                    let extent = (kernel[axis] as i64 - 1) * dilations[axis] + 1;
                    let count = (spatial[axis] as i64 + strides[axis] - 1) / strides[axis];
                    let total = ((count - 1) * strides[axis] + extent - spatial[axis] as i64).max(0);
                    let (less, more) = (total / 2, total - total / 2);
                    (before[axis], after[axis]) = if side == "SAME_UPPER" { (less, more) } else { (more, less) };
                }
            }
            other => return Err(format!("attribute auto_pad is `{other}`")),
        }
        Ok(Windows { kernel, strides, dilations, before, after })
    }

    /// Padding as the graph's operators take it: before, then after.
    pub fn padding(&self) -> Vec<i64> {
        self.before.iter().chain(&self.after).copied().collect()
    }

    /// The attributes that convolutions and pooling share.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("strides", list(&self.strides)), ("padding", list(&self.padding())), ("dilation", list(&self.dilations))]
    }
}

/// The spatial sizes of data in NC… layout.
pub(super) fn spatial(call: &Call<'_, '_>, x: TensorId) -> Result<Vec<u64>> {
    let dims = call.dims(x)?;
    match dims.get(2..) {
        Some(spatial) if (1..=3).contains(&spatial.len()) => Ok(spatial.to_vec()),
        _ => Err(format!("data of {} dimensions; 3 to 5 are supported", dims.len())),
    }
}

fn windows(call: &Call<'_, '_>, x: TensorId, w: TensorId) -> Result<Windows> {
    let kernel = call.dims(w)?.get(2..).unwrap_or_default().to_vec();
    Windows::read(call, &spatial(call, x)?, kernel)
}

fn conv(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, w, bias) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let made = product(call, x, w, None)?;
    one(biased(call, made, bias)?)
}

pub(super) fn product(call: &mut Call<'_, '_>, x: TensorId, w: TensorId, out: Option<DType>) -> Result<TensorId> {
    let attrs = attributes(call, x, w, out)?;
    let name = ["nn.conv1d", "nn.conv2d", "nn.conv3d"][call.rank(x) - 3];
    call.op(name, &[x, w], attrs)
}

/// The attributes of a convolution of `x` with `w`, of one to three spatial axes.
fn attributes(call: &Call<'_, '_>, x: TensorId, w: TensorId, out: Option<DType>) -> Result<Vec<(&'static str, Attr)>> {
    let windows = windows(call, x, w)?;
    let mut attrs = windows.attrs();
    attrs.push(("groups", Attr::Int(call.int("group", 1))));
    attrs.push(("channels", Attr::Int(call.dims(w)?[0] as i64)));
    attrs.push(("kernel_size", sizes(&windows.kernel)));
    if let Some(dtype) = out {
        attrs.push(("out_dtype", text(&dtype.to_string())));
    }
    Ok(attrs)
}

pub(super) fn biased(call: &mut Call<'_, '_>, made: TensorId, bias: Option<TensorId>) -> Result<TensorId> {
    match bias {
        Some(bias) => call.op("nn.bias_add", &[made, bias], vec![("axis", Attr::Int(1))]),
        None => Ok(made),
    }
}

/// `output_shape` determines the padding, else the padding determines the shape.
fn transposed(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, w, bias) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let mut windows = windows(call, x, w)?;
    let (rank, spatial) = (windows.kernel.len(), spatial(call, x)?);
    let mut extra = call.ints("output_padding").unwrap_or_else(|| vec![0; rank]);
    let side = call.text("auto_pad", "NOTSET");
    let shape = call.ints("output_shape");
    let is_size = |n: &i64| (0..1 << 31).contains(n);
    if extra.len() != rank
        || shape.as_ref().is_some_and(|shape| shape.len() < rank)
        || !extra.iter().chain(shape.iter().flatten()).all(is_size)
    {
        return Err("output_padding and output_shape have one value for each spatial axis".to_string());
    }
    for axis in 0..rank {
        let extent = (windows.kernel[axis] as i64 - 1) * windows.dilations[axis] + 1;
        let full = windows.strides[axis] * (spatial[axis] as i64 - 1) + extra[axis] + extent;
        let wanted = match &shape {
            Some(shape) => shape[shape.len() - rank + axis],
            None if side.starts_with("SAME") => spatial[axis] as i64 * windows.strides[axis],
            None => continue,
        };
        // A shape larger than strides and kernel make it has zeros at the end, as ONNX Runtime computes it.
        if shape.is_some() {
            extra[axis] += (wanted - full).max(0);
        }
        let total = (full - wanted).max(0);
        let (less, more) = (total / 2, total - total / 2);
        (windows.before[axis], windows.after[axis]) = if side == "SAME_UPPER" { (less, more) } else { (more, less) };
    }
    let groups = call.int("group", 1);
    let name = ["nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"][rank - 1];
    let mut attrs = windows.attrs();
    attrs.push(("output_padding", list(&extra)));
    attrs.push(("groups", Attr::Int(groups)));
    attrs.push(("channels", Attr::Int(call.dims(w)?[1] as i64 * groups)));
    attrs.push(("kernel_size", sizes(&windows.kernel)));
    let made = call.op(name, &[x, w], attrs)?;
    one(biased(call, made, bias)?)
}

/// A convolution of integers less their zero points.
fn integer(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let (x_zero, w_zero) = (call.optional(2)?, call.optional(3)?);
    // ONNX Runtime's kernel has one zero point for all channels.
    if call.rank(x) == 4 && [x_zero, w_zero].into_iter().flatten().all(|zero| is_one(call, zero)) {
        let zeros = [or_zero(call, x_zero, x)?, or_zero(call, w_zero, w)?];
        // The result is the integer accumulator, which does not depend on scales.
        let scale = call.lowering.scalar(1.0, DType::F32)?;
        let attrs = attributes(call, x, w, Some(DType::I32))?;
        return one(call.op("qnn.conv2d", &[x, w, zeros[0], zeros[1], scale, scale], attrs)?);
    }
    let (x, w) = (less(call, x, x_zero, 1)?, less(call, w, w_zero, 0)?);
    one(product(call, x, w, Some(DType::I32))?)
}

/// Whether a tensor is one number.
pub(super) fn is_one(call: &Call<'_, '_>, tensor: TensorId) -> bool {
    call.rank(tensor) < 2 && call.ty(tensor).shape.elements() == Some(1)
}

/// A zero point; that of `x` without one is 0.
pub(super) fn or_zero(call: &mut Call<'_, '_>, zero: Option<TensorId>, x: TensorId) -> Result<TensorId> {
    zero.map_or_else(|| call.like(0.0, x), Ok)
}

/// `x` less its zero point, a scalar or a vector along `axis`, as int32.
pub(super) fn less(call: &mut Call<'_, '_>, x: TensorId, zero: Option<TensorId>, axis: usize) -> Result<TensorId> {
    let wide = call.cast(x, DType::I32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let zero = call.cast(zero, DType::I32)?;
    let trailing = match call.rank(zero) {
        1 if call.dims(zero)? != [1] => call.rank(x).saturating_sub(axis + 1),
        _ => 0,
    };
    let end = call.rank(zero);
    let zero = call.expand(zero, end, trailing)?;
    call.map("subtract", &[wide, zero])
}
