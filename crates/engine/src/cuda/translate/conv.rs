//! Convolutions and transposed convolutions over up to three axes, grouped or not.
//!
//! With many channels, a convolution is computed by cuDNN if it is there and supports the sizes, else as the product of the
//! weights with the im2col matrix, or with the data itself for a 1×1 kernel. With few channels, as in depthwise convolutions, each thread computes one element.

use tract_core::{
    internal::*,
    ops::cnn::{Conv, Deconv, KernelFormat, PoolSpec},
};

use super::{
    builder::{KernelBuilder, Value, name_of},
    pointwise::zip_with,
};
use crate::cuda::{
    arguments::{Convolution, Product},
    driver::{ConvolutionSizes, Grid},
    source::KernelFamily,
};

/// From this many output channels per group, and taps over all input channels, a matrix product is faster.
const MIN_PRODUCT_CHANNELS: usize = 4;
const MIN_PRODUCT_DEPTH: usize = 16;
/// Workspace that cuDNN may use for any convolution, in bytes. If the im2col matrix that it replaces is larger, the limit is
/// the size of that matrix, so that cuDNN hardly increases the memory of a convolution.
const MIN_WORKSPACE: usize = 1 << 20;

pub(super) fn translate(
    builder: &mut KernelBuilder<'_>,
    node: &TypedNode,
    operands: &[Value],
) -> TractResult<Option<TVec<Value>>> {
    let (spec, format, groups, transposed) = match (node.op_as::<Conv>(), node.op_as::<Deconv>()) {
        (Some(conv), _) => {
            ensure!(conv.q_params.is_none(), "quantised convolutions are not supported on a GPU");
            (&conv.pool_spec, conv.kernel_fmt, conv.group, false)
        }
        (_, Some(deconv)) => (&deconv.pool_spec, deconv.kernel_format, deconv.group, true),
        _ => return Ok(None),
    };
    ensure!(format == KernelFormat::OIHW, "weights in another layout than OIHW");
    let [data, weight, bias] = operands else { bail!("a convolution has three operands") };
    let dtype = name_of(data.dtype).filter(|name| matches!(*name, "f32" | "f64" | "i32" | "i64"));
    let dtype = dtype.with_context(|| format!("no kernel for elements of type {:?}", data.dtype))?;
    ensure!([weight, bias].iter().all(|value| value.dtype == data.dtype), "operands of different dtypes");
    let output = builder.output(node)?;
    let shape = ConvShape::new(spec, groups, transposed, [data, weight, bias], &output)?;
    if !transposed && dtype == "f32" && shape.suits_products() {
        match shape.library_sizes().and_then(|sizes| builder.library_convolution(&sizes, shape.max_workspace())) {
            Some(convolution) => builder.convolve(convolution, data, weight, &output),
            None => shape.as_products(builder, data, weight, &output)?,
        }
        shape.add_bias(builder, bias, &output)?;
        return Ok(Some(tvec![output]));
    }
    let kernel =
        KernelFamily::Window.kernel(format!("{}_{dtype}", if transposed { "transposed" } else { "convolution" }));
    let arguments = shape.arguments;
    let grid = Grid::Threads(arguments.count);
    builder.launch(kernel, &[data, weight, bias], &output, grid, move |at| Convolution {
        data: at[0],
        weight: at[1],
        bias: at[2],
        to: at[3],
        ..arguments
    });
    Ok(Some(tvec![output]))
}

/// The sizes of a convolution.
struct ConvShape {
    images: usize,
    /// Output positions of one channel.
    positions: usize,
    /// The channel axis of the result.
    channel_axis: usize,
    taps: usize,
    /// Without addresses.
    arguments: Convolution,
}

