//! Optimisation of a whole model: tract's passes, with a workaround for a defect of the pinned version, and our own
//! rewrites of convolutions and of elementwise operators.

use edgecut_ops::kernel::pointwise::half_conversion;
use tract_core::{internal::*, ops::cast::Cast, optim::Optimizer};

use super::{
    conv_algorithm::select_conv_algorithms,
    elide_casts::elide_casts,
    fold_scales::fold_scales,
    fold_weights::fold_weights,
    fuse_elementwise::fuse_elementwise,
    keep_nan::{relax_nan, restore_nan},
    merge_equal::merge_equal,
    per_image::split_batches,
    split_depth::split_depth,
};

/// Declutters `model` and selects kernels, like `into_optimized`.
///
/// tract 0.23.9 moves axes through the bias of a convolution as if it were the data: the pass that moves axes fails if
/// a bias is computed, even from constants. So constants are folded again right before that pass, and if it still
/// fails, it is skipped.
pub(super) fn optimise(mut model: TypedModel) -> TractResult<TypedModel> {
    fold_weights(&mut model)?;
    Optimizer::prop_consts().optimize(&mut model)?;
    fold_scales(&mut model)?;
    merge_equal(&mut model)?;
    split_batches(&mut model, optimise)?;
    let mut passes = Optimizer::declutter();
    let move_axes = passes.passes.pop();
    let mut decluttered = model.clone();
    let mut with_moves = Optimizer { passes: passes.passes.clone(), steps: None };
    with_moves.passes.extend(Optimizer::prop_consts().passes);
    with_moves.passes.extend(move_axes);
    if with_moves.optimize(&mut decluttered).is_err() {
        decluttered = model;
        passes.optimize(&mut decluttered)?;
    }
    split_depth(&mut decluttered)?;
    select_conv_algorithms(&mut decluttered)?;
    // Not before scales are folded: products of integers are exact only with weights that are integers.
    elide_casts(&mut decluttered)?;
    merge_equal(&mut decluttered)?;
    let keeps_nan = relax_nan(&mut decluttered)?;
    decluttered.optimize()?;
    if keeps_nan {
        restore_nan(&mut decluttered)?;
    }
    fuse_elementwise(&mut decluttered)?;
    convert_halves(&mut decluttered)?;
    Ok(decluttered)
}

/// Replaces tract's casts between half and single precision, which convert element by element.
fn convert_halves(model: &mut TypedModel) -> TractResult<()> {
    for id in model.eval_order()? {
        let node = model.node(id);
        let Some(cast) = node.op_as::<Cast>() else { continue };
        let from = model.outlet_fact(node.inputs[0])?.datum_type;
        if let Some(conversion) = half_conversion(from, cast.to) {
            model.node_mut(id).op = Box::new(conversion);
        }
    }
    Ok(())
}
