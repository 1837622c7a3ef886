//! Convolutions over one to three axes in all layouts, transposed convolutions, and the weight gradient.
//!
//! ONNX knows the layouts NCHW and OIHW: others are transposed around the node, weights with known content when they are
//! written. ONNX Runtime convolves float32 and, to int32, 8-bit integers; other types are multiplied as a matrix of all
//! windows.

use edgecut_graph::DType;
use edgecut_ops::window::Window;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        layout::BlockedLayout,
        scope::{Scope, known, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("nn.contrib_conv2d_NCHWc", One(|scope| conv(scope, 2))),
    ("nn.contrib_depthwise_conv2d_NCHWc", One(|scope| conv(scope, 2))),
    ("nn.conv1d", One(|scope| conv(scope, 1))),
    ("nn.conv1d_transpose", One(|scope| transposed(scope, 1))),
    ("nn.conv2d", One(|scope| conv(scope, 2))),
    ("nn.conv2d_backward_weight", One(backward_weight)),
    ("nn.conv2d_transpose", One(|scope| transposed(scope, 2))),
    ("nn.conv3d", One(|scope| conv(scope, 3))),
    ("nn.conv3d_transpose", One(|scope| transposed(scope, 3))),
];

pub(super) const DATA: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];
const KERNEL: [&str; 4] = ["OI", "OIW", "OIHW", "OIDHW"];
const TRANSPOSED_KERNEL: [&str; 4] = ["IO", "IOW", "IOHW", "IODHW"];

/// Layout attributes, operands in canonical layouts, and what the node's attributes are made of.
pub(super) struct Convolution {
    pub x: OnnxValue,
    /// (channels out, channels in / groups, spatial…).
    pub weight: OnnxValue,
    pub weight_dims: Vec<i64>,
    pub groups: i64,
    pub windows: Vec<Window>,
    out: BlockedLayout,
    rank: usize,
}

/// The layout that an attribute names, or a default.
pub(super) fn layout(scope: &Scope<'_>, key: &str, default: &'static str) -> Result<BlockedLayout> {
    let text = scope.text(key, default)?;
    BlockedLayout::parse(if text.is_empty() { default } else { text })
}

impl Convolution {
    pub fn read(scope: &mut Scope<'_>, rank: usize) -> Result<Convolution> {
        let data = layout(scope, "data_layout", DATA[rank])?;
        let kernel = layout(scope, "kernel_layout", KERNEL[rank])?;
        let out = match scope.text("out_layout", "")? {
            "" => data.clone(),
            text => BlockedLayout::parse(text)?,
        };
        let groups = scope.int("groups", 1)?;
        let dims = known(&scope.ty(0)?.shape).ok();
        let (x, weight) = (scope.x(0)?, scope.x(1)?);
        let x = data.unpack(scope.builder, &x, dims.as_deref(), DATA[rank])?;
        let stored = scope.dims(1)?;
        let mut weight = kernel.unpack(scope.builder, &weight, Some(&stored), KERNEL[rank])?;
        let sizes: Option<Vec<i64>> = KERNEL[rank].chars().map(|letter| kernel.size(&stored, letter)).collect();
        let mut weight_dims = sizes.ok_or("the weight's layout lacks an axis")?;
        let channels_in = dims.as_deref().and_then(|dims| data.size(dims, 'C'));
        let channels = scope.call.optional_int("channels").ok().flatten();
        let plain =
            channels.is_none_or(|n| n == weight_dims[0]) && channels_in.is_none_or(|n| n == weight_dims[1] * groups);
        if !plain && groups > 1 && weight_dims[0] == groups {
            // Depthwise: (channels in, channels out / channels in, …).
            weight_dims[0] *= weight_dims[1];
            weight_dims[1] = 1;
            weight = scope.builder.reshape(&weight, &weight_dims)?;
        }
        let sizes: Vec<u64> = weight_dims[2..].iter().map(|n| *n as u64).collect();
        let windows = scope.checked(scope.call.windows(&sizes))?;
        Ok(Convolution { x, weight, weight_dims, groups, windows, out, rank })
    }

    /// The sizes of the result, with unblocked axes in the order of [`DATA`].
    pub fn result_dims(&self, scope: &Scope<'_>) -> Option<Vec<i64>> {
        let dims = scope.out_dims().ok()?;
        DATA[self.rank].chars().map(|letter| self.out.size(&dims, letter)).collect()
    }

