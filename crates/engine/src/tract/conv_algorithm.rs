//! Selects the algorithm of convolutions for which tract's default is slow.
//!
//! Depthwise convolutions get their own operator ([`Depthwise`]). For the others, tract gathers the taps of a window while
//! it multiplies (lazy im2col), and repeats that for every block of rows of a weight that exceeds the second-level cache.
//! The rules here come from measurements of tract's three algorithms on CPUs with 2 MiB of L2 cache and 16-lane
//! vectors.

use tract_core::{
    internal::*,
    ops::{
        binary::TypedBinOp,
        cnn::{Conv, PoolSpec, conv::DirectSpatialConv},
        nn::DataFormat,
    },
};
use tract_linalg::cache::cache_info;

use super::{
    depthwise::Depthwise,
    fold_scales::{constant_operand, sole_consumer},
    plain_conv::is_plain_conv,
};

/// Up to this many taps, gathering costs more than multiplying.
const FEW_TAPS: usize = 32;

/// Up to this many multiplications per position, a direct convolution with few taps is fastest.
const FEW_PRODUCTS: usize = 1536;

/// From this row length on, a direct convolution fills its vectors.
const MIN_DIRECT_WIDTH: usize = 24;

/// How a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConvAlgorithm {
    /// tract's choice.
    Default,
    /// All taps are gathered into a matrix first.
    Im2col,
    /// Each tap is multiplied with whole rows.
    Direct,
    /// Taps are gathered while multiplying.
    LazyIm2col,
}

/// Up to this many output channels, tract's default for wide rows (direct) is fastest even with many taps.
const FEW_CHANNELS: usize = 16;

/// From this window size on, tract gathers lazily.
const MIN_LAZY_WINDOW: usize = 6;

/// The matrix product of a convolution: `m` output channels, `k` taps over all input channels, `n` output positions.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    k: usize,
    n: usize,
    /// Output positions in a row.
    width: usize,
    /// Taps of the window in one channel.
    window: usize,
}

impl ConvAlgorithm {
    /// The fastest algorithm for a second-level cache of `cache` bytes.
    fn of(sizes: Sizes, cache: usize) -> ConvAlgorithm {
        let Sizes { m, k, n, width, window } = sizes;
        let bytes = |a: usize, b: usize| a.saturating_mul(b).saturating_mul(size_of::<f32>());
        let im2col_fits = bytes(k, n) <= cache;
        if k <= FEW_TAPS && m * k <= FEW_PRODUCTS && width >= MIN_DIRECT_WIDTH {
            ConvAlgorithm::Direct
        } else if im2col_fits && (k <= FEW_TAPS || bytes(m, k) > cache) {
            ConvAlgorithm::Im2col
        } else if k > FEW_TAPS && m > FEW_CHANNELS && window >= MIN_LAZY_WINDOW {
            ConvAlgorithm::LazyIm2col
        } else {
            ConvAlgorithm::Default
        }
    }
}

/// Rewrites the convolutions of a decluttered model for which tract would use a slow algorithm.
pub(super) fn select_conv_algorithms(model: &mut TypedModel) -> TractResult<()> {
    let cache = cache_info().l2;
    for id in model.eval_order()? {
        let node = model.node(id);
        let Some(conv) = node.op_as::<Conv>() else { continue };
        let data = model.outlet_fact(node.inputs[0])?;
        if let Some(depthwise) = Depthwise::of(conv, data) {
            depthwise_patch(model, node, depthwise)?.apply(model)?;
            continue;
        }
        let Some(sizes) = sizes(conv, data) else { continue };
        let algorithm = ConvAlgorithm::of(sizes, cache);
        if algorithm == ConvAlgorithm::Default {
            continue;
        }
        let mut patch = TypedModelPatch::new("another convolution algorithm");
        let inputs = patch.taps(model, &node.inputs)?;
        let output = match algorithm {
            // SAFETY: wired for the shape and dtype of the data, as in tract's own code generation.
            ConvAlgorithm::Im2col => unsafe { conv.wire_as_im2col_pair(&mut patch, &node.name, &inputs)? },
            // SAFETY: as above; the algorithm requires a batch of one image, which `sizes` checks.
            ConvAlgorithm::LazyIm2col => unsafe { conv.wire_as_lazy_im2col(&mut patch, &node.name, &inputs)? },
            _ => direct(conv, &mut patch, &node.name, &inputs)?,
        };
        patch.shunt_outside(model, id.into(), output[0])?;
        patch.apply(model)?;
    }
    model.compact()
}

