//! Fusion of ONNX's minima and maxima into matrix products. tract fuses only its own minimum and maximum, and the kernels
//! of its products keep NaN in them. So ONNX's with a constant are replaced by tract's before the fusion, and those that were
//! not fused are replaced by ONNX's again afterwards.
//!
//! On x86-64 the kernels keep NaN because of the order of the instruction's operands, on ARM because the instruction does;
//! a test observes it.

use tract_core::{
    internal::*,
    ops::{
        binary::{BinMiniOp, OptBinByScalar, OptBinChain, OptBinUnicast, TypedBinOp},
        math,
    },
};

use edgecut_ops::kernel::pointwise::{MAXIMUM, MINIMUM, maximum, minimum};

/// Replaces minima and maxima that keep NaN by tract's, in single precision with a constant; returns whether there are any.
pub(super) fn relax_nan(model: &mut TypedModel) -> TractResult<bool> {
    let mut found = false;
    for id in model.eval_order()? {
        let node = model.node(id);
        let Some(op) = node.op_as::<TypedBinOp>() else { continue };
        let relaxed = match op.0.name() {
            MAXIMUM => math::max(),
            MINIMUM => math::min(),
            _ => continue,
        };
        found = true;
        if can_relax(&model.node_input_facts(id)?) {
            model.node_mut(id).op = Box::new(relaxed);
        }
    }
    Ok(found)
}

fn can_relax(operands: &[&TypedFact]) -> bool {
    operands.iter().all(|fact| fact.datum_type == DatumType::F32)
        && operands.iter().any(|fact| fact.konst.as_deref().is_some_and(is_number))
}

/// Whether a tensor is one number, not NaN.
fn is_number(tensor: &Tensor) -> bool {
    let number = || tensor.clone().into_shape(&[]).and_then(|tensor| tensor.cast_to_scalar::<f32>());
    tensor.len() == 1 && number().is_ok_and(|number| !number.is_nan())
}

/// Makes the minima and maxima that are left in an optimised model keep NaN.
pub(super) fn restore_nan(model: &mut TypedModel) -> TractResult<()> {
    for id in model.eval_order()? {
        let node = model.node(id);
        if let Some(op) = node.op_as::<OptBinChain>() {
            let steps: Vec<Box<dyn BinMiniOp>> = op.steps.iter().map(|step| step.binop.clone()).collect();
            if steps.iter().any(|step| with_nan(&**step).is_some()) {
                one_by_one(model, node, &steps)?.apply(model)?;
            }
            continue;
        }
        let binary = node.op_as::<TypedBinOp>().map(|op| &*op.0);
        let binary = binary.or(node.op_as::<OptBinByScalar>().map(|op| &*op.binop));
        let binary = binary.or(node.op_as::<OptBinUnicast>().map(|op| &*op.binop));
        let kept = binary.and_then(with_nan);
        if let Some(kept) = kept {
            model.node_mut(id).op = Box::new(kept);
        }
    }
    model.compact()
}

/// The operator that keeps NaN in place of `op`, if that is a minimum or a maximum.
fn with_nan(op: &dyn BinMiniOp) -> Option<TypedBinOp> {
    match op {
        op if op.is::<math::Max>() => Some(maximum()),
        op if op.is::<math::Min>() => Some(minimum()),
        _ => None,
    }
}

/// The steps of a chain as operators of their own.
fn one_by_one(model: &TypedModel, node: &TypedNode, steps: &[Box<dyn BinMiniOp>]) -> TractResult<TypedModelPatch> {
    let mut patch = TypedModelPatch::new("the steps of a chain, which keep NaN");
    let inputs = patch.taps(model, &node.inputs)?;
    let mut at = inputs[0];
    for (index, (step, other)) in steps.iter().zip(&inputs[1..]).enumerate() {
        let op = with_nan(&**step).unwrap_or_else(|| TypedBinOp(step.clone(), None));
        let name = if index + 1 == steps.len() { node.name.clone() } else { format!("{}.{index}", node.name) };
        at = patch.wire_node(name, op, &[at, *other])?[0];
    }
    patch.shunt_outside(model, node.id.into(), at)?;
    Ok(patch)
}
