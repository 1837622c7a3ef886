//! Summary of a model: operator counts, FLOPs, sizes, and unsupported operators.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Call, Kernel, Typed, is_view, lookup, passes::opaque_flops::opaque_flops};
use edgecut_graph::{Graph, Operator, OperatorId, Origin, TensorId, units::Bytes};

/// Summary of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// In descending order of FLOPs.
    pub kinds: Vec<Kind>,
    pub operators: usize,
    pub flops: u64,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub parameters: Parameters,
    /// Total size of all operators' outputs, views excluded.
    pub output_bytes: Bytes,
    /// Number of tensors with unknown dimensions.
    pub unknown_shapes: usize,
}

/// All operators of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kind {
    pub op: String,
    pub count: usize,
    pub flops: u64,
    pub output_bytes: Bytes,
    /// Why no engine of edgecut supports it.
    pub unsupported: Option<String>,
    /// Why only engines that take the nodes of a file as they are support it.
    #[serde(skip)]
    pub kept_as_read: Option<String>,
}

/// Name and type of an input or output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tensor {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
}

/// Weights, including constants of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Parameters {
    pub tensors: usize,
    pub elements: u64,
    pub bytes: Bytes,
    /// Number of these that are constants of the model.
    pub constants: usize,
}

/// The summary of `graph`; `is_node` says whether an operator without a kernel of its own can be computed as the node that
/// it was read from.
pub fn summary(graph: &Graph, is_node: impl Fn(OperatorId) -> bool) -> Summary {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for (id, operator) in graph.operators() {
        let kind = kinds.entry(&operator.name).or_insert_with(|| Kind {
            op: operator.name.to_string(),
            count: 0,
            flops: 0,
            output_bytes: Bytes::ZERO,
            unsupported: None,
            kept_as_read: None,
        });
        if let Some(reason) = unsupported(operator) {
            let place = if is_node(id) { &mut kind.kept_as_read } else { &mut kind.unsupported };
            place.get_or_insert(reason);
        }
        kind.count += 1;
        kind.flops = kind.flops.saturating_add(flops(graph, operator));
        if !is_view(operator) {
            kind.output_bytes += operator.outputs.iter().filter_map(|tensor| graph.tensor(*tensor).ty.bytes()).sum();
        }
    }
    let mut kinds: Vec<Kind> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse((kind.flops, kind.output_bytes, kind.count)));
    let named = |id: TensorId| {
        let tensor = graph.tensor(id);
        Tensor { name: tensor.name.to_string(), ty: tensor.ty.to_string() }
    };
    Summary {
        operators: graph.operators().len(),
        flops: kinds.iter().fold(0, |sum, kind| sum.saturating_add(kind.flops)),
        output_bytes: kinds.iter().map(|kind| kind.output_bytes).sum(),
        kinds,
        inputs: graph.inputs().map(named).collect(),
        outputs: graph.outputs.iter().copied().map(named).collect(),
        parameters: parameters(graph),
        unknown_shapes: graph.tensors().filter(|(_, tensor)| tensor.ty.shape.fixed().is_none()).count(),
    }
}

/// FLOPs of one operator: for a composite one the sum over its decomposition, estimated for one without a definition; 0
/// where shapes are unknown.
pub fn flops(graph: &Graph, operator: &Operator) -> u64 {
    match &operator.decomposition {
        Some(inner) => inner.operators().map(|(_, part)| own_flops(inner, part)).fold(0, u64::saturating_add),
        None => own_flops(graph, operator),
    }
}

fn own_flops(graph: &Graph, operator: &Operator) -> u64 {
    let Some(def) = lookup(&operator.name) else { return opaque_flops(graph, operator) };
    let args = graph.arg_types(operator);
    let call = Call { def, attrs: &operator.attrs, args: &args, values: &[] };
    (def.flops)(&Typed { call, out: &graph.result_type(operator) })
}

fn unsupported(operator: &Operator) -> Option<String> {
    match &operator.decomposition {
        Some(inner) => inner.operators().find_map(|(_, part)| without_kernel(part)),
        None => without_kernel(operator),
    }
}

fn without_kernel(operator: &Operator) -> Option<String> {
    match lookup(&operator.name).map(|def| &def.kernel) {
        None => Some(operator.opaque_reason().unwrap_or("unknown operator").to_string()),
        Some(Kernel::None(reason)) => Some((*reason).to_string()),
        Some(_) => None,
    }
}

fn parameters(graph: &Graph) -> Parameters {
    let mut all = Parameters::default();
    for id in graph.parameters() {
        let tensor = graph.tensor(id);
        all.tensors += 1;
        all.constants += usize::from(matches!(tensor.origin, Origin::Constant(_)));
        all.elements = all.elements.saturating_add(tensor.ty.shape.elements().unwrap_or(0));
        all.bytes += tensor.ty.bytes().unwrap_or(Bytes::ZERO);
    }
    all
}
