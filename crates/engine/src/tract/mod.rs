//! The CPU engine: tract, with kernels wired by the operators.
//!
//! | module | contents |
//! |---|---|
//! | [`context`] | threads, clocks and the allocation meter of one engine |
//! | [`steps`] | a graph as a sequence of steps on a table of tensors; measuring |
//! | [`program`], [`plan`] | the program of one step, compiled when loading |
//! | [`dynamic_shape`] | operators with data-dependent shapes, compiled at each run |
//! | [`lower`] | graph → tract model |
//! | [`optimise`], [`fold_scales`], [`per_image`], [`split_depth`], [`conv_algorithm`], [`depthwise`], [`plain_conv`] | optimisation of a model, and faster convolutions |
//! | [`fold_weights`], [`elide_casts`], [`merge_equal`] | weights of few bits, exact casts, and equal operators |
//! | [`matmul_kernels`] | which matrix kernel multiplies |
//! | [`fuse_elementwise`], [`elementwise`] | elementwise operators as one operator |
//! | [`tensor`], [`overhead`] | conversion of tensors; the overhead of calling a plan |
//!
//! A graph becomes one tract model, or one for each step. tract's types are used only here, in the GPU engine's
//! translation, and in the operators' kernels.

mod context;
mod conv_algorithm;
mod depthwise;
mod dynamic_shape;
mod elementwise;
mod elide_casts;
mod fold_scales;
mod fold_weights;
mod fuse_elementwise;
mod keep_nan;
mod lower;
mod matmul_kernels;
mod merge_equal;
mod optimise;
mod overhead;
mod per_image;
mod plain_conv;
mod plan;
mod program;
mod single_precision;
mod split_depth;
mod steps;
mod tensor;

use std::sync::Arc;

// The GPU engine starts from the same wired models.
#[cfg(feature = "cuda")]
pub(super) use {
    fold_scales::fold_scales,
    lower::{operator_error, supported, wire_graph},
    tensor::to_tract,
};

use context::TractContext;
use steps::TractSteps;

use crate::{Engine, EngineError, EngineId, Executable, ParameterSource, cpu_quota};
use edgecut_graph::{Graph, OperatorId};
use edgecut_ops::Unsupported;

/// Version of the tract crates that Cargo.toml pins.
const TRACT_VERSION: &str = "0.23.9";

/// Executes operators on this machine's CPU with a fixed number of threads, one computation at a time.
#[derive(Debug, Clone)]
pub struct TractEngine {
    context: Arc<TractContext>,
}

impl TractEngine {
    /// An engine with `threads` compute threads; with 1, the calling thread computes.
    ///
    /// # Errors
    /// If the threads cannot be started, or this process has too many engines.
    pub fn new(threads: usize) -> Result<TractEngine, EngineError> {
        Ok(TractEngine { context: Arc::new(TractContext::new(threads)?) })
    }

    /// Name and version of the engine, which need no instance.
    pub fn identity() -> EngineId {
        // Kernels and fusion depend on this crate's version too.
        let version = format!("{TRACT_VERSION}+{}", env!("CARGO_PKG_VERSION"));
        EngineId { name: "tract".to_string(), version }
    }
}

impl Engine for TractEngine {
    fn id(&self) -> EngineId {
        TractEngine::identity()
    }

    fn threads(&self) -> usize {
        self.context.threads
    }

