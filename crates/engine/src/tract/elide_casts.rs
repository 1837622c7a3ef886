//! Removes casts to int32 and back of products that are exact integers in single precision.

use edgecut_ops::kernel::pointwise::EXACT_INTEGERS;
use tract_core::{
    internal::*,
    ops::{cast::Cast, element_wise::ElementWiseOp},
};

/// Rewires the readers of a cast back to single precision to the product itself.
pub(super) fn elide_casts(model: &mut TypedModel) -> TractResult<()> {
    for id in model.eval_order()? {
        let node = model.node(id);
        let is_back = node.op_as::<Cast>().is_some_and(|cast| cast.to == DatumType::F32);
        let Some(input) = node.inputs.first().filter(|_| is_back) else { continue };
        let converted = model.node(input.node);
        if converted.op_as::<ElementWiseOp>().is_some_and(|op| op.0.name() == EXACT_INTEGERS) {
            let (back, product) = (OutletId::from(id), [converted.inputs[0]]);
            TypedModelPatch::rewire(model, &product, &[back], &|_, product| Ok(product.into()))?.apply(model)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_ops::kernel::pointwise::exact_integers;
    use tract_core::ops::cast::cast;

    #[test]
    fn casts_of_exact_integers_to_int32_and_back_are_removed() {
        let mut model = TypedModel::default();
        let x = model.add_source("x", f32::fact([3])).unwrap();
        let whole = model.wire_node("whole", exact_integers(), &[x]).unwrap()[0];
        let back = model.wire_node("back", cast(DatumType::F32), &[whole]).unwrap()[0];
        let squared = model.wire_node("squared", tract_core::ops::math::square(), &[back]).unwrap()[0];
        // The int32 result stays for its other readers.
        model.select_output_outlets(&[squared, whole]).unwrap();
        elide_casts(&mut model).unwrap();
        model.compact().unwrap();
        assert!(model.nodes().iter().all(|node| !node.op_is::<Cast>()));
        let x = Tensor::from_shape(&[3], &[-2.0f32, 0.0, 3.0]).unwrap().into_tvalue();
        let results = model.into_runnable().unwrap().run(tvec![x]).unwrap();
        assert_eq!(results[0].try_as_plain_ram().unwrap().as_slice::<f32>().unwrap(), [4.0, 0.0, 9.0]);
        assert_eq!(results[1].try_as_plain_ram().unwrap().as_slice::<i32>().unwrap(), [-2, 0, 3]);
    }
}
