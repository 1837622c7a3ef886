//! All axes along which an operator can be split, by number: the numbers that plan files have.

use std::cmp::Ordering;

use edgecut_graph::{Graph, Operator};

use crate::{
    passes::{carried::carried_axes, composite_axes::Composite, declared::declared_axes, shard::SplitError},
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

/// Axis `number` of those; one more than the last is that of [replicas](SplitAxis::of_replicas).
///
/// # Errors
/// If there are fewer.
pub(crate) fn axis(graph: &Graph, operator: &Operator, number: usize) -> Result<SplitAxis, SplitError> {
    let mut axes = own_axes(graph, operator);
    if number >= axes.len() {
        axes.extend(carried_axes(graph, operator));
    }
    match number.cmp(&axes.len()) {
        Ordering::Less => Ok(axes.swap_remove(number)),
        Ordering::Equal => Ok(SplitAxis::of_replicas(operator)),
        Ordering::Greater => Err(SplitError::NoAxis { op: operator.name.to_string(), axis: number, axes: axes.len() }),
    }
}
