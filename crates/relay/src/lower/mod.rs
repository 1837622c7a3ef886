//! Lowering: a parsed module → typed graph, by evaluating the entry function on symbolic tensors.
//!
//! Evaluation inlines function literals and globals, eliminates lets, graph variables and tuples, and adds one operator to
//! the graph for each primitive call, in TVM's post-order. It uses an explicit stack of tasks; each expression is
//! evaluated once in every activation of the function that binds its innermost variable, so sharing in the text becomes
//! sharing in the graph.

mod attrs;
mod branch;
mod call;
mod constants;
mod entry;
mod fold;
mod lowering;
mod memo;
mod recursion;
mod shape_cache;
mod type_check;
mod types;
mod value;

use crate::{ImportOptions, TypeChecks, ast::Module, error::Result, lower::lowering::Lowering, metadata::Metadata};
use edgecut_graph::Graph;
use edgecut_ops::passes::weights::classify_weights;
use smol_str::SmolStr;

/// The result of evaluating a module.
pub(crate) struct Lowered {
    pub graph: Graph,
    pub checks: TypeChecks,
    /// Arguments that are parameters by their names or uses.
    pub guessed: Vec<SmolStr>,
}

/// Evaluates the entry function of `module`, which was parsed from `text`.
pub(crate) fn lower<'a>(
    module: &Module<'a>,
    metadata: Option<&Metadata<'a>>,
    text: &str,
    options: &ImportOptions<'_>,
) -> Result<Lowered> {
    let mut lowering = Lowering::new(module, metadata, text, options);
    let outputs = lowering.entry()?;
    let Lowering { mut graph, checks, .. } = lowering;
    graph.outputs = outputs;
    let guessed = classify_weights(&mut graph, |name| {
        options.params.is_some_and(|params| params.get(name).is_some())
            || options.is_parameter.is_some_and(|is_parameter| is_parameter(name))
    });
    Ok(Lowered { graph, checks, guessed })
}
