//! The matcher: a depth-first search with backtracking, started at every operator in program order.
//!
//! Deterministic. The stack of states is explicit, so its depth is not limited by the call stack.

use smallvec::SmallVec;

use super::{
    error::SearchLimitExceeded,
    parse::{Direction, Edge, Kind},
    program::{Instruction, Query, Subject, Target},
};
use crate::{
    graph::{Graph, Operator, Origin},
    id::{OperatorId, TensorId},
};

/// The step limit of a search: a constant and a term for each operator of the graph.
const MIN_STEPS: u64 = 1_000_000;
const STEPS_PER_OPERATOR: u64 = 10_000;

type Ends = SmallVec<[OperatorId; 2]>;

impl Query {
    /// Calls `accept` with the operators of each match, in program order. For each start operator the search ends at the
    /// first accepted match, whose operators are excluded from later ones. `holds` evaluates a condition.
    ///
    /// # Errors
    /// If the step limit is exceeded.
    pub fn find(
        &self,
        graph: &Graph,
        holds: &dyn Fn(&str, Subject) -> bool,
        accept: &mut dyn FnMut(&[OperatorId]) -> bool,
    ) -> Result<(), SearchLimitExceeded> {
        let steps = MIN_STEPS.saturating_add(STEPS_PER_OPERATOR * graph.operators().len() as u64);
        let consumers = graph.consumers();
        let taken = vec![false; graph.operators().len()];
        let mut search = Search { query: self, graph, consumers, holds, taken, steps };
        for (start, _) in graph.operators() {
            search.from(start, accept).ok_or(SearchLimitExceeded { steps })?;
        }
        Ok(())
    }
}

struct Search<'a> {
    query: &'a Query,
    graph: &'a Graph,
    consumers: Vec<Vec<OperatorId>>,
    holds: &'a dyn Fn(&str, Subject) -> bool,
    taken: Vec<bool>,
    /// Steps left.
    steps: u64,
}

/// A partial match.
#[derive(Clone, Default)]
struct State {
    /// Address of the next instruction.
    at: usize,
    ends: Ends,
    /// Matched operators, and whether they are part of the match.
    matched: Vec<(OperatorId, bool)>,
    anchors: SmallVec<[Option<OperatorId>; 4]>,
    /// Outputs that only these operators may read.
    exclusive: Vec<(TensorId, OperatorId)>,
    /// Outputs that nothing outside the match may read.
    closed: Vec<TensorId>,
    forks: Vec<Fork>,
}

#[derive(Clone, Default)]
struct Fork {
    began: Ends,
    reached: Ends,
}

