//! Writes a graph: operators in order, values by name.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Graph, OperatorId, Origin, Tensor, TensorData, TensorId, TensorType};
use edgecut_ops::{Call, Typed, lookup};
use smol_str::SmolStr;

use super::{
    bias::Biases,
    builder::{ModelBuilder, OnnxValue},
    error::ExportError,
    exported::{ExportOptions, Exported, OPSET},
    families,
    opaque_node::write_opaque,
    scope::Scope,
};
use crate::{
    error::Result as Written,
    interface::SEEDED_PARAMETERS,
    proto::{
        GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorShapeProto, TypeProto,
        tensor_shape_proto, type_proto,
    },
    tensor::element_type,
};

/// A graph being written.
pub(super) struct GraphWriter<'g> {
    pub graph: &'g Graph,
    pub options: &'g ExportOptions<'g>,
    pub builder: ModelBuilder,
    /// By operator: whether an output depends on it.
    needed: Vec<bool>,
    /// By tensor: whether an operator that is written, or the caller, reads it.
    is_read: Vec<bool>,
    /// By tensor: its value, once it is known.
    pub values: Vec<Option<OnnxValue>>,
    /// The names of outputs that no node has computed yet.
    pub reserved: HashMap<TensorId, SmolStr>,
    pub inputs: Vec<(String, TensorId)>,
    operators: HashMap<String, Vec<OperatorId>>,
    compositions: Vec<(OperatorId, usize)>,
    trapping: Vec<OperatorId>,
}

/// Writes `graph` as a model.
pub(super) fn write_graph(graph: &Graph, options: &ExportOptions<'_>) -> Result<Exported, ExportError> {
    let mut writer = GraphWriter::new(graph, options)?;
    let biases = Biases::of(graph);
    let needed = std::mem::take(&mut writer.needed);
    for (id, _) in graph.operators().filter(|(id, _)| needed[id.0 as usize] && !biases.is_postponed(*id)) {
        writer.operator(id, &biases)?;
    }
    writer.finish()
}

/// The operators that the outputs depend on, and the tensors that those or the caller read.
fn needed(graph: &Graph) -> (Vec<bool>, Vec<bool>) {
    let mut needed = vec![false; graph.operators().len()];
    let mut read: Vec<bool> = vec![false; graph.tensors().len()];
    graph.outputs.iter().for_each(|output| read[output.0 as usize] = true);
    let order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    for id in order.into_iter().rev() {
        let operator = graph.operator(id);
        if operator.outputs.iter().any(|output| read[output.0 as usize]) {
            needed[id.0 as usize] = true;
            operator.operands().for_each(|operand| read[operand.0 as usize] = true);
        }
    }
    (needed, read)
}

/// Whether one operator alone can be written; the reason why not.
pub(super) fn try_operator(graph: &Graph, id: OperatorId) -> Written<()> {
    let mut builder = ModelBuilder::default();
    let operator = graph.operator(id);
    let mut args = Vec::new();
    for arg in &operator.args {
        let value = |tensor: &TensorId| {
            let tensor = graph.tensor(*tensor);
            let content = match &tensor.origin {
                Origin::Constant(data) => Some(data.clone()),
                _ => None,
            };
            OnnxValue { name: tensor.name.clone(), dtype: tensor.ty.dtype, content }
        };
        args.push(arg.tensors().iter().map(value).collect());
    }
    for operand in operator.operands().chain(operator.outputs.iter().copied()) {
        element_type(graph.tensor(operand).ty.dtype)?;
    }
    let is_read = vec![true; graph.tensors().len()];
    write_operator(&mut builder, graph, id, args, None, &is_read).map(|_| ())
}

