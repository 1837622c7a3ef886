//! The Python package of edgecut: converts, calls and returns. What is called are the functions of `edgecut-session`; the
//! package's own Python gives their options names, types and defaults.
//!
//! | module | contents |
//! |---|---|
//! | `work` | long work on a thread of its own: without the GIL, with progress, stopped by Ctrl-C |
//! | `errors` | errors as the package's exceptions |
//! | `table`, `columns` | Arrow tables and how they are filled |
//! | `graph`, `tensor` | a model's graph, the outputs of a run |
//! | `profile`, `plan`, `run` | what the verbs return |
//! | `generation` | tokens of a decoder, as an iterator |
//! | `deployment` | plans that stay loaded, for `InferenceSession` |
//! | `program` | the whole command line |

mod columns;
mod deployment;
mod errors;
mod generation;
mod graph;
mod plan;
mod profile;
mod program;
mod run;
mod table;
mod tensor;
mod work;

use pyo3::prelude::*;

/// Measurements of memory count what is allocated through it.
#[global_allocator]
static ALLOCATOR: edgecut_engine::CountingAllocator = edgecut_engine::CountingAllocator;

/// What the package `edgecut` calls; its names are not for others.
#[pymodule]
fn _edgecut(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<deployment::NativeDeployment>()?;
    module.add_class::<generation::NativeGeneration>()?;
    module.add_class::<graph::NativeGraph>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<tensor::Tensor>()?;
    module.add_function(wrap_pyfunction!(graph::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(profile::profile, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan::check_plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan_table, module)?)?;
    module.add_function(wrap_pyfunction!(plan::write_plan, module)?)?;
    module.add_function(wrap_pyfunction!(deployment::deciding_inputs, module)?)?;
    module.add_function(wrap_pyfunction!(deployment::deploy_plan, module)?)?;
    module.add_function(wrap_pyfunction!(deployment::replan, module)?)?;
    module.add_function(wrap_pyfunction!(generation::begin_generation, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_model, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_plan, module)?)?;
    module.add_function(wrap_pyfunction!(program::main, module)?)
}
