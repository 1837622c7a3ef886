//! tract's optimisation of a whole model, around two defects of the version we pin, with our own choice of how
//! convolutions are computed.

use tract_core::{internal::*, optim::Optimizer};

use super::{by_image::split_batches, convolutions::choose_ways, fold::fold_scales};

/// Declutters `model` and chooses its kernels, as `into_optimized` does.
///
/// tract 0.23.9 moves axes through a convolution's bias as if it were the data: a bias that is computed, and be it
/// from constants, makes the pass that moves axes fail. So constants are folded once more before that pass, and if
/// it fails all the same, the model goes without it.
pub(super) fn optimised(mut model: TypedModel) -> TractResult<TypedModel> {
    Optimizer::prop_consts().optimize(&mut model)?;
    fold_scales(&mut model)?;
    split_batches(&mut model)?;
    let mut passes = Optimizer::declutter();
    let moving = passes.passes.pop();
    let mut decluttered = model.clone();
    let mut with_moving = Optimizer { passes: passes.passes.clone(), steps: None };
    with_moving.passes.extend(Optimizer::prop_consts().passes);
    with_moving.passes.extend(moving);
    if with_moving.optimize(&mut decluttered).is_err() {
        decluttered = model;
        passes.optimize(&mut decluttered)?;
    }
    choose_ways(&mut decluttered)?;
    decluttered.optimize()?;
    Ok(decluttered)
}
