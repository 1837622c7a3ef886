//! The engine for NVIDIA GPUs (feature `cuda`): operators are wired as for the CPU engine, and computed by our own
//! kernels, cuBLAS and cuDNN. All NVIDIA libraries are loaded at run time.
//!
//! | module | contents |
//! |---|---|
//! | [`driver`] | [`driver::GpuDriver`]: memory, copies, kernel launches, matrix products, convolutions, events |
//! | [`nvidia`], `fake_driver` | the driver's implementations: NVIDIA's; main memory and a C compiler, for tests without a GPU |
//! | `kernels/`, [`source`], [`arguments`] | kernels, compiled for either driver, and their argument structs |
//! | [`translate`] | tract model → [`program`]; one file per family of operators |
//! | [`context`], [`steps`] | state of an engine; steps on tensors that stay on the device, and measuring |
//! | [`gemm`], [`device_memory`] | matrix products in BLAS' terms; counted device memory |
//! | [`libraries`], [`nvrtc`], [`cublas`], [`cudnn`] | NVIDIA's libraries in any supported version |
//! | [`host_link`] | bandwidth between main memory and the device |
//! | [`detect`] | which GPUs and libraries the machine has |

mod arguments;
mod context;
mod cublas;
mod cudnn;
mod detect;
mod device_memory;
mod driver;
mod fake_driver;
mod gemm;
mod host_link;
mod libraries;
mod nvidia;
mod nvrtc;
mod program;
mod source;
mod steps;
#[cfg(test)]
mod tests;
mod translate;

use std::sync::Arc;

use context::GpuContext;
use driver::GpuDriver;
use nvidia::NvidiaDriver;
use steps::GpuSteps;

use crate::{
    Engine, EngineError, EngineId, Executable, Gpu, GpuReport, ParameterSource, StartedGpu, energy::EnergyMeter,
    panics::catch_panic,
};
use edgecut_graph::{Graph, OperatorId, Origin, Part, TensorData, TensorId, units::Bytes};
use edgecut_ops::Unsupported;
use edgecut_values::seeded;

pub(crate) use detect::detect;
pub use host_link::{HostLink, HostMemory};

/// Executes operators on one GPU, one computation at a time.
#[derive(Clone)]
pub struct CudaEngine {
    context: Arc<GpuContext>,
}

/// Starts GPU number `ordinal` of `report` and measures its host link for pageable memory, where tensors are.
pub(crate) fn start(report: &GpuReport, ordinal: usize, gpu: &Gpu) -> Result<StartedGpu, EngineError> {
    let engine = CudaEngine::new(report, ordinal)?;
    let (free, _) = engine.memory()?;
    let HostLink { to_device, from_device, .. } = engine.host_link(HostMemory::Pageable)?;
    let energy = EnergyMeter::of_gpu(gpu.pci_bus_id.as_deref());
    Ok(StartedGpu { gpu: gpu.clone(), engine: Arc::new(engine), free, to_device, from_device, energy })
}

impl CudaEngine {
    /// The engine for GPU number `ordinal` of `report`.
    ///
    /// # Errors
    /// If the report has no such GPU, or it cannot be initialised.
    pub fn new(report: &GpuReport, ordinal: usize) -> Result<CudaEngine, EngineError> {
        let missing = || EngineError::Other(report.notes().join("; "));
        let gpu = report.usable().get(ordinal).ok_or_else(missing)?;
        let driver = catch_panic(|| NvidiaDriver::open(ordinal, report.driver)).map_err(EngineError::Other)??;
        CudaEngine::on(Arc::new(driver), gpu.multiprocessors as usize)
    }

    /// The engine with kernels compiled for this machine's CPU: same results, no meaningful speed. For tests without a
    /// GPU.
    ///
    /// # Errors
    /// If the measurement overhead cannot be determined.
    pub fn with_fake_driver() -> Result<CudaEngine, EngineError> {
        CudaEngine::on(Arc::new(fake_driver::FakeDriver::new()), 2)
    }

    fn on(driver: Arc<dyn GpuDriver>, multiprocessors: usize) -> Result<CudaEngine, EngineError> {
        Ok(CudaEngine { context: Arc::new(GpuContext::new(driver, multiprocessors)?) })
    }

    /// Free and total device memory.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn memory(&self) -> Result<(Bytes, Bytes), EngineError> {
        Ok(self.context.memory.driver().memory()?)
    }

    /// Measures copies to and from the device, for one kind of main memory.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn host_link(&self, memory: HostMemory) -> Result<HostLink, EngineError> {
        let _exclusive = self.context.lock();
        Ok(HostLink::measure(&self.context.memory, memory)?)
    }
}

impl Engine for CudaEngine {
    /// The version has, as build metadata, the library that computes convolutions.
    fn id(&self) -> EngineId {
        let library = self.context.memory.driver().compute_library();
        EngineId { name: "cuda".to_string(), version: format!("{}+{library}", env!("CARGO_PKG_VERSION")) }
    }

    /// The number of multiprocessors.
    fn threads(&self) -> usize {
        self.context.multiprocessors
    }

    /// Translates the operator alone, with generated parameters: it is supported if it becomes a program.
    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        let part = Part::cut(graph, &[operator]);
        let content = |id: TensorId| -> Result<TensorData, EngineError> {
            let tensor = part.graph.tensor(id);
            match &tensor.origin {
                Origin::Constant(data) => Ok(data.clone()),
                _ => seeded(&tensor.name, &tensor.ty)
                    .map_err(|e| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() }),
            }
        };
        match self.load(&part.graph, &content) {
            Ok(_) => Ok(()),
            Err(EngineError::Unsupported(unsupported)) => Err(unsupported),
            Err(error) => Err(Unsupported { op: graph.operator(operator).name.clone(), reason: error.to_string() }),
        }
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        Ok(Box::new(GpuSteps::load(Arc::clone(&self.context), graph, steps, parameter)?))
    }
}
