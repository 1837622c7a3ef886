//! Nodes → operators: names in scope, functions, bodies of branches and loops.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::Rc,
};

use edgecut_graph::{DType, Graph, OperatorId, Origin, TensorData, TensorId};
use smol_str::SmolStr;

use crate::{
    error::{Message, Result, shown},
    external::ExternalFiles,
    interface::{self, Decision, Interface, has_defaults, seeded_parameters},
    node_name::{domain, title, unknown},
    node_order::node_order,
    opaque::{self, Answers, OpaqueNode, TypeError},
    options::ImportOptions,
    proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto},
};

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Tensor(TensorId),
    /// A sequence of tensors, whose length is known.
    Sequence(Vec<TensorId>),
    /// A tensor that the graph cannot have, such as one of strings, and why.
    Refused(SmolStr),
}

/// What names of folded constants begin with, which have none in the file.
pub(crate) const FOLDED: &str = "constant_";

/// A node and the values of its inputs.
pub(crate) struct Call<'c, 'm> {
    pub lowering: &'c mut Lowering<'m>,
    pub node: &'m NodeProto,
    /// Omitted optional inputs are `None`.
    pub inputs: Vec<Option<Value>>,
    /// Version of the operator set.
    pub version: i64,
}

/// Expresses a node by operators of the graph, and returns its results.
pub(crate) type Lower = for<'c, 'm> fn(&mut Call<'c, 'm>) -> Result<Vec<Value>>;

/// How nodes of one kind are read.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub lower: Lower,
    pub is_kept: IsKept,
}

/// Whether a node becomes a composite operator: see the module `composite`.
pub(crate) type IsKept = for<'c, 'm> fn(&Call<'c, 'm>) -> bool;

/// The entry for an operator, by its domain and kind.
pub(crate) type Registry = fn(&str, &str) -> Option<Entry>;

/// An error with the operator or tensor that it is in, if it is in one.
pub(crate) type Located = (Option<String>, Message);

/// What an empty file would be allowed; see [`Lowering::budget`].
const BUDGET: usize = 50_000;
/// Depth to which functions and bodies of loops and branches may be nested.
const MAX_DEPTH: usize = 48;

/// An import in progress.
pub(crate) struct Lowering<'m> {
    pub graph: Graph,
    pub options: &'m ImportOptions<'m>,
    pub files: Rc<ExternalFiles>,
    registry: Registry,
    /// By domain: the version of the operator set.
    pub versions: HashMap<&'m str, i64>,
    functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    /// Values by name; inner graphs see the names of outer ones.
    pub scopes: Vec<HashMap<String, Value>>,
    /// The types that the file states, by the names of values.
    pub declared: HashMap<&'m str, &'m TypeProto>,
    /// The attributes of the function in progress.
    attributes: HashMap<&'m str, &'m AttributeProto>,
    /// Its inputs that were not given.
    absent: HashSet<String>,
    /// The graph and the nodes in progress, outermost first.
    pub path: Vec<String>,
    /// Length of `path` outside the nodes of the model's graph.
    main_depth: usize,
    pub layer: Option<SmolStr>,
    /// Most nodes lowered and operators added: proportional to the size of the file, since a loop of a few bytes could
    /// produce any number. What is folded and computed during the import is limited in the same proportion.
    pub budget: usize,
    /// Topological orders of lists of nodes, by the address of the list; `None` is the file's order.
    orders: HashMap<*const NodeProto, Option<Rc<[usize]>>>,
    /// The engine's answers about result types.
    pub answers: Answers,
    /// Nodes lowered, bodies and functions entered.
    steps: usize,
    /// The model's graph while a decomposition is built in `graph`.
    pub outer: Option<Graph>,
    /// Operators of decompositions, which the budget counts too.
    pub inner_operators: usize,
    /// Contents of the operands of the current composite operator, by the inputs of its decomposition.
    pub operand_contents: HashMap<TensorId, TensorData>,
    /// Bytes of folded results, and arithmetic during the import.
    pub folded: u64,
    pub flops: Cell<u64>,
    /// Constants by content, so that repeated ones are one tensor.
    pub scalars: HashMap<(DType, u64), TensorId>,
    /// What contents of inputs decided.
    pub decisions: RefCell<Vec<Decision>>,
    /// Inputs that the file says are parameters.
    pub seeded: HashSet<&'m str>,
    /// Whether an initializer may be the default of an input: older files list all initializers as inputs.
    pub has_defaults: bool,
    pub interface: Interface,
    /// Inputs whose initializer a given content replaces.
    pub replaced: Vec<SmolStr>,
    /// Whether given contents determine sizes of inputs.
    pub is_sized: bool,
}

