//! Nodes → operators: names in scope, type inference, folding of constants.

use std::collections::{BTreeSet, HashMap};

use edgecut_graph::{
    Arg, Attr, Attrs, Graph, Operator, OperatorId, Origin, Part, Shape, TensorData, TensorId, TensorType, Type, units,
};
use edgecut_ops::{self as ops, passes::retype::BindDim};
use smol_str::{SmolStr, format_smolstr};

use crate::{
    call::Call,
    error::{Message, Result, shown},
    families,
    import::ImportOptions,
    proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto},
    tensor,
};

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Tensor(TensorId),
    /// A sequence of tensors, whose length is known.
    Sequence(Vec<TensorId>),
}

/// An error with the operator or tensor that it is in, if it is in one.
pub(crate) type Located = (Option<String>, Message);

/// Operators of a graph, at most: loops in a small file could produce any number.
const MAX_OPERATORS: usize = 2_000_000;
/// Largest folded result of integers or truth values, which shapes are made of, and of floats.
const FOLDED_INTEGERS: units::Bytes = units::Bytes(1 << 20);
const FOLDED_FLOATS: units::Bytes = units::Bytes(1 << 14);
/// Limit on the size of all folded results.
const MAX_FOLDED_BYTES: u64 = 256 << 20;
/// Depth to which functions and bodies of loops and branches may be nested.
const MAX_DEPTH: usize = 48;

/// An import in progress.
pub(crate) struct Lowering<'m> {
    pub graph: Graph,
    pub options: &'m ImportOptions<'m>,
    /// By domain: the version of the operator set.
    versions: HashMap<&'m str, i64>,
    functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    /// Values by name; inner graphs see the names of outer ones.
    scopes: Vec<HashMap<String, Value>>,
    /// The nodes in progress, outermost first.
    path: Vec<String>,
    layer: Option<SmolStr>,
    folded: u64,
    /// Constants by content, so that repeated ones are one tensor.
    scalars: HashMap<(edgecut_graph::DType, u64), TensorId>,
}