    /// Brings a result to the layout that the operator has.
    pub fn stored(&self, scope: &mut Scope<'_>, y: &OnnxValue) -> Result<OnnxValue> {
        let sizes = self.result_dims(scope);
        self.out.pack(scope.builder, y, sizes.as_deref(), DATA[self.rank])
    }
}

/// Padding before all axes, then after all.
pub(super) fn pads(windows: &[Window]) -> Vec<i64> {
    let before = windows.iter().map(|window| window.before as i64);
    before.chain(windows.iter().map(|window| window.after as i64)).collect()
}

pub(super) fn each(windows: &[Window], of: impl Fn(&Window) -> u64) -> Vec<i64> {
    windows.iter().map(|window| of(window) as i64).collect()
}

pub(super) fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

pub(super) fn conv(scope: &mut Scope<'_>, rank: usize) -> Result<OnnxValue> {
    let conv = Convolution::read(scope, rank)?;
    let dtype = scope.out()?.dtype;
    let y = if is_byte(conv.x.dtype) && is_byte(conv.weight.dtype) && dtype == DType::I32 {
        windowed(scope.builder, "ConvInteger", &[&conv.x, &conv.weight], &conv).one(dtype)?
    } else if dtype.is_float() && dtype != DType::F64 && conv.x.dtype != DType::F64 {
        let single = multiplied_float(dtype, [conv.x.dtype, conv.weight.dtype]);
        let (x, weight) = (scope.builder.cast(&conv.x, single)?, scope.builder.cast(&conv.weight, single)?);
        let bias = scope.bias.clone().map(|bias| scope.builder.cast(&bias, single)).transpose()?;
        let y = match &bias {
            Some(bias) => windowed(scope.builder, "Conv", &[&x, &weight, bias], &conv),
            None => windowed(scope.builder, "Conv", &[&x, &weight], &conv),
        };
        let y = y.one(single)?;
        scope.builder.cast(&y, dtype)?
    } else {
        let wide = if dtype.is_float() { dtype } else { multiplied_in(dtype) };
        let (x, weight) = (scope.builder.cast(&conv.x, wide)?, scope.builder.cast(&conv.weight, wide)?);
        let conv = Convolution { x, weight, ..conv };
        let y = as_matrix_product(scope, &conv)?;
        let y = scope.builder.cast(&y, dtype)?;
        return conv.stored(scope, &y);
    };
    conv.stored(scope, &y)
}

/// The type in which floats of the types `operands` are convolved with a result of type `out`: half precision where all have
/// it, else single.
fn multiplied_float(out: DType, operands: [DType; 2]) -> DType {
    if out == DType::F16 && operands == [DType::F16; 2] { DType::F16 } else { DType::F32 }
}

/// The type in which matrices of integers are multiplied.
pub(super) fn multiplied_in(dtype: DType) -> DType {
    if dtype.size() > 4 { DType::I64 } else { DType::I32 }
}

/// A node with the attributes of a convolution.
pub(super) fn windowed<'b>(
    builder: &'b mut ModelBuilder,
    op: &'static str,
    inputs: &[&OnnxValue],
    conv: &Convolution,
) -> crate::export::builder::NodeBuilder<'b> {
    let node = builder.node(op, inputs).ints("kernel_shape", &conv.weight_dims[2..]);
    let mut node = node.ints("strides", &each(&conv.windows, |w| w.stride)).ints("pads", &pads(&conv.windows));
    if conv.windows.iter().any(|window| window.dilation != 1) {
        node = node.ints("dilations", &each(&conv.windows, |w| w.dilation));
    }
    if conv.groups != 1 {
        node = node.int("group", conv.groups);
    }
    node
}

/// Refuses windows whose elements are too many for a table of indices.
pub(super) fn check_indices(dims: &[i64], windows: &[Window], counts: &[i64]) -> Result<()> {
    let entries = [&windows.iter().map(|window| window.size as i64).collect::<Vec<_>>(), counts].concat();
    let fits = table_entries(&entries).is_ok() && dims.iter().try_fold(1i64, |all, n| all.checked_mul(*n)).is_some();
    if fits { Ok(()) } else { Err("its windows have too many elements for a table of indices".to_string()) }
}