/// Writes the nodes of an operator on `args`, and returns its results.
fn write_operator(
    builder: &mut ModelBuilder,
    graph: &Graph,
    id: OperatorId,
    args: Vec<Vec<OnnxValue>>,
    bias: Option<OnnxValue>,
    is_read: &[bool],
) -> Written<Vec<OnnxValue>> {
    let operator = graph.operator(id);
    if let Some(written) = write_opaque(builder, graph, operator, &args) {
        return written;
    }
    let def = lookup(&operator.name).ok_or("its semantics are not known")?;
    let write = families::find(&operator.name).ok_or("it has no equivalent in ONNX, and no composition is known")?;
    let (types, out) = (graph.arg_types(operator), graph.result_type(operator));
    let values: Vec<Option<&TensorData>> = args
        .iter()
        .map(|arg| match &arg[..] {
            [value] => value.content.as_ref(),
            _ => None,
        })
        .collect();
    let is_read: Vec<bool> = operator.outputs.iter().map(|output| is_read[output.0 as usize]).collect();
    let call = Call { def, attrs: &operator.attrs, args: &types, values: &values };
    let argument_values = args.clone();
    let computed = |tensor: &TensorId| matches!(graph.tensor(*tensor).origin, Origin::Operator { .. });
    let is_computed = operator.args.iter().map(|arg| arg.tensors().iter().all(computed)).collect();
    let call = Typed { call, out: &out };
    let mut scope = Scope { builder, call, args: argument_values, bias, is_computed, is_read };
    let results = write.write(&mut scope)?;
    if results.len() != operator.outputs.len() {
        return Err(format!("{} results were written, {} are needed", results.len(), operator.outputs.len()));
    }
    Ok(results)
}

