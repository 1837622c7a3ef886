//! Shards as graphs of their own, to be measured: what a plan makes of a group, and fixed fractions of groups that no
//! plan has split yet.

use super::{costs::is_of_weights, options::SplitOptions};
use edgecut_graph::{Graph, OperatorId, Origin, Part, TensorId};
use edgecut_ops::passes::{
    shard::Shard,
    shard_graph::{Role, shard_graph},
};

/// The fractions of a group that a profile has in addition to the whole.
pub const FRACTIONS: [f64; 3] = [0.5, 0.25, 0.125];

/// A share of a group as a graph of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Fraction {
    /// The axis that it is cut along, as the plan file numbers it.
    pub axis: usize,
    /// Of the positions along the axis.
    pub share: f64,
    pub graph: Graph,
}

/// Some operators of `graph` as a graph of their own, in which slices of weights are weights: they are made once, when
/// the operators are loaded. A shard is then what any operator of its size is.
pub fn alone(graph: &Graph, operators: &[OperatorId]) -> Graph {
    // Slices, and their joins where a shard has a range of each part of a weight.
    let slices = |id: &OperatorId| {
        let operator = graph.operator(*id);
        matches!(&*operator.name, "strided_slice" | "concatenate")
            && is_of_weights(graph, operator)
            && operator.outputs.iter().all(|t| !graph.outputs.contains(t))
    };
    let computing: Vec<OperatorId> = operators.iter().copied().filter(|id| !slices(id)).collect();
    let mut part = Part::cut(graph, &computing);
    for (here, whole) in part.whole_tensor.iter().enumerate() {
        if graph.producer(*whole).is_some_and(|by| operators.contains(&by) && !computing.contains(&by)) {
            part.graph.tensor_mut(TensorId(here as u32)).origin = Origin::Parameter;
        }
    }
    part.graph
}

/// The first shards of a group, `operators` of `graph`, that have about these fractions of it along each axis that it
/// can be split along. What cannot be cut so finely is left out.
pub fn fractions(graph: &Graph, operators: &[OperatorId], fractions: &[f64]) -> Vec<Fraction> {
    let group = Part::cut(graph, operators).graph;
    let groups = [group.operators().map(|(id, _)| id).collect::<Vec<_>>()];
    let options = SplitOptions::of(&group, &groups);
    let mut found: Vec<Fraction> = Vec::new();
    for option in options.group(0) {
        for fraction in fractions {
            let Some(divisions) = options.divisions(&groups[0], option, &[*fraction, 1.0 - fraction]) else { continue };
            let cut = groups[0].last().and_then(|last| divisions.get(last)).and_then(|last| last.cuts.get(1));
            let share = cut.map_or(0.0, |cut| *cut as f64 / option.size as f64);
            if found.iter().any(|other| (other.axis, other.share) == (option.axis, share)) {
                continue;
            }
            let Ok(made) = shard_graph(&group, &[], &divisions) else { continue };
            let first = made.graph.operators().zip(&made.roles).filter(|(_, role)| {
                matches!(role, Role::Compute(Shard { index: 0, .. }) | Role::Prepare(Shard { index: 0, .. }))
            });
            let first: Vec<OperatorId> = first.map(|((id, _), _)| id).collect();
            found.push(Fraction { axis: option.axis, share, graph: alone(&made.graph, &first) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_profile::Signature;
    use edgecut_relay::{ImportOptions, import};

    fn model(text: &str) -> Graph {
        let text = format!("#[version = \"0.0.5\"]\ndef @main({text}\n}}\n");
        import("model", text.as_bytes(), &ImportOptions::default()).unwrap().graph
    }

    fn all(graph: &Graph) -> Vec<OperatorId> {
        graph.operators().map(|(id, _)| id).collect()
    }

    #[test]
    fn half_of_the_channels_is_a_convolution_of_half_the_channels() {
        let convolution = |channels: usize| {
            model(&format!(
                "%x: Tensor[(1, 8, 10, 10), float32], %w: Tensor[({channels}, 8, 3, 3), float32]) {{\n  \
                 %0 = nn.conv2d(%x, %w, channels={channels}, kernel_size=[3, 3], padding=[1, 1, 1, 1]);\n  nn.relu(%0)"
            ))
        };
        let whole = convolution(16);
        let found = fractions(&whole, &all(&whole), &FRACTIONS);
        let half = convolution(8);
        let signature = |graph: &Graph| Signature::of(graph, &all(graph));
        let of_channels: Vec<&Fraction> = found.iter().filter(|f| f.graph.parameters().count() == 1).collect();
        let same = of_channels.iter().find(|f| signature(&f.graph) == signature(&half)).unwrap();
        assert_eq!(same.share, 0.5);
        assert!(found.iter().filter(|f| f.axis == same.axis).map(|f| f.share).eq(FRACTIONS));
        // Rows of ten positions, with one more for the window: 5, 3 or 2, and 1.
        let rows: Vec<f64> = found.iter().filter(|f| f.axis != same.axis).map(|f| f.share).collect();
        assert!(!rows.is_empty() && rows.iter().all(|share| (share * 10.0).fract().abs() < 1e-9), "{rows:?}");
        for fraction in &found {
            let types = |graph: &Graph| graph.tensor(graph.outputs[0]).ty.bytes().unwrap().0 as f64;
            assert!((types(&fraction.graph) - fraction.share * types(&whole)).abs() < 1e-6);
        }
    }
}
