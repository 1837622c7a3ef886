//! Classifies the inputs of a model as weights, which are loaded once, or inputs of each run.
//!
//! For Relay, which does not distinguish them. A tensor with content (a `.params` file) is a parameter. Otherwise its
//! name decides if it is conclusive (`conv1_weight`, `bn_gamma`; `data`, `input0`), and else its uses: weight, bias or
//! statistics operands, directly or through operators that only move data. The first tensor is an input unless its name
//! indicates a weight.

use std::cell::LazyCell;

use crate::lookup;
use edgecut_graph::{Arg, Graph, OperatorId, Origin, TensorId};
use smol_str::SmolStr;

/// Parts of names that weights have.
const WEIGHT_NAMES: [&str; 19] = [
    "weight",
    "bias",
    "gamma",
    "beta",
    "moving_mean",
    "moving_var",
    "running_mean",
    "running_var",
    "kernel",
    "filter",
    "embedding",
    "::",
    "param",
    "scale",
    "zero_point",
    "alpha",
    "const",
    "mean",
    "var",
];

/// Beginnings of names that inputs have.
const INPUT_NAMES: [&str; 11] =
    ["data", "input", "in", "x", "features", "image", "label", "ids", "mask", "tokens", "ctx"];

/// Operand names, as TVM registers them, that are weights.
const WEIGHT_OPERANDS: [&str; 14] = [
    "weight",
    "bias",
    "gamma",
    "beta",
    "moving_mean",
    "moving_var",
    "kernel",
    "alpha",
    "weight_data",
    "weight_indices",
    "weight_indptr",
    "sparse_data",
    "sparse_indices",
    "sparse_indptr",
];

/// Operators that only move, reshape or retype a weight before its use.
const MOVERS: [&str; 14] = [
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_to",
    "layout_transform",
    "cast",
    "nn.batch_flatten",
    "reverse_reshape",
    "strided_slice",
    "concatenate",
    "split",
    "copy",
    "qnn.quantize",
];

/// Turns the inputs of `graph` that are weights into parameters; those for which `is_given` are weights whatever their
/// names. Returns the names of all others, which are guesses.
pub fn classify_weights(graph: &mut Graph, is_given: impl Fn(&str) -> bool) -> Vec<SmolStr> {
    let inputs: Vec<TensorId> = graph.inputs().collect();
    let consumers = LazyCell::new(|| graph.consumers());
    let weights: Vec<TensorId> = (0..)
        .zip(&inputs)
        .filter(|(at, input)| {
            let name = &graph.tensor(**input).name;
            if is_given(name) {
                return true;
            }
            match by_name(name) {
                Some(weight) => weight,
                None => *at > 0 && used_as_weight(graph, &consumers, **input),
            }
        })
        .map(|(_, input): (i32, &TensorId)| *input)
        .collect();
    for weight in &weights {
        graph.tensor_mut(*weight).origin = Origin::Parameter;
    }
    let names = weights.iter().map(|weight| graph.tensor(*weight).name.clone());
    names.filter(|name| !is_given(name)).collect()
}

/// Whether the name is that of a weight; `None` if it is inconclusive.
fn by_name(name: &str) -> Option<bool> {
    let lower = name.to_ascii_lowercase();
    let stem = lower.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '_' | '.'));
    if INPUT_NAMES.contains(&stem) {
        return Some(false);
    }
    WEIGHT_NAMES.iter().any(|part| lower.contains(part)).then_some(true)
}

/// Whether every use of `tensor` ends as a weight operand.
fn used_as_weight(graph: &Graph, consumers: &[Vec<OperatorId>], tensor: TensorId) -> bool {
    let (mut pending, mut found) = (vec![tensor], false);
    let mut steps = 0;
    while let Some(tensor) = pending.pop() {
        for id in &consumers[tensor.0 as usize] {
            let operator = graph.operator(*id);
            steps += 1;
            if steps > 1000 {
                return false;
            }
            if MOVERS.contains(&operator.name.as_str()) {
                pending.extend(&operator.outputs);
                continue;
            }
            let names = lookup(&operator.name).map_or(&[][..], |def| def.operands);
            let is_weight = |(at, arg): (usize, &Arg)| {
                !arg.tensors().contains(&tensor) || names.get(at).is_some_and(|name| WEIGHT_OPERANDS.contains(name))
            };
            if !operator.args.iter().enumerate().all(is_weight) {
                return false;
            }
            found = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::by_name;

    #[test]
    fn names_of_weights_and_inputs() {
        for weight in ["conv0_weight", "bn0_moving_var", "aten::add_1.p", "v_param_0_weight", "layer.0.weight"] {
            assert_eq!(by_name(weight), Some(true), "{weight}");
        }
        for input in ["data", "data12", "input0", "input.1", "in0", "x"] {
            assert_eq!(by_name(input), Some(false), "{input}");
        }
        assert_eq!(by_name("w2"), None);
    }
}
