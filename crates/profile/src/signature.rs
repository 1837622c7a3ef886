//! Signatures: equal for operators that cost the same.

use std::{collections::HashMap, fmt, fmt::Write};

use serde::{Deserialize, Serialize};

use edgecut_graph::{Arg, Attr, Graph, OperatorId, Origin, TensorId};

/// Identifies a cost: operators, attributes, operand types, and which operands are parameters.
///
/// Sixteen hexadecimal digits of the BLAKE3 hash of the [`describe`]d group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signature(String);

impl Signature {
    /// The signature of an operator or a fused group.
    pub fn of(graph: &Graph, operators: &[OperatorId]) -> Signature {
        let hash = blake3::hash(describe(graph, operators).as_bytes()).to_hex();
        Signature(hash.as_str().chars().take(16).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The group as text, without what does not affect its cost: names, source locations, contents of parameters.
///
/// Each operator reads `name{attribute=value}(operands)->result types`. Tensors from outside the group are numbered and
/// typed at their first use; outputs of the group's operators are `%operator.output`. Constants of at most
/// [`SMALL_CONSTANT`] elements are included by value: a shape operand determines the cost.
fn describe(graph: &Graph, operators: &[OperatorId]) -> String {
    let mut text = String::new();
    let mut names: HashMap<TensorId, String> = HashMap::new();
    for (position, id) in operators.iter().enumerate() {
        let operator = graph.operator(*id);
        text.push_str(&operator.name);
        text.push('{');
        for (key, value) in operator.attrs.iter() {
            let _ = write!(text, "{key}=");
            write_attr(&mut text, value);
            text.push(' ');
        }
        text.push_str("}(");
        for arg in &operator.args {
            let tuple = matches!(arg, Arg::Tuple(_));
            text.push_str(if tuple { "(" } else { "" });
            for tensor in arg.tensors() {
                let known = names.len();
                let name = names.entry(*tensor).or_insert_with(|| {
                    text.push_str(&external_operand(graph, *tensor));
                    format!("${known}")
                });
                text.push_str(name);
                text.push(' ');
            }
            text.push_str(if tuple { ")" } else { "" });
        }
        let _ = write!(text, ")->{};", graph.result_type(operator));
        for (index, output) in operator.outputs.iter().enumerate() {
            names.insert(*output, format!("%{position}.{index}"));
        }
    }
    text
}

/// Constants of up to this many elements are part of the signature by value.
const SMALL_CONSTANT: u64 = 8;

/// Origin and type of a tensor that comes from outside the group.
fn external_operand(graph: &Graph, tensor: TensorId) -> String {
    let tensor = graph.tensor(tensor);
    match &tensor.origin {
        Origin::Constant(data) if data.shape().iter().product::<u64>() <= SMALL_CONSTANT => {
            format!("constant {} {:?} ", tensor.ty, data.bytes().as_ref())
        }
        Origin::Constant(_) | Origin::Parameter => format!("parameter {} ", tensor.ty),
        Origin::Input | Origin::Operator { .. } => format!("{} ", tensor.ty),
    }
}

fn write_attr(text: &mut String, value: &Attr) {
    match value {
        // Recursion is bounded by the nesting of the attribute schema.
        Attr::List(items) => {
            text.push('[');
            for item in items {
                write_attr(text, item);
                text.push(',');
            }
            text.push(']');
        }
        Attr::Tensor(data) => {
            let _ = write!(text, "{} {}", data.ty(), blake3::hash(data.bytes()).to_hex());
        }
        other => {
            let _ = write!(text, "{other:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Attrs, DType, Operator, TensorData, TensorType};

    /// `clip(add(input, y))`, where `y` has the origin `outside`.
    fn graph(name: &str, outside: Origin, dims: &[u64], limit: f64) -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, dims);
        let x = graph.add_tensor(name, ty.clone(), Origin::Input);
        let y = graph.add_tensor("y", ty.clone(), outside);
        let operator = |name: &str, operands: &[TensorId], attrs: Attrs| {
            Operator::new(name, operands.iter().copied()).with_attrs(attrs)
        };
        let sum = graph.add_operator(operator("add", &[x, y], Attrs::new()), std::slice::from_ref(&ty));
        let sum = graph.operator(sum).outputs[0];
        let attrs = [("a_max".into(), Attr::Float(limit))].into_iter().collect();
        let clipped = graph.add_operator(operator("clip", &[sum], attrs), &[ty]);
        graph.outputs = graph.operator(clipped).outputs.clone();
        graph
    }

    #[test]
    fn signatures_differ_exactly_where_costs_do() {
        let both = [OperatorId(0), OperatorId(1)];
        let of = |graph: &Graph| Signature::of(graph, &both);
        let base = of(&graph("x", Origin::Parameter, &[2, 30], 6.0));
        assert_eq!(base.as_str().len(), 16);
        assert_eq!(base, of(&graph("other", Origin::Parameter, &[2, 30], 6.0)), "names");
        let weights = TensorData::new(DType::F32, [2, 30], vec![0; 240]).unwrap();
        assert_eq!(base, of(&graph("x", Origin::Constant(weights), &[2, 30], 6.0)), "contents of weights");
        for (what, other) in [
            ("attributes", graph("x", Origin::Parameter, &[2, 30], 7.0)),
            ("shapes", graph("x", Origin::Parameter, &[30, 2], 6.0)),
            ("which are parameters", graph("x", Origin::Input, &[2, 30], 6.0)),
        ] {
            assert_ne!(base, of(&other), "{what}");
        }
        let whole = graph("x", Origin::Parameter, &[2, 30], 6.0);
        assert_ne!(base, Signature::of(&whole, &[OperatorId(0)]));
        let small = |byte| {
            let data = TensorData::new(DType::F32, [2], vec![byte; 8]).unwrap();
            of(&graph("x", Origin::Constant(data), &[2], 6.0))
        };
        assert_ne!(small(1), small(2), "small constants");
    }
}