impl<'g> GraphWriter<'g> {
    fn new(graph: &'g Graph, options: &'g ExportOptions<'g>) -> Result<GraphWriter<'g>, ExportError> {
        let (needed, is_read) = needed(graph);
        let mut writer = GraphWriter {
            graph,
            options,
            needed,
            is_read,
            builder: ModelBuilder::default(),
            values: vec![None; graph.tensors().len()],
            reserved: HashMap::new(),
            inputs: Vec::new(),
            operators: HashMap::new(),
            compositions: Vec::new(),
            trapping: Vec::new(),
        };
        writer.reserve_names()?;
        Ok(writer)
    }

    /// Declares an input of the model.
    pub(super) fn input(&mut self, id: TensorId) -> Result<OnnxValue, ExportError> {
        let tensor = self.graph.tensor(id);
        check_type(tensor)?;
        let value = OnnxValue { name: self.builder.unique(&tensor.name), dtype: tensor.ty.dtype, content: None };
        self.inputs.push((value.name.to_string(), id));
        self.values[id.0 as usize] = Some(value.clone());
        Ok(value)
    }

    /// The value of an operand.
    fn operand(&mut self, id: TensorId) -> Result<OnnxValue, ExportError> {
        if let Some(value) = &self.values[id.0 as usize] {
            return Ok(value.clone());
        }
        let tensor = self.graph.tensor(id);
        check_type(tensor)?;
        let content = self.content(id)?;
        if content.is_none() {
            return self.input(id);
        }
        let value = OnnxValue { name: self.builder.unique(&tensor.name), dtype: tensor.ty.dtype, content };
        self.values[id.0 as usize] = Some(value.clone());
        Ok(value)
    }

    /// The content of a constant, or of a parameter that has one.
    pub(super) fn content(&self, id: TensorId) -> Result<Option<TensorData>, ExportError> {
        let tensor = self.graph.tensor(id);
        match &tensor.origin {
            Origin::Constant(data) => Ok(Some(data.clone())),
            Origin::Parameter => {
                (self.options.content)(id).map_err(|what| ExportError::Content { name: tensor.name.to_string(), what })
            }
            Origin::Input | Origin::Operator { .. } => Ok(None),
        }
    }

    fn operator(&mut self, id: OperatorId, biases: &Biases) -> Result<(), ExportError> {
        let graph = self.graph;
        let product = biases.product(id);
        let written = product.map_or(id, |(product, _)| product);
        let operator = graph.operator(written);
        let mut args = Vec::with_capacity(operator.args.len());
        for arg in &operator.args {
            args.push(arg.tensors().iter().map(|operand| self.operand(*operand)).collect::<Result<Vec<_>, _>>()?);
        }
        let base = match &operator.layer {
            Some(layer) => format!("{layer}_{}", written.0),
            None => graph.unique_name(written).to_string(),
        };
        self.builder.begin(&base);
        let failed = |reason: String| ExportError::Operator {
            id: Some(written),
            operator: graph.unique_name(written).to_string(),
            reason,
        };
        let first = self.builder.nodes.len();
        let bias = match product {
            Some((_, added)) => {
                let (added, channels) = (self.operand(added)?, graph.tensor(added).ty.shape.elements());
                let channels = channels.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
                Some(self.builder.reshape(&added, &[channels]).map_err(failed)?)
            }
            None => None,
        };
        let results = write_operator(&mut self.builder, graph, written, args, bias, &self.is_read).map_err(failed)?;
        if self.builder.may_trap() {
            self.trapping.push(written);
        }
        let mut renamed = HashMap::new();
        for (output, value) in graph.operator(id).outputs.iter().zip(results) {
            self.bind(*output, value, first, &mut renamed);
        }
        let names: Vec<String> = self.builder.nodes[first..].iter().filter_map(|node| node.name.clone()).collect();
        let served: Vec<OperatorId> = if written == id { vec![id] } else { vec![written, id] };
        if names.len() > 1 {
            self.compositions.push((written, names.len()));
        }
        self.operators.extend(names.into_iter().map(|name| (name, served.clone())));
        for output in self.builder.nodes[first..].iter().flat_map(|node| &node.output) {
            self.operators.entry(output.clone()).or_insert_with(|| served.clone());
        }
        Ok(())
    }

    /// Makes `value` that of the result `id`: under the result's own name if one of the nodes from number `first` on
    /// computes it, else as another name of the same value. `renamed` has what earlier results of the operator became.
    fn bind(&mut self, id: TensorId, mut value: OnnxValue, first: usize, renamed: &mut HashMap<SmolStr, SmolStr>) {
        let is_own = |node: &crate::proto::NodeProto| node.output.iter().any(|output| *output == value.name);
        if let Some(name) = renamed.get(&value.name) {
            value.name = name.clone();
        } else if value.content.is_none() && self.builder.nodes[first..].iter().any(is_own) {
            let reserved = self.reserved.remove(&id);
            let name = reserved.unwrap_or_else(|| self.builder.unique(&self.graph.tensor(id).name));
            self.builder.rename(first, &value.name, &name);
            renamed.insert(value.name, name.clone());
            value.name = name;
        }
        self.values[id.0 as usize] = Some(value);
    }

    fn finish(mut self) -> Result<Exported, ExportError> {
        let outputs = self.outputs()?;
        let signature = self.signature(&outputs)?;
        self.builder.require("", OPSET);
        let written = GraphProto {
            name: Some("main".to_string()),
            input: signature.inputs,
            output: signature.outputs,
            node: self.builder.nodes,
            initializer: self.builder.initializers,
            ..Default::default()
        };
        let seeded = self.inputs.iter().filter(|(_, id)| matches!(self.graph.tensor(*id).origin, Origin::Parameter));
        let seeded: Vec<&str> = seeded.map(|(name, _)| name.as_str()).collect();
        let metadata = (!seeded.is_empty()).then(|| StringStringEntryProto {
            key: Some(SEEDED_PARAMETERS.to_string()),
            value: Some(seeded.join("\n")),
        });
        let ir_version = ir_version(self.builder.versions.get("").copied().unwrap_or(OPSET));
        let versions = self.builder.versions.into_iter();
        let named = |(at, value): (usize, Option<OnnxValue>)| Some((value?.name.to_string(), TensorId(at as u32)));
        let tensors = self.values.into_iter().enumerate().filter_map(named);
        let model = ModelProto {
            ir_version: Some(ir_version),
            producer_name: Some("edgecut".to_string()),
            producer_version: Some(env!("CARGO_PKG_VERSION").to_string()),
            graph: Some(written),
            opset_import: versions
                .map(|(domain, version)| OperatorSetIdProto { domain: Some(domain), version: Some(version) })
                .collect(),
            metadata_props: metadata.into_iter().collect(),
            ..Default::default()
        };
        Ok(Exported {
            model,
            inputs: self.inputs,
            outputs: outputs.into_iter().map(|(name, _)| name.to_string()).collect(),
            operators: self.operators,
            tensors: tensors.filter(|(name, _)| !name.is_empty()).collect(),
            compositions: self.compositions,
            trapping: self.trapping,
        })
    }

    /// The outputs by name; one that no node computes under its name is an `Identity`.
    fn outputs(&mut self) -> Result<Vec<(SmolStr, TensorId)>, ExportError> {
        let mut outputs = Vec::new();
        let mut seen: HashSet<SmolStr> = self.inputs.iter().map(|(name, _)| SmolStr::new(name)).collect();
        for (id, wanted) in self.wanted_outputs() {
            let value = self.operand(id)?;
            let is_computed = value.content.is_none() && !self.reserved.contains_key(&id);
            let is_own = match &wanted {
                // Inputs and initializers may be outputs as they are.
                Some(wanted) => value.name == *wanted && (is_computed || value.content.is_some()),
                None => is_computed && seen.insert(value.name.clone()),
            };
            let name = match is_own {
                true => self.builder.named(&value).map_err(|what| self.output_error(id, what))?,
                // An input, a constant, or a value of another name or that is an output already.
                false => self.copied(id, &value, wanted)?,
            };
            outputs.push((name, id));
        }
        Ok(outputs)
    }

    fn output_error(&self, id: TensorId, reason: String) -> ExportError {
        ExportError::Operator { id: None, operator: self.graph.tensor(id).name.to_string(), reason }
    }

    /// The output `id` as an `Identity` of `value`, under the name `wanted` if there is one.
    fn copied(&mut self, id: TensorId, value: &OnnxValue, wanted: Option<SmolStr>) -> Result<SmolStr, ExportError> {
        let tensor = self.graph.tensor(id);
        let failed = |reason| ExportError::Operator { id: None, operator: tensor.name.to_string(), reason };
        let source = self.builder.named(value).map_err(failed)?;
        let reserved = self.reserved.remove(&id);
        let name = wanted.or(reserved).unwrap_or_else(|| {
            let own = tensor.name.as_str();
            self.builder.unique(&if source == own { format!("{own}/output") } else { own.to_string() })
        });
        self.builder.begin(&format!("{name}/Identity"));
        let first = self.builder.nodes.len();
        let value = OnnxValue { name: source, dtype: value.dtype, content: None };
        let copy = self.builder.unary("Identity", &value).map_err(failed)?;
        self.builder.rename(first, &copy.name, &name);
        let producers: Vec<OperatorId> = match tensor.origin {
            Origin::Operator { operator, .. } => vec![operator],
            _ => Vec::new(),
        };
        if let Some(node) = self.builder.nodes.last().and_then(|node| node.name.clone()) {
            self.operators.insert(node, producers);
        }
        Ok(name)
    }
}

/// The version of the file format that came with an operator set (`onnx/helper.py`, `VERSION_TABLE`).
pub(crate) fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        23 => 11,
        24 => 12,
        _ => 13,
    }
}

