//! Engines: what executes operators on a device, and how their time and memory are measured.
//!
//! | module | contents |
//! |---|---|
//! | [`Engine`], [`Executable`] | the traits: load a graph, run it as a whole or in steps |
//! | [`Sample`] | one measured run: time, CPU time, memory |
//! | [`TractEngine`] (`tract/`) | CPU engine: graphs as tract models |
//! | `OnnxRuntimeEngine` (`onnxruntime/`, feature `onnxruntime`) | CPU engine: graphs as sessions of ONNX Runtime, found at run time |
//! | `automatic` | either, whichever computes a graph faster |
//! | [`DilatedEngine`], [`Dilation`] | another engine, slowed down by a factor: for tests with slow devices |
//! | [`EngineOptions`], [`EngineChoice`] | which engine computes on a CPU |
//! | `cuda/` (feature `cuda`) | GPU engine: our own kernels, cuBLAS and cuDNN, loaded at run time |
//! | [`GpuReport`], [`start_gpus`] | which GPUs the machine has, and why one cannot be used |
//! | [`CpuClock`], [`timed`] | wall-clock and CPU time of a computation |
//! | [`CountingAllocator`], `AllocationMeter` | allocated bytes of the process and of single computations |
//! | [`configure_heap`], [`cpu_quota`] | heap settings for inference; the CPU limit of a container |
//! | `room` | whether there is memory for a graph |
//! | [`energy`] | what tells the energy that a device consumes |
//! | `generated` | contents for inputs that are not given |
//! | [`statistics`] | medians, quantiles and confidence intervals of samples |
//!
//! An engine receives a graph (a model, a stage, or a single operator) and executes exactly that. It does not know
//! plans, clusters or the network.

mod allocator;
#[cfg(feature = "onnxruntime")]
mod automatic;
mod choice;
mod clock;
#[cfg(feature = "cuda")]
pub mod cuda;
mod decomposed;
mod dilated;
pub mod energy;
mod engine;
mod error;
mod generated;
mod gpu;
mod gpu_discovery;
mod heap;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod overhead;
mod panics;
mod quota;
mod room;
mod sample;
pub mod statistics;
mod step_tensors;
mod tract;

pub(crate) use allocator::AllocationMeter;
pub use allocator::CountingAllocator;
pub use choice::{EngineChoice, EngineOptions};
pub use clock::{CpuClock, timed};
pub use dilated::{DilatedEngine, Dilation};
pub use edgecut_graph::EngineId;
pub use engine::{Engine, Executable, Fallback, ParameterSource};
pub use error::EngineError;
pub use generated::GeneratedContents;
pub use gpu::{CudaVersion, CudnnVersion, Gpu, GpuLibrary, GpuReport, MissingRequirement, StartedGpu, StartedGpus};
pub use gpu_discovery::start_gpus;
pub use heap::{configure_heap, prepare_heap, release_freed};
#[cfg(feature = "onnxruntime")]
pub use onnxruntime::{OnnxRuntimeEngine, Provider};
pub use quota::cpu_quota;
pub use sample::Sample;
pub use tract::TractEngine;

pub use edgecut_ops::Unsupported;
