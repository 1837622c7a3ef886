//! Unsupported operators, memory accounting and host links, with the fake driver. Results of operators and models are
//! tested in `tests/gpu.rs`.

use super::*;
use edgecut_graph::{Attr, Attrs, DType, Operator, TensorType};

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
    let operator = Operator::new(name, operands).with_attrs(all);
    let id = graph.add_operator(operator, &[out]);
    graph.outputs = graph.operator(id).outputs.clone();
    graph
}

#[test]
fn operators_without_a_kernel_are_unsupported() {
    let engine = CudaEngine::with_fake_driver().unwrap();
    let ty = TensorType::of(DType::F32, &[4, 6]);
    let sorted = alone("sort", &[("axis", Attr::Int(-1))], std::slice::from_ref(&ty), ty.clone());
    let unsupported = engine.supports(&sorted, OperatorId(0)).unwrap_err();
    assert_eq!(unsupported.op, "sort");
    assert!(unsupported.reason.contains("no kernel"), "{unsupported}");
    let half = TensorType::of(DType::F16, &[4, 6]);
    assert!(engine.supports(&alone("exp", &[], std::slice::from_ref(&half), half.clone()), OperatorId(0)).is_err());
    let fine = alone("exp", &[], std::slice::from_ref(&ty), ty.clone());
    assert_eq!(engine.supports(&fine, OperatorId(0)), Ok(()));
}

#[test]
fn memory_of_runs_and_steps_is_counted() {
    let engine = CudaEngine::with_fake_driver().unwrap();
    let mut graph = Graph::new();
    let ty = TensorType::of(DType::F32, &[1024]);
    let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
    let weight = graph.add_tensor("w", ty.clone(), Origin::Parameter);
    for _ in 0..3 {
        let operator = Operator::new("add", [at, weight]);
        let id = graph.add_operator(operator, std::slice::from_ref(&ty));
        at = graph.operator(id).outputs[0];
    }
    graph.outputs = vec![at];
    let content = content(&graph);
    let x = content(TensorId(0)).unwrap();
    let mut whole = engine.load(&graph, &content).unwrap();
    assert_eq!(whole.parameter_bytes(), Bytes(4096), "one copy of the weight");
    assert!(whole.loading_bytes() >= Bytes(4096), "{}", whole.loading_bytes());
    let (_, sample) = whole.run_measured(vec![x.clone()]).unwrap();
    // One operand and one result at a time: an operand is freed before the next result is allocated.
    assert_eq!((sample.peak, sample.workspace), (Bytes(8192), Bytes::ZERO), "{sample:?}");
    assert!(sample.kernels.is_some());
    drop(whole);
    let steps: Vec<Vec<OperatorId>> = graph.operators().map(|(id, _)| vec![id]).collect();
    let mut stepped = engine.load_steps(&graph, &steps, &content).unwrap();
    let mut samples = Vec::new();
    stepped.run_in_steps(vec![x], &mut |_, sample| samples.push((sample.peak, sample.workspace))).unwrap();
    assert_eq!(samples, vec![(Bytes(8192), Bytes::ZERO); 3]);
    drop(stepped);
    assert_eq!(engine.context.memory.live(), Bytes::ZERO);
}

#[test]
fn copies_are_measured_in_both_directions() {
    let engine = CudaEngine::with_fake_driver().unwrap();
    for memory in [HostMemory::Pageable, HostMemory::Pinned] {
        let link = engine.host_link(memory).unwrap();
        assert_eq!((link.to_device.len(), link.from_device.len()), (9, 9));
        assert!(link.to_device.windows(2).all(|pair| pair[1].0.0 == 4 * pair[0].0.0));
    }
}