pub(super) fn type_error(tensor: &Tensor) -> ExportError {
    ExportError::Type { name: tensor.name.to_string(), dtype: tensor.ty.dtype.to_string() }
}

pub(super) fn check_type(tensor: &Tensor) -> Result<(), ExportError> {
    element_type(tensor.ty.dtype).map(|_| ()).map_err(|_| type_error(tensor))
}

/// A type as ONNX writes it; unknown dimensions stay unknown.
pub(crate) fn type_proto(ty: &TensorType) -> Written<TypeProto> {
    let dim = |size: Option<u64>| tensor_shape_proto::Dimension {
        value: size.and_then(|n| i64::try_from(n).ok()).map(tensor_shape_proto::dimension::Value::DimValue),
    };
    let tensor = type_proto::Tensor {
        elem_type: Some(element_type(ty.dtype)?),
        shape: Some(TensorShapeProto { dim: ty.shape.iter().map(|size| dim(size.get())).collect() }),
    };
    Ok(TypeProto { value: Some(type_proto::Value::TensorType(tensor)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator};

    fn without_contents(graph: &Graph) -> Exported {
        write_graph(graph, &ExportOptions::new(&|_| Ok(None))).unwrap()
    }

    #[test]
    fn outputs_keep_their_names_and_are_values_of_their_own() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let relu = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
        let y = graph.operator(relu).outputs[0];
        graph.outputs = vec![y, x, y];
        let written = without_contents(&graph);
        assert_eq!(written.inputs, [("x".to_string(), x)]);
        assert_eq!(written.outputs, ["nn.relu_0", "x/output", "nn.relu_0/output"]);
        assert_eq!(written.operators["nn.relu_0"], [relu]);
        assert!(written.compositions.is_empty());
    }

    #[test]
    fn an_output_that_is_an_operand_unchanged_keeps_its_name() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        for of_input in [true, false] {
            let relu = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
            let operand = if of_input { x } else { graph.operator(relu).outputs[0] };
            let dropout = graph.add_operator(Operator::new("nn.dropout", [operand]), &[ty.clone(), ty.clone()]);
            graph.outputs = graph.operator(dropout).outputs[..1].to_vec();
            let name = graph.tensor(graph.outputs[0]).name.to_string();
            assert_eq!(without_contents(&graph).outputs, [name]);
        }
    }

    #[test]
    fn additions_become_biases() {
        let mut graph = Graph::new();
        let of = |dims: &[u64]| TensorType::of(DType::F32, dims);
        let x = graph.add_tensor("x", of(&[2, 3]), Origin::Input);
        let w = graph.add_tensor("w", of(&[4, 3]), Origin::Parameter);
        let b = graph.add_tensor("b", of(&[4]), Origin::Parameter);
        let dense = graph.add_operator(Operator::new("nn.dense", [x, w]), &[of(&[2, 4])]);
        let sum = graph.operator(dense).outputs[0];
        let bias = graph.add_operator(Operator::new("add", [sum, b]), &[of(&[2, 4])]);
        graph.outputs = graph.operator(bias).outputs.clone();
        let zeros =
            |dims: &[u64]| TensorData::new(DType::F32, dims, vec![0; dims.iter().product::<u64>() as usize * 4]);
        let content = |id: TensorId| Ok(zeros(&graph.tensor(id).ty.shape.fixed().unwrap()).ok());
        let written = write_graph(&graph, &ExportOptions::new(&content)).unwrap();
        let model = written.model.graph.unwrap();
        assert_eq!(model.node.len(), 1);
        assert_eq!(model.node[0].input, ["x", "w", "b"]);
        assert_eq!(model.initializer.len(), 2);
        assert_eq!(written.operators["nn.dense_0"], [dense, bias]);
    }

    #[test]
    fn opaque_operators_are_named() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let id = graph.add_operator(Operator::new("my.op", [x]), &[ty]);
        graph.outputs = graph.operator(id).outputs.clone();
        let error = write_graph(&graph, &ExportOptions::new(&|_| Ok(None))).unwrap_err();
        assert!(error.to_string().starts_with("my.op_0 cannot be written"), "{error}");
        assert!(try_operator(&graph, id).is_err());
    }
}
