//! What is refused, and how memory is counted, by the kernels that a C compiler makes of their source. What operators and
//! models compute by them is in `tests/gpu.rs`.

use super::*;
use crate::graph::{Arg, Attr, Attrs, DType, Operator, TensorType};

fn content(graph: &Graph) -> impl Fn(TensorId) -> Result<TensorData, EngineError> {
    |id| {
        let tensor = graph.tensor(id);
        match &tensor.origin {
            Origin::Constant(data) => Ok(data.clone()),
            _ => seeded(&tensor.name, &tensor.ty).map_err(|e| EngineError::Other(e.to_string())),
        }
    }
}

/// A graph of one operator with inputs of these types.
fn alone(name: &str, attrs: &[(&str, Attr)], inputs: &[TensorType], out: TensorType) -> Graph {
    let mut graph = Graph::new();
    let operands: Vec<TensorId> =
        inputs.iter().enumerate().map(|(i, ty)| graph.add_tensor(format!("x{i}"), ty.clone(), Origin::Input)).collect();
    let mut all = Attrs::new();
    for (key, value) in attrs {
        all.set(*key, value.clone());
    }
    let operator = Operator {
        name: name.into(),
        attrs: all,
        args: operands.into_iter().map(Arg::Tensor).collect(),
        outputs: Vec::new(),
        tuple_result: false,
        label: None,
        place: None,
    };
    let id = graph.add_operator(operator, &[out]);
    graph.outputs = graph.operator(id).outputs.clone();
    graph
}

#[test]
fn what_has_no_kernel_is_refused_by_name_and_the_rest_goes_on() {
    let engine = CudaEngine::rehearsal().unwrap();
    let ty = TensorType::of(DType::F32, &[4, 6]);
    let sorted = alone("sort", &[("axis", Attr::Int(-1))], std::slice::from_ref(&ty), ty.clone());
    let refused = engine.supports(&sorted, OperatorId(0)).unwrap_err();
    assert_eq!(refused.op, "sort");
    assert!(refused.reason.contains("no kernel"), "{refused}");
    let half = TensorType::of(DType::F16, &[4, 6]);
    assert!(engine.supports(&alone("exp", &[], std::slice::from_ref(&half), half.clone()), OperatorId(0)).is_err());
    let fine = alone("exp", &[], std::slice::from_ref(&ty), ty.clone());
    assert_eq!(engine.supports(&fine, OperatorId(0)), Ok(()));
}

#[test]
fn memory_is_counted_as_it_is_taken() {
    let engine = CudaEngine::rehearsal().unwrap();
    let mut graph = Graph::new();
    let ty = TensorType::of(DType::F32, &[1024]);
    let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
    let weight = graph.add_tensor("w", ty.clone(), Origin::Parameter);
    for _ in 0..3 {
        let operator = Operator {
            name: "add".into(),
            attrs: Attrs::new(),
            args: vec![Arg::Tensor(at), Arg::Tensor(weight)],
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            place: None,
        };
        let id = graph.add_operator(operator, std::slice::from_ref(&ty));
        at = graph.operator(id).outputs[0];
    }
    graph.outputs = vec![at];
    let content = content(&graph);
    let x = content(TensorId(0)).unwrap();
    let mut whole = engine.load(&graph, &content).unwrap();
    assert_eq!(whole.parameter_bytes(), Bytes(4096), "one copy of the weight");
    assert!(whole.loading_bytes() >= Bytes(4096), "{}", whole.loading_bytes());
    let (_, sample) = whole.run_measured(std::slice::from_ref(&x)).unwrap();
    // An operand and a result at a time: what was read is given back before the next is made.
    assert_eq!((sample.peak, sample.workspace), (Bytes(8192), Bytes::ZERO), "{sample:?}");
    assert!(sample.kernels.is_some());
    drop(whole);
    let steps: Vec<Vec<OperatorId>> = graph.operators().map(|(id, _)| vec![id]).collect();
    let mut stepped = engine.load_steps(&graph, &steps, &content).unwrap();
    let mut samples = Vec::new();
    stepped.run_in_steps(vec![x], &mut |_, sample| samples.push((sample.peak, sample.workspace))).unwrap();
    assert_eq!(samples, vec![(Bytes(8192), Bytes::ZERO); 3]);
    drop(stepped);
    assert_eq!(engine.core.heap.live(), Bytes::ZERO);
}

#[test]
fn copies_are_timed_both_ways() {
    let engine = CudaEngine::rehearsal().unwrap();
    for memory in [Memory::Pageable, Memory::Pinned] {
        let link = engine.host_link(memory).unwrap();
        assert_eq!((link.to_card.len(), link.from_card.len()), (9, 9));
        assert!(link.to_card.windows(2).all(|pair| pair[1].0.0 == 4 * pair[0].0.0));
    }
}
