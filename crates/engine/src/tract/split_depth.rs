//! Convolutions as sums over blocks of input channels, where neither the weights nor the columns of the matrix product fit
//! in the second-level cache: a product streams one of the two from there for every tile.
//!
//! A block's product adds to what the blocks before it have computed when it stores its tiles, which tract fuses.

use tract_core::{
    internal::*,
    ops::{
        array::Slice,
        cnn::{Conv, PoolSpec},
        math,
    },
};
use tract_linalg::cache::cache_info;

use super::plain_conv::is_plain_conv;

/// Share of the second-level cache for the weights of a block.
const SHARE: f64 = 0.6;

/// Splits all convolutions that are too deep for this CPU.
pub(super) fn split_depth(model: &mut TypedModel) -> TractResult<()> {
    split_deeper_than(model, cache_info().l2)
}

fn split_deeper_than(model: &mut TypedModel, cache: usize) -> TractResult<()> {
    for id in model.eval_order()? {
        let node = model.node(id);
        let Some(conv) = node.op_as::<Conv>() else { continue };
        let Some(weight) = model.outlet_fact(node.inputs[1])?.konst.clone() else { continue };
        let Some(blocks) = blocks(conv, model.outlet_fact(node.inputs[0])?, cache) else { continue };
        sum_patch(model, node, conv, &weight, blocks)?.apply(model)?;
    }
    model.compact()
}

/// Into how many blocks of input channels a convolution is split; `None` if it is not.
fn blocks(conv: &Conv, data: &TypedFact, cache: usize) -> Option<usize> {
    let spec = &conv.pool_spec;
    let shape = data.shape.as_concrete().filter(|_| conv.group == 1 && is_plain_conv(conv, data))?;
    let positions: usize = spec.output_shape(shape).ok()?.hw_dims().iter().product();
    let depth = spec.input_channels * spec.kernel_shape.iter().product::<usize>();
    let bytes = |width: usize| width.saturating_mul(depth).saturating_mul(size_of::<f32>());
    let weights = bytes(spec.output_channels);
    let count = (weights as f64 / (SHARE * cache as f64)).ceil() as usize;
    let is_deep = weights > cache && bytes(positions) > cache;
    // A block has one channel at least.
    is_deep.then_some(count.min(spec.input_channels)).filter(|count| *count > 1)
}

/// `conv` as the sum of convolutions of `blocks` parts of its input.
fn sum_patch(
    model: &TypedModel,
    node: &TypedNode,
    conv: &Conv,
    weight: &Tensor,
    blocks: usize,
) -> TractResult<TypedModelPatch> {
    let spec = &conv.pool_spec;
    let (channels, axis) = (spec.input_channels, usize::from(spec.data_format.has_n()));
    let mut patch = TypedModelPatch::new("a convolution as a sum over blocks of channels");
    let inputs = patch.taps(model, &node.inputs)?;
    let mut sum: Option<OutletId> = None;
    for block in 0..blocks {
        let (start, end) = (channels * block / blocks, channels * (block + 1) / blocks);
        let name = match block + 1 == blocks {
            true => node.name.clone(),
            false => format!("{}.block{block}", node.name),
        };
        let part = patch.wire_node(format!("{name}.channels"), Slice::new(axis, start, end), &inputs[..1])?[0];
        let weight = patch.add_const(format!("{name}.weight"), weight.slice(1, start, end)?)?;
        let bias = match block {
            0 => inputs[2],
            _ => patch.add_const(format!("{name}.bias"), tensor0(0f32))?,
        };
        let spec = PoolSpec { input_channels: end - start, ..spec.clone() };
        let part_conv = Conv { pool_spec: spec, ..conv.clone() };
        let product = patch.wire_node(format!("{name}.product"), part_conv, &[part, weight, bias])?[0];
        sum = Some(match sum {
            Some(sum) => patch.wire_node(name, math::add(), &[product, sum])?[0],
            None => product,
        });
    }
    let sum = sum.context("a convolution has a channel")?;
    patch.shunt_outside(model, node.id.into(), sum)?;
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_core::ops::{
        cnn::{KernelFormat, PaddingSpec},
        nn::DataFormat,
    };

    #[test]
    fn the_sum_equals_the_convolution() {
        let numbers = |count: usize| (0..count).map(|i| (i * 37 % 11) as f32 - 5.0).collect::<Vec<f32>>();
        for (format, shape) in [(DataFormat::NCHW, vec![2, 7, 5, 6]), (DataFormat::CHW, vec![7, 5, 6])] {
            let spec = PoolSpec {
                data_format: format,
                kernel_shape: tvec![3, 3],
                padding: PaddingSpec::SameUpper,
                dilations: None,
                strides: None,
                input_channels: 7,
                output_channels: 4,
            };
            let conv = Conv { pool_spec: spec, kernel_fmt: KernelFormat::OIHW, group: 1, q_params: None };
            let mut model = TypedModel::default();
            let data = model.add_source("data", f32::fact(&*shape)).unwrap();
            let weight = Tensor::from_shape(&[4, 7, 3, 3], &numbers(4 * 7 * 9)).unwrap();
            let weight = model.add_const("weight", weight).unwrap();
            let bias = model.add_const("bias", tensor1(&numbers(4))).unwrap();
            let made = model.wire_node("conv", conv, &[data, weight, bias]).unwrap();
            model.select_output_outlets(&made).unwrap();
            let data = Tensor::from_shape(&shape, &numbers(shape.iter().product())).unwrap().into_tvalue();
            let run = |model: &TypedModel| {
                model.clone().into_optimized().unwrap().into_runnable().unwrap().run(tvec![data.clone()]).unwrap()
            };
            let want = run(&model);
            split_deeper_than(&mut model, 300).unwrap();
            let count = model.nodes().iter().filter(|node| node.op_is::<Conv>()).count();
            assert_eq!(count, 6, "{format:?}");
            assert_eq!(run(&model), want, "exact for small integers");
        }
    }
}
