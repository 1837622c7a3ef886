//! Losses: `nn.cross_entropy`, with and without logits, and `nn.nll_loss`.

use crate::rules::{FUNCTION_COST, per_input};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.cross_entropy", &["x", "y"], entropy_type)
        .flops(per_input::<{ FUNCTION_COST + 2 }>)
        .host(kernel!(|call, inputs| entropy(call, inputs, f64::ln))),
    OpDef::new("nn.cross_entropy_with_logits", &["x", "y"], entropy_type)
        .flops(per_input::<2>)
        .host(kernel!(|call, inputs| entropy(call, inputs, |x| x))),
    OpDef::new("nn.nll_loss", &["predictions", "targets", "weights"], likelihood_type)
        .attrs(
            "relay.attrs.NLLLossAttrs",
            &[AttrDef::new("reduction", AttrKind::Str, "\"mean\""), AttrDef::required("ignore_index", AttrKind::Int)],
        )
        .class(FusionClass::OutFusable)
        .flops(|call| call.tensor(1).ok().and_then(|t| t.shape.elements()).unwrap_or(0).saturating_mul(3))
        .host(kernel!(likelihood)),
];

fn entropy_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (x, y) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(x, y)?;
    let same = x.shape.rank() == 2
        && y.shape.rank() == 2
        && x.shape.iter().zip(y.shape.iter()).all(|(a, b)| crate::rules::unify(*a, *b).is_some());
    match same {
        true => Ok(TensorType::new(x.dtype, Shape::default()).into()),
        false => Err(call.error(format!("{x} and {y}: expected matrices of one shape"))),
    }
}

/// The reduction of `nn.nll_loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    Mean,
    Sum,
    None,
}

fn reduction(call: &Call<'_>) -> Result<Reduction, TypeError> {
    match call.text("reduction", "mean")? {
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        "none" => Ok(Reduction::None),
        other => Err(call.error(format!("reduction is \"{other}\", expected mean, sum or none"))),
    }
}

fn likelihood_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (predictions, targets, weights) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    call.same_dtype(predictions, weights)?;
    let (rank, classes) = (predictions.shape.rank(), weights.shape.rank());
    if !(targets.shape.rank() + 1 == rank && classes == 1 && rank >= 2) {
        return Err(call.error(format!("{predictions}, {targets}, {weights}: expected (N, C, …), (N, …) and (C)")));
    }
    let shape = if reduction(call)? == Reduction::None { targets.shape.clone() } else { Shape::default() };
    Ok(TensorType::new(predictions.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::integers;

    /// −Σ f(x)·y / rows. TVM takes the operand of the variant with logits for log-probabilities.
    pub(super) fn entropy(_call: &Typed<'_>, inputs: &[TValue], f: fn(f64) -> f64) -> TractResult<TVec<Tensor>> {
        let rows = inputs[0].shape()[0] as f64;
        let total = for_dtype!(inputs[0].datum_type(), T in float => {
            let (x, y) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
            let terms = x.as_slice::<T>()?.iter().zip(y.as_slice::<T>()?);
            let total: f64 = terms.map(|(x, y)| f(x.to_f64()) * y.to_f64()).sum();
            tensor0(T::of_f64(-total / rows))
        });
        Ok(tvec!(total))
    }

    /// Targets equal to `ignore_index` are excluded from the sum and from the total weight of the mean.
    pub(super) fn likelihood(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (targets, ignored) = (integers(&inputs[1])?, call.int("ignore_index", -100)?);
        let dims = inputs[0].shape();
        let (classes, inner) = (dims[1], dims[2..].iter().product::<usize>());
        let loss = for_dtype!(inputs[0].datum_type(), T in float => {
            let (predictions, weights) = (inputs[0].try_as_plain_ram()?, inputs[2].try_as_plain_ram()?);
            let (predictions, weights) = (predictions.as_slice::<T>()?, weights.as_slice::<T>()?);
            let (mut losses, mut total, mut total_weight) = (Vec::with_capacity(targets.len()), 0.0, 0.0);
            for (i, target) in targets.iter().enumerate() {
                let class = usize::try_from(*target).ok().filter(|c| *target != ignored && *c < classes);
                let Some(class) = class else {
                    ensure!(*target == ignored, "target {target} is not one of {classes} classes");
                    losses.push(T::default());
                    continue;
                };
                let prediction = predictions[(i / inner * classes + class) * inner + i % inner].to_f64();
                let weight = weights[class].to_f64();
                losses.push(T::of_f64(-prediction * weight));
                total -= prediction * weight;
                total_weight += weight;
            }
            match reduction(call)? {
                Reduction::None => Tensor::from_shape(inputs[1].shape(), &losses)?,
                Reduction::Sum => tensor0(T::of_f64(total)),
                Reduction::Mean => tensor0(T::of_f64(total / total_weight)),
            }
        });
        Ok(tvec!(loss))
    }
}
