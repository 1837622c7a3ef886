//! Merges operators that compute the same from the same operands.
//!
//! tract has a pass for this (`PushSplitDown`), but where two equal operators have two operands in common, as in
//! `a b - c d` and `a d + c b` with `b = d`, version 0.23.9 replaces each with the other and the model cannot run. It finds none
//! after this one.

use std::collections::HashMap;

use tract_core::internal::*;

/// Rewires the readers of each operator that repeats one before it, unless both are outputs of the model.
pub(super) fn merge_equal(model: &mut TypedModel) -> TractResult<()> {
    let mut before: HashMap<Vec<OutletId>, Vec<usize>> = HashMap::new();
    let mut merged = false;
    for id in model.eval_order()? {
        let node = model.node(id);
        if node.inputs.is_empty() {
            continue;
        }
        let outputs = model.output_outlets()?;
        let is_output = |id: usize| outputs.iter().any(|output| output.node == id);
        let known = before.entry(node.inputs.clone()).or_default();
        let Some(first) = known.iter().copied().find(|first| model.node(*first).same_as(node)) else {
            known.push(id);
            continue;
        };
        if is_output(id) && is_output(first) {
            continue;
        }
        let mut patch = TypedModelPatch::new("equal operators as one");
        for slot in 0..node.outputs.len() {
            let result = patch.tap_model(model, OutletId::new(first, slot))?;
            patch.shunt_outside(model, OutletId::new(id, slot), result)?;
        }
        patch.apply(model)?;
        merged = true;
    }
    if merged { model.compact() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tract::optimise::optimise;
    use tract_core::ops::{binary::TypedBinOp, math};

    #[test]
    fn equal_operators_with_two_common_operands_are_merged_once() {
        // x (a b), then (x a - x b) (x a + x b), with each product computed twice.
        let mut model = TypedModel::default();
        let [x, a, b] = ["x", "a", "b"].map(|name| model.add_source(name, f32::fact([2])).unwrap());
        let mut wire =
            |name: &str, op: TypedBinOp, operands: [OutletId; 2]| model.wire_node(name, op, &operands).unwrap()[0];
        let low = [wire("xa", math::mul(), [x, a]), wire("xb", math::mul(), [x, b])];
        let high = [wire("xa again", math::mul(), [x, a]), wire("xb again", math::mul(), [x, b])];
        let (low, high) = (wire("low", math::sub(), low), wire("high", math::add(), high));
        let product = wire("product", math::mul(), [low, high]);
        model.select_output_outlets(&[product]).unwrap();
        let mut alone = model.clone();
        merge_equal(&mut alone).unwrap();
        assert_eq!(alone.nodes().iter().filter(|node| node.op.name() == "Mul").count(), 3);
        let inputs =
            [[3.0f32, 1.0], [2.0, 5.0], [1.0, -1.0]].map(|x| Tensor::from_shape(&[2], &x).unwrap().into_tvalue());
        let twice = model.clone();
        let results = optimise(model).unwrap().into_runnable().unwrap().run(inputs.iter().cloned().collect()).unwrap();
        assert_eq!(results[0].try_as_plain_ram().unwrap().as_slice::<f32>().unwrap(), [27.0, 24.0]);
        // One of two equal operators is an output.
        for name in ["xb", "xb again"] {
            let mut model = twice.clone();
            let output = model.node_by_name(name).unwrap().id.into();
            model.select_output_outlets(&[product, output]).unwrap();
            let results =
                optimise(model).unwrap().into_runnable().unwrap().run(inputs.iter().cloned().collect()).unwrap();
            let found =
                results.iter().map(|result| result.try_as_plain_ram().unwrap().as_slice::<f32>().unwrap().to_vec());
            assert_eq!(found.collect::<Vec<_>>(), [[27.0, 24.0], [3.0, -1.0]], "{name}");
        }
    }
}
