//! Profiles a model with a custom engine, which computes only `nn.relu`.
//!
//! `cargo run --release --example custom_engine models/resnet18.relay`

use std::{collections::HashSet, error::Error, ops::ControlFlow};

use edgecut::{
    engine::{CpuClock, Engine, EngineError, EngineId, Executable, ParameterSource, Sample, timed},
    graph::{DType, Granularity, Graph, OperatorId, TensorData},
    ops::Unsupported,
    profile::{
        Sampling, items,
        measure::{ProfileTarget, isolated},
    },
    session::{Model, ModelOptions},
    units::{Bytes, Micros},
};

/// An engine that computes `nn.relu` of float32.
struct ReluEngine;

/// A loaded graph of one relu.
struct Relu;

impl Engine for ReluEngine {
    fn id(&self) -> EngineId {
        EngineId { name: "relu".to_string(), version: "1".to_string() }
    }

    fn threads(&self) -> usize {
        1
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        let operator = graph.operator(operator);
        let is_float = operator.operands().all(|id| graph.tensor(id).ty.dtype == DType::F32);
        match operator.name == "nn.relu" && is_float {
            true => Ok(()),
            false => Err(Unsupported { op: operator.name.clone(), reason: "this engine computes relu alone".into() }),
        }
    }

    fn load_steps(
        &self,
        graph: &Graph,
        _steps: &[Vec<OperatorId>],
        _parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        let mut operators = graph.operators().map(|(id, _)| id);
        match (operators.next(), operators.next()) {
            (Some(only), None) => self.supports(graph, only)?,
            _ => return Err(EngineError::Other("this engine computes one operator at a time".to_string())),
        }
        Ok(Box::new(Relu))
    }
}

impl Executable for Relu {
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError> {
        let input = &inputs[0];
        let relu = |four: &[u8]| four.try_into().map_or(0.0, f32::from_le_bytes).max(0.0).to_le_bytes();
        let (bytes, wall, cpu) =
            timed(CpuClock::Thread, || input.bytes().chunks_exact(4).flat_map(relu).collect::<Vec<u8>>());
        let output = TensorData::new(DType::F32, input.shape(), bytes);
        let output = output.map_err(|error| EngineError::Other(error.to_string()))?;
        let tensors = Bytes(2 * input.bytes().len() as u64);
        Ok((vec![output], Sample { wall, cpu, kernels: None, workspace: Bytes::ZERO, peak: tensors, tensors }))
    }

    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError> {
        let (outputs, sample) = self.run_measured(inputs)?;
        each(0, sample);
        Ok(outputs)
    }

    fn parameter_bytes(&self) -> Bytes {
        Bytes::ZERO
    }

    fn loading_bytes(&self) -> Bytes {
        Bytes::ZERO
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: custom_engine MODEL")?;
    let model = Model::open(path, &ModelOptions::default())?;
    let contents = model.contents(model.graph())?;
    let items = items(model.graph(), Granularity::Op);
    let target = ProfileTarget {
        engine: &ReluEngine,
        graph: model.graph(),
        items: &items,
        inputs: &contents.inputs()?,
        parameter: &|id| contents.of(id),
        memory: None,
        energy: None,
        is_cancelled: &|| false,
    };
    let sampling = Sampling { budget: Micros(1e6), ..Sampling::default() };
    isolated(&target, &sampling, &HashSet::new(), &mut |measured| {
        match measured.cost {
            Ok(cost) => println!("{} {}: {}", items[measured.item].name, items[measured.item].shapes, cost.time.median),
            Err(why) => println!("{}: {why}", items[measured.item].name),
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}