/// The elements under every window: `x` of (N, C, spatial…) as (N, C, taps, positions), padded with `padding`.
pub(super) fn columns(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    dims: &[i64],
    windows: &[Window],
    counts: &[i64],
    padding: &OnnxValue,
) -> Result<OnnxValue> {
    check_indices(dims, windows, counts)?;
    let mut widths = vec![(0, 0); 2];
    let mut padded = Vec::new();
    for ((window, n), count) in windows.iter().zip(&dims[2..]).zip(counts) {
        let reach = (count - 1) * window.stride as i64 + (window.size as i64 - 1) * window.dilation as i64 + 1;
        let after = (reach - n - window.before as i64).max(0);
        widths.push((window.before as i64, after));
        padded.push(n + window.before as i64 + after);
    }
    let x = builder.pad(x, &widths, padding)?;
    let (mut taps, mut positions) = (vec![0i64], vec![0i64]);
    for ((window, n), count) in windows.iter().zip(&padded).zip(counts) {
        let extend = |all: &[i64], steps: i64, by: i64| -> Vec<i64> {
            all.iter().flat_map(|at| (0..steps).map(move |k| at * n + k * by)).collect()
        };
        taps = extend(&taps, window.size as i64, window.dilation as i64);
        positions = extend(&positions, *count, window.stride as i64);
    }
    let flat = builder.reshape(&x, &[dims[0], dims[1], padded.iter().product()])?;
    let indices: Vec<i64> = taps.iter().flat_map(|tap| positions.iter().map(move |at| tap + at)).collect();
    let indices = builder.integers(&indices, DType::I64, &[taps.len() as u64, positions.len() as u64])?;
    builder.gather(&flat, &indices, 2)
}

/// A convolution as a product of the weights and the elements under every window: (N, C, spatial…).
fn as_matrix_product(scope: &mut Scope<'_>, conv: &Convolution) -> Result<OnnxValue> {
    let dims = scope.dims(0)?;
    let data = layout(scope, "data_layout", DATA[conv.rank])?;
    let sizes: Option<Vec<i64>> = DATA[conv.rank].chars().map(|letter| data.size(&dims, letter)).collect();
    let (sizes, out) = sizes.zip(conv.result_dims(scope)).ok_or("its sizes are not known")?;
    let zero = scope.builder.scalar(0.0, conv.x.dtype)?;
    let all = columns(scope.builder, &conv.x, &sizes, &conv.windows, &out[2..], &zero)?;
    let taps: i64 = conv.weight_dims[1..].iter().product();
    let positions: i64 = out[2..].iter().product();
    let grouped = scope.builder.reshape(&all, &[sizes[0], conv.groups, taps, positions])?;
    let weight = scope.builder.reshape(&conv.weight, &[conv.groups, conv.weight_dims[0] / conv.groups, taps])?;
    let y = scope.builder.matmul(&weight, &grouped)?;
    scope.builder.reshape(&y, &out)
}