impl ConvShape {
    fn new(
        spec: &PoolSpec,
        groups: usize,
        transposed: bool,
        [data, weight, bias]: [&Value; 3],
        output: &Value,
    ) -> TractResult<ConvShape> {
        let (from, to) = (spec.data_format.shape(&data.shape[..])?, spec.data_format.shape(&output.shape[..])?);
        let rank = from.hw_dims().len();
        ensure!(rank <= 3, "windows over {rank} axes");
        let missing = 3 - rank;
        // Extended to three axes at the front.
        let three = |values: &[usize], fill: u32| -> [u32; 3] {
            std::array::from_fn(|axis| axis.checked_sub(missing).map_or(fill, |axis| values[axis] as u32))
        };
        let before: TVec<usize> = match transposed {
            false => spec.computed_padding(from.hw_dims()).iter().map(|dim| dim.pad_before).collect(),
            true => {
                // The padding before does not depend on the output padding.
                let none = vec![0; rank];
                let computed = spec.padding.compute_for_deconv(
                    from.hw_dims(),
                    &spec.kernel_shape,
                    &spec.dilations(),
                    &spec.strides(),
                    &none,
                )?;
                computed.iter().map(|dim| dim.pad_before).collect()
            }
        };
        let signed = |values: [u32; 3]| values.map(|n| n as i32);
        let [data_strides, to_strides] = [data, output].map(Value::strides);
        let axes = |steps: &[i64], first: usize| -> [i32; 3] {
            std::array::from_fn(|axis| axis.checked_sub(missing).map_or(0, |axis| steps[first + axis] as i32))
        };
        let taps: usize = spec.kernel_shape.iter().product();
        let (channels_in, channels_out) = (*from.c() / groups, *to.c() / groups);
        ensure!(
            weight.shape[0] == channels_out * groups && weight.shape[1] == channels_in,
            "unexpected shape of the weights"
        );
        ensure!(matches!(bias.count() as usize, 1) || bias.count() as usize == *to.c(), "unexpected shape of the bias");
        let image = |steps: &[i64], axis: Option<usize>| axis.map_or(0, |axis| steps[axis] as i32);
        let arguments = Convolution {
            data: 0,
            weight: 0,
            bias: 0,
            to: 0,
            count: output.count(),
            groups: groups as u32,
            channels_in: channels_in as u32,
            channels_out: channels_out as u32,
            from: three(from.hw_dims(), 1),
            result: three(to.hw_dims(), 1),
            size: three(&spec.kernel_shape, 1),
            stride: signed(three(&spec.strides(), 1)),
            dilation: signed(three(&spec.dilations(), 1)),
            before: signed(three(&before, 0)),
            data_image: image(&data_strides, from.n_axis()),
            data_channel: data_strides[from.c_axis()] as i32,
            data_axis: axes(&data_strides, from.h_axis()),
            to_image: image(&to_strides, to.n_axis()),
            to_channel: to_strides[to.c_axis()] as i32,
            to_axis: axes(&to_strides, to.h_axis()),
            weight_group: (channels_out * channels_in * taps) as i32,
            weight_out: (channels_in * taps) as i32,
            weight_in: taps as i32,
            channels_last: u32::from(spec.data_format.c_is_last()),
            bias_stride: u32::from(bias.count() > 1),
            _pad: 0,
        };
        let images = from.n().copied().unwrap_or(1);
        Ok(ConvShape { images, positions: to.hw_dims().iter().product(), channel_axis: to.c_axis(), taps, arguments })
    }

    fn suits_products(&self) -> bool {
        let Convolution { channels_in, channels_out, .. } = self.arguments;
        let (channels_in, channels_out) = (channels_in as usize, channels_out as usize);
        let columns = channels_in * self.taps * self.positions;
        channels_out >= MIN_PRODUCT_CHANNELS && channels_in * self.taps >= MIN_PRODUCT_DEPTH && columns < 1 << 31
    }

    /// Whether the data equal their im2col matrix.
    fn is_pointwise(&self) -> bool {
        let a = &self.arguments;
        self.taps == 1 && a.stride == [1; 3] && a.before == [0; 3] && a.result == a.from
    }