impl Search<'_> {
    /// Searches for a match that starts at `start`; `None` if the step limit is exceeded.
    fn from(&mut self, start: OperatorId, accept: &mut dyn FnMut(&[OperatorId]) -> bool) -> Option<()> {
        let first = State { anchors: SmallVec::from_elem(None, self.query.anchors), ..State::default() };
        let mut waiting = vec![first];
        let query = self.query;
        while let Some(mut state) = waiting.pop() {
            loop {
                // The cost of copying a state is linear in its operators.
                self.steps = self.steps.checked_sub(1 + state.matched.len() as u64 / 8)?;
                match &query.program[state.at] {
                    Instruction::Accept => {
                        let mut members: Vec<OperatorId> =
                            state.matched.iter().filter(|(_, taken)| *taken).map(|(id, _)| *id).collect();
                        members.sort_unstable();
                        if self.is_closed(&state) && accept(&members) {
                            members.iter().for_each(|id| self.taken[id.0 as usize] = true);
                            return Some(());
                        }
                        break;
                    }
                    Instruction::Jump(to) => state.at = *to,
                    Instruction::Either(first, second) => {
                        let mut other = state.clone();
                        other.at = *second;
                        waiting.push(other);
                        state.at = *first;
                    }
                    Instruction::Fork => {
                        state.forks.push(Fork { began: state.ends.clone(), reached: Ends::new() });
                        state.at += 1;
                    }
                    Instruction::Branch => {
                        if let Some(fork) = state.forks.last_mut() {
                            fork.reached.extend(state.ends.drain(..));
                            state.ends = fork.began.clone();
                        }
                        state.at += 1;
                    }
                    Instruction::Join => {
                        if let Some(fork) = state.forks.pop() {
                            state.ends = fork.reached;
                        }
                        state.at += 1;
                    }
                    Instruction::Outside { edge, kind, condition } => {
                        if !self.match_tensor(&mut state, *edge, kind, condition.as_deref()) {
                            break;
                        }
                        state.at += 1;
                    }
                    Instruction::Visit { edge, target } => {
                        let mut found = self.candidates(&state, *edge, target, start);
                        self.steps = self.steps.checked_sub(found.len() as u64)?;
                        let Some(next) = found.pop() else { break };
                        waiting.extend(found.into_iter().map(|id| self.visit(state.clone(), *edge, target, id)));
                        state = self.visit(state, *edge, target, next);
                    }
                }
            }
        }
        Some(())
    }

    /// Candidates for the next operator, the first one last.
    fn candidates(&self, state: &State, edge: Option<Edge>, target: &Target, start: OperatorId) -> Vec<OperatorId> {
        let mut found: Vec<OperatorId> = match (edge, target.anchor.and_then(|anchor| state.anchors[anchor])) {
            (Some(edge), _) => match state.ends.split_first() {
                Some((first, others)) => {
                    let mut found = self.across(*first, edge);
                    for end in others {
                        let also = self.across(*end, edge);
                        found.retain(|id| also.contains(id));
                    }
                    found
                }
                None => Vec::new(),
            },
            (None, Some(anchored)) => vec![anchored],
            (None, None) if state.matched.is_empty() => vec![start],
            (None, None) => self.graph.operators().map(|(id, _)| id).collect(),
        };
        found.retain(|&id| self.suits(state, target, id));
        found.reverse();
        found
    }

    fn suits(&self, state: &State, target: &Target, id: OperatorId) -> bool {
        let fits = match target.anchor.and_then(|anchor| state.anchors[anchor]) {
            Some(anchored) => anchored == id,
            None => {
                let free = !target.taken || !self.taken[id.0 as usize];
                free && state.matched.iter().all(|(other, _)| *other != id)
            }
        };
        let named = target.name.as_deref().is_none_or(|name| self.graph.operator(id).name == name);
        let holds = |condition: &String| (self.holds)(condition, Subject::Operator(id));
        fits && named && target.condition.as_ref().is_none_or(holds)
    }

    fn visit(&self, mut state: State, edge: Option<Edge>, target: &Target, id: OperatorId) -> State {
        if let Some(edge) = edge.filter(|edge| edge.exclusive) {
            for &end in &state.ends {
                let (from, to) = if edge.direction == Direction::Down { (end, id) } else { (id, end) };
                state.exclusive.extend(self.connections(from, to, edge).map(|tensor| (tensor, to)));
            }
        }
        if !state.matched.iter().any(|(other, _)| *other == id) {
            state.matched.push((id, target.taken));
        }
        if let Some(anchor) = target.anchor {
            state.anchors[anchor] = Some(id);
        }
        state.ends = SmallVec::from_slice(&[id]);
        state.at += 1;
        state
    }

    /// Operators at the other side of an edge, without duplicates, in program order.
    fn across(&self, end: OperatorId, edge: Edge) -> Vec<OperatorId> {
        let operator = self.graph.operator(end);
        let mut found: Vec<OperatorId> = match edge.direction {
            Direction::Down => {
                let readers = outputs(operator, edge).flat_map(|t| self.consumers[t.0 as usize].iter().copied());
                readers.filter(|&reader| self.connections(end, reader, edge).next().is_some()).collect()
            }
            Direction::Up => {
                let producers = operands(operator, edge).filter_map(|tensor| self.graph.producer(tensor));
                producers.filter(|&producer| self.connections(producer, end, edge).next().is_some()).collect()
            }
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The tensors that connect two operators along an edge.
    fn connections(&self, from: OperatorId, to: OperatorId, edge: Edge) -> impl Iterator<Item = TensorId> {
        let reader = self.graph.operator(to);
        outputs(self.graph.operator(from), edge)
            .filter(move |output| operands(reader, edge).any(|operand| operand == *output))
    }

    fn match_tensor(&self, state: &mut State, edge: Edge, kind: &Kind, condition: Option<&str>) -> bool {
        let ends = state.ends.clone();
        if edge.direction == Direction::Down {
            let made = ends.iter().flat_map(|&end| outputs(self.graph.operator(end), edge));
            state.closed.extend(made);
            return true;
        }
        let wanted = |tensor: TensorId| {
            let of_kind = match self.graph.tensor(tensor).origin {
                Origin::Operator { .. } => false,
                Origin::Input => *kind != Kind::Parameter,
                Origin::Parameter | Origin::Constant(_) => *kind != Kind::Input,
            };
            of_kind && condition.is_none_or(|condition| (self.holds)(condition, Subject::Tensor(tensor)))
        };
        ends.iter().all(|&end| {
            let found = operands(self.graph.operator(end), edge).find(|&tensor| wanted(tensor));
            state.exclusive.extend(found.filter(|_| edge.exclusive).map(|tensor| (tensor, end)));
            found.is_some()
        })
    }

    /// Whether every tensor has only permitted readers.
    fn is_closed(&self, state: &State) -> bool {
        let returned = |tensor: TensorId| self.graph.outputs.contains(&tensor);
        let readers = |tensor: TensorId| self.consumers[tensor.0 as usize].iter();
        let exclusive = state.exclusive.iter().all(|&(tensor, _)| {
            !returned(tensor) && readers(tensor).all(|reader| state.exclusive.contains(&(tensor, *reader)))
        });
        let inside = |reader: &OperatorId| state.matched.iter().any(|(id, _)| id == reader);
        exclusive && state.closed.iter().all(|&tensor| readers(tensor).all(inside))
    }
}

fn outputs(operator: &Operator, edge: Edge) -> impl Iterator<Item = TensorId> {
    let all = (0u32..).zip(operator.outputs.iter().copied());
    all.filter(move |(index, _)| edge.output.is_none_or(|wanted| wanted == *index)).map(|(_, tensor)| tensor)
}

fn operands(operator: &Operator, edge: Edge) -> impl Iterator<Item = TensorId> {
    let all = (0u32..).zip(operator.operands());
    all.filter(move |(index, _)| edge.operand.is_none_or(|wanted| wanted == *index)).map(|(_, tensor)| tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, TensorType};

    /// Operators as (name, operands): `x` is the input, `w` the parameter, a number the output of that operator.
    fn graph(operators: &[(&str, &[&str])]) -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        for (name, reads) in operators {
            let operand = |read: &&str| match *read {
                "x" => x,
                "w" => w,
                number => graph.operator(OperatorId(number.parse().unwrap())).outputs[0],
            };
            let args: Vec<TensorId> = reads.iter().map(operand).collect();
            let operator = Operator::new(*name, args);
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            graph.outputs = graph.operator(id).outputs.clone();
        }
        graph
    }

    fn found(graph: &Graph, query: &str) -> Vec<Vec<u32>> {
        let mut matches = Vec::new();
        let query = Query::parse(query).unwrap();
        let small = |name: &str, subject: Subject| name == "is_w" && matches!(subject, Subject::Tensor(TensorId(1)));
        let accept = &mut |members: &[OperatorId]| {
            matches.push(members.iter().map(|id| id.0).collect());
            true
        };
        query.find(graph, &small, accept).unwrap();
        matches
    }

    /// LayerNorm as its operators, a convolution with two readers, and a diamond.
    #[test]
    fn queries_match() {
        let norm = graph(&[
            ("conv", &["x", "w"]),
            ("mean", &["0"]),
            ("sub", &["0", "1"]),
            ("pow", &["2"]),
            ("mean", &["3"]),
            ("sqrt", &["4"]),
            ("div", &["2", "5"]),
            ("mul", &["6", "w"]),
        ]);
        let diamond = graph(&[("a", &["x"]), ("b", &["0"]), ("c", &["0"]), ("d", &["1", "2"]), ("d", &["w", "3"])]);
        let chain = graph(&[("a", &["x"]), ("a", &["0"]), ("a", &["1"]), ("b", &["2"]), ("a", &["3"])]);
        for (graph, query, matches) in [
            (
                &norm,
                "mean-*>sub#1~>(pow->mean->sqrt)-*>div#1->mul; sub#1~>div#1; sub#1~>$",
                vec![vec![1, 2, 3, 4, 5, 6, 7]],
            ),
            // `sub` and `conv` have two readers, and the first operand of `div` is not `sqrt`.
            (&norm, "mean-*>sub->pow", vec![]),
            (&norm, "conv->sub", vec![]),
            (&norm, "conv~>sub", vec![vec![0, 2]]),
            (&norm, "conv~>sub->$", vec![]),
            (&norm, "sqrt->div", vec![]),
            (&norm, "sqrt-1>div", vec![vec![5, 6]]),
            (&norm, "mul<1~Parameter[is_w]", vec![vec![7]]),
            (&norm, "mul<1-Producer", vec![]),
            (&norm, "mul<0~$", vec![]),
            (&norm, "conv<~Input", vec![vec![0]]),
            (&norm, "conv<~Parameter", vec![]),
            (&norm, "mul<-div<1-sqrt", vec![vec![5, 6, 7]]),
            (&norm, "^conv~>mean", vec![vec![1]]),
            (&norm, "(pow|sqrt)->.", vec![vec![3, 4]]),
            (&diamond, "a->(b&c)-*>d", vec![vec![0, 1, 2, 3]]),
            (&diamond, "a~>b->d", vec![vec![0, 1, 3]]),
            (&diamond, "(b&c)-*>d", vec![vec![1, 2, 3]]),
            (&diamond, "d-1>d?", vec![vec![3, 4]]),
            (&diamond, "d->d?", vec![vec![3], vec![4]]),
            (&chain, "a+->b", vec![vec![0, 1, 2, 3]]),
            (&chain, "a->a*->b->a?", vec![vec![0, 1, 2, 3, 4]]),
            (&chain, "a{2}", vec![vec![0, 1]]),
            (&chain, "a->((a->b)|b)->a", vec![vec![1, 2, 3, 4]]),
            (&chain, "b->a->$", vec![vec![3, 4]]),
            (&chain, "b->$", vec![]),
            (&chain, "[nothing]->b", vec![]),
        ] {
            assert_eq!(found(graph, query), matches, "{query}");
        }
    }

    #[test]
    fn the_search_is_limited() {
        let reads: Vec<(&str, &[&str])> =
            std::iter::once(("a", &["x"][..])).chain((0..40).map(|_| ("b", &["0"][..]))).collect();
        let wide = Query::parse("a#1~>b; a#1~>b; a#1~>b; a#1~>b; a#1~>b; a#1~>b; a#1~>b; a#1~>c").unwrap();
        let refuse = &mut |_: &[OperatorId]| false;
        assert!(wide.find(&graph(&reads), &|_, _| true, refuse).is_err());
    }
}