/// What was lowered.
pub(crate) struct Lowered {
    pub graph: Graph,
    pub decisions: Vec<Decision>,
    pub interface: Interface,
    pub replaced: Vec<SmolStr>,
    pub is_sized: bool,
}

impl<'m> Lowering<'m> {
    /// A lowering of `model`, whose file has `file_bytes` bytes.
    pub fn new(
        model: &'m ModelProto,
        file_bytes: usize,
        options: &'m ImportOptions<'m>,
        registry: Registry,
    ) -> Lowering<'m> {
        let versions = model.opset_import.iter().map(|set| (domain(set.domain.as_deref()), set.version.unwrap_or(1)));
        let key = |f: &'m FunctionProto| (domain(f.domain.as_deref()), f.name.as_deref().unwrap_or_default());
        Lowering {
            graph: Graph::new(),
            options,
            files: Rc::new(ExternalFiles::new(options.file, options.max_external_bytes)),
            registry,
            versions: versions.collect(),
            functions: model.functions.iter().map(|f| (key(f), f)).collect(),
            scopes: vec![HashMap::new()],
            declared: HashMap::new(),
            attributes: HashMap::new(),
            absent: HashSet::new(),
            path: Vec::new(),
            main_depth: 0,
            layer: None,
            budget: BUDGET + file_bytes,
            orders: HashMap::new(),
            answers: Answers::new(),
            steps: 0,
            outer: None,
            inner_operators: 0,
            operand_contents: HashMap::new(),
            folded: 0,
            flops: Cell::new(0),
            scalars: HashMap::new(),
            decisions: RefCell::default(),
            seeded: seeded_parameters(model),
            has_defaults: has_defaults(model),
            interface: Interface::default(),
            replaced: Vec::new(),
            is_sized: false,
        }
    }

    /// The graph of the model.
    pub fn run(mut self, graph: &'m GraphProto) -> std::result::Result<Lowered, Located> {
        self.model(graph).map_err(|what| {
            let place: Vec<String> = self.path.iter().rev().cloned().collect();
            ((!place.is_empty()).then(|| place.join(" in ")), what)
        })?;
        let Lowering { graph, decisions, interface, replaced, is_sized, .. } = self;
        Ok(Lowered { graph, decisions: decisions.into_inner(), interface, replaced, is_sized })
    }

    fn model(&mut self, graph: &'m GraphProto) -> Result<()> {
        if let Some(name) = graph.name.as_deref().filter(|name| !name.is_empty()) {
            self.path.push(format!("graph `{}`", shown(name)));
        }
        self.main_depth = self.path.len();
        self.initializers(graph)?;
        self.declare(graph);
        self.inputs(graph)?;
        self.check_binds(graph)?;
        self.nodes(&graph.node)?;
        let initializers = graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or_default();
            self.interface.outputs.push(interface::output(&initializers, output));
            match self.value(name).map_err(|what| format!("output {what}"))? {
                Value::Tensor(tensor) => {
                    let tensor = self.named_constant(tensor, name);
                    self.graph.outputs.push(tensor);
                }
                Value::Sequence(tensors) => self.graph.outputs.extend(tensors),
                Value::Refused(why) => return Err(format!("output `{}`: {why}", shown(name))),
            }
        }
        self.path.clear();
        Ok(())
    }

    /// Notes the types that the file states for the values of `graph`.
    fn declare(&mut self, graph: &'m GraphProto) {
        for info in graph.value_info.iter().chain(&graph.output) {
            if let (Some(name), Some(ty)) = (info.name.as_deref(), info.r#type.as_ref()) {
                self.declared.insert(name, ty);
            }
        }
    }

    /// Lowers nodes in topological order.
    pub fn nodes(&mut self, nodes: &'m [NodeProto]) -> Result<()> {
        let order = self.order(nodes)?;
        for at in 0..nodes.len() {
            let node = &nodes[order.as_ref().map_or(at, |order| order[at])];
            self.path.push(title(node));
            self.node(node)?;
            self.path.pop();
        }
        Ok(())
    }

    /// The topological order of `nodes`, if it is not the file's; computed once for a body that is lowered several
    /// times.
    fn order(&mut self, nodes: &'m [NodeProto]) -> Result<Option<Rc<[usize]>>> {
        if let Some(known) = self.orders.get(&nodes.as_ptr()) {
            return Ok(known.clone());
        }
        let is_known =
            |name: &str| self.absent.contains(name) || self.scopes.iter().any(|scope| scope.contains_key(name));
        let order = node_order(nodes, is_known).map_err(|at| {
            self.path.push(title(&nodes[at]));
            "its inputs depend on its own results: the graph has a cycle".to_string()
        })?;
        let order = order.map(Rc::from);
        self.orders.insert(nodes.as_ptr(), order.clone());
        Ok(order)
    }

    fn node(&mut self, node: &'m NodeProto) -> Result<()> {
        self.charge_step()?;
        let layer = node.name.as_deref().filter(|name| !name.is_empty()).map(SmolStr::new);
        if self.is_main() {
            self.layer = layer;
        }
        let inputs = node.input.iter().map(|name| match name.as_str() {
            "" => Ok(None),
            name if self.absent.contains(name) => Ok(None),
            name => self.value(name).map(Some),
        });
        let inputs: Vec<Option<Value>> = inputs.collect::<Result<_>>()?;
        let depth = self.path.len();
        let results = match self.lower(node, inputs.clone()) {
            Ok(results) => results,
            Err(why) => {
                let place = self.path.split_off(depth);
                self.opaque(node, &inputs, why).inspect_err(|_| self.path.extend(place))?
            }
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

    fn lower(&mut self, node: &'m NodeProto, inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
        let kind = node.op_type.as_deref().unwrap_or_default();
        let domain = domain(node.domain.as_deref());
        let version = self.versions.get(domain).copied().unwrap_or(1);
        match (self.registry)(domain, kind) {
            Some(_) if let Some(dtype) = self.exotic_type(&inputs) => {
                Err(format!("there are no kernels for elements of type {dtype}"))
            }
            Some(entry) => {
                let mut call = Call { lowering: self, node, inputs, version };
                if (entry.is_kept)(&call)
                    && let Some(results) = call.lowering.composite(node, entry.lower, version, &call.inputs)
                {
                    return Ok(results);
                }
                (entry.lower)(&mut call)
            }
            None => match self.functions.get(&(domain, kind)) {
                Some(function) => self.function(function, &node.attribute, inputs),
                None => Err(unknown(domain, kind)),
            },
        }
    }

    /// The type of the first of `inputs` that has no kernels.
    fn exotic_type(&self, inputs: &[Option<Value>]) -> Option<DType> {
        let types = inputs.iter().filter_map(|input| match input {
            Some(Value::Tensor(tensor)) => Some(self.graph.tensor(*tensor).ty.dtype),
            _ => None,
        });
        types.into_iter().find(|dtype| matches!(dtype, DType::Exotic(_)))
    }

    /// Keeps a node that no operators express, for the reason `why`, as one operator with the types that the file states or
    /// an engine infers.
    ///
    /// # Errors
    /// `why`, if the types of the results are unknown, or the node is not a function of tensors alone.
    fn opaque(&mut self, node: &'m NodeProto, inputs: &[Option<Value>], why: Message) -> Result<Vec<Value>> {
        let domain = domain(node.domain.as_deref());
        let version = self.versions.get(domain).copied().unwrap_or(1);
        let Some(tensors) = tensors(inputs) else { return Err(why) };
        let attribute = |a: &'m AttributeProto| self.attribute(a);
        let Some(operator) = opaque::operator(node, version, &tensors, attribute) else { return Err(why) };
        let operator = operator.with_opaque_reason(why.clone()).with_layer(self.layer.clone());
        let Some(OpaqueNode { node: alone, .. }) = opaque::node(&operator) else { return Err(why) };
        let kind = node.op_type.as_deref().unwrap_or_default();
        // For a known operator or a function, `why` is the error.
        let is_known = (self.registry)(domain, kind).is_some() || self.functions.contains_key(&(domain, kind));
        let types = self.result_types(node, alone, (domain, version), &tensors).map_err(|error| match error {
            _ if is_known => why.clone(),
            TypeError::Unknown => format!("{why}, and the shapes of its results depend on data"),
            TypeError::NotInferred(what) => format!(
                "{why}, and the file does not state the types of its results ({what}): run ONNX's shape inference on it"
            ),
        })?;
        if types.is_empty() {
            return Err(why);
        }
        let id = self.graph.add_operator(operator, &types);
        Ok(self.results(node, id))
    }

    /// The outputs of `node`, whose named ones are the results of operator `id`.
    pub fn results(&self, node: &NodeProto, id: OperatorId) -> Vec<Value> {
        let mut results = self.graph.operator(id).outputs.iter().copied();
        let absent = || Value::Refused("an output that the file does not name".into());
        let value = |name: &String| match name.is_empty() {
            true => absent(),
            false => results.next().map_or_else(absent, Value::Tensor),
        };
        node.output.iter().map(value).collect()
    }

    /// An attribute, or what the function in progress was given for it; `None` if that was given nothing.
    pub fn attribute(&self, attribute: &'m AttributeProto) -> Option<&'m AttributeProto> {
        match attribute.ref_attr_name.as_deref() {
            None | Some("") => Some(attribute),
            Some(name) => self.attributes.get(name).copied(),
        }
    }

    /// Calls a function of the model.
    fn function(
        &mut self,
        function: &'m FunctionProto,
        given: &'m [AttributeProto],
        inputs: Vec<Option<Value>>,
    ) -> Result<Vec<Value>> {
        let mut attributes: HashMap<&str, &AttributeProto> = HashMap::new();
        for attribute in function.attribute_proto.iter() {
            attributes.insert(attribute.name.as_deref().unwrap_or_default(), attribute);
        }
        for attribute in given {
            if let Some(value) = self.attribute(attribute) {
                attributes.insert(attribute.name.as_deref().unwrap_or_default(), value);
            }
        }
        let names = function.input.iter().map(String::as_str).zip(inputs);
        let bound: HashMap<String, Value> =
            names.filter_map(|(name, value)| Some((name.to_string(), value?))).collect();
        let absent = function.input.iter().filter(|name| !bound.contains_key(*name)).cloned().collect();
        self.enter()?;
        let outer = std::mem::replace(&mut self.scopes, vec![bound]);
        let outer_attributes = std::mem::replace(&mut self.attributes, attributes);
        let outer_absent = std::mem::replace(&mut self.absent, absent);
        let versions = self.versions.clone();
        for set in &function.opset_import {
            self.versions.insert(domain(set.domain.as_deref()), set.version.unwrap_or(1));
        }
        let results =
            self.nodes(&function.node).and_then(|()| function.output.iter().map(|name| self.value(name)).collect());
        (self.scopes, self.attributes, self.absent, self.versions) = (outer, outer_attributes, outer_absent, versions);
        results
    }

    /// Lowers the body of a branch or a loop with its inputs bound, and returns its outputs.
    pub fn body(&mut self, graph: &'m GraphProto, inputs: Vec<Value>) -> Result<Vec<Value>> {
        self.enter()?;
        let names = graph.input.iter().filter_map(|input| input.name.clone());
        self.scopes.push(names.zip(inputs).collect());
        self.declare(graph);
        let results = self.initializers(graph).and_then(|()| self.nodes(&graph.node)).and_then(|()| {
            graph.output.iter().map(|output| self.value(output.name.as_deref().unwrap_or_default())).collect()
        });
        self.scopes.pop();
        results
    }

    /// Whether the node in progress is one of the model's graph, not of a function or a body.
    fn is_main(&self) -> bool {
        self.path.len() == self.main_depth + 1
    }

    fn charge_step(&mut self) -> Result<()> {
        self.steps += 1;
        match self.steps > self.budget {
            true => Err(format!("more than {} operators are unrolled: too many for a file of its size", self.budget)),
            false => Ok(()),
        }
    }

    /// Checks that one more function or body may be entered.
    fn enter(&mut self) -> Result<()> {
        self.charge_step()?;
        match self.path.len() > MAX_DEPTH {
            true => Err(format!("functions and bodies are nested deeper than {MAX_DEPTH} levels")),
            false => Ok(()),
        }
    }

    pub fn bind(&mut self, name: &str, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), value);
        }
    }

    fn value(&self, name: &str) -> Result<Value> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found
            .cloned()
            .ok_or_else(|| format!("`{}` is not defined: no operator, input or initializer has this name", shown(name)))
    }

    /// An output that is a constant, under the name that the file has for the output.
    fn named_constant(&mut self, id: TensorId, name: &str) -> TensorId {
        let tensor = self.graph.tensor_mut(id);
        if !matches!(tensor.origin, Origin::Constant(_)) || tensor.name == name {
            return id;
        }
        if tensor.name.starts_with(FOLDED) {
            tensor.name = name.into();
            return id;
        }
        let (ty, origin) = (tensor.ty.clone(), tensor.origin.clone());
        self.graph.add_tensor(name, ty, origin)
    }

    /// Gives the result of an operator the name that the file has for it.
    fn name(&mut self, value: &Value, name: &str) {
        if let Value::Tensor(tensor) = value
            && self.is_main()
            && let Origin::Operator { .. } = self.graph.tensor(*tensor).origin
        {
            self.graph.tensor_mut(*tensor).name = name.into();
        }
    }
}

/// The operands that `inputs` are, if all are tensors or omitted.
pub(crate) fn tensors(inputs: &[Option<Value>]) -> Option<Vec<Option<TensorId>>> {
    let tensor = |input: &Option<Value>| match input {
        None => Some(None),
        Some(Value::Tensor(tensor)) => Some(Some(*tensor)),
        Some(_) => None,
    };
    inputs.iter().map(tensor).collect()
}