    /// The sizes as a library takes them; `None` for layouts and paddings that it does not have.
    fn library_sizes(&self) -> Option<ConvolutionSizes> {
        let a = &self.arguments;
        let number = |value: u32| i32::try_from(value).ok();
        let numbers = |values: [u32; 3]| Some([number(values[0])?, number(values[1])?, number(values[2])?]);
        let sizes = ConvolutionSizes {
            images: i32::try_from(self.images).ok()?,
            groups: number(a.groups)?,
            channels_in: number(a.channels_in)?,
            channels_out: number(a.channels_out)?,
            from: numbers(a.from)?,
            result: numbers(a.result)?,
            size: numbers(a.size)?,
            stride: a.stride,
            dilation: a.dilation,
            before: a.before,
        };
        (a.channels_last == 0 && a.count > 0 && sizes.is_padded_evenly()).then_some(sizes)
    }

    fn max_workspace(&self) -> usize {
        let columns = self.arguments.channels_in as usize * self.taps * self.positions;
        if self.is_pointwise() { MIN_WORKSPACE } else { MIN_WORKSPACE.max(columns * size_of::<f32>()) }
    }

    /// For each image and group, im2col and the product with the weights.
    fn as_products(
        &self,
        builder: &mut KernelBuilder<'_>,
        data: &Value,
        weight: &Value,
        output: &Value,
    ) -> TractResult<()> {
        let a = self.arguments;
        let (channels_in, channels_out) = (a.channels_in as usize, a.channels_out as usize);
        let depth = channels_in * self.taps;
        let last = a.channels_last != 0;
        let columns = match self.is_pointwise() {
            true => None,
            false => Some(builder.tensor(&[depth, self.positions], DatumType::F32)?),
        };
        let bytes = |elements: usize| (elements * size_of::<f32>()) as u64;
        for image in 0..self.images {
            for group in 0..a.groups as usize {
                let from = image * a.data_image as usize + group * channels_in * a.data_channel as usize;
                let to = image * a.to_image as usize + group * channels_out * a.to_channel as usize;
                if let Some(columns) = &columns {
                    let (count, offset) = (columns.count(), bytes(from));
                    let kernel = KernelFamily::Window.kernel("im2col_f32");
                    builder.launch(kernel, &[data], columns, Grid::Threads(count), move |at| Convolution {
                        data: at[0] + offset,
                        to: at[1],
                        count,
                        ..a
                    });
                }
                // Positions are contiguous in the dense result, except for the channels if they are last.
                let (right_depth, right_column) = match &columns {
                    Some(_) => (self.positions as i32, 1),
                    None => (a.data_channel, if last { (channels_in * a.groups as usize) as i32 } else { 1 }),
                };
                let (right, right_offset) = match &columns {
                    Some(columns) => (columns, 0),
                    None => (data, bytes(from)),
                };
                let product = Product {
                    left: 0,
                    right: 0,
                    to: 0,
                    batch: 1,
                    rows: a.channels_out,
                    columns: self.positions as u32,
                    depth: depth as u32,
                    left_batch: 0,
                    left_row: depth as i32,
                    left_depth: 1,
                    right_batch: 0,
                    right_depth,
                    right_column,
                    to_batch: 0,
                    to_row: a.to_channel,
                    to_column: if last { (channels_out * a.groups as usize) as i32 } else { 1 },
                    _pad: 0,
                };
                let offsets = [bytes(group * channels_out * depth), right_offset, bytes(to)];
                builder.multiply(KernelFamily::Product.kernel("product_f32"), weight, right, output, offsets, product);
            }
        }
        Ok(())
    }

    fn add_bias(&self, builder: &mut KernelBuilder<'_>, bias: &Value, output: &Value) -> TractResult<()> {
        let is_zero = bias.known.as_ref().is_some_and(|bias| bias.as_bytes().iter().all(|byte| *byte == 0));
        if !is_zero {
            let mut shape: TVec<usize> = tvec![1; output.shape.len()];
            shape[self.channel_axis] = bias.count() as usize;
            zip_with(builder, "add_f32".to_string(), output, &bias.viewed(&shape), output)?;
        }
        Ok(())
    }
}
