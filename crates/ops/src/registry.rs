//! All known operators by name, and how their outputs share storage with their operands.

use std::{collections::HashMap, sync::LazyLock};

use edgecut_graph::{Alias, Attr, Graph, Operator};

use crate::{def::OpDef, families::FAMILIES};

static BY_NAME: LazyLock<HashMap<&'static str, &'static OpDef>> =
    LazyLock::new(|| all().map(|def| (def.name, def)).collect());

/// The definition of the operator `name`; `None` for one that is kept as an opaque vertex.
pub fn lookup(name: &str) -> Option<&'static OpDef> {
    BY_NAME.get(name).copied()
}

/// All known operators, family by family.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().copied().flatten()
}

/// Whether an operator's output is its first operand under another shape.
pub fn is_view(operator: &Operator) -> bool {
    lookup(&operator.name).is_some_and(|def| def.alias == Alias::View)
}

/// Whether an operator concatenates its operands contiguously: along an axis all of whose outer axes have length 1, so
/// that the operands can be written in place, one after the other, in the result's storage.
pub fn is_contiguous_concat(graph: &Graph, operator: &Operator) -> bool {
    let is_concat = lookup(&operator.name).is_some_and(|def| def.alias == Alias::Concat);
    let [output] = operator.outputs[..] else { return false };
    let shape = &graph.tensor(output).ty.shape;
    let axis = shape.axis(operator.attrs.get("axis").and_then(Attr::int).unwrap_or(0));
    is_concat && axis.is_some_and(|axis| shape.iter().take(axis).all(|dim| dim.get() == Some(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Arg, Attrs, DType, Origin, TensorType};

    #[test]
    fn names_are_unique() {
        assert_eq!(all().count(), BY_NAME.len());
    }

    #[test]
    fn concatenation_is_contiguous_behind_axes_of_length_one() {
        for (dims, axis, contiguous) in [
            ([1, 4, 6], 1, true),
            ([1, 4, 6], 0, true),
            ([1, 4, 6], 2, false),
            ([1, 1, 6], -1, true),
            ([2, 4, 6], 1, false),
        ] {
            let mut graph = Graph::new();
            let ty = TensorType::of(DType::F32, &dims);
            let x = graph.add_tensor("x", ty.clone(), Origin::Input);
            let attrs: Attrs = [("axis".into(), Attr::Int(axis))].into_iter().collect();
            let concat = Operator::new("concatenate", [Arg::Tuple(vec![x])]).with_attrs(attrs);
            let id = graph.add_operator(concat, &[ty]);
            assert_eq!(is_contiguous_concat(&graph, graph.operator(id)), contiguous, "{dims:?} along {axis}");
        }
    }
}
