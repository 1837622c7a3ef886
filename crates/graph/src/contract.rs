//! Contraction of convex groups of operators: each group becomes one operator of a coarser graph.

use smol_str::SmolStr;

use crate::{
    graph::{Graph, Operator, Origin},
    id::{OperatorId, TensorId},
    topological::topological_order,
};

/// Disjoint groups of a graph's operators whose contraction is acyclic: no path leaves a group and returns to it, not
/// even through other groups.
pub struct ConvexGroups<'a> {
    graph: &'a Graph,
    /// By operator: the readers of its outputs.
    readers: Vec<Vec<OperatorId>>,
    group_of: Vec<Option<usize>>,
    members: Vec<Vec<OperatorId>>,
    /// By operator: the number of groups that begin at or before it and end after it in program order.
    spanning: Vec<u32>,
}

/// A graph whose operators are groups of another graph's operators.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractedGraph {
    pub graph: Graph,
    /// By operator: the original operators of its group, in program order.
    pub members: Vec<Vec<OperatorId>>,
    /// By tensor: the original tensor.
    pub tensors: Vec<TensorId>,
}

impl<'a> ConvexGroups<'a> {
    pub fn new(graph: &'a Graph) -> ConvexGroups<'a> {
        let consumers = graph.consumers();
        let readers = |(_, operator): (OperatorId, &Operator)| {
            let mut readers: Vec<OperatorId> =
                operator.outputs.iter().flat_map(|t| consumers[t.0 as usize].iter().copied()).collect();
            readers.sort_unstable();
            readers.dedup();
            readers
        };
        let count = graph.operators().len();
        ConvexGroups {
            graph,
            readers: graph.operators().map(readers).collect(),
            group_of: vec![None; count],
            members: Vec::new(),
            spanning: vec![0; count],
        }
    }

    /// Adds a group of operators, given in program order. Returns `false` and adds nothing if one of them is in a group
    /// already or the contraction would be cyclic.
    pub fn add(&mut self, members: &[OperatorId]) -> bool {
        let (Some(&first), Some(&last)) = (members.first(), members.last()) else { return false };
        if members.iter().any(|id| self.group_of[id.0 as usize].is_some()) || self.creates_cycle(members, last) {
            return false;
        }
        members.iter().for_each(|id| self.group_of[id.0 as usize] = Some(self.members.len()));
        self.spanning[first.0 as usize..last.0 as usize].iter_mut().for_each(|s| *s += 1);
        self.members.push(members.to_vec());
        true
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a path leaves `members` and returns to it.
    fn creates_cycle(&self, members: &[OperatorId], last: OperatorId) -> bool {
        // No path leads back from behind an operator that no group spans.
        let mut end = last.0 as usize;
        while self.spanning[end] > 0 {
            end += 1;
        }
        let mut seen = vec![false; end + 1];
        // The frontier of the search: operators, each with its whole group.
        let mut waiting: Vec<OperatorId> = Vec::new();
        let own = |id: &OperatorId| members.binary_search(id).is_ok();
        waiting.extend(members.iter().flat_map(|id| &self.readers[id.0 as usize]).filter(|id| !own(id)));
        while let Some(id) = waiting.pop() {
            let group = self.group_of[id.0 as usize].map(|group| &self.members[group]);
            for &id in group.map_or(std::slice::from_ref(&id), Vec::as_slice) {
                if id.0 as usize > end || std::mem::replace(&mut seen[id.0 as usize], true) {
                    continue;
                }
                for reader in &self.readers[id.0 as usize] {
                    if own(reader) {
                        return true;
                    }
                    waiting.push(*reader);
                }
            }
        }
        false
    }

    /// The graph with each group contracted to one operator, named by `name` of the group's number. Its operands are the
    /// tensors that the group reads from outside, without duplicates; its outputs those that are read outside or that
    /// the model returns.
    pub fn contract(&self, name: impl Fn(usize) -> SmolStr) -> ContractedGraph {
        let graph = self.graph;
        let mut needed: Vec<bool> = vec![false; graph.tensors().len()];
        graph.outputs.iter().for_each(|t| needed[t.0 as usize] = true);
        for (id, operator) in graph.operators() {
            let own = self.group_of[id.0 as usize];
            for operand in operator.operands() {
                let producer = graph.producer(operand);
                if own.is_none() || producer.is_none_or(|producer| self.group_of[producer.0 as usize] != own) {
                    needed[operand.0 as usize] = true;
                }
            }
        }
        let mut made = ContractedGraph { graph: Graph::new(), members: Vec::new(), tensors: Vec::new() };
        let mut new: Vec<Option<TensorId>> = vec![None; graph.tensors().len()];
        for (id, tensor) in graph.tensors().filter(|(_, t)| !matches!(t.origin, Origin::Operator { .. })) {
            new[id.0 as usize] =
                Some(made.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone()));
            made.tensors.push(id);
        }
        for (group, members) in self.order() {
            made.push(graph, members, group.map(&name), &needed, &mut new);
        }
        made.graph.outputs = graph.outputs.iter().filter_map(|output| new[output.0 as usize]).collect();
        made
    }

    /// Groups and single operators in topological order; ties are broken by the program order of the last members.
    fn order(&self) -> Vec<(Option<usize>, Vec<OperatorId>)> {
        let count = self.graph.operators().len();
        // Vertices are numbered: first the groups, then the single operators.
        let vertex = |id: OperatorId| self.group_of[id.0 as usize].unwrap_or(self.members.len() + id.0 as usize);
        let mut inside: Vec<Vec<OperatorId>> = vec![Vec::new(); self.members.len() + count];
        for (id, _) in self.graph.operators() {
            inside[vertex(id)].push(id);
        }
        let followers = |from: usize| {
            let readers = inside[from].iter().flat_map(|id| &self.readers[id.0 as usize]);
            readers.map(|reader| vertex(*reader)).filter(move |to| *to != from)
        };
        // The contraction is acyclic. Operators of groups leave their own vertices empty.
        let order = topological_order(inside.len(), followers, |v| inside[v].last()).unwrap_or_default();
        let group = |v: usize| (v < self.members.len()).then_some(v);
        order.into_iter().map(|v| (group(v), std::mem::take(&mut inside[v]))).filter(|(_, m)| !m.is_empty()).collect()
    }
}

impl ContractedGraph {
    /// A graph without contracted groups.
    pub fn whole(graph: &Graph) -> ContractedGraph {
        ContractedGraph {
            graph: graph.clone(),
            members: graph.operators().map(|(id, _)| vec![id]).collect(),
            tensors: graph.tensors().map(|(id, _)| id).collect(),
        }
    }

