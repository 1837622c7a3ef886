//! Constant folding of low-bit weights, such as the dequantisation of 8-bit weights.
//!
//! tract does not fold an operator whose result is larger than 4 MiB and than its operands, so it would convert such
//! weights in each run.

use std::collections::HashMap;

use tract_core::{
    internal::*,
    ops::{dummy::Dummy, konst::Const, source::TypedSource},
};

/// The growth of 8-bit weights in single precision. Weights of fewer bits are converted in each run: they are chosen to save
/// memory.
const MAX_GROWTH: usize = 4;

/// Bytes of constants that are no longer read, from which on they are removed.
const MAX_UNREAD: usize = 32 << 20;

/// Replaces operators on constants by their results, unless those are more than [`MAX_GROWTH`] times as large as the model's
/// constants that they are computed from.
pub(super) fn fold_weights(model: &mut TypedModel) -> TractResult<()> {
    // By address of a folded constant: the bytes of those that it was computed from.
    let mut sources = HashMap::new();
    loop {
        let mut unread = 0;
        for id in model.eval_order()? {
            if let Some((patch, operands)) = fold_patch(model, model.node(id), &mut sources)? {
                patch.apply(model)?;
                unread += operands;
            }
            if unread > MAX_UNREAD {
                break;
            }
        }
        if unread == 0 {
            return Ok(());
        }
        model.compact()?;
    }
}

/// The patch that folds `node`, and the bytes of its operands.
fn fold_patch(
    model: &TypedModel,
    node: &TypedNode,
    sources: &mut HashMap<*const Tensor, usize>,
) -> TractResult<Option<(TypedModelPatch, usize)>> {
    if node.inputs.is_empty() || node.op_is::<Const>() || node.op_is::<Dummy>() || node.op_is::<TypedSource>() {
        return Ok(None);
    }
    let facts = model.node_input_facts(node.id)?;
    let Some(constants) = facts.iter().map(|fact| fact.konst.clone()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let bytes = |tensor: &Arc<Tensor>| tensor.datum_type().size_of() * tensor.len();
    let operands: usize = constants.iter().map(bytes).sum();
    let source: usize = constants
        .iter()
        .map(|tensor| sources.get(&Arc::as_ptr(tensor)).copied().unwrap_or_else(|| bytes(tensor)))
        .sum();
    let size = |fact: &TypedFact| fact.mem_size().to_usize().ok();
    let results = node.outputs.iter().map(|output| size(&output.fact)).sum::<Option<usize>>();
    if results.is_none_or(|results| results > source.saturating_mul(MAX_GROWTH)) {
        return Ok(None);
    }
    let results = match node.op.eval_out_of_plan(constants.into_iter().map(IntoTValue::into_tvalue).collect()) {
        Ok(Some(results)) => results,
        Ok(None) => return Ok(None),
        Err(error) => return Err(error.context(format!("{node} on constants"))),
    };
    let mut patch = TypedModelPatch::new("low-bit weights");
    for (index, result) in results.into_iter().enumerate() {
        let result = result.into_arc_tensor();
        sources.insert(Arc::as_ptr(&result), source);
        let constant = patch.add_const(format!("{}.{index}", node.name), result)?;
        patch.shunt_outside(model, OutletId::new(node.id, index), constant)?;
    }
    Ok(Some((patch, operands)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tract_core::ops::{array::MultiBroadcastTo, cast::cast, math};

    #[test]
    fn operators_on_constants_are_folded_unless_the_result_is_much_larger() {
        // x + float(w), and 100 copies of w.
        let mut model = TypedModel::default();
        let weights: Vec<i8> = (-32..32).collect();
        let x = model.add_source("x", f32::fact([64])).unwrap();
        let w = model.add_const("w", Tensor::from_shape(&[64], &weights).unwrap()).unwrap();
        let wide = model.wire_node("wide", cast(DatumType::F32), &[w]).unwrap()[0];
        let sum = model.wire_node("sum", math::add(), &[x, wide]).unwrap()[0];
        let row = model.wire_node("row", AxisOp::Add(0), &[w]).unwrap()[0];
        let copies = MultiBroadcastTo { shape: tvec![100.to_dim(), 64.to_dim()].into() };
        let copies = model.wire_node("copies", copies, &[row]).unwrap()[0];
        model.select_output_outlets(&[sum, copies]).unwrap();
        fold_weights(&mut model).unwrap();
        let names: Vec<String> = model.nodes().iter().map(|node| node.op.name().to_string()).collect();
        let count = |name: &str| names.iter().filter(|found| *found == name).count();
        assert_eq!(
            (count("Cast"), count("AddAxis"), count("MultiBroadcastTo"), names.len()),
            (0, 0, 1, 5),
            "{names:?}"
        );
        let x = Tensor::from_shape(&[64], &[0.5f32; 64]).unwrap().into_tvalue();
        let results = model.into_runnable().unwrap().run(tvec![x]).unwrap();
        let plain = results[0].try_as_plain_ram().unwrap();
        assert_eq!(plain.as_slice::<f32>().unwrap()[..2], [-31.5, -30.5]);
    }
}