/// Replaces the convolution `node` by `depthwise`, merged with the minima and maxima that follow it.
fn depthwise_patch(model: &TypedModel, node: &TypedNode, mut depthwise: Depthwise) -> TractResult<TypedModelPatch> {
    let mut last = node;
    while let Some(next) = sole_consumer(model, last)? {
        let other = constant_operand(model, next, last)?;
        let op =
            next.op_as::<TypedBinOp>().zip(other).filter(|_| next.outputs[0].fact.shape == last.outputs[0].fact.shape);
        let Some(bounded) = op.and_then(|(op, other)| depthwise.bounded(op, &other)) else { break };
        (depthwise, last) = (bounded, next);
    }
    let mut patch = TypedModelPatch::new("depthwise convolution");
    let inputs = patch.taps(model, &node.inputs)?;
    let output = patch.wire_node(&*last.name, depthwise, &inputs)?;
    patch.shunt_outside(model, last.id.into(), output[0])?;
    Ok(patch)
}

/// The sizes of a two-dimensional convolution of one image in single precision; `None` for any other.
fn sizes(conv: &Conv, data: &TypedFact) -> Option<Sizes> {
    let spec = &conv.pool_spec;
    let plain = conv.group == 1 && spec.rank() == 2 && is_plain_conv(conv, data);
    let is_single = |shape: &[usize]| spec.data_format == DataFormat::CHW || shape[0] == 1;
    let shape = data.shape.as_concrete().filter(|shape| plain && is_single(shape))?;
    let out = spec.output_shape(shape).ok()?;
    let window: usize = spec.kernel_shape.iter().product();
    Some(Sizes {
        m: spec.output_channels,
        k: spec.input_channels * window,
        n: out.hw_dims().iter().product(),
        width: *out.hw_dims().last()?,
        window,
    })
    .filter(|_| window > 1)
}

