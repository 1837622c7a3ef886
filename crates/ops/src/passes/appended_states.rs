//! Makes growing states, such as a KV cache that `concatenate` extends, FIFO buffers of fixed length, so that input and output
//! have the same type.

use edgecut_graph::{Arg, Attr, Graph, Operator, StatePair, StateTensors, TensorId};

/// Makes each of `states` whose output is `concatenate(input, new)` along `axis` a buffer of the output's type: the output is then
/// `nn.fifo_buffer(new, input)`. A state that other operators also read is unchanged: they expect its original length.
pub fn buffer_appended_states(graph: &mut Graph, states: &[StatePair], axis: usize) {
    let consumers = graph.consumers();
    for state in states {
        let input = graph.inputs().find(|id| graph.tensor(*id).name == state.input);
        let output = graph.outputs.iter().copied().find(|id| graph.tensor(*id).name == state.output);
        let Some((input, output)) = input.zip(output) else { continue };
        let Some(producer) = graph.producer(output) else { continue };
        let Some([past, new]) = concatenated(graph, graph.operator(producer), axis) else { continue };
        if past != input || new == input || consumers[input.0 as usize] != [producer] {
            continue;
        }
        graph.tensor_mut(input).ty = graph.tensor(output).ty.clone();
        let operator = graph.operator_mut(producer);
        operator.name = "nn.fifo_buffer".into();
        operator.args = vec![Arg::Tensor(new), Arg::Tensor(input)];
    }
}

/// Whether a step appends new entries along `axis` of `state` and drops the oldest.
pub fn is_buffer(graph: &Graph, state: StateTensors, axis: usize) -> bool {
    let producer = |tensor: TensorId| graph.producer(tensor).map(|id| graph.operator(id));
    let Some(operator) = producer(state.output) else { return false };
    let operands: Vec<TensorId> = operator.operands().collect();
    match (operator.name.as_str(), &operands[..]) {
        ("nn.fifo_buffer", [_, buffer]) => *buffer == state.input && axis_of(graph, operator, *buffer) == Some(axis),
        // Sliding windows: a slice of `concatenate(input, new)`, or `concatenate` of a slice of the input.
        ("strided_slice", [all]) => {
            let past = producer(*all).and_then(|concat| concatenated(graph, concat, axis)).map(|[past, _]| past);
            past == Some(state.input) && drops_first(operator)
        }
        ("concatenate", [kept, _]) => producer(*kept).is_some_and(|slice| {
            let is_slice = slice.name == "strided_slice" && slice.operands().eq([state.input]);
            is_slice && drops_first(slice) && axis_of(graph, operator, *kept) == Some(axis)
        }),
        _ => false,
    }
}

/// The axis of `operator`, which reads `operand`.
fn axis_of(graph: &Graph, operator: &Operator, operand: TensorId) -> Option<usize> {
    let axis = operator.attrs.get("axis").map_or(Some(0), Attr::int)?;
    let rank = i64::try_from(graph.tensor(operand).ty.shape.rank()).ok()?;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}

/// Whether a slice drops the first entries of an axis.
fn drops_first(slice: &Operator) -> bool {
    let begins = slice.attrs.get("begin").and_then(Attr::list).unwrap_or_default();
    begins.iter().any(|begin| begin.int().is_some_and(|begin| begin != 0))
}