    fn quota(&self) -> Option<f64> {
        cpu_quota()
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        lower::check_supported(graph.operator(operator))
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        Ok(Box::new(TractSteps::load(Arc::clone(&self.context), graph, steps, parameter)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Dim, Operator, Origin, TensorData, TensorId, TensorType};

    fn relu(of: TensorId) -> Operator {
        operator("nn.relu", &[of])
    }

    fn operator(name: &str, operands: &[TensorId]) -> Operator {
        Operator::new(name, operands.iter().copied())
    }

    /// x → relu → relu; returns the first result, the second, the parameter w and the input as it came.
    fn graph() -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[256, 4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let first = graph.add_operator(relu(x), std::slice::from_ref(&ty));
        let first = graph.operator(first).outputs[0];
        let second = graph.add_operator(relu(first), &[ty]);
        graph.outputs = vec![first, graph.operator(second).outputs[0], w, x];
        graph
    }

    fn floats(value: f32) -> TensorData {
        let bytes: Vec<u8> = (0..1024).flat_map(|i| (value - i as f32).to_le_bytes()).collect();
        TensorData::new(DType::F32, [256, 4], bytes).unwrap()
    }

    #[test]
    fn a_graph_gives_the_same_in_one_step_in_several_and_with_threads() {
        let graph = graph();
        for threads in [1, 2] {
            let engine = TractEngine::new(threads).unwrap();
            for steps in [vec![vec![OperatorId(0), OperatorId(1)]], vec![vec![OperatorId(0)], vec![OperatorId(1)]]] {
                let mut loaded = engine.load_steps(&graph, &steps, &|_| Ok(floats(7.0))).unwrap();
                let (held, loading) = (loaded.parameter_bytes(), loaded.loading_bytes());
                // The weight as it came, and as it is held.
                assert!(held.0 >= 4096 && loading.0 >= held.0.max(8192), "{held} {loading}");
                // The first run makes what threads keep.
                loaded.run(&[floats(512.0)]).unwrap();
                let (outputs, sample) = loaded.run_measured(vec![floats(512.0)]).unwrap();
                let mut seen = Vec::new();
                let again = loaded.run_in_steps(vec![floats(512.0)], &mut |i, _| seen.push(i)).unwrap();
                assert_eq!(outputs, again);
                assert_eq!(seen, (0..steps.len()).collect::<Vec<_>>());
                let want: Vec<f64> = (0..1024).map(|i| f64::from(512 - i).max(0.0)).collect();
                assert_eq!(outputs[0].to_f64s().unwrap(), want);
                assert_eq!(outputs[1], outputs[0]);
                assert_eq!((&outputs[2], &outputs[3]), (&floats(7.0), &floats(512.0)));
                assert!(sample.wall.0 > 0.0 && sample.workspace.0 < 4096, "{sample:?}");
                // x comes in and is returned, as is w; relu's results are new.
                // Threads of a pool may extend their queues meanwhile.
                let tensor = 256 * 4 * 4;
                assert!((3 * tensor..=8 * tensor).contains(&sample.peak.0), "{sample:?}");
            }
        }
    }

    #[test]
    fn wrong_values_and_unknown_operators_are_refused_by_name() {
        let engine = TractEngine::new(1).unwrap();
        let narrow = TensorData::new(DType::F32, [4], vec![0; 16]).unwrap();
        let mut graph = graph();
        let error = engine.load(&graph, &|_| Ok(narrow.clone())).err().unwrap();
        let message = "tensor `w`: the model declares float32[256,4], float32[4] was given";
        assert_eq!(error.to_string(), message);
        let mut loaded = engine.load(&graph, &|_| Ok(floats(0.0))).unwrap();
        assert!(loaded.run(&[]).unwrap_err().to_string().contains("1 inputs, 0 were given"));
        assert!(loaded.run(&[narrow]).unwrap_err().to_string().starts_with("tensor `x`"));
        graph.operator_mut(OperatorId(1)).name = "nn.unheard_of".into();
        assert!(engine.supports(&graph, OperatorId(0)).is_ok());
        assert!(engine.supports(&graph, OperatorId(1)).is_err());
        let error = engine.load(&graph, &|_| Ok(floats(0.0))).err().unwrap();
        assert!(matches!(error, EngineError::Unsupported(_)), "{error}");
    }

    #[test]
    fn shapes_that_depend_on_values_are_found_while_running() {
        let unknown = |dtype, rank| TensorType::new(dtype, (0..rank).map(|_| Dim::Any).collect());
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", unknown(DType::F32, 2), Origin::Input);
        let shape = graph.add_tensor("shape", TensorType::of(DType::I64, &[2]), Origin::Input);
        let positive = graph.add_operator(relu(x), &[unknown(DType::F32, 2)]);
        let positive = graph.operator(positive).outputs[0];
        let other = graph.add_operator(operator("dyn.reshape", &[positive, shape]), &[unknown(DType::F32, 2)]);
        let other = graph.operator(other).outputs[0];
        let places = graph.add_operator(operator("argwhere", &[other]), &[unknown(DType::I32, 2)]);
        graph.outputs = vec![other, graph.operator(places).outputs[0]];
        let engine = TractEngine::new(1).unwrap();
        let all = vec![vec![OperatorId(0), OperatorId(1), OperatorId(2)]];
        let mut loaded = engine.load_steps(&graph, &all, &|_| unreachable!("it has no parameters")).unwrap();
        let x: Vec<u8> = [-1f32, 5.0, 0.0, 7.0, 8.0, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = TensorData::new(DType::F32, [1, 6], x).unwrap();
        for (dims, want) in [([2i64, 3], vec![0, 1, 1, 0, 1, 1]), ([3, 2], vec![0, 1, 1, 1, 2, 0])] {
            let dims_bytes: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
            let dims_data = TensorData::new(DType::I64, [2], dims_bytes).unwrap();
            let mut seen = Vec::new();
            let run = loaded.run_in_steps(vec![x.clone(), dims_data], &mut |i, _| seen.push(i)).unwrap();
            assert_eq!(run[0].shape(), dims.map(|d| d as u64));
            assert_eq!(run[0].to_f64s().unwrap(), [0.0, 5.0, 0.0, 7.0, 8.0, 0.0]);
            assert_eq!((run[1].shape(), run[1].to_i64s().unwrap()), (&[3, 2][..], want));
            assert_eq!(seen, [0], "the three steps are one group");
        }
    }
}
