//! Fused groups: the operators that TVM would compile into one kernel.
//!
//! The rules are those of TVM v0.14's `FuseOps` (`src/relay/transforms/fuse_ops.cc`,
//! `src/relay/analysis/graph_partitioner.cc`): every operator has a [`FusionClass`]; an operator joins the group of its
//! immediate post-dominator if the classes on all paths between them allow it. The caller supplies the classes.

use serde::{Deserialize, Serialize};

use crate::{
    fusion_class::FusionClass,
    fusion_vertices::{Dominated, Edge, Pattern, Vertex, dominators, vertices},
    graph::{Graph, Operator},
    id::OperatorId,
};

/// The unit of measurement and placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// One operator.
    Op,
    /// A fused group by TVM's rules.
    #[default]
    Fused,
}

/// Maximum number of operators in a group (TVM's `relay.FuseOps.max_depth`).
const MAX_OPERATORS: usize = 256;

/// The fused groups of `graph` in topological order, each in program order.
///
/// Every operator is in exactly one group, and all outputs of a group are those of its last operator.
pub fn fuse(graph: &Graph, class: impl Fn(&Operator) -> FusionClass) -> Vec<Vec<OperatorId>> {
    let vertices = vertices(graph, class);
    let dominators = dominators(&vertices);
    let mut partition = Partition::new(&vertices);
    for phase in [Phase::Anchors, Phase::Injective, Phase::IntoTuples] {
        partition.run(phase, &vertices, &dominators);
    }
    partition.join_readers(&vertices);
    let mut groups: Vec<Vec<OperatorId>> = vec![Vec::new(); vertices.len()];
    for (index, vertex) in vertices.iter().enumerate() {
        groups[partition.root(index)].extend(vertex.operator);
    }
    groups.retain(|group| !group.is_empty());
    groups.sort_by_key(|group| group.last().copied());
    groups
}

/// The three phases of fusion, in TVM's order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Elementwise operators join their producers and consumers.
    Anchors,
    /// Injective operators and tuples join, after the groups of convolutions and dense layers are complete.
    Injective,
    /// Producers of a tuple that is fused into an injective operator.
    IntoTuples,
}

/// The groups as a union-find forest over the vertices.
struct Partition {
    parent: Vec<usize>,
    pattern: Vec<Pattern>,
    size: Vec<usize>,
    visited: Vec<usize>,
    visit: usize,
}

impl Partition {
    fn new(vertices: &[Vertex]) -> Partition {
        Partition {
            parent: (0..vertices.len()).collect(),
            pattern: vertices.iter().map(|v| v.pattern).collect(),
            size: vec![1; vertices.len()],
            visited: vec![0; vertices.len()],
            visit: 0,
        }
    }

    fn root(&self, mut index: usize) -> usize {
        while self.parent[index] != index {
            index = self.parent[index];
        }
        index
    }

    fn run(&mut self, phase: Phase, vertices: &[Vertex], dominators: &[Dominated]) {
        for (index, dominated) in dominators.iter().enumerate() {
            let own = self.pattern[index];
            let Some(sink) = dominated.parent.filter(|_| own != Pattern::Opaque) else { continue };
            let between = self.between(vertices, index, sink);
            let size: usize = between.iter().map(|v| self.size[*v]).sum();
            if self.size[self.root(sink)] + size > MAX_OPERATORS {
                continue;
            }
            if self.allowed(phase, index, sink, dominated.pattern, &between) {
                between.iter().for_each(|vertex| self.merge(*vertex, sink));
            }
        }
    }

    /// Whether the group of `index` may join that of its post-dominator `sink` in this phase.
    fn allowed(&self, phase: Phase, index: usize, sink: usize, path: Pattern, between: &[usize]) -> bool {
        let own = self.pattern[index];
        let inner = |limit: Pattern| between.iter().skip(1).all(|v| self.pattern[self.root(*v)] <= limit);
        let sink_root = self.pattern[self.root(sink)];
        if phase == Phase::IntoTuples {
            return own <= Pattern::Injective
                && self.pattern[sink] == Pattern::Tuple
                && sink_root <= Pattern::Injective
                && inner(Pattern::Injective);
        }
        if self.root(index) == self.root(sink) || self.pattern[sink] == Pattern::Tuple {
            return false;
        }
        match own {
            Pattern::OutFusable => {
                phase == Phase::Anchors
                    && path == Pattern::Elementwise
                    && sink_root <= Pattern::Broadcast
                    && inner(Pattern::Broadcast)
            }
            Pattern::Elementwise | Pattern::Broadcast => {
                path <= Pattern::Reduce && sink_root <= Pattern::OutFusable && inner(Pattern::Injective)
            }
            Pattern::Injective | Pattern::Tuple => {
                phase == Phase::Injective && sink_root <= Pattern::Injective && inner(Pattern::Injective)
            }
            Pattern::Reduce | Pattern::Opaque => false,
        }
    }

