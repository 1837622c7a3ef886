//! Division of a graph between sessions of ONNX Runtime and the embedded engine: as few changes between them as the
//! dependencies allow.

use std::collections::HashSet;

use edgecut_graph::{Graph, OperatorId, Origin, TensorData, TensorId, constant_operators};

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

impl Segment {
    /// Divides a segment of ONNX Runtime so that no part has more than `most` bytes of constants that `is_packed` holds for, unless
    /// one operator has. One that computes with constants alone stays whole: ONNX Runtime folds these operators into weights of
    /// others, which must be in the same session.
    pub fn divided(
        self,
        graph: &Graph,
        is_packed: &impl Fn(&TensorData) -> bool,
        most: usize,
    ) -> impl Iterator<Item = Segment> {
        let is_embedded = self.is_embedded;
        let constant = constant_operators(graph);
        let is_whole = is_embedded || self.operators.iter().any(|id| constant[id.0 as usize]);
        // What an operator adds to what its part has read.
        let added = |id: OperatorId, known: &HashSet<TensorId>| {
            let operands = graph.operator(id).operands().filter(|operand| !is_whole && !known.contains(operand));
            let packed = operands.filter_map(|operand| match &graph.tensor(operand).origin {
                Origin::Constant(content) if is_packed(content) => Some(content.bytes().len()),
                _ => None,
            });
            packed.sum::<usize>()
        };
        let (mut parts, mut known, mut packed) = (Vec::<Vec<OperatorId>>::new(), HashSet::new(), 0);
        for id in self.operators {
            let bytes = added(id, &known);
            match parts.last_mut() {
                Some(part) if bytes == 0 || packed + bytes <= most => {
                    packed += bytes;
                    part.push(id);
                }
                _ => {
                    known.clear();
                    packed = added(id, &known);
                    parts.push(vec![id]);
                }
            }
            known.extend(graph.operator(id).operands());
        }
        parts.into_iter().map(move |operators| Segment { is_embedded, operators })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn packed_constants_divide_a_segment() {
        let ty = TensorType::of(DType::U8, &[8]);
        let mut graph = Graph::new();
        let mut last = graph.add_tensor("x", ty.clone(), Origin::Input);
        let constant = |fill: u8| TensorData::new(DType::U8, [8], vec![fill; 8]).unwrap();
        let constants = [1, 2, 0, 3].map(constant);
        let weights =
            constants.each_ref().map(|data| graph.add_tensor("w", ty.clone(), Origin::Constant(data.clone())));
        // The second constant is read again.
        for weight in [0, 1, 2, 1, 3].map(|number: usize| weights[number]) {
            let id = graph.add_operator(Operator::new("op", [last, weight]), std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        let parts = |is_embedded: bool, most: usize| {
            let operators = graph.operators().map(|(id, _)| id).collect();
            let parts = Segment { is_embedded, operators }.divided(&graph, &|data| data.bytes()[0] > 0, most);
            parts.map(|part| part.operators.iter().map(|id| id.0).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(parts(false, 16), [vec![0, 1, 2, 3], vec![4]]);
        assert_eq!(parts(false, 1), [vec![0], vec![1, 2, 3], vec![4]]);
        assert_eq!(parts(false, 8), parts(false, 1));
        assert_eq!((parts(false, 24).len(), parts(true, 1).len()), (1, 1));
    }

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
