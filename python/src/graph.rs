//! A model's graph: what is in it, as tables and as Relay text.

use std::path::PathBuf;

use edgecut_graph::{Graph, Operator, Origin, Tensor, TensorId, Type};
use edgecut_ops::{is_view, passes::summary};
use edgecut_relay::{Import, print::print_graph};
use edgecut_session::{Model, model::summary::summarise, option_values::read as read_options};
use pyo3::prelude::*;

use crate::{columns::Columns, errors::bug, table::Table, work::work};

/// A model that was read.
#[pyclass(frozen, module = "edgecut._edgecut")]
pub struct NativeGraph(Import);

/// Reads the model at `path`.
#[pyfunction]
pub fn inspect(py: Python<'_>, path: PathBuf, model: String) -> PyResult<NativeGraph> {
    let import = work(py, None, move |events| {
        let model = Model::open(&path, &read_options(&model)?)?;
        events.notices(&model.notices);
        Ok(model.import)
    });
    import.map(NativeGraph)
}

#[pymethods]
impl NativeGraph {
    /// The model's file, as it was named.
    #[getter]
    fn path(&self) -> &str {
        &self.0.name
    }

    /// BLAKE3 of the file, in hexadecimal.
    #[getter]
    fn blake3(&self) -> &str {
        &self.0.hash
    }

    /// Stated types that were compared with the inferred ones, and how many disagree.
    #[getter]
    fn type_checks(&self) -> (usize, usize) {
        (self.0.checks.checked, self.0.checks.mismatches.len())
    }

    /// The summary, as JSON.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| serde_json::to_string(&summarise(&self.0.graph))).map_err(bug)
    }

    /// A row for each operator, in program order.
    fn operators(&self, py: Python<'_>) -> PyResult<Table> {
        let graph = &self.0.graph;
        let rows: Vec<(u32, &Operator)> = graph.operators().map(|(id, operator)| (id.0, operator)).collect();
        py.detach(|| {
            let types = |operator: &Operator| {
                let types = graph.arg_types(operator).iter().map(Type::to_string).collect::<Vec<_>>();
                types.join("|")
            };
            let bytes = |operator: &Operator| {
                operator.outputs.iter().filter_map(|id| graph.tensor(*id).ty.bytes()).map(|bytes| bytes.0).sum::<u64>()
            };
            let columns = Columns::of(&rows)
                .whole("id", |(id, _)| u64::from(*id))
                .text("operator", |(_, operator)| operator.name.to_string())
                .text("arguments", |(_, operator)| types(operator))
                .text("result", |(_, operator)| graph.result_type(operator).to_string())
                .whole("flops", |(_, operator)| summary::flops(graph, operator))
                .whole("output_bytes", |(_, operator)| if is_view(operator) { 0 } else { bytes(operator) })
                .text("inputs", |(_, operator)| joined(operator.operands()))
                .text("outputs", |(_, operator)| joined(operator.outputs.iter().copied()));
            Table::new(columns.finish())
        })
    }

    /// A row for each tensor, inputs and parameters included.
    fn tensors(&self, py: Python<'_>) -> PyResult<Table> {
        let rows: Vec<(u32, &Tensor)> = self.0.graph.tensors().map(|(id, tensor)| (id.0, tensor)).collect();
        py.detach(|| {
            let origin = |tensor: &Tensor| match tensor.origin {
                Origin::Input => "input",
                Origin::Parameter => "parameter",
                Origin::Constant(_) => "constant",
                Origin::Operator { .. } => "operator",
            };
            let producer = |tensor: &Tensor| match tensor.origin {
                Origin::Operator { operator, .. } => Some(u64::from(operator.0)),
                _ => None,
            };
            let columns = Columns::of(&rows)
                .whole("id", |(id, _)| u64::from(*id))
                .text("name", |(_, tensor)| tensor.name.to_string())
                .text("type", |(_, tensor)| tensor.ty.to_string())
                .whole("bytes", |(_, tensor)| tensor.ty.bytes().map(|bytes| bytes.0))
                .text("origin", |(_, tensor)| origin(tensor).to_string())
                .whole("producer", |(_, tensor)| producer(tensor));
            Table::new(columns.finish())
        })
    }

    /// The graph as Relay text.
    fn to_relay(&self, py: Python<'_>) -> String {
        py.detach(|| print_graph(&self.0.graph))
    }

    fn __len__(&self) -> usize {
        Graph::operators(&self.0.graph).len()
    }
}

/// Ids of tensors, joined by `+` as in profiles.
fn joined(tensors: impl Iterator<Item = TensorId>) -> String {
    tensors.map(|id| id.0.to_string()).collect::<Vec<_>>().join("+")
}
