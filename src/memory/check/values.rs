//! Whether a scheduled graph computes the same as another one, by value numbering: two operators of the same name and
//! attributes on operands of equal numbers give results of equal numbers, and a copy's number is its operand's.

use std::collections::HashMap;

use crate::graph::{Graph, Origin, TensorId};

/// A result that is another one, or none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("the schedule gives {found} results, the model {wanted}")]
    Count { found: usize, wanted: usize },
    #[error("result {index} of the schedule is another value than the model's")]
    Other { index: usize },
}

/// What determines a tensor's content.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Outside(String),
    Made { operator: String, attrs: String, operands: Vec<u32>, output: usize },
}

/// Checks that the results of `schedule` are the same values as those of `model`.
///
/// # Errors
/// With the first result that is another value.
pub fn values(model: &Graph, schedule: &Graph) -> Result<(), Flaw> {
    let (found, wanted) = (schedule.outputs.len(), model.outputs.len());
    if found != wanted {
        return Err(Flaw::Count { found, wanted });
    }
    let mut numbers: HashMap<Key, u32> = HashMap::new();
    let wanted = numbered(model, &mut numbers);
    let found = numbered(schedule, &mut numbers);
    let number = |of: &[u32], tensor: &TensorId| of[tensor.0 as usize];
    let mut results = schedule.outputs.iter().zip(&model.outputs);
    match results.position(|(a, b)| number(&found, a) != number(&wanted, b)) {
        Some(index) => Err(Flaw::Other { index }),
        None => Ok(()),
    }
}

/// The number of every tensor of a graph, equal where the value is.
fn numbered(graph: &Graph, numbers: &mut HashMap<Key, u32>) -> Vec<u32> {
    let mut of = vec![0; graph.tensors().len()];
    let mut number = |key: Key| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    };
    for (id, tensor) in graph.tensors() {
        match &tensor.origin {
            Origin::Operator { .. } => {}
            Origin::Constant(data) => {
                of[id.0 as usize] = number(Key::Outside(format!("{} {}", tensor.ty, blake3::hash(data.bytes()))));
            }
            Origin::Input | Origin::Parameter => of[id.0 as usize] = number(Key::Outside(tensor.name.to_string())),
        }
    }
    for (_, operator) in graph.operators() {
        let operands: Vec<u32> = operator.operands().map(|t| of[t.0 as usize]).collect();
        for (output, made) in operator.outputs.iter().enumerate() {
            of[made.0 as usize] = match (operator.name.as_str(), operands.as_slice()) {
                ("copy", [same]) => *same,
                (name, _) => {
                    let attrs = format!("{:?}", operator.attrs);
                    number(Key::Made { operator: name.to_string(), attrs, operands: operands.clone(), output })
                }
            };
        }
    }
    of
}