    /// The composition with `further`, a contraction of this graph: its members and tensors are those of the original
    /// graph.
    pub fn then(&self, further: ContractedGraph) -> ContractedGraph {
        let flat = |members: &Vec<OperatorId>| {
            let mut all: Vec<OperatorId> =
                members.iter().flat_map(|id| self.members[id.0 as usize].iter().copied()).collect();
            all.sort_unstable();
            all
        };
        ContractedGraph {
            members: further.members.iter().map(flat).collect(),
            tensors: further.tensors.iter().map(|t| self.tensors[t.0 as usize]).collect(),
            graph: further.graph,
        }
    }

    fn push(
        &mut self,
        graph: &Graph,
        members: Vec<OperatorId>,
        name: Option<SmolStr>,
        needed: &[bool],
        new: &mut [Option<TensorId>],
    ) {
        let Some(&first) = members.first() else { return };
        let (operator, outputs) = match name {
            None => {
                let mut operator = graph.operator(first).clone();
                let outputs = std::mem::take(&mut operator.outputs);
                // Every operand is the output of an earlier vertex, so it is needed and has a new id.
                operator.redirect(|tensor| new[tensor.0 as usize].unwrap_or(tensor));
                (operator, outputs)
            }
            Some(name) => {
                let mut args: Vec<TensorId> = Vec::new();
                for operand in members.iter().flat_map(|id| graph.operator(*id).operands()) {
                    // Tensors that the group itself produces have no new id yet.
                    if let Some(operand) = new[operand.0 as usize].filter(|operand| !args.contains(operand)) {
                        args.push(operand);
                    }
                }
                let made = members.iter().flat_map(|id| graph.operator(*id).outputs.iter().copied());
                let outputs: Vec<TensorId> = made.filter(|tensor| needed[tensor.0 as usize]).collect();
                let operator = Operator::new(name, args)
                    .with_tuple_result(outputs.len() != 1)
                    .with_location(graph.operator(first).location);
                (operator, outputs)
            }
        };
        let types: Vec<_> = outputs.iter().map(|output| graph.tensor(*output).ty.clone()).collect();
        let id = self.graph.add_operator(operator, &types);
        for (old, fresh) in outputs.iter().zip(self.graph.operator(id).outputs.clone()) {
            self.graph.tensor_mut(fresh).name = graph.tensor(*old).name.clone();
            new[old.0 as usize] = Some(fresh);
            self.tensors.push(*old);
        }
        self.members.push(members);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DType, Part, TensorType};

