//! Formats of other planners, memory optimisers and profilers, with their own cost models, searches and checkers.
//!
//! Nothing but the command line knows this crate: the core never imports it.
//!
//! | module | format |
//! |---|---|
//! | [`placement`] | device-placement workloads of Tarnawski et al. (NeurIPS 2020) |
//! | [`dlmo`], [`magis`], [`memory_workload`] | schedules under a memory limit, as DLMO and MAGIS write them |
//! | [`minimalloc`] | packing problems as CSV |
//! | [`network`] | memory problems given as bare tensors and operators |
//! | [`fx`], [`g10`] | traced PyTorch graphs in, reports of G10's liveness tool out |
//! | [`eop`], [`tvm_debug`], [`profile_import`] | profiles taken by EOP's tool and TVM's debug executor |
//! | [`ort_profile`], [`ort_memory`], [`ort_names`], [`ort_import`] | ONNX Runtime's profiles and statistics of memory |
//! | [`aidge`] | Aidge's `memory_info.txt` |

pub mod aidge;
pub mod dlmo;
pub mod eop;
pub mod fx;
pub mod g10;
pub mod magis;
pub mod memory_workload;
pub mod minimalloc;
pub mod network;
pub mod ort_import;
pub mod ort_memory;
pub mod ort_names;
pub mod ort_profile;
pub mod placement;
pub mod profile_import;
pub mod tvm_debug;
