//! All axes along which an operator can be split, by number: the numbers that plan files have.

use std::cmp::Ordering;

use edgecut_graph::{Graph, Operator};

use crate::{
    passes::{carried::carried_axes, composite_axes::Composite, declared::declared_axes, shard::SplitError},
    registry::lookup,
    split::SplitAxis,
};

/// The axes along which `operator` can be split into at least two shards: those that it declares or that follow from its
/// decomposition, then those along which it passes on partial sums of an operand. Empty for an operator that is unknown, has no
/// such axes, or has unknown dimensions.
pub fn axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    let mut axes = own_axes(graph, operator);
    axes.extend(carried_axes(graph, operator));
    axes
}

fn own_axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    match &operator.decomposition {
        Some(decomposition) => {
            let Some(composite) = Composite::of(operator, decomposition) else { return Vec::new() };
            composite.result_axes().into_iter().chain(composite.reduction_axes()).collect()
        }
        None => declared_axes(graph, operator),
    }
}

/// Axis `number` of those; one more than the last is the [`replica_axis`].
///
/// # Errors
/// If there is none.
pub(crate) fn axis(graph: &Graph, operator: &Operator, number: usize) -> Result<SplitAxis, SplitError> {
    let mut axes = own_axes(graph, operator);
    if number >= axes.len() {
        axes.extend(carried_axes(graph, operator));
    }
    let count = axes.len();
    let found = match number.cmp(&count) {
        Ordering::Less => Some(axes.swap_remove(number)),
        Ordering::Equal => replica_axis(operator),
        Ordering::Greater => None,
    };
    found.ok_or_else(|| SplitError::NoAxis { op: operator.name.to_string(), axis: number, axes: count })
}

/// The axis of [replicas](SplitAxis::of_replicas) of `operator`; `None` if two of them may compute different results: random numbers, or
/// an operator that is unknown.
pub fn replica_axis(operator: &Operator) -> Option<SplitAxis> {
    let mut operators = vec![operator];
    while let Some(next) = operators.pop() {
        match &next.decomposition {
            Some(decomposition) => operators.extend(decomposition.operators().map(|(_, operator)| operator)),
            None => drop(lookup(&next.name).filter(|def| !def.is_random)?),
        }
    }
    Some(SplitAxis::of_replicas(operator))
}

#[cfg(test)]
mod tests {
    use edgecut_graph::TensorId;

    use super::*;

    #[test]
    fn what_may_differ_is_not_replicated() {
        let of = |name: &str| replica_axis(&Operator::new(name, Vec::<TensorId>::new())).is_some();
        assert!(of("nn.softmax"));
        assert!(!of("random_normal") && !of("random.uniform") && !of("Multinomial"));
    }
}