    /// Merges every vertex of [`FusionClass::InFusable`] into the group of its readers, where all are in one. What a group's
    /// only reader is merged into cannot depend on that group in another way, so groups stay free of cycles.
    fn join_readers(&mut self, vertices: &[Vertex]) {
        for index in (0..vertices.len()).rev() {
            let vertex = &vertices[index];
            if !vertex.joins_readers || vertex.returned {
                continue;
            }
            // A tuple that one operator reads stands for it.
            let reader = |edge: &Edge| match &vertices[edge.to] {
                Vertex { operator: None, returned: false, readers, .. } => match &readers[..] {
                    [only] => only.to,
                    _ => edge.to,
                },
                _ => edge.to,
            };
            let mut roots = vertex.readers.iter().map(|edge| self.root(reader(edge)));
            let Some(first) = roots.next() else { continue };
            let is_one = roots.all(|root| root == first);
            if is_one && self.size[first] < MAX_OPERATORS {
                self.merge(index, first);
            }
        }
    }

    /// All vertices on paths from `source` to `sink`: first `source`, without `sink`.
    fn between(&mut self, vertices: &[Vertex], source: usize, sink: usize) -> Vec<usize> {
        self.visit += 1;
        let mut found = vec![source];
        let mut next = 0;
        while let Some(index) = found.get(next).copied() {
            next += 1;
            for edge in &vertices[index].readers {
                if edge.to != sink && self.visited[edge.to] != self.visit {
                    self.visited[edge.to] = self.visit;
                    found.push(edge.to);
                }
            }
        }
        found
    }