/// The two operands of a concatenation along `axis`.
fn concatenated(graph: &Graph, operator: &Operator, axis: usize) -> Option<[TensorId; 2]> {
    let operands: Vec<TensorId> = operator.operands().collect();
    let operands = <[TensorId; 2]>::try_from(operands).ok().filter(|_| operator.name == "concatenate")?;
    (axis_of(graph, operator, operands[0]) == Some(axis)).then_some(operands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Attrs, DType, Origin, TensorType};

    const STATE: (&str, &str) = ("past", "present");

    fn state() -> StatePair {
        StatePair { input: STATE.0.into(), output: STATE.1.into() }
    }

    /// A state of `past` entries, to which one is appended, and whether another operator reads it.
    fn appending(past: u64, is_read: bool) -> Graph {
        let mut graph = Graph::new();
        let ty = |length: u64| TensorType::of(DType::F32, &[1, length]);
        let input = graph.add_tensor(STATE.0, ty(past), Origin::Input);
        let new = graph.add_tensor("new", ty(1), Origin::Input);
        let attrs: Attrs = [("axis".into(), Attr::Int(-1))].into_iter().collect();
        let mut concat = Operator::new("concatenate", [input, new]).with_attrs(attrs);
        concat.args = vec![Arg::Tuple(vec![input, new])];
        let concat = graph.add_operator(concat, &[ty(past + 1)]);
        let output = graph.operator(concat).outputs[0];
        graph.tensor_mut(output).name = STATE.1.into();
        graph.outputs = vec![output];
        if is_read {
            let other = graph.add_operator(Operator::new("exp", [input]), &[ty(past)]);
            graph.outputs.extend(graph.operator(other).outputs.clone());
        }
        graph
    }

    #[test]
    fn appended_states_become_buffers_unless_other_operators_read_them() {
        let mut graph = appending(3, false);
        assert!(graph.state(&state()).is_err(), "the types differ");
        let appending_graph = graph.clone();
        buffer_appended_states(&mut graph, &[state()], 0);
        assert_eq!(graph, appending_graph, "another axis");
        buffer_appended_states(&mut graph, &[state()], 1);
        let tensors = graph.state(&state()).unwrap();
        assert_eq!(graph.tensor(tensors.input).ty, TensorType::of(DType::F32, &[1, 4]));
        assert!(is_buffer(&graph, tensors, 1) && !is_buffer(&graph, tensors, 0));
        let read = appending(3, true);
        let mut buffered = read.clone();
        buffer_appended_states(&mut buffered, &[state()], 1);
        assert_eq!(buffered, read);
    }

    /// A state of 3 entries to which one is appended, after a slice of it or before, from entry `begin` on.
    fn sliding(begin: i64, slice_first: bool) -> Graph {
        let mut graph = appending(if slice_first { 2 } else { 3 }, false);
        let begins = Attr::List([Attr::Int(0), Attr::Int(begin)].into());
        let attrs: Attrs = [("begin".into(), begins)].into_iter().collect();
        let output = graph.outputs[0];
        let concat = graph.producer(output).unwrap();
        let [past, new] = concatenated(&graph, graph.operator(concat), 1).unwrap();
        let of = if slice_first {
            graph.add_tensor("whole", TensorType::of(DType::F32, &[1, 3]), Origin::Input)
        } else {
            output
        };
        let length = if slice_first { 2 } else { 3 };
        let slice = Operator::new("strided_slice", [of]).with_attrs(attrs);
        let slice = graph.add_operator(slice, &[TensorType::of(DType::F32, &[1, length])]);
        let sliced = graph.operator(slice).outputs[0];
        if slice_first {
            graph.tensor_mut(past).name = "other".into();
            graph.tensor_mut(of).name = STATE.0.into();
            graph.operator_mut(concat).args = vec![Arg::Tuple(vec![sliced, new])];
        } else {
            graph.tensor_mut(output).name = "all".into();
            graph.tensor_mut(sliced).name = STATE.1.into();
            graph.outputs = vec![sliced];
        }
        graph
    }

    #[test]
    fn sliding_windows_drop_the_oldest() {
        for slice_first in [false, true] {
            for (begin, is_one) in [(1, true), (0, false)] {
                let graph = sliding(begin, slice_first);
                let state = graph.state(&state()).unwrap();
                assert_eq!(is_buffer(&graph, state, 1), is_one, "{begin} {slice_first}");
                assert!(!is_buffer(&graph, state, 0));
            }
        }
    }
}