/// Wires tract's direct convolution of data, weight (O, I, H, W) and bias.
fn direct(conv: &Conv, patch: &mut TypedModelPatch, name: &str, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let &[data, weight, bias] = inputs else { bail!("a convolution has three inputs") };
    if conv.pool_spec.data_format == DataFormat::CHW {
        let spec = PoolSpec { data_format: DataFormat::NCHW, ..conv.pool_spec.clone() };
        let batch = patch.wire_node(format!("{name}.batch"), AxisOp::Add(0), &[data])?[0];
        let conv = Conv { pool_spec: spec, ..conv.clone() };
        let made = direct(&conv, patch, &format!("{name}.direct"), &[batch, weight, bias])?;
        return patch.wire_node(name, AxisOp::Rm(0), &made);
    }
    let shape = patch.outlet_fact(data)?.shape.clone();
    let concrete = shape.as_concrete().context("the shape of the data is unknown")?;
    let geometry = conv.pool_spec.compute_geo(&shape)?.to_concrete(concrete)?.into_owned();
    let filters = patch.outlet_fact(weight)?.shape.to_tvec();
    let joined = filters[1..].iter().product::<TDim>();
    let flat = AxisOp::Reshape(1, filters[1..].into(), tvec![joined]);
    let weight = patch.wire_node(format!("{name}.flat"), flat, &[weight])?;
    let weight = patch.wire_node(format!("{name}.grouped"), AxisOp::Add(0), &weight)?;
    let mut bias = tvec![bias];
    if patch.outlet_fact(bias[0])?.rank() == 0 {
        let op = tract_core::ops::array::MultiBroadcastTo::new([filters[0].clone()].into_iter().collect());
        bias = patch.wire_node(format!("{name}.biases"), op, &bias)?;
    }
    let along = tvec![1.to_dim(), filters[0].clone(), 1.to_dim(), 1.to_dim()];
    let bias = patch.wire_node(format!("{name}.bias"), AxisOp::Reshape(0, tvec![filters[0].clone()], along), &bias)?;
    let op = DirectSpatialConv::new(geometry.patch, geometry.input_shape, geometry.output_shape);
    patch.wire_node(name, op, &[data, weight[0], bias[0]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_core::ops::{
        cnn::{KernelFormat, PaddingSpec},
        math,
    };

    #[test]
    fn the_algorithm_depends_on_sizes() {
        let algorithm = |m, k, n, width| ConvAlgorithm::of(Sizes { m, k, n, width, window: 9 }, 2 << 20);
        assert_eq!(algorithm(512, 4608, 49, 7), ConvAlgorithm::Im2col);
        assert_eq!(algorithm(64, 576, 3136, 56), ConvAlgorithm::LazyIm2col);
        assert_eq!(algorithm(256, 2304, 3136, 56), ConvAlgorithm::LazyIm2col, "the im2col matrix exceeds the cache");
        assert_eq!(algorithm(8, 72, 50176, 224), ConvAlgorithm::Default);
        assert_eq!(algorithm(32, 27, 12544, 112), ConvAlgorithm::Direct);
        assert_eq!(algorithm(64, 27, 12544, 112), ConvAlgorithm::Im2col);
        assert_eq!(algorithm(16, 27, 16, 4), ConvAlgorithm::Im2col);
    }

    #[test]
    fn all_algorithms_give_the_same_result() {
        for (input, output, window, stride, bias) in
            [(3, 8, 3, 2, true), (3, 8, 3, 1, false), (1, 64, 5, 1, true), (3, 96, 3, 2, false), (8, 24, 3, 1, true)]
        {
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
            let size = 49;
            let spec = PoolSpec {
                data_format: DataFormat::NCHW,
                kernel_shape: tvec![window, window],
                padding: PaddingSpec::Explicit(tvec![1, 0], tvec![1, 2]),
                dilations: None,
                strides: Some(tvec![stride, stride]),
                input_channels: input,
                output_channels: output,
            };
            let conv = Conv { pool_spec: spec, kernel_fmt: KernelFormat::OIHW, group: 1, q_params: None };
            let mut model = TypedModel::default();
            let data = model.add_source("data", f32::fact([1, input, size, size])).unwrap();
            let weight = [output, input, window, window];
            let weight = Tensor::from_shape(&weight, &numbers(weight.iter().product())).unwrap();
            let weight = model.add_const("weight", weight).unwrap();
            let bias = if bias { tensor1(&numbers(output)) } else { tensor0(0.5f32) };
            let bias = model.add_const("bias", bias).unwrap();
            let made = model.wire_node("conv", conv, &[data, weight, bias]).unwrap();
            model.select_output_outlets(&made).unwrap();
            let input = Tensor::from_shape(&[1, input, size, size], &numbers(input * size * size)).unwrap();
            let run = |model: TypedModel| {
                let plan = model.into_optimized().unwrap().into_runnable().unwrap();
                plan.run(tvec![input.clone().into_tvalue()]).unwrap()[0].clone()
            };
            let want = run(model.clone());
            select_conv_algorithms(&mut model).unwrap();
            assert!(model.nodes().iter().all(|node| !node.op_is::<Conv>()));
            run(model).close_enough(&want, Approximation::Approximate).unwrap();
        }
    }

    #[test]
    fn minima_and_maxima_are_merged_into_depthwise_convolutions() {
        for (format, shape, stride, window) in [
            (DataFormat::NCHW, &[2, 6, 9, 7][..], 1, [3, 3]),
            (DataFormat::NCHW, &[1, 6, 8, 8], 2, [3, 3]),
            (DataFormat::CHW, &[6, 9, 7], 1, [5, 2]),
        ] {
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
            let spec = PoolSpec {
                data_format: format,
                kernel_shape: window.iter().copied().collect(),
                padding: PaddingSpec::Explicit(tvec![1, 1], tvec![1, 1]),
                dilations: None,
                strides: Some(tvec![stride, stride]),
                input_channels: 6,
                output_channels: 6,
            };
            let conv = Conv { pool_spec: spec, kernel_fmt: KernelFormat::OIHW, group: 6, q_params: None };
            let mut model = TypedModel::default();
            let data = model.add_source("data", f32::fact(shape)).unwrap();
            let weight = [6, 1, window[0], window[1]];
            let weight = Tensor::from_shape(&weight, &numbers(weight.iter().product())).unwrap();
            let weight = model.add_const("weight", weight).unwrap();
            let bias = model.add_const("bias", tensor1(&numbers(6))).unwrap();
            let mut made = model.wire_node("conv", conv, &[data, weight, bias]).unwrap();
            let ones = vec![1; shape.len()];
            for (name, op, bound) in [("low", math::max(), -0.4f32), ("high", math::min(), 0.7)] {
                let bound = model.add_const(name, Tensor::from_shape(&ones, &[bound]).unwrap()).unwrap();
                made = model.wire_node(format!("bounded {name}"), op, &[made[0], bound]).unwrap();
            }
            model.select_output_outlets(&made).unwrap();
            let input = Tensor::from_shape(shape, &numbers(shape.iter().product())).unwrap();
            let run = |model: &TypedModel| {
                let plan = model.clone().into_runnable().unwrap();
                plan.run(tvec![input.clone().into_tvalue()]).unwrap()[0].clone()
            };
            let want = run(&model);
            select_conv_algorithms(&mut model).unwrap();
            assert_eq!(model.nodes().iter().filter(|node| node.op_is::<Depthwise>()).count(), 1);
            assert!(model.nodes().iter().all(|node| !node.op_is::<TypedBinOp>()));
            run(&model).close_enough(&want, Approximation::Approximate).unwrap();
        }
    }
}
