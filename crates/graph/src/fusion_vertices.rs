//! The graph as TVM's partitioner sees it: operators, tuples and fields of tuples, and the tree of post-dominators.

use crate::{
    arg::Arg,
    fusion_class::FusionClass,
    graph::{Graph, Operator},
    id::{OperatorId, TensorId},
};

/// [`FusionClass`] and TVM's pattern for tuples, in TVM's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pattern {
    Elementwise,
    Broadcast,
    Injective,
    Reduce,
    OutFusable,
    Tuple,
    Opaque,
}

impl From<FusionClass> for Pattern {
    fn from(class: FusionClass) -> Pattern {
        match class {
            FusionClass::Elementwise => Pattern::Elementwise,
            FusionClass::Broadcast => Pattern::Broadcast,
            FusionClass::Injective => Pattern::Injective,
            FusionClass::Reduce => Pattern::Reduce,
            FusionClass::OutFusable => Pattern::OutFusable,
            FusionClass::InFusable | FusionClass::Opaque => Pattern::Opaque,
        }
    }
}

/// A vertex of TVM's partitioner: an operator, a tuple that an operator reads or the model returns, or a field of the
/// tuple that an operator produces.
pub(crate) struct Vertex {
    pub operator: Option<OperatorId>,
    pub pattern: Pattern,
    /// Whether it is [`FusionClass::InFusable`].
    pub joins_readers: bool,
    pub readers: Vec<Edge>,
    /// Whether the model returns it.
    pub returned: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub to: usize,
    pub pattern: Pattern,
}

pub(crate) fn vertices(graph: &Graph, class: impl Fn(&Operator) -> FusionClass) -> Vec<Vertex> {
    let mut list: Vec<Vertex> = Vec::new();
    let add = |list: &mut Vec<Vertex>, operator, pattern| {
        list.push(Vertex { operator, pattern, joins_readers: false, readers: Vec::new(), returned: false });
        list.len() - 1
    };
    let mut used = vec![false; graph.tensors().len()];
    graph.outputs.iter().for_each(|t| used[t.0 as usize] = true);
    graph.operators().flat_map(|(_, o)| o.operands()).for_each(|t| used[t.0 as usize] = true);
    // The producer of each tensor; `None` for inputs and parameters, which never fuse.
    let mut producer: Vec<Option<usize>> = vec![None; graph.tensors().len()];
    let read = |list: &mut Vec<Vertex>, producer: &[Option<usize>], tensor: TensorId, to: usize, pattern: Pattern| {
        if let Some(from) = producer[tensor.0 as usize] {
            list[from].readers.push(Edge { to, pattern });
        }
    };
    for (id, operator) in graph.operators() {
        let tuples: Vec<Option<usize>> = operator
            .args
            .iter()
            .map(|arg| matches!(arg, Arg::Tuple(_)).then(|| add(&mut list, None, Pattern::Tuple)))
            .collect();
        let class = class(operator);
        let own = Pattern::from(class);
        let vertex = add(&mut list, Some(id), own);
        list[vertex].joins_readers = class == FusionClass::InFusable;
        for (arg, tuple) in operator.args.iter().zip(tuples) {
            let pattern =
                if own == Pattern::Broadcast && same_shape(graph, operator, arg) { Pattern::Elementwise } else { own };
            if let Some(tuple) = tuple {
                arg.tensors().iter().for_each(|t| read(&mut list, &producer, *t, tuple, Pattern::Injective));
                list[tuple].readers.push(Edge { to: vertex, pattern });
            } else {
                arg.tensors().iter().for_each(|t| read(&mut list, &producer, *t, vertex, pattern));
            }
        }
        let fields: Vec<TensorId> = operator.outputs.iter().copied().filter(|t| used[t.0 as usize]).collect();
        for field in &fields {
            // TVM simplifies a batch normalisation or dropout whose only used output is the result to an operator
            // without a tuple before fusion.
            let plain = !operator.tuple_result || (fields.len() == 1 && own <= Pattern::Broadcast);
            producer[field.0 as usize] = Some(if plain {
                vertex
            } else {
                let vertex_of_field = add(&mut list, None, Pattern::Injective);
                list[vertex].readers.push(Edge { to: vertex_of_field, pattern: Pattern::Injective });
                vertex_of_field
            });
        }
    }
    match graph.outputs.as_slice() {
        [one] => {
            if let Some(vertex) = producer[one.0 as usize] {
                list[vertex].returned = true;
            }
        }
        several => {
            let tuple = add(&mut list, None, Pattern::Tuple);
            list[tuple].returned = true;
            several.iter().for_each(|t| read(&mut list, &producer, *t, tuple, Pattern::Injective));
        }
    }
    list
}

/// Whether an argument has the shape of the operator's result, so that it is not broadcast.
fn same_shape(graph: &Graph, operator: &Operator, arg: &Arg) -> bool {
    match (arg, operator.outputs.first()) {
        (Arg::Tensor(tensor), Some(output)) => graph.tensor(*tensor).ty.shape == graph.tensor(*output).ty.shape,
        _ => false,
    }
}

/// A vertex's position in the post-dominator tree.
#[derive(Clone, Copy)]
pub(crate) struct Dominated {
    /// The immediate post-dominator.
    pub parent: Option<usize>,
    pub depth: usize,
    /// The maximum pattern of the edges on the paths to it.
    pub pattern: Pattern,
}

pub(crate) fn dominators(vertices: &[Vertex]) -> Vec<Dominated> {
    let root = Dominated { parent: None, depth: 1, pattern: Pattern::Opaque };
    let mut tree = vec![root; vertices.len()];
    for index in (0..vertices.len()).rev() {
        let vertex = &vertices[index];
        let Some(first) = vertex.readers.first().filter(|_| !vertex.returned) else { continue };
        let mut pattern = Pattern::Elementwise.max(first.pattern);
        let mut parent = Some(first.to);
        for edge in &vertex.readers[1..] {
            parent = common_ancestor(&tree, parent, Some(edge.to), &mut pattern);
            pattern = pattern.max(edge.pattern);
        }
        tree[index] = Dominated { parent, depth: parent.map_or(1, |p| tree[p].depth + 1), pattern };
    }
    tree
}

fn common_ancestor(
    tree: &[Dominated],
    mut left: Option<usize>,
    mut right: Option<usize>,
    pattern: &mut Pattern,
) -> Option<usize> {
    while left != right {
        let (l, r) = (tree[left?], tree[right?]);
        if l.depth <= r.depth {
            *pattern = r.pattern.max(*pattern);
            right = r.parent;
        }
        if r.depth <= l.depth {
            *pattern = l.pattern.max(*pattern);
            left = l.parent;
        }
    }
    left
}