    /// Operators with up to three operands among the tensors before them and one or two outputs.
    fn graphs() -> impl Strategy<Value = Graph> {
        let operator = (prop::collection::vec(any::<prop::sample::Index>(), 1..4), 1usize..3, 0u8..3);
        prop::collection::vec(operator, 1..24).prop_map(|operators| {
            let mut graph = Graph::new();
            let ty = TensorType::of(DType::F32, &[4]);
            graph.add_tensor("x", ty.clone(), Origin::Input);
            graph.add_tensor("w", ty.clone(), Origin::Parameter);
            for (reads, outputs, name) in operators {
                let count = graph.tensors().len();
                let args = reads.iter().map(|read| TensorId(read.index(count) as u32));
                let operator = Operator::new(["a", "b", "c"][name as usize], args).with_tuple_result(outputs != 1);
                let id = graph.add_operator(operator, &vec![ty.clone(); outputs]);
                graph.outputs = graph.operator(id).outputs.clone();
            }
            graph
        })
    }

    /// Whether the contraction of `groups` is acyclic, by repeatedly removing sources.
    fn is_acyclic(graph: &Graph, groups: &[Vec<OperatorId>]) -> bool {
        let of = |id: OperatorId| groups.iter().position(|g| g.contains(&id)).unwrap_or(1000 + id.0 as usize);
        let mut edges: Vec<(usize, usize)> = Vec::new();
        for (id, operator) in graph.operators() {
            let producers = operator.operands().filter_map(|t| graph.producer(t));
            edges.extend(producers.map(|producer| (of(producer), of(id))).filter(|(from, to)| from != to));
        }
        loop {
            let before = edges.len();
            let sources: Vec<usize> = edges.iter().map(|e| e.0).collect();
            edges.retain(|e| sources.contains(&e.1));
            if edges.len() == before {
                return edges.is_empty();
            }
        }
    }

    proptest! {
        #[test]
        fn convex_groups_are_accepted_and_contracted(
            graph in graphs(),
            tried in prop::collection::vec(prop::collection::btree_set(0u32..24, 1..5), 1..8),
        ) {
            let mut groups = ConvexGroups::new(&graph);
            let mut accepted: Vec<Vec<OperatorId>> = Vec::new();
            let count = graph.operators().len() as u32;
            for set in tried {
                let members: Vec<OperatorId> = set.into_iter().filter(|id| *id < count).map(OperatorId).collect();
                let disjoint = members.iter().all(|id| !accepted.iter().any(|g| g.contains(id)));
                let mut with = accepted.clone();
                with.push(members.clone());
                let possible = !members.is_empty() && disjoint && is_acyclic(&graph, &with);
                prop_assert_eq!(groups.add(&members), possible);
                if possible {
                    accepted = with;
                }
            }
            let contracted = groups.contract(|_| "fused".into());
            // The contraction is a valid graph, and contains every operator once.
            let text = serde_json::to_string(&contracted.graph).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Graph>(&text).unwrap(), &contracted.graph);
            let mut all: Vec<OperatorId> = contracted.members.concat();
            let order = all.clone();
            all.sort_unstable();
            prop_assert_eq!(all, graph.operators().map(|(id, _)| id).collect::<Vec<_>>());
            // It is topologically ordered.
            for (place, id) in order.iter().enumerate() {
                let mut producers = graph.operator(*id).operands().filter_map(|t| graph.producer(t));
                prop_assert!(producers.all(|producer| order[..place].contains(&producer)));
            }
            // The operands and outputs of every vertex are those of its members, and the results of the model are unchanged.
            let whole = |ids: &[TensorId]| ids.iter().map(|t| contracted.tensors[t.0 as usize]).collect::<Vec<_>>();
            for ((id, operator), members) in contracted.graph.operators().zip(&contracted.members) {
                if members.len() == 1 && operator.name != "fused" {
                    prop_assert_eq!(&operator.name, &graph.operator(members[0]).name);
                    continue;
                }
                let part = Part::cut(&graph, members);
                let mut read = whole(&contracted.graph.operator(id).operands().collect::<Vec<_>>());
                let inputs = part.graph.inputs().chain(part.graph.parameters());
                let mut outside: Vec<TensorId> = inputs.map(|t| part.whole_tensor[t.0 as usize]).collect();
                read.sort_unstable();
                outside.sort_unstable();
                prop_assert_eq!(read, outside);
                let outputs: Vec<TensorId> =
                    part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]).collect();
                prop_assert_eq!(whole(&operator.outputs), outputs);
            }
            prop_assert_eq!(whole(&contracted.graph.outputs), graph.outputs.clone());
        }
    }
}