impl<'m> Lowering<'m> {
    pub fn new(model: &'m ModelProto, options: &'m ImportOptions<'m>) -> Lowering<'m> {
        let versions = model.opset_import.iter().map(|set| (domain(set.domain.as_deref()), set.version.unwrap_or(1)));
        let key = |f: &'m FunctionProto| (domain(f.domain.as_deref()), f.name.as_deref().unwrap_or_default());
        Lowering {
            graph: Graph::new(),
            options,
            versions: versions.collect(),
            functions: model.functions.iter().map(|f| (key(f), f)).collect(),
            scopes: vec![HashMap::new()],
            path: Vec::new(),
            layer: None,
            folded: 0,
            scalars: HashMap::new(),
        }
    }

    /// The graph of the model.
    pub fn run(mut self, graph: &'m GraphProto) -> std::result::Result<Graph, Located> {
        self.model(graph).map_err(|what| ((!self.path.is_empty()).then(|| self.path.join(" in ")), what))?;
        Ok(self.graph)
    }

    fn model(&mut self, graph: &'m GraphProto) -> Result<()> {
        self.initializers(graph)?;
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or_default();
            if !self.scopes[0].contains_key(name) {
                let tensor = self.input(input).map_err(|what| format!("input `{}`: {what}", shown(name)))?;
                self.scopes[0].insert(name.to_string(), Value::Tensor(tensor));
            }
        }
        self.nodes(&graph.node)?;
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or_default();
            match self.value(name).map_err(|what| format!("output {what}"))? {
                Value::Tensor(tensor) => self.graph.outputs.push(tensor),
                Value::Sequence(tensors) => self.graph.outputs.extend(tensors),
            }
        }
        classify(&mut self.graph);
        Ok(())
    }

    fn initializers(&mut self, graph: &'m GraphProto) -> Result<()> {
        for initializer in &graph.initializer {
            let name = initializer.name.as_deref().unwrap_or_default();
            let data = tensor::tensor_data(initializer, self.options.folder)
                .map_err(|what| format!("initializer `{}`: {what}", shown(name)))?;
            let tensor = self.graph.add_tensor(name, data.ty(), Origin::Constant(data));
            self.bind(name, Value::Tensor(tensor));
        }
        match graph.sparse_initializer.first() {
            Some(_) => Err("sparse initializers are not supported".to_string()),
            None => Ok(()),
        }
    }

    fn input(&mut self, input: &ValueInfoProto) -> Result<TensorId> {
        let name = input.name.as_deref().unwrap_or_default();
        let given = (self.options.given)(name);
        let bind = |symbol: &str, axis: usize| {
            let by_symbol = self.options.symbols.iter().find(|(known, _)| known == symbol).map(|(_, size)| *size);
            let by_axis = || {
                self.options.bind_dims.iter().find_map(|bind| match bind {
                    BindDim::One { tensor, axis: at, size } if tensor == name && *at == axis => Some(*size),
                    _ => None,
                })
            };
            let all = || {
                self.options.bind_dims.iter().find_map(|b| if let BindDim::All(size) = b { Some(*size) } else { None })
            };
            let by_content = || given.as_ref().and_then(|data| data.shape().get(axis).copied());
            by_symbol.or_else(by_axis).or_else(all).or_else(by_content)
        };
        let ty = tensor::tensor_type(input.r#type.as_ref(), bind)?;
        Ok(self.graph.add_tensor(name, ty, Origin::Input))
    }

    /// Lowers nodes in their order.
    pub fn nodes(&mut self, nodes: &'m [NodeProto]) -> Result<()> {
        for node in nodes {
            self.path.push(title(node));
            self.node(node)?;
            self.path.pop();
        }
        Ok(())
    }

    fn node(&mut self, node: &'m NodeProto) -> Result<()> {
        let kind = node.op_type.as_deref().unwrap_or_default();
        let domain = domain(node.domain.as_deref());
        let layer = node.name.as_deref().filter(|name| !name.is_empty()).map(SmolStr::new);
        if self.path.len() == 1 {
            self.layer = layer;
        }
        let inputs = node.input.iter().map(|name| match name.as_str() {
            "" => Ok(None),
            name => self.value(name).map(Some),
        });
        let inputs: Vec<Option<Value>> = inputs.collect::<Result<_>>()?;
        let results = match families::find(domain, kind) {
            Some(lower) => {
                let version = self.versions.get(domain).copied().unwrap_or(1);
                lower(&mut Call { lowering: self, node, inputs, version })?
            }
            None => match self.functions.get(&(domain, kind)) {
                Some(function) => self.function(function, &node.attribute, inputs)?,
                None => return Err(unknown(domain, kind)),
            },
        };
        let wanted = node.output.iter().filter(|name| !name.is_empty()).count();
        if results.len() < node.output.len() && wanted > results.len() {
            return Err(format!("it has {} results, the file names {}", results.len(), node.output.len()));
        }
        for (name, value) in node.output.iter().zip(results).filter(|(name, _)| !name.is_empty()) {
            self.name(&value, name);
            self.bind(name, value);
        }
        Ok(())
    }

    /// Calls a function of the model.
    fn function(
        &mut self,
        function: &'m FunctionProto,
        given: &'m [AttributeProto],
        inputs: Vec<Option<Value>>,
    ) -> Result<Vec<Value>> {
        if function
            .node
            .iter()
            .any(|node| node.attribute.iter().any(|a| a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty())))
        {
            let _ = given;
            return Err("functions with attributes are not supported".to_string());
        }
        let names = function.input.iter().map(String::as_str).zip(inputs);
        let bound: HashMap<String, Value> =
            names.filter_map(|(name, value)| Some((name.to_string(), value?))).collect();
        let outer = std::mem::replace(&mut self.scopes, vec![bound]);
        let versions = self.versions.clone();
        for set in &function.opset_import {
            self.versions.insert(domain(set.domain.as_deref()), set.version.unwrap_or(1));
        }
        let results = self.check_depth().and_then(|()| {
            self.nodes(&function.node)?;
            function.output.iter().map(|name| self.value(name)).collect()
        });
        if results.is_ok() {
            self.scopes = outer;
            self.versions = versions;
        }
        results
    }

    /// Lowers the body of a branch or a loop with its inputs bound, and returns its outputs.
    pub fn body(&mut self, graph: &'m GraphProto, inputs: Vec<Value>) -> Result<Vec<Value>> {
        self.check_depth()?;
        let names = graph.input.iter().filter_map(|input| input.name.clone());
        self.scopes.push(names.zip(inputs).collect());
        self.initializers(graph)?;
        self.nodes(&graph.node)?;
        let results: Vec<Value> = graph
            .output
            .iter()
            .map(|output| self.value(output.name.as_deref().unwrap_or_default()))
            .collect::<Result<_>>()?;
        self.scopes.pop();
        Ok(results)
    }

    fn check_depth(&self) -> Result<()> {
        match self.path.len() > MAX_DEPTH {
            true => Err(format!("functions and bodies are nested deeper than {MAX_DEPTH} levels")),
            false => Ok(()),
        }
    }

    fn bind(&mut self, name: &str, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), value);
        }
    }

    fn value(&self, name: &str) -> Result<Value> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found.cloned().ok_or_else(|| format!("`{}` is not defined before its use", shown(name)))
    }

    /// Gives the result of an operator the name that the file has for it.
    fn name(&mut self, value: &Value, name: &str) {
        if let Value::Tensor(tensor) = value
            && self.path.len() == 1
            && let Origin::Operator { .. } = self.graph.tensor(*tensor).origin
        {
            self.graph.tensor_mut(*tensor).name = name.into();
        }
    }

    /// Adds a call of the operator `name`, or folds it.
    ///
    /// # Errors
    /// If the operator does not accept its operands, or a shape depends on data.
    pub fn add(
        &mut self,
        name: &'static str,
        args: Vec<Arg>,
        attrs: Vec<(&'static str, Attr)>,
    ) -> Result<Vec<TensorId>> {
        let def = ops::lookup(name).ok_or_else(|| format!("operator {name} is not defined"))?;
        let attrs: Attrs = attrs.into_iter().map(|(key, value)| (SmolStr::new_static(key), value)).collect();
        let operator = Operator::new(name, args).with_attrs(attrs).with_layer(self.layer.clone());
        let types = self.graph.arg_types(&operator);
        let constants: Vec<Option<TensorData>> = operator.args.iter().map(|arg| self.constant(arg)).collect();
        let values: Vec<Option<&TensorData>> = constants.iter().map(Option::as_ref).collect();
        let ty = (def.infer)(&ops::Call { def, attrs: &operator.attrs, args: &types, values: &values })
            .map_err(|error| error.to_string())?;
        let results: Vec<TensorType> = ty.tensors().into_iter().cloned().collect();
        if let Some(result) = results.iter().find(|result| result.shape.rank() > Shape::MOST_DIMS) {
            return Err(format!(
                "a result of {} dimensions; at most {} are read",
                result.shape.rank(),
                Shape::MOST_DIMS
            ));
        }
        let operator = operator.with_tuple_result(matches!(ty, Type::Tuple(_)));
        if self.is_folded(&operator, &results)
            && let Some(folded) = self.fold(&operator, &results)
        {
            return Ok(folded);
        }
        if self.graph.operators().len() >= MAX_OPERATORS {
            return Err(format!("the graph has more than {MAX_OPERATORS} operators"));
        }
        let id = self.graph.add_operator(operator, &results);
        Ok(self.graph.operator(id).outputs.clone())
    }

    fn constant(&self, arg: &Arg) -> Option<TensorData> {
        match arg {
            Arg::Tensor(tensor) => self.known(*tensor).cloned(),
            Arg::Tuple(_) => None,
        }
    }

    /// The content of a constant.
    pub fn known(&self, tensor: TensorId) -> Option<&TensorData> {
        match &self.graph.tensor(tensor).origin {
            Origin::Constant(data) => Some(data),
            _ => None,
        }
    }

    fn is_folded(&self, operator: &Operator, results: &[TensorType]) -> bool {
        let limit = |ty: &TensorType| if ty.dtype.is_float() { FOLDED_FLOATS } else { FOLDED_INTEGERS };
        operator.operands().all(|tensor| self.known(tensor).is_some())
            && results.iter().all(|ty| ty.bytes().is_some_and(|bytes| bytes <= limit(ty)))
    }

    fn fold(&mut self, operator: &Operator, results: &[TensorType]) -> Option<Vec<TensorId>> {
        let mut part = Graph::new();
        let mut moved: HashMap<TensorId, TensorId> = HashMap::new();
        for tensor in operator.operands() {
            let source = self.graph.tensor(tensor);
            moved
                .entry(tensor)
                .or_insert_with(|| part.add_tensor(source.name.clone(), source.ty.clone(), source.origin.clone()));
        }
        let args = operator.args.iter().map(|arg| match arg {
            Arg::Tensor(tensor) => Arg::Tensor(moved[tensor]),
            Arg::Tuple(tensors) => Arg::Tuple(tensors.iter().map(|tensor| moved[tensor]).collect()),
        });
        let copy = Operator::new(operator.name.clone(), args).with_attrs(operator.attrs.clone());
        let id = part.add_operator(copy.with_tuple_result(operator.tuple_result), results);
        part.outputs = part.operator(id).outputs.clone();
        let contents = (self.options.evaluate)(&part).ok()?;
        self.folded += contents.iter().map(|data| data.bytes().len() as u64).sum::<u64>();
        if self.folded > MAX_FOLDED_BYTES {
            return None;
        }
        Some(contents.into_iter().map(|data| self.add_constant(data)).collect())
    }

    pub fn add_constant(&mut self, data: TensorData) -> TensorId {
        let name = format_smolstr!("constant_{}", self.graph.tensors().len());
        self.graph.add_tensor(name, data.ty(), Origin::Constant(data))
    }

    /// A scalar constant; equal ones are one tensor.
    pub fn scalar(&mut self, value: f64, dtype: edgecut_graph::DType) -> Result<TensorId> {
        let key = (dtype, value.to_bits());
        if let Some(known) = self.scalars.get(&key) {
            return Ok(*known);
        }
        let bytes =
            tensor::element(value, dtype).ok_or_else(|| format!("elements of type {dtype} are not supported"))?;
        let data = TensorData::new(dtype, [], bytes).map_err(|error| error.to_string())?;
        let tensor = self.add_constant(data);
        self.scalars.insert(key, tensor);
        Ok(tensor)
    }

    /// The content of a tensor that must be known now: a constant, or computed from inputs whose content is given.
    ///
    /// # Errors
    /// If it depends on inputs that are not given; the message names `what` it determines.
    pub fn content(&self, tensor: TensorId, what: &str) -> Result<TensorData> {
        if let Some(data) = self.known(tensor) {
            return Ok(data.clone());
        }
        let (part, sources) = self.computing(tensor);
        let missing = sources.iter().find(|name| (self.options.given)(name).is_none());
        match missing {
            Some(name) => Err(format!(
                "{what} depends on `{}`: give its content with `--inputs FILE.npz` (array `in_{}`)",
                shown(name),
                shown(name)
            )),
            None => (self.options.evaluate)(&part)?.into_iter().next().ok_or_else(|| format!("{what} has no content")),
        }
    }

    /// The graph that computes `tensor`, and the inputs that it reads.
    fn computing(&self, tensor: TensorId) -> (Graph, Vec<SmolStr>) {
        let mut found: BTreeSet<OperatorId> = BTreeSet::new();
        let mut pending = vec![tensor];
        while let Some(tensor) = pending.pop() {
            if let Some(operator) = self.graph.producer(tensor)
                && found.insert(operator)
            {
                pending.extend(self.graph.operator(operator).operands());
            }
        }
        let operators: Vec<OperatorId> = found.into_iter().collect();
        let mut part = Part::cut(&self.graph, &operators);
        let output = match part.whole_tensor.iter().position(|whole| *whole == tensor) {
            Some(at) => TensorId(at as u32),
            None => {
                let source = self.graph.tensor(tensor);
                part.graph.add_tensor(source.name.clone(), source.ty.clone(), source.origin.clone())
            }
        };
        part.graph.outputs = vec![output];
        let sources = part.graph.inputs().map(|id| part.graph.tensor(id).name.clone()).collect();
        (part.graph, sources)
    }
}

/// `ai.onnx` is another name of the default domain.
fn domain(domain: Option<&str>) -> &str {
    match domain {
        None | Some("ai.onnx") => "",
        Some(domain) => domain,
    }
}

fn title(node: &NodeProto) -> String {
    let kind = shown(node.op_type.as_deref().unwrap_or_default());
    match (node.name.as_deref(), node.output.first()) {
        (Some(name), _) if !name.is_empty() => format!("{kind} `{}`", shown(name)),
        (_, Some(output)) => format!("{kind} that computes `{}`", shown(output)),
        _ => kind,
    }
}

fn unknown(domain: &str, kind: &str) -> Message {
    match domain {
        "" => format!("operator {} is not supported", shown(kind)),
        domain => format!("operator {} of domain {} is not supported", shown(kind), shown(domain)),
    }
}

/// Turns inputs that are weights into parameters.
fn classify(graph: &mut Graph) {
    let _ = graph;
}
