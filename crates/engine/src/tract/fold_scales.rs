//! Folds per-channel scales and shifts, as batch normalisation leaves them, into the weights and biases of the preceding
//! convolution.
//!
//! tract itself does so only for some convolutions: not for grouped ones, nor for those that it lowers to matrix
//! products.

use tract_core::{
    internal::*,
    ops::{binary::TypedBinOp, cnn::Conv, cnn::KernelFormat, math},
};

/// Folds scales and shifts after all convolutions. The model's constants must be folded.
pub(crate) fn fold_scales(model: &mut TypedModel) -> TractResult<()> {
    for id in model.eval_order()? {
        if let Some(patch) = fold_patch(model, model.node(id))? {
            patch.apply(model)?;
        }
    }
    model.compact()
}

/// The only consumer of the result of `node`, if the result is not an output of the model.
pub(super) fn sole_consumer<'m>(model: &'m TypedModel, node: &TypedNode) -> TractResult<Option<&'m TypedNode>> {
    let outputs = model.output_outlets()?;
    Ok(match &node.outputs[0].successors[..] {
        [next] if !outputs.contains(&OutletId::new(node.id, 0)) => Some(model.node(next.node)),
        _ => None,
    })
}

/// The operand of the binary operator `next` other than the result of `node`, if it is a constant.
pub(super) fn constant_operand(
    model: &TypedModel,
    next: &TypedNode,
    node: &TypedNode,
) -> TractResult<Option<Arc<Tensor>>> {
    match next.inputs.iter().find(|outlet| outlet.node != node.id) {
        Some(outlet) if next.inputs.len() == 2 => Ok(model.outlet_fact(*outlet)?.konst.clone()),
        _ => Ok(None),
    }
}

/// Merges the convolution `node` with the scales and shifts that follow it; `None` if there are none.
fn fold_patch(model: &TypedModel, node: &TypedNode) -> TractResult<Option<TypedModelPatch>> {
    let Some(conv) = node.op_as::<Conv>() else { return Ok(None) };
    let constant = |outlet: OutletId| Ok::<_, TractError>(model.outlet_fact(outlet)?.konst.clone());
    let (Some(weight), Some(bias)) = (constant(node.inputs[1])?, constant(node.inputs[2])?) else { return Ok(None) };
    let single = node.outputs[0].fact.datum_type == DatumType::F32 && weight.datum_type() == DatumType::F32;
    if !single || conv.q_params.is_some() || conv.kernel_fmt != KernelFormat::OIHW {
        return Ok(None);
    }
    let channels = conv.pool_spec.output_channels;
    let mut filters = weight.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
    let biases = bias.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
    let mut biases: Vec<f32> = biases.iter().copied().cycle().take(channels).collect();
    let mut last = node;
    while let Some(next) = sole_consumer(model, last)? {
        let Some(values) = channel_values(model, next, last, conv)? else { break };
        match next.op_as::<TypedBinOp>() {
            Some(op) if op.0.is::<math::Mul>() => {
                let taps = (filters.len() / channels.max(1)).max(1);
                for (filter, scale) in filters.chunks_exact_mut(taps).zip(&values) {
                    filter.iter_mut().for_each(|w| *w *= scale);
                }
                biases.iter_mut().zip(&values).for_each(|(b, scale)| *b *= scale);
            }
            Some(op) if op.0.is::<math::Add>() => {
                biases.iter_mut().zip(&values).for_each(|(b, shift)| *b += shift);
            }
            _ => break,
        }
        last = next;
    }
    if last.id == node.id {
        return Ok(None);
    }
    let mut patch = TypedModelPatch::new("fold scales and shifts into a convolution");
    let data = patch.tap_model(model, node.inputs[0])?;
    let filters = patch.add_const(format!("{}.weight", last.name), Tensor::from_shape(weight.shape(), &filters)?)?;
    let biases = patch.add_const(format!("{}.bias", last.name), tensor1(&biases))?;
    let output = patch.wire_node(&*last.name, conv.clone(), &[data, filters, biases])?;
    patch.shunt_outside(model, last.id.into(), output[0])?;
    Ok(Some(patch))
}

