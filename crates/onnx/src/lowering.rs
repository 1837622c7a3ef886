//! Nodes → operators: names in scope, functions, bodies of branches and loops.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::Rc,
};

use edgecut_graph::{DType, Graph, Origin, TensorData, TensorId};
use edgecut_ops::passes::retype::{BindDim, bound_size};
use smol_str::SmolStr;

use crate::{
    error::{Message, Result, shown},
    external::ExternalFiles,
    interface::{self, Decision, Interface, SEEDED_PARAMETERS},
    opaque,
    options::{Defaults, ImportOptions},
    proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto},
    tensor,
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

/// The function for an operator, by its domain and kind.
pub(crate) type Registry = fn(&str, &str) -> Option<Lower>;

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
    versions: HashMap<&'m str, i64>,
    functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    /// Values by name; inner graphs see the names of outer ones.
    scopes: Vec<HashMap<String, Value>>,
    /// The types that the file states, by the names of values.
    declared: HashMap<&'m str, &'m TypeProto>,
    /// The attributes of the function in progress.
    attributes: HashMap<&'m str, &'m AttributeProto>,
    /// Its inputs that were not given.
    absent: HashSet<String>,
    /// The graph and the nodes in progress, outermost first.
    path: Vec<String>,
    /// Length of `path` outside the nodes of the model's graph.
    main_depth: usize,
    pub layer: Option<SmolStr>,
    /// Most nodes lowered and operators added: proportional to the size of the file, since a loop of a few bytes could
    /// produce any number. What is folded and computed during the import is limited in the same proportion.
    pub budget: usize,
    /// Nodes lowered, bodies and functions entered.
    steps: usize,
    /// Bytes of folded results, and arithmetic during the import.
    pub folded: u64,
    pub flops: Cell<u64>,
    /// Constants by content, so that repeated ones are one tensor.
    pub scalars: HashMap<(DType, u64), TensorId>,
    /// What contents of inputs decided.
    pub decisions: RefCell<Vec<Decision>>,
    /// Inputs that the file says are parameters.
    seeded: HashSet<&'m str>,
    /// Whether an initializer may be the default of an input: older files list all initializers as inputs.
    has_defaults: bool,
    interface: Interface,
    /// Inputs whose initializer a given content replaces.
    replaced: Vec<SmolStr>,
    /// Whether given contents determine sizes of inputs.
    is_sized: bool,
}

/// What was lowered.
pub(crate) struct Lowered {
    pub graph: Graph,
    pub decisions: Vec<Decision>,
    pub interface: Interface,
    pub replaced: Vec<SmolStr>,
    pub is_sized: bool,
}