fn transposed(scope: &mut Scope<'_>, rank: usize) -> Result<OnnxValue> {
    let data = layout(scope, "data_layout", DATA[rank])?;
    let out = match scope.text("out_layout", "")? {
        "" => data.clone(),
        text => BlockedLayout::parse(text)?,
    };
    let dims = scope.dims(0)?;
    let channels_in = data.size(&dims, 'C').ok_or("the data's layout lacks an axis")?;
    let stored = scope.dims(1)?;
    let mut kernel = layout(scope, "kernel_layout", TRANSPOSED_KERNEL[rank])?;
    if kernel.size(&stored, 'I') != Some(channels_in) {
        // TVM up to 0.11 writes OIHW although the input channels come first.
        kernel = BlockedLayout::parse(TRANSPOSED_KERNEL[rank])?;
    }
    let (x, weight, dtype) = (scope.x(0)?, scope.x(1)?, scope.out()?.dtype);
    if !dtype.is_float() || dtype == DType::F64 || x.dtype == DType::F64 {
        return Err(format!("ONNX Runtime has no transposed convolution of {dtype}"));
    }
    let x = data.unpack(scope.builder, &x, Some(&dims), DATA[rank])?;
    let weight = kernel.unpack(scope.builder, &weight, Some(&stored), TRANSPOSED_KERNEL[rank])?;
    let size = |letter: char| kernel.size(&stored, letter).unwrap_or(1);
    let sizes: Vec<u64> = TRANSPOSED_KERNEL[rank].chars().skip(2).map(|letter| size(letter) as u64).collect();
    let windows = scope.checked(scope.call.windows(&sizes))?;
    let more = scope.checked(scope.call.sizes_or_zero("output_padding", rank))?;
    let single = multiplied_float(dtype, [x.dtype, weight.dtype]);
    let (x, weight) = (scope.builder.cast(&x, single)?, scope.builder.cast(&weight, single)?);
    let bias = scope.bias.clone().map(|bias| scope.builder.cast(&bias, single)).transpose()?;
    let inputs: Vec<&OnnxValue> = [Some(&x), Some(&weight), bias.as_ref()].into_iter().flatten().collect();
    let kernel_shape: Vec<i64> = sizes.iter().map(|n| *n as i64).collect();
    let more: Vec<i64> = more.iter().map(|n| *n as i64).collect();
    let y = scope
        .builder
        .node("ConvTranspose", &inputs)
        .ints("kernel_shape", &kernel_shape)
        .ints("strides", &each(&windows, |w| w.stride))
        .ints("pads", &pads(&windows))
        .ints("dilations", &each(&windows, |w| w.dilation))
        .ints("output_padding", &more)
        .int("group", scope.call.int("groups", 1).unwrap_or(1))
        .one(single)?;
    let y = scope.builder.cast(&y, dtype)?;
    let out_dims = scope.out_dims()?;
    let result: Option<Vec<i64>> = DATA[rank].chars().map(|letter| out.size(&out_dims, letter)).collect();
    out.pack(scope.builder, &y, result.as_deref(), DATA[rank])
}

/// The gradient of a convolution's weight: for every tap, the products of the gradient and the elements that the tap
/// was multiplied by, summed over batch and positions.
fn backward_weight(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (grad, x) = (scope.x(0)?, scope.x(1)?);
    let (grad_layout, data) = (layout(scope, "data_layout", DATA[2])?, layout(scope, "kernel_layout", DATA[2])?);
    let out = layout(scope, "out_layout", KERNEL[2])?;
    let (grad_dims, data_dims, out_dims) = (scope.dims(0)?, scope.dims(1)?, scope.out_dims()?);
    let sizes_of = |layout: &BlockedLayout, dims: &[i64], letters: &str| -> Result<Vec<i64>> {
        let sizes: Option<Vec<i64>> = letters.chars().map(|letter| layout.size(dims, letter)).collect();
        sizes.ok_or_else(|| "a layout lacks an axis".to_string())
    };
    let (g, d) = (sizes_of(&grad_layout, &grad_dims, DATA[2])?, sizes_of(&data, &data_dims, DATA[2])?);
    let w = sizes_of(&out, &out_dims, KERNEL[2])?;
    let groups = scope.int("groups", 1)?;
    let windows = scope.checked(scope.call.windows(&[w[2] as u64, w[3] as u64]))?;
    let grad = grad_layout.unpack(scope.builder, &grad, Some(&grad_dims), DATA[2])?;
    let x = data.unpack(scope.builder, &x, Some(&data_dims), DATA[2])?;
    let zero = scope.builder.scalar(0.0, x.dtype)?;
    let all = columns(scope.builder, &x, &d, &windows, &g[2..], &zero)?;
    let (taps, positions) = (w[1..].iter().product::<i64>(), g[2] * g[3]);
    // Summing over the batch inside the product: (groups, taps, batch · positions).
    let all = scope.builder.reshape(&all, &[d[0], groups, taps, positions])?;
    let all = scope.builder.transpose(&all, &[1, 0, 3, 2])?;
    let all = scope.builder.reshape(&all, &[groups, d[0] * positions, taps])?;
    let grad = scope.builder.reshape(&grad, &[g[0], groups, g[1] / groups, positions])?;
    let grad = scope.builder.transpose(&grad, &[1, 2, 0, 3])?;
    let grad = scope.builder.reshape(&grad, &[groups, g[1] / groups, d[0] * positions])?;
    let product = scope.builder.matmul(&grad, &all)?;
    let weight = scope.builder.reshape(&product, &w)?;
    out.pack(scope.builder, &weight, Some(&w), KERNEL[2])
}