/// The constant operand of `next` as one value per channel of `conv`, if it varies along the channel axis at most.
fn channel_values(
    model: &TypedModel,
    next: &TypedNode,
    node: &TypedNode,
    conv: &Conv,
) -> TractResult<Option<Vec<f32>>> {
    let Some(tensor) = constant_operand(model, next, node)? else { return Ok(None) };
    let (shape, channels) = (&node.outputs[0].fact.shape, conv.pool_spec.output_channels);
    let axis = conv.pool_spec.data_format.shape(shape.to_tvec())?.c_axis();
    let varies = |i: usize| tensor.shape()[i] != 1 && i != axis;
    let fits = next.outputs[0].fact.shape == *shape && tensor.rank() == shape.rank();
    if !fits || (0..tensor.rank()).any(varies) || tensor.datum_type() != DatumType::F32 {
        return Ok(None);
    }
    let values = tensor.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
    Ok(Some(values.iter().copied().cycle().take(channels).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_core::ops::{
        cnn::{PaddingSpec, PoolSpec},
        nn::DataFormat,
    };

    /// A grouped convolution, then `x · scale`, then `x + shift`; with `extra_consumer`, the scaled tensor is an output too.
    fn model(groups: usize, extra_consumer: bool) -> TypedModel {
        let numbers = |count: usize| (0..count).map(|i| (i * 37 % 11) as f32 - 5.0).collect::<Vec<f32>>();
        let spec = PoolSpec {
            data_format: DataFormat::NCHW,
            kernel_shape: tvec![2, 1],
            padding: PaddingSpec::Valid,
            dilations: None,
            strides: None,
            input_channels: 4,
            output_channels: 4,
        };
        let conv = Conv { pool_spec: spec, kernel_fmt: KernelFormat::OIHW, group: groups, q_params: None };
        let mut model = TypedModel::default();
        let data = model.add_source("data", f32::fact([1, 4, 5, 3])).unwrap();
        let shape = [4, 4 / groups, 2, 1];
        let weight = Tensor::from_shape(&shape, &numbers(shape.iter().product())).unwrap();
        let weight = model.add_const("weight", weight).unwrap();
        let bias = model.add_const("bias", tensor0(3f32)).unwrap();
        let made = model.wire_node("conv", conv, &[data, weight, bias]).unwrap()[0];
        let along = |values: &[f32]| Tensor::from_shape(&[1, values.len(), 1, 1], values).unwrap();
        let scale = model.add_const("scale", along(&[2.0, -1.0, 0.5, 4.0])).unwrap();
        let shift = model.add_const("shift", along(&[10.0])).unwrap();
        let scaled = model.wire_node("scaled", math::mul(), &[made, scale]).unwrap()[0];
        let shifted = model.wire_node("shifted", math::add(), &[shift, scaled]).unwrap()[0];
        let outputs = if extra_consumer { vec![shifted, scaled] } else { vec![shifted] };
        model.select_output_outlets(&outputs).unwrap();
        model
    }

    #[test]
    fn folding_does_not_change_the_result() {
        for (groups, extra_consumer) in [(1, false), (2, false), (4, false), (2, true)] {
            let mut model = model(groups, extra_consumer);
            let data: Vec<f32> = (0..60).map(|i| (i * 7 % 13) as f32).collect();
            let data = Tensor::from_shape(&[1, 4, 5, 3], &data).unwrap().into_tvalue();
            let run = |model: &TypedModel| model.clone().into_runnable().unwrap().run(tvec![data.clone()]).unwrap();
            let want = run(&model);
            fold_scales(&mut model).unwrap();
            let left = model.nodes().iter().filter(|node| node.op_is::<TypedBinOp>()).count();
            assert_eq!(left, usize::from(extra_consumer), "{groups} groups");
            assert_eq!(run(&model), want, "exact for small integers");
        }
    }
}
