//! Equivalence of a scheduled graph and its model, by value numbering: operators with equal names and attributes on
//! operands with equal numbers have results with equal numbers, and a copy has the number of its operand.

use std::collections::HashMap;

use edgecut_graph::{Graph, Origin, TensorId};

/// An output that differs from the model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueViolation {
    #[error("the schedule has {found} outputs, the model {wanted}")]
    Count { found: usize, wanted: usize },
    #[error("output {index} of the schedule is not the value that the model computes")]
    Other { index: usize },
}

/// What determines the content of a tensor.
#[derive(PartialEq, Eq, Hash)]
enum ValueKey {
    Source(String),
    Result { operator: String, attrs: String, operands: Vec<u32>, output: usize },
}

/// Checks that the outputs of `schedule` are the values of the outputs of `model`.
///
/// # Errors
/// With the first output that is another value.
pub fn values(model: &Graph, schedule: &Graph) -> Result<(), ValueViolation> {
    let (found, wanted) = (schedule.outputs.len(), model.outputs.len());
    if found != wanted {
        return Err(ValueViolation::Count { found, wanted });
    }
    let mut numbers: HashMap<ValueKey, u32> = HashMap::new();
    let wanted = value_numbers(model, &mut numbers);
    let found = value_numbers(schedule, &mut numbers);
    let number = |of: &[u32], tensor: &TensorId| of[tensor.0 as usize];
    let mut results = schedule.outputs.iter().zip(&model.outputs);
    match results.position(|(a, b)| number(&found, a) != number(&wanted, b)) {
        Some(index) => Err(ValueViolation::Other { index }),
        None => Ok(()),
    }
}

/// The number of every tensor of a graph; equal for equal values.
fn value_numbers(graph: &Graph, numbers: &mut HashMap<ValueKey, u32>) -> Vec<u32> {
    let mut of = vec![0; graph.tensors().len()];
    let mut number = |key: ValueKey| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    };
    for (id, tensor) in graph.tensors() {
        match &tensor.origin {
            Origin::Operator { .. } => {}
            Origin::Constant(data) => {
                of[id.0 as usize] = number(ValueKey::Source(format!("{} {}", tensor.ty, blake3::hash(data.bytes()))));
            }
            Origin::Input | Origin::Parameter => of[id.0 as usize] = number(ValueKey::Source(tensor.name.to_string())),
        }
    }
    for (_, operator) in graph.operators() {
        let operands: Vec<u32> = operator.operands().map(|t| of[t.0 as usize]).collect();
        for (output, made) in operator.outputs.iter().enumerate() {
            of[made.0 as usize] = match (operator.name.as_str(), operands.as_slice()) {
                ("copy", [same]) => *same,
                (name, _) => {
                    let attrs = format!("{:?}", operator.attrs);
                    number(ValueKey::Result { operator: name.to_string(), attrs, operands: operands.clone(), output })
                }
            };
        }
    }
    of
}
