//! Batched convolutions, computed one image at a time.
//!
//! tract's im2col matrix covers the whole batch, several times the size of the data, and batched products need axis
//! moves. A single image takes faster paths, and its matrices fit into the caches.

use tract_core::{
    internal::*,
    ops::{binary::TypedBinOp, cnn::Conv, element_wise::ElementWiseOp, nn::DataFormat},
};

use super::fold_scales::{constant_operand, sole_consumer};

/// Runs a single-image model for every image along the first axis of its only input.
#[derive(Clone)]
struct PerImageConv {
    plan: Arc<TypedSimplePlan>,
    /// Shape and dtype of the result of the whole batch.
    results: TypedFact,
}

/// Optimises the model of a single image.
pub(super) type Optimise = fn(TypedModel) -> TractResult<TypedModel>;

/// Replaces batched convolutions, each together with the element-wise operators that follow it. The model's constants
/// must be folded.
pub(super) fn split_batches(model: &mut TypedModel, optimise: Optimise) -> TractResult<()> {
    for id in model.eval_order()? {
        if let Some(patch) = per_image_patch(model, model.node(id), optimise)? {
            patch.apply(model)?;
        }
    }
    model.compact()
}

/// The replacement of `node`, if it is a batched convolution with constant weights and not depthwise.
fn per_image_patch(model: &TypedModel, node: &TypedNode, optimise: Optimise) -> TractResult<Option<TypedModelPatch>> {
    let Some(conv) = node.op_as::<Conv>() else { return Ok(None) };
    let data = model.outlet_fact(node.inputs[0])?;
    let Some(shape) = data.shape.as_concrete() else { return Ok(None) };
    let depthwise = conv.group > 1 && conv.group == conv.pool_spec.input_channels;
    if conv.pool_spec.data_format != DataFormat::NCHW || shape[0] < 2 || depthwise {
        return Ok(None);
    }
    let mut image = TypedModel::default();
    let mut one: TVec<usize> = shape.into();
    one[0] = 1;
    let mut inputs = tvec![image.add_source("image", data.datum_type.fact(one))?];
    for (number, outlet) in node.inputs.iter().enumerate().skip(1) {
        let Some(constant) = model.outlet_fact(*outlet)?.konst.clone() else { return Ok(None) };
        inputs.push(image.add_const(format!("{}.{number}", node.name), constant)?);
    }
    let mut output = image.wire_node(&*node.name, conv.clone(), &inputs)?;
    let mut last = node;
    while let Some(next) = sole_consumer(model, last)? {
        let operands = if next.op_is::<ElementWiseOp>() {
            output.clone()
        } else if let (true, Some(other)) = (next.op_is::<TypedBinOp>(), constant_operand(model, next, last)?) {
            let same_for_all_images = other.rank() == shape.len() && other.shape()[0] == 1;
            if !same_for_all_images || next.outputs[0].fact.shape != last.outputs[0].fact.shape {
                break;
            }
            let other = image.add_const(format!("{}.other", next.name), other)?;
            next.inputs.iter().map(|outlet| if outlet.node == last.id { output[0] } else { other }).collect()
        } else {
            break;
        };
        output = image.wire_node(&*next.name, next.op.clone(), &operands)?;
        last = next;
    }
    image.select_output_outlets(&output)?;
    let plan = TypedSimplePlan::new(optimise(image)?)?;
    let op = PerImageConv { plan, results: last.outputs[0].fact.without_value() };
    let mut patch = TypedModelPatch::new("convolve a batch image by image");
    let inputs = patch.taps(model, &node.inputs[..1])?;
    let output = patch.wire_node(&*last.name, Box::new(op) as Box<dyn TypedOp>, &inputs)?;
    patch.shunt_outside(model, last.id.into(), output[0])?;
    Ok(Some(patch))
}

impl std::fmt::Debug for PerImageConv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PerImageConv({:?})", self.results)
    }
}

/// Plans cannot be compared, so only clones are equal.
impl PartialEq for PerImageConv {
    fn eq(&self, other: &PerImageConv) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan)
    }
}

impl Eq for PerImageConv {}

impl Op for PerImageConv {
    fn name(&self) -> StaticName {
        "PerImageConv".into()
    }

    op_as_typed_op!();
}

impl EvalOp for PerImageConv {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let shape = self.results.shape.as_concrete().context("the shape of the result is unknown")?;
        let mut results = Tensor::zero_dt(self.results.datum_type, shape)?;
        for image in 0..shape[0] {
            let data = inputs[0].slice(0, image, image + 1)?;
            let made = self.plan.run(tvec![data.into_tvalue()])?;
            results.assign_slice(image..image + 1, &made[0], .., 0)?;
        }
        Ok(tvec![results.into_tvalue()])
    }
}

impl TypedOp for PerImageConv {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(tvec![self.results.clone()])
    }

    as_op!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_core::ops::{
        cnn::{KernelFormat, PaddingSpec, PoolSpec},
        math,
    };

    #[test]
    fn a_batch_gives_the_results_of_its_images() {
        for window in [1, 3] {
            let numbers = |count: usize| (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
            let spec = PoolSpec {
                data_format: DataFormat::NCHW,
                kernel_shape: tvec![window, window],
                padding: PaddingSpec::Valid,
                dilations: None,
                strides: None,
                input_channels: 5,
                output_channels: 7,
            };
            let conv = Conv { pool_spec: spec, kernel_fmt: KernelFormat::OIHW, group: 1, q_params: None };
            let mut model = TypedModel::default();
            let data = model.add_source("data", f32::fact([3, 5, 6, 6])).unwrap();
            let weight = [7, 5, window, window];
            let weight = Tensor::from_shape(&weight, &numbers(weight.iter().product())).unwrap();
            let weight = model.add_const("weight", weight).unwrap();
            let bias = model.add_const("bias", tensor1(&numbers(7))).unwrap();
            let made = model.wire_node("conv", conv, &[data, weight, bias]).unwrap();
            let least = model.add_const("least", Tensor::from_shape(&[1, 1, 1, 1], &[-0.25f32]).unwrap()).unwrap();
            let made = model.wire_node("bounded", math::max(), &[least, made[0]]).unwrap();
            let made = model.wire_node("absolute", math::abs(), &made).unwrap();
            model.select_output_outlets(&made).unwrap();
            let input = Tensor::from_shape(&[3, 5, 6, 6], &numbers(3 * 5 * 36)).unwrap().into_tvalue();
            let run = |model: &TypedModel| model.clone().into_runnable().unwrap().run(tvec![input.clone()]).unwrap();
            let want = run(&model);
            split_batches(&mut model, TypedModel::into_optimized).unwrap();
            assert_eq!(model.nodes().len(), 2, "the element-wise operators are merged");
            run(&model)[0].close_enough(&want[0], Approximation::Close).unwrap();
        }
    }
}
