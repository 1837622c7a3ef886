//! The engine for NVIDIA GPUs (feature `cuda`): the same wiring of operators as on a CPU, computed by kernels of our
//! own and the card's matrix library.
//!
//! | | |
//! |---|---|
//! | [`card`] | what a card is asked for: memory, copies, kernels, products, time |
//! | [`nvidia`], [`rehearsal`] | a card by the driver; main memory and a C compiler, for tests without a GPU |
//! | `kernels/`, [`source`], [`arguments`] | the kernels, one source for both, and what they take |
//! | [`translate`] | from tract's operators to a [`program`]; one file a family |
//! | [`steps`] | programs in order on tensors that stay on the card; measuring |
//! | [`blas`], [`heap`] | how matrices lie; memory that is counted |
//! | [`libraries`], [`nvrtc`], [`cublas`] | NVIDIA's libraries, by whatever version is here |
//! | [`link`] | what it takes to move a tensor to the card and back |
//! | [`report`] | what is there, without a panic |

mod arguments;
mod blas;
mod card;
mod cublas;
mod heap;
mod libraries;
mod link;
mod nvidia;
mod nvrtc;
mod program;
#[cfg(any(test, feature = "gpu-tests"))]
mod rehearsal;
mod report;
mod source;
mod steps;
mod translate;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use card::Card;
use heap::Heap;
use nvidia::Nvidia;
use steps::{Steps, card_error};

use super::{
    CpuClock, Engine, EngineError, EngineId, Executable, Gpu, GpuReport, ParameterSource, StartedGpu, contain::contain,
    overhead::Overhead,
};
use crate::{
    graph::{Graph, OperatorId, Origin, Part, TensorData, TensorId},
    ops::Unsupported,
    units::Bytes,
    values::seeded,
};

pub use link::{HostLink, Memory};

/// Computes on one GPU, one computation at a time.
#[derive(Clone)]
pub struct CudaEngine {
    core: Arc<Core>,
}

/// What all executables of one engine share.
struct Core {
    heap: Arc<Heap>,
    multiprocessors: usize,
    /// What measuring nothing takes.
    overhead: Overhead,
    /// Held while computing: the card does one thing at a time, and memory is counted for one thing.
    turn: Mutex<()>,
}

/// What of CUDA is on this machine.
pub(super) fn look() -> GpuReport {
    report::look()
}

/// GPU number `ordinal` of `report` with its engine, and its link as tensors are copied.
pub(super) fn start(report: &GpuReport, ordinal: usize, gpu: &Gpu) -> Result<StartedGpu, EngineError> {
    let engine = CudaEngine::new(report, ordinal)?;
    let (free, _) = engine.memory()?;
    let HostLink { to_card, from_card, .. } = engine.host_link(Memory::Pageable)?;
    Ok(StartedGpu { gpu: gpu.clone(), engine: Arc::new(engine), free, to_card, from_card })
}

impl CudaEngine {
    /// The engine for GPU number `ordinal` of `report`.
    ///
    /// # Errors
    /// If the report has no such GPU, or it does not start.
    pub fn new(report: &GpuReport, ordinal: usize) -> Result<CudaEngine, EngineError> {
        let missing = || EngineError::Other(report.notes().join("; "));
        let gpu = report.usable().get(ordinal).ok_or_else(missing)?;
        let card = contain(|| Nvidia::open(ordinal, report.driver)).map_err(EngineError::Other)?.map_err(card_error)?;
        CudaEngine::on(Arc::new(card), gpu.multiprocessors as usize)
    }

    /// The engine with kernels compiled for this machine's processor: computes the same, at no speed worth measuring.
    /// For tests where there is no GPU.
    ///
    /// # Errors
    /// If nothing can be measured.
    #[cfg(any(test, feature = "gpu-tests"))]
    pub fn rehearsal() -> Result<CudaEngine, EngineError> {
        CudaEngine::on(Arc::new(rehearsal::Rehearsal::new()), 2)
    }

    fn on(card: Arc<dyn Card>, multiprocessors: usize) -> Result<CudaEngine, EngineError> {
        let marks = |()| card.mark().and_then(|_| card.mark()).and_then(|_| card.synchronise());
        let overhead = Overhead::of(CpuClock::Thread, || card.synchronise(), marks).map_err(card_error)?;
        let core =
            Core { heap: Heap::new(card), multiprocessors: multiprocessors.max(2), overhead, turn: Mutex::new(()) };
        Ok(CudaEngine { core: Arc::new(core) })
    }

    /// What any GPU engine calls itself.
    pub fn identity() -> EngineId {
        EngineId { name: "cuda".to_string(), version: env!("CARGO_PKG_VERSION").to_string() }
    }

    /// What of the card's memory nobody has taken, and all of it.
    ///
    /// # Errors
    /// If the card does not answer.
    pub fn memory(&self) -> Result<(Bytes, Bytes), EngineError> {
        self.core.heap.card().memory().map_err(card_error)
    }

    /// Measures what tensors take to the card and back, from and to main memory of one kind.
    ///
    /// # Errors
    /// If the card does not copy.
    pub fn host_link(&self, memory: Memory) -> Result<HostLink, EngineError> {
        let _turn = self.core.turn();
        HostLink::measure(&self.core.heap, memory).map_err(card_error)
    }
}

impl Core {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for CudaEngine {
    fn id(&self) -> EngineId {
        CudaEngine::identity()
    }

    /// The card's multiprocessors: what computes at the same time.
    fn threads(&self) -> usize {
        self.core.multiprocessors
    }

    /// Translates the operator alone, with generated parameters: what does not become a program cannot run.
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
        Ok(Box::new(Steps::load(Arc::clone(&self.core), graph, steps, parameter)?))
    }
}

#[cfg(test)]
mod tests;
