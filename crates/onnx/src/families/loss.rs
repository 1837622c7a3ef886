//! Losses: negative log-likelihood, cross entropy.

use edgecut_graph::{Attr, TensorId};

use crate::{
    compose::{many, one},
    error::Result,
    lowering::{Call, Lower},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("NegativeLogLikelihoodLoss", |call| {
        let (scores, classes, weights) = (call.input(0)?, call.input(1)?, call.optional(2)?);
        one(likelihood(call, scores, classes, weights)?)
    }),
    ("SoftmaxCrossEntropyLoss", |call| {
        let (scores, classes, weights) = (call.input(0)?, call.input(1)?, call.optional(2)?);
        let logarithms = call.op("nn.log_softmax", &[scores], vec![("axis", Attr::Int(1))])?;
        let loss = likelihood(call, logarithms, classes, weights)?;
        many([loss, logarithms])
    }),
];

/// The score of each element's class, times the class's weight, negated; of shape [N, …] for scores of shape [N, C, …].
/// Elements of the class `ignore_index` have weight 0. The mean is over the sum of weights.
fn likelihood(
    call: &mut Call<'_, '_>,
    scores: TensorId,
    classes: TensorId,
    weights: Option<TensorId>,
) -> Result<TensorId> {
    if call.rank(scores) < 2 {
        return Err("the scores must have an axis of classes".to_string());
    }
    let kept = match call.optional_int("ignore_index") {
        None => None,
        Some(ignored) => {
            let ignored = call.like(ignored as f64, classes)?;
            Some(call.map("not_equal", &[classes, ignored])?)
        }
    };
    let classes = match kept {
        None => classes,
        Some(kept) => {
            let zero = call.like(0.0, classes)?;
            call.map("where", &[kept, classes, zero])?
        }
    };
    let at = call.expand(classes, 1, 1)?;
    let found = call.op("gather", &[scores, at], vec![("axis", Attr::Int(1))])?;
    let found = call.squeeze(found, &[1])?;
    let loss = call.map("negative", &[found])?;
    let loss = match kept {
        None => loss,
        Some(kept) => {
            let zero = call.like(0.0, loss)?;
            call.map("where", &[kept, loss, zero])?
        }
    };
    let weights = weights.map(|weights| call.op("take", &[weights, classes], vec![("axis", Attr::Int(0))]));
    let weights = match (weights.transpose()?, kept) {
        (None, None) => None,
        (Some(weights), None) => Some(weights),
        (None, Some(kept)) => Some(call.cast(kept, call.dtype_of(scores))?),
        (Some(weights), Some(kept)) => {
            let zero = call.like(0.0, weights)?;
            Some(call.map("where", &[kept, weights, zero])?)
        }
    };
    let loss = match weights {
        None => loss,
        Some(weights) => call.map("multiply", &[loss, weights])?,
    };
    let axes: Vec<usize> = (0..call.rank(loss)).collect();
    match (call.text("reduction", "mean"), weights) {
        ("none", _) => Ok(loss),
        ("sum", _) => call.reduce("sum", loss, &axes, false),
        ("mean", None) => call.reduce("mean", loss, &axes, false),
        ("mean", Some(weights)) => {
            let (loss, weights) = (call.reduce("sum", loss, &axes, false)?, call.reduce("sum", weights, &axes, false)?);
            call.map("divide", &[loss, weights])
        }
        (other, _) => Err(format!("attribute reduction: `{}` is not none, sum or mean", crate::error::shown(other))),
    }
}