    fn merge(&mut self, child: usize, parent: usize) {
        let (child, parent) = (self.root(child), self.root(parent));
        if child == parent {
            return;
        }
        self.size[parent] += self.size[child];
        self.parent[child] = parent;
        if self.pattern[child] == Pattern::OutFusable {
            self.pattern[parent] = Pattern::OutFusable;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arg, DType, Origin, TensorId, TensorType};

    /// A graph under construction whose operators have given classes.
    struct Sketch {
        graph: Graph,
        classes: Vec<FusionClass>,
        last: TensorId,
    }

    impl Sketch {
        fn new() -> Sketch {
            let mut graph = Graph::new();
            let last = graph.add_tensor("x", TensorType::of(DType::F32, &[2, 8]), Origin::Input);
            Sketch { graph, classes: Vec::new(), last }
        }

        fn add(&mut self, class: FusionClass, args: Vec<Arg>, dims: &[u64], fields: usize) -> Vec<TensorId> {
            let operator = Operator::new("op", args)
                .with_tuple_result(fields > 1)
                .with_label(Some(self.classes.len().to_string().into()));
            self.classes.push(class);
            let id = self.graph.add_operator(operator, &vec![TensorType::of(DType::F32, dims); fields]);
            self.last = self.graph.operator(id).outputs[0];
            self.graph.operator(id).outputs.clone()
        }

        fn op(&mut self, class: FusionClass, operands: &[TensorId]) -> TensorId {
            self.add(class, operands.iter().map(|t| Arg::Tensor(*t)).collect(), &[2, 8], 1)[0]
        }

        fn groups(mut self) -> Vec<Vec<u32>> {
            if self.graph.outputs.is_empty() {
                self.graph.outputs.push(self.last);
            }
            let class = |o: &Operator| {
                let index: usize = o.label.as_deref().and_then(|l| l.parse().ok()).unwrap();
                self.classes[index]
            };
            fuse(&self.graph, class).iter().map(|g| g.iter().map(|id| id.0).collect()).collect()
        }
    }

    use FusionClass::*;

    #[test]
    fn a_convolution_fuses_with_the_elementwise_chain_after_it() {
        let mut s = Sketch::new();
        let x = s.last;
        let conv = s.op(OutFusable, &[x]);
        let bias = s.op(Broadcast, &[conv]);
        let relu = s.op(Elementwise, &[bias]);
        let next = s.op(OutFusable, &[relu]);
        let sum = s.op(Broadcast, &[next, relu]);
        s.op(Elementwise, &[sum]);
        assert_eq!(s.groups(), [vec![0, 1, 2], vec![3, 4, 5]]);
    }

    #[test]
    fn two_convolutions_are_never_in_one_group() {
        let mut s = Sketch::new();
        let x = s.last;
        let (a, b) = (s.op(OutFusable, &[x]), s.op(OutFusable, &[x]));
        let sum = s.op(Broadcast, &[a, b]);
        s.op(Elementwise, &[sum]);
        assert_eq!(s.groups(), [vec![1], vec![0, 2, 3]]);
    }

    #[test]
    fn a_diamond_of_elementwise_operators_is_one_group() {
        let mut s = Sketch::new();
        let x = s.last;
        let top = s.op(Elementwise, &[x]);
        let (a, b) = (s.op(Elementwise, &[top]), s.op(Broadcast, &[top]));
        let sum = s.op(Broadcast, &[a, b]);
        s.op(Opaque, &[sum]);
        assert_eq!(s.groups(), [vec![0, 1, 2, 3], vec![4]]);
    }

    #[test]
    fn a_model_output_ends_its_group() {
        let mut s = Sketch::new();
        let x = s.last;
        let a = s.op(Elementwise, &[x]);
        let b = s.op(Elementwise, &[a]);
        s.graph.outputs = vec![a, b];
        assert_eq!(s.groups(), [vec![0], vec![1]]);
    }

    #[test]
    fn injective_operators_follow_elementwise_ones_but_not_convolutions() {
        let mut s = Sketch::new();
        let x = s.last;
        let conv = s.op(OutFusable, &[x]);
        let transposed = s.op(Injective, &[conv]);
        let relu = s.op(Elementwise, &[transposed]);
        s.op(Opaque, &[relu]);
        assert_eq!(s.groups(), [vec![0], vec![1, 2], vec![3]]);
        let mut s = Sketch::new();
        let x = s.last;
        let relu = s.op(Elementwise, &[x]);
        s.op(Reduce, &[relu]);
        assert_eq!(s.groups(), [vec![0, 1]]);
    }

    #[test]
    fn a_fused_concatenation_fuses_with_its_elementwise_operands() {
        let mut s = Sketch::new();
        let x = s.last;
        let (a, b) = (s.op(Elementwise, &[x]), s.op(Elementwise, &[x]));
        let joined = s.add(Injective, vec![Arg::Tuple(vec![a, b])], &[4, 8], 1)[0];
        s.op(Opaque, &[joined]);
        assert_eq!(s.groups(), [vec![0, 1, 2], vec![3]]);
    }

    #[test]
    fn a_normalisation_with_one_used_field_fuses() {
        let mut s = Sketch::new();
        let x = s.last;
        let conv = s.op(OutFusable, &[x]);
        let normal = s.add(Broadcast, vec![Arg::Tensor(conv)], &[2, 8], 3)[0];
        s.op(Elementwise, &[normal]);
        assert_eq!(s.groups(), [vec![0, 1, 2]]);
    }

    #[test]
    fn what_joins_its_reader_is_in_its_group_and_ends_the_one_before() {
        let mut s = Sketch::new();
        let x = s.last;
        let dequantised = s.op(InFusable, &[x]);
        let conv = s.op(OutFusable, &[dequantised]);
        let quantised = s.op(Elementwise, &[conv]);
        let [a, b] = [s.op(InFusable, &[quantised]), s.op(InFusable, &[quantised])];
        let left = s.op(OutFusable, &[a]);
        let joined = s.add(Injective, vec![Arg::Tuple(vec![b, left])], &[4, 8], 1)[0];
        s.op(Opaque, &[joined]);
        assert_eq!(s.groups(), [vec![0, 1, 2], vec![3, 5], vec![4, 6], vec![7]]);
        let mut s = Sketch::new();
        let x = s.last;
        let shared = s.op(InFusable, &[x]);
        let [a, b] = [s.op(OutFusable, &[shared]), s.op(OutFusable, &[shared])];
        s.graph.outputs = vec![a, b];
        assert_eq!(s.groups(), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn the_size_of_groups_is_limited() {
        let mut s = Sketch::new();
        for _ in 0..600 {
            let x = s.last;
            s.op(Elementwise, &[x]);
        }
        let groups = s.groups();
        assert!(groups.iter().all(|g| g.len() <= MAX_OPERATORS), "{:?}", groups.iter().map(Vec::len).max());
        assert_eq!(groups.concat(), (0..600).collect::<Vec<u32>>());
    }
}