/// The first version of the format in which initializers need not be listed as inputs, so that those listed are defaults.
const FIRST_DEFAULTS: i64 = 4;

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
            files: Rc::new(ExternalFiles::of(options.folder)),
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
            steps: 0,
            folded: 0,
            flops: Cell::new(0),
            scalars: HashMap::new(),
            decisions: RefCell::default(),
            seeded: seeded_parameters(model),
            has_defaults: model.ir_version.unwrap_or_default() >= FIRST_DEFAULTS,
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
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or_default();
            self.interface.outputs.push(interface::output(output));
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

    /// Adds the inputs of the model. An initializer of the same name is a default: a content that is given replaces it.
    fn inputs(&mut self, graph: &'m GraphProto) -> Result<()> {
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or_default();
            let default = match self.scopes[0].get(name) {
                None => None,
                Some(Value::Tensor(tensor)) => match &self.graph.tensor(*tensor).origin {
                    Origin::Constant(content) => Some(content.clone()),
                    // The file names an input twice.
                    _ => continue,
                },
                Some(_) => continue,
            };
            let is_replaced = default.is_some() && (self.options.inputs)(name).is_some();
            if let Some(content) = default {
                let is_weight = !self.has_defaults && !is_replaced;
                if is_weight {
                    continue;
                }
                self.interface.defaults.push((name.into(), content));
                if !is_replaced && self.options.defaults == Defaults::Constant {
                    self.interface.inputs.push(input.clone());
                    continue;
                }
            }
            let value = self.input(input).map_err(|what| format!("input `{}`: {what}", shown(name)))?;
            self.replaced.extend(is_replaced.then(|| SmolStr::new(name)));
            self.interface.inputs.push(input.clone());
            self.scopes[0].insert(name.to_string(), value);
        }
        Ok(())
    }

    /// Rejects sizes for dimensions that no input has.
    fn check_binds(&self, graph: &GraphProto) -> Result<()> {
        let unknown: Vec<(&str, usize, &str)> = graph.input.iter().flat_map(tensor::unknown_dims).collect();
        for bind in self.options.bind_dims {
            let is_known = match bind {
                BindDim::All(_) => true,
                BindDim::One { tensor, axis, .. } => unknown.iter().any(|(name, at, _)| tensor == name && at == axis),
                BindDim::Symbol { name, .. } => unknown.iter().any(|(.., symbol)| name == symbol),
            };
            if !is_known {
                let place = |(name, axis, symbol): &(&str, usize, &str)| match symbol.is_empty() {
                    true => format!("`{}:{axis}`", shown(name)),
                    false => format!("`{}` (`{}:{axis}`)", shown(symbol), shown(name)),
                };
                let there: Vec<String> = unknown.iter().take(8).map(place).collect();
                let there = if there.is_empty() { "it has none".to_string() } else { there.join(", ") };
                return Err(format!("no unknown dimension is bound by `{bind}`; unknown are: {there}"));
            }
        }
        Ok(())
    }

    fn initializers(&mut self, graph: &'m GraphProto) -> Result<()> {
        for initializer in &graph.initializer {
            let name = initializer.name.as_deref().unwrap_or_default();
            let located = |what| format!("initializer `{}`: {what}", shown(name));
            let value = match tensor::dtype(initializer.data_type.unwrap_or_default().into()) {
                Ok(_) => {
                    let mut data = tensor::tensor_data(initializer, &self.files).map_err(located)?;
                    if let Some(given) = self.replacement(name, &data).map_err(located)? {
                        data = given;
                    }
                    Value::Tensor(self.graph.add_tensor(name, data.ty(), Origin::Constant(data)))
                }
                Err(what) => Value::Refused(located(what).into()),
            };
            self.bind(name, value);
        }
        for initializer in &graph.sparse_initializer {
            let name = initializer.values.as_ref().and_then(|values| values.name.as_deref()).unwrap_or_default();
            let files = Rc::clone(&self.files);
            let data = tensor::sparse_data(initializer, &files, |bytes| self.charge_constant(bytes))
                .map_err(|what| format!("sparse initializer `{}`: {what}", shown(name)))?;
            let tensor = self.graph.add_tensor(name, data.ty(), Origin::Constant(data));
            self.bind(name, Value::Tensor(tensor));
        }
        Ok(())
    }

    /// The content that a file of parameters gives for an initializer of the model.
    fn replacement(&self, name: &str, initial: &TensorData) -> Result<Option<TensorData>> {
        let given = if self.scopes.len() == 1 { (self.options.parameters)(name) } else { None };
        match given {
            Some(given) if given.ty() != initial.ty() => {
                Err(format!("its type is {}, that of the given parameter {}", initial.ty(), given.ty()))
            }
            given => Ok(given),
        }
    }

    /// Notes the types that the file states for the values of `graph`.
    fn declare(&mut self, graph: &'m GraphProto) {
        for info in graph.value_info.iter().chain(&graph.output) {
            if let (Some(name), Some(ty)) = (info.name.as_deref(), info.r#type.as_ref()) {
                self.declared.insert(name, ty);
            }
        }
    }

    fn input(&mut self, input: &ValueInfoProto) -> Result<Value> {
        let name = input.name.as_deref().unwrap_or_default();
        if let Some(why) = input.r#type.as_ref().and_then(tensor::refusal) {
            return Ok(Value::Refused(format!("input `{}`: {why}", shown(name)).into()));
        }
        let (given, is_sized) = (self.given(name), Cell::new(false));
        let bind = |symbol: &str, axis: usize| {
            let symbol = (!symbol.is_empty()).then_some(symbol);
            let by_content = || {
                let size = given.as_ref().and_then(|data| data.shape().get(axis).copied());
                is_sized.set(is_sized.get() | size.is_some());
                size
            };
            bound_size(self.options.bind_dims, name, axis, symbol).or_else(by_content)
        };
        let ty = tensor::tensor_type(input.r#type.as_ref(), bind)?;
        self.is_sized |= is_sized.get();
        let is_parameter = self.seeded.contains(name)
            || (self.options.is_parameter)(name)
            || (self.options.parameters)(name).is_some();
        let has_default = self.interface.default_of(name).is_some();
        let origin = if is_parameter && !has_default { Origin::Parameter } else { Origin::Input };
        Ok(Value::Tensor(self.graph.add_tensor(name, ty, origin)))
    }

    /// The content of an input or parameter during the import: as given, else the default.
    pub fn given(&self, name: &str) -> Option<TensorData> {
        let given = (self.options.inputs)(name).or_else(|| (self.options.parameters)(name));
        given.or_else(|| self.interface.default_of(name).cloned())
    }

    /// Notes that contents of `inputs` decide `what` of the node in progress.
    pub fn decided(&self, what: &str, inputs: Vec<SmolStr>, is_generated: bool) {
        let what = match self.path.last() {
            Some(node) => format!("{what} of {node}"),
            None => what.to_string(),
        };
        let decision = Decision { what, inputs, is_generated };
        let mut decisions = self.decisions.borrow_mut();
        if !decisions.contains(&decision) {
            decisions.push(decision);
        }
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
            Some(lower) => lower(&mut Call { lowering: self, node, inputs, version }),
            None => match self.functions.get(&(domain, kind)) {
                Some(function) => self.function(function, &node.attribute, inputs),
                None => Err(unknown(domain, kind)),
            },
        }
    }

    /// Keeps a node that no operators express, for the reason `why`, as one operator with the types that the file states.
    ///
    /// # Errors
    /// `why`, if the file does not state the types of the results, or the node is more than a function of tensors.
    fn opaque(&mut self, node: &'m NodeProto, inputs: &[Option<Value>], why: Message) -> Result<Vec<Value>> {
        let mut types = Vec::new();
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let declared = self.declared.get(name.as_str()).copied();
            let bind = |symbol: &str, axis| bound_size(self.options.bind_dims, name, axis, Some(symbol));
            match tensor::tensor_type(declared, bind) {
                Ok(ty) if ty.shape.fixed().is_some() => types.push(ty),
                _ => return Err(why),
            }
        }
        let version = self.versions.get(domain(node.domain.as_deref())).copied().unwrap_or(1);
        let tensors = inputs.iter().map(|input| match input {
            None => Some(None),
            Some(Value::Tensor(tensor)) => Some(Some(*tensor)),
            Some(_) => None,
        });
        let tensors: Option<Vec<Option<TensorId>>> = tensors.collect();
        let attribute = |a: &'m AttributeProto| self.attribute(a);
        let Some(operator) = tensors.and_then(|tensors| opaque::operator(node, version, &tensors, attribute, &why))
        else {
            return Err(why);
        };
        if types.is_empty() {
            return Err(why);
        }
        let id = self.graph.add_operator(operator.with_layer(self.layer.clone()), &types);
        let mut results = self.graph.operator(id).outputs.clone().into_iter();
        let absent = || Value::Refused("an output that the file does not name".into());
        Ok(node
            .output
            .iter()
            .map(|name| match name.is_empty() {
                true => absent(),
                false => results.next().map_or_else(absent, Value::Tensor),
            })
            .collect())
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

    fn bind(&mut self, name: &str, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), value);
        }
    }

    fn value(&self, name: &str) -> Result<Value> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found.cloned().ok_or_else(|| format!("`{}` is not defined before its use", shown(name)))
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

/// The inputs that the file says are parameters to be generated.
fn seeded_parameters(model: &ModelProto) -> HashSet<&str> {
    let said = model.metadata_props.iter().filter(|entry| entry.key.as_deref() == Some(SEEDED_PARAMETERS));
    said.flat_map(|entry| entry.value.as_deref().unwrap_or_default().lines()).map(str::trim).collect()
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
