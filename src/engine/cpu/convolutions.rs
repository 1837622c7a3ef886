//! How convolutions are computed where tract's own choice is a slow one.
//!
//! Those of each channel alone get an operator of our own ([`Depthwise`]).
//!
//! tract gathers the taps of a window while it multiplies (*lazily*), and again for every block of rows of a weight
//! that does not fit into the second-level cache. The rules here are from measurements of all three ways that tract has, on
//! processors with 2 MiB of that cache and vectors of 16 floats.

use tract_core::{
    internal::*,
    ops::{
        binary::TypedBinOp,
        cnn::{Conv, KernelFormat, conv::DirectSpatialConv},
        nn::DataFormat,
    },
};
use tract_linalg::cache::cache_info;

use super::{
    depthwise::Depthwise,
    fold::{only_reader, other_constant},
};

/// Products of each result up to which gathering them costs more than multiplying.
const FEW_TAPS: usize = 32;

/// Products over all output channels of a point up to which a direct convolution with few taps wins.
const FEW_PRODUCTS: usize = 1536;

/// Results in a row from which a direct convolution fills its vectors.
const WIDE: usize = 24;

/// A way to compute a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// What tract does.
    Usual,
    /// All taps are gathered into a matrix first.
    Gathered,
    /// Each tap is multiplied with whole rows.
    Direct,
    /// Taps are gathered while they are multiplied.
    Lazy,
}

/// Output channels up to which what tract does with wide rows, the direct way, wins with many taps too.
const FEW_CHANNELS: usize = 16;

/// Taps from which tract gathers lazily.
const WINDOW: usize = 6;

/// Sizes of the matrix product that a convolution is: channels out, products of each result, results of a channel.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    m: usize,
    k: usize,
    n: usize,
    /// Results in a row.
    width: usize,
    /// Elements of a window in one channel.
    window: usize,
}

impl Way {
    fn of(sizes: Sizes, cache: usize) -> Way {
        let Sizes { m, k, n, width, window } = sizes;
        let bytes = |a: usize, b: usize| a.saturating_mul(b).saturating_mul(size_of::<f32>());
        let taps_fit = bytes(k, n) <= cache;
        if k <= FEW_TAPS && m * k <= FEW_PRODUCTS && width >= WIDE {
            Way::Direct
        } else if taps_fit && (k <= FEW_TAPS || bytes(m, k) > cache) {
            Way::Gathered
        } else if k > FEW_TAPS && m > FEW_CHANNELS && window >= WINDOW {
            Way::Lazy
        } else {
            Way::Usual
        }
    }
}

/// Rewrites the convolutions of a simplified model that tract would compute in a slow way.
pub(super) fn choose_ways(model: &mut TypedModel) -> TractResult<()> {
    let cache = cache_info().l2;
    for id in model.eval_order()? {
        let node = model.node(id);
        let Some(conv) = node.op_as::<Conv>() else { continue };
        let data = model.outlet_fact(node.inputs[0])?;
        if let Some(alone) = Depthwise::of(conv, data) {
            alone_with_bounds(model, node, alone)?.apply(model)?;
            continue;
        }
        let Some(sizes) = sizes(conv, data) else { continue };
        let way = Way::of(sizes, cache);
        if way == Way::Usual {
            continue;
        }
        let mut patch = TypedModelPatch::new("another way to compute a convolution");
        let inputs = patch.taps(model, &node.inputs)?;
        let made = match way {
            // SAFETY: it is wired for the shape and the dtype of the data, as tract itself does it.
            Way::Gathered => unsafe { conv.wire_as_im2col_pair(&mut patch, &node.name, &inputs)? },
            // SAFETY: as above; the batch is one image, which this way needs.
            Way::Lazy => unsafe { conv.wire_as_lazy_im2col(&mut patch, &node.name, &inputs)? },
            _ => direct(conv, &mut patch, &node.name, &inputs)?,
        };
        patch.shunt_outside(model, id.into(), made[0])?;
        patch.apply(model)?;
    }
    model.compact()
}

/// What replaces the convolution `node` by `alone`, which takes in the bounds that follow.
fn alone_with_bounds(model: &TypedModel, node: &TypedNode, mut alone: Depthwise) -> TractResult<TypedModelPatch> {
    let mut last = node;
    while let Some(next) = only_reader(model, last)? {
        let other = other_constant(model, next, last)?;
        let op =
            next.op_as::<TypedBinOp>().zip(other).filter(|_| next.outputs[0].fact.shape == last.outputs[0].fact.shape);
        let Some(bounded) = op.and_then(|(op, other)| alone.bounded(op, &other)) else { break };
        (alone, last) = (bounded, next);
    }
    let mut patch = TypedModelPatch::new("a convolution of each channel alone");
    let inputs = patch.taps(model, &node.inputs)?;
    let made = patch.wire_node(&*last.name, alone, &inputs)?;
    patch.shunt_outside(model, last.id.into(), made[0])?;
    Ok(patch)
}

/// The sizes of a convolution of one plain image; `None` for any other.
fn sizes(conv: &Conv, data: &TypedFact) -> Option<Sizes> {
    let spec = &conv.pool_spec;
    let plain = data.datum_type == DatumType::F32
        && conv.q_params.is_none()
        && conv.group == 1
        && conv.kernel_fmt == KernelFormat::OIHW
        && spec.data_format == DataFormat::NCHW
        && spec.rank() == 2;
    let shape = data.shape.as_concrete().filter(|shape| plain && shape[0] == 1)?;
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
    let shape = patch.outlet_fact(data)?.shape.clone();
    let concrete = shape.as_concrete().context("the shape of the data is not known")?;
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
        cnn::{PaddingSpec, PoolSpec},
        math,
    };

    #[test]
    fn large_weights_and_few_taps_go_other_ways() {
        let way = |m, k, n, width| Way::of(Sizes { m, k, n, width, window: 9 }, 2 << 20);
        assert_eq!(way(512, 4608, 49, 7), Way::Gathered);
        assert_eq!(way(64, 576, 3136, 56), Way::Lazy);
        assert_eq!(way(256, 2304, 3136, 56), Way::Lazy, "the gathered taps would not fit");
        assert_eq!(way(8, 72, 50176, 224), Way::Usual);
        assert_eq!(way(32, 27, 12544, 112), Way::Direct);
        assert_eq!(way(64, 27, 12544, 112), Way::Gathered);
        assert_eq!(way(16, 27, 16, 4), Way::Gathered);
    }

    #[test]
    fn all_ways_give_what_tract_gives() {
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
            choose_ways(&mut model).unwrap();
            assert!(model.nodes().iter().all(|node| !node.op_is::<Conv>()));
            run(model).close_enough(&want, Approximation::Approximate).unwrap();
        }
    }

    #[test]
    fn a_convolution_of_single_channels_takes_in_its_bounds() {
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
            choose_ways(&mut model).unwrap();
            assert_eq!(model.nodes().iter().filter(|node| node.op_is::<Depthwise>()).count(), 1);
            assert!(model.nodes().iter().all(|node| !node.op_is::<TypedBinOp>()));
            run(&model).close_enough(&want, Approximation::Approximate).unwrap();
        }
    }
}
