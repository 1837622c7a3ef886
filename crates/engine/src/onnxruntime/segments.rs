//! Division of a graph between sessions of ONNX Runtime and the embedded engine: as few changes between them as the
//! dependencies allow.

use edgecut_graph::{Graph, OperatorId, Origin};

/// Operators that one engine computes without interruption, in an order that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Whether the embedded engine computes them.
    pub is_embedded: bool,
    pub operators: Vec<OperatorId>,
}

/// The segments of `graph`, in an order that can be run. `is_embedded` says by operator who computes it.
///
/// Greedy: all operators of one engine that can run, then all of the other. Every operator runs as early as its engine's
/// turn comes, so that no engine has more turns than the longest alternating path asks for, plus one.
pub(super) fn segments(graph: &Graph, is_embedded: &[bool]) -> Vec<Segment> {
    let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    let mut level = vec![0usize; operators.len()];
    // Operators are in topological order, so that an operator's level follows from those before it. Even levels are
    // ONNX Runtime's turns.
    for id in &operators {
        let own = usize::from(is_embedded[id.0 as usize]);
        let before = graph.operator(*id).operands().filter_map(|operand| match graph.tensor(operand).origin {
            Origin::Operator { operator, .. } => Some(level[operator.0 as usize]),
            _ => None,
        });
        let earliest = before.max().unwrap_or(own);
        level[id.0 as usize] = earliest + usize::from(earliest % 2 != own);
    }
    let turns = level.iter().max().map_or(0, |last| last + 1);
    let mut segments: Vec<Segment> =
        (0..turns).map(|turn| Segment { is_embedded: turn % 2 == 1, operators: Vec::new() }).collect();
    for id in operators {
        segments[level[id.0 as usize]].operators.push(id);
    }
    segments.retain(|segment| !segment.operators.is_empty());
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn engines_take_turns_as_rarely_as_possible() {
        // x → a → b → d, x → c → d; b and c are embedded.
        let ty = TensorType::of(DType::F32, &[1]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let mut add = |operands: &[edgecut_graph::TensorId]| {
            let id = graph.add_operator(Operator::new("op", operands.iter().copied()), std::slice::from_ref(&ty));
            graph.operator(id).outputs[0]
        };
        let a = add(&[x]);
        let b = add(&[a]);
        let c = add(&[x]);
        add(&[b, c]);
        let found = segments(&graph, &[false, true, true, false]);
        let found: Vec<_> =
            found.iter().map(|s| (s.is_embedded, s.operators.iter().map(|id| id.0).collect::<Vec<_>>())).collect();
        assert_eq!(found, [(false, vec![0]), (true, vec![1, 2]), (false, vec![3])]);
        assert_eq!(segments(&graph, &[true; 4]).len(), 1);
        assert!(segments(&Graph::new(), &[]).is_empty());
    }
}
