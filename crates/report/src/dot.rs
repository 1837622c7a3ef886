//! A graph for Graphviz: one box per operator, one edge per tensor, without parameters.

use std::fmt::Write;

use edgecut_graph::{Graph, OperatorId, Origin, TensorId};

/// Fill colours of the devices, light enough for black text.
const COLOURS: [&str; 8] = ["#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd", "#d0e0e3", "#ead1dc"];

/// The graph in the DOT language. `place` has the number and the name of an operator's device, if it is placed.
pub fn dot(graph: &Graph, place: &dyn Fn(OperatorId) -> Option<(usize, String)>) -> String {
    let mut text = String::from(
        "digraph model {\n  rankdir=TB;\n  node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\"];\n",
    );
    let mut line = |text_of: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(text_of);
        text.push('\n');
    };
    for id in graph.inputs() {
        let tensor = graph.tensor(id);
        line(format_args!("  t{} [label=\"{}\\n{}\", shape=ellipse];", id.0, quote(&tensor.name), tensor.ty));
    }
    for (id, operator) in graph.operators() {
        let types: Vec<String> = operator.outputs.iter().map(|t| graph.tensor(*t).ty.to_string()).collect();
        let (fill, device) = match place(id) {
            Some((index, name)) => (COLOURS[index % COLOURS.len()], format!("\\n{}", quote(&name))),
            None => ("white", String::new()),
        };
        let name = quote(&operator.name);
        line(format_args!("  o{} [label=\"{name}\\n{}{device}\", fillcolor=\"{fill}\"];", id.0, types.join(", ")));
        for operand in operator.operands() {
            if let Some(from) = origin(graph, operand) {
                line(format_args!("  {from} -> o{};", id.0));
            }
        }
    }
    for (at, output) in graph.outputs.iter().enumerate() {
        line(format_args!("  out{at} [label=\"output {at}\", shape=ellipse];"));
        if let Some(from) = origin(graph, *output) {
            line(format_args!("  {from} -> out{at};"));
        }
    }
    text + "}\n"
}

/// The tail of the edges of a tensor; `None` for parameters.
fn origin(graph: &Graph, tensor: TensorId) -> Option<String> {
    match graph.tensor(tensor).origin {
        Origin::Operator { operator, .. } => Some(format!("o{}", operator.0)),
        Origin::Input => Some(format!("t{}", tensor.0)),
        Origin::Parameter | Origin::Constant(_) => None,
    }
}

fn quote(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_relay::{ImportOptions, import};

    #[test]
    fn operators_are_boxes_and_tensors_are_edges() {
        let text = "def @main(%x: float32, %weight: float32) { %0 = add(%x, %weight); multiply(%0, %x) }";
        let graph = import("text", text.as_bytes(), &ImportOptions::default()).unwrap().graph;
        let dot = dot(&graph, &|id| (id.0 == 1).then(|| (0, "edge/\"cpu\"".to_string())));
        for line in ["t0 -> o0;", "o0 -> o1;", "t0 -> o1;", "o1 -> out0;", "edge/\\\"cpu\\\""] {
            assert!(dot.contains(line), "{line} in\n{dot}");
        }
        assert!(!dot.contains("t1"), "parameters have no box");
    }
}
