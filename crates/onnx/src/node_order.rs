//! Topological order of the nodes of a graph, a body or a function.
//!
//! ONNX requires files to be sorted, but some tools write other orders, and ONNX Runtime sorts. Nodes keep the file's
//! order as far as possible.

use std::collections::{HashMap, HashSet};

use edgecut_graph::topological_order;

use crate::proto::{GraphProto, NodeProto};

/// The positions of `nodes` in an order in which names are defined before their use; `None` if that is the file's.
/// Names that `is_known` are defined outside the nodes.
///
/// # Errors
/// The position of a node whose inputs depend on its own results.
pub(crate) fn node_order(nodes: &[NodeProto], is_known: impl Fn(&str) -> bool) -> Result<Option<Vec<usize>>, usize> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            producers.entry(name).or_insert(at);
        }
    }
    let read = |node| {
        let producer = |name| producers.get(name).copied().filter(|_| !is_known(name));
        names_read(node).into_iter().filter_map(producer).collect::<HashSet<usize>>()
    };
    let sources: Vec<HashSet<usize>> = nodes.iter().map(read).collect();
    if sources.iter().enumerate().all(|(at, sources)| sources.iter().all(|source| *source < at)) {
        return Ok(None);
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (at, sources) in sources.iter().enumerate() {
        sources.iter().for_each(|source| readers[*source].push(at));
    }
    match topological_order(nodes.len(), |at| readers[at].iter().copied(), |_| ()) {
        Ok(order) => Ok(Some(order)),
        Err(waiting) => Err(on_cycle(&waiting, &sources)),
    }
}

/// A node of a cycle, reached from the first of `waiting` along nodes that wait for sources too.
fn on_cycle(waiting: &[usize], sources: &[HashSet<usize>]) -> usize {
    let (mut at, mut visited) = (waiting.first().copied().unwrap_or_default(), HashSet::new());
    while visited.insert(at) {
        // Every waiting node has a source that waits too.
        at = sources[at].iter().copied().filter(|source| waiting.binary_search(source).is_ok()).min().unwrap_or(at);
    }
    at
}

/// The names that `node` reads: its inputs, and what the graphs in its attributes read of what they do not define.
fn names_read(node: &NodeProto) -> Vec<&str> {
    let mut read: Vec<&str> = node.input.iter().map(String::as_str).collect();
    let mut pending: Vec<&GraphProto> = graphs(node).collect();
    if pending.is_empty() {
        return read;
    }
    let (mut inner, mut defined): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    while let Some(graph) = pending.pop() {
        let inputs = graph.input.iter().filter_map(|input| input.name.as_deref());
        let initializers = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref());
        defined.extend(inputs.chain(initializers));
        inner.extend(graph.output.iter().filter_map(|output| output.name.as_deref()));
        for node in &graph.node {
            inner.extend(node.input.iter().map(String::as_str));
            defined.extend(node.output.iter().map(String::as_str));
            pending.extend(graphs(node));
        }
    }
    read.extend(inner.into_iter().filter(|name| !defined.contains(name)));
    read
}

fn graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_models::{FLOAT, info, model, node, read};

    fn chain(order: &[usize]) -> Vec<NodeProto> {
        let nodes = [
            node("Relu", &["x"], &["a"], Vec::new()),
            node("Tanh", &["a"], &["b"], Vec::new()),
            node("Exp", &["x"], &["c"], Vec::new()),
            node("Add", &["b", "c"], &["y"], Vec::new()),
        ];
        order.iter().map(|at| nodes[*at].clone()).collect()
    }

    #[test]
    fn nodes_in_any_order_are_read() {
        let is_known = |name: &str| name == "x";
        assert_eq!(node_order(&chain(&[0, 1, 2, 3]), is_known), Ok(None));
        assert_eq!(node_order(&chain(&[3, 2, 1, 0]), is_known), Ok(Some(vec![1, 3, 2, 0])));
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let made = model(&[info("x", FLOAT, &["2"])], chain(&order), &[info("y", FLOAT, &["2"])]);
            let graph = read(&made, &[]).unwrap().graph;
            assert_eq!(graph.operators().len(), 4, "{order:?}");
            assert_eq!(graph.tensor(graph.outputs[0]).name, "y");
        }
    }

    #[test]
    fn what_a_body_reads_comes_first() {
        let body = GraphProto { node: vec![node("Relu", &["a"], &["r"], Vec::new())], ..GraphProto::default() };
        let attribute = crate::proto::AttributeProto { g: Some(body), ..Default::default() };
        let nodes = [node("If", &["x"], &["y"], vec![attribute]), node("Tanh", &["x"], &["a"], Vec::new())];
        assert_eq!(node_order(&nodes, |name| name == "x"), Ok(Some(vec![1, 0])));
        // A name that is known outside is not the one that a later node defines.
        assert_eq!(node_order(&nodes, |_| true), Ok(None));
    }

    #[test]
    fn a_cycle_is_an_error_that_names_an_operator_of_it() {
        let nodes = vec![
            node("Exp", &["b"], &["y"], Vec::new()),
            node("Relu", &["b"], &["a"], Vec::new()),
            node("Tanh", &["a"], &["b"], Vec::new()),
        ];
        let made = model(&[info("x", FLOAT, &["2"])], nodes, &[info("y", FLOAT, &["2"])]);
        let error = read(&made, &[]).unwrap_err().to_string();
        let expected = "m.onnx: Tanh `Tanh_1` in graph `main`: its inputs depend on its own results";
        assert!(error.starts_with(expected), "{error}");
    }
}
