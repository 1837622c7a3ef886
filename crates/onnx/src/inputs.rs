//! Inputs, defaults, parameters and constants of a model, and what given contents of inputs decide.

use std::{cell::Cell, rc::Rc};

use edgecut_graph::{Dim, Origin, TensorData};
use edgecut_ops::passes::retype::{BindDim, bound_size};
use smol_str::SmolStr;

use crate::{
    error::{Result, shown},
    interface::Decision,
    lowering::{Lowering, Value},
    options::Defaults,
    proto::{GraphProto, ValueInfoProto},
    tensor,
    unknown_dim::UnknownDim,
};

impl<'m> Lowering<'m> {
    /// Adds the inputs of the model. An initializer of the same name is a default: a content that is given replaces it.
    pub fn inputs(&mut self, graph: &'m GraphProto) -> Result<()> {
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or_default();
            self.check_given(input)?;
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
                self.interface.defaults.insert(name.into(), content);
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

    /// Checks the type of a given content. What is wrong with the input itself is reported where it is read.
    fn check_given(&self, input: &ValueInfoProto) -> Result<()> {
        let name = input.name.as_deref().unwrap_or_default();
        let Some(given) = (self.options.input_type)(name) else { return Ok(()) };
        let bind =
            |symbol: &str, axis| bound_size(self.options.bind_dims, name, axis, (!symbol.is_empty()).then_some(symbol));
        match tensor::tensor_type(input.r#type.as_ref(), bind) {
            Ok(declared) if !given.is_instance_of(&declared) => {
                Err(format!("input `{}`: the model declares {declared}, {given} was given", shown(name)))
            }
            _ => Ok(()),
        }
    }

    /// Rejects sizes for dimensions that no input has.
    pub fn check_binds(&self, graph: &GraphProto) -> Result<()> {
        let unknown: Vec<UnknownDim> = graph.input.iter().flat_map(tensor::unknown_dims).collect();
        for bind in self.options.bind_dims {
            let is_known = match bind {
                BindDim::All(_) => true,
                BindDim::One { tensor, axis, .. } => {
                    unknown.iter().any(|dim| *tensor == dim.input && *axis == dim.axis)
                }
                BindDim::Symbol { name, .. } => unknown.iter().any(|dim| dim.symbol.as_ref() == Some(name)),
            };
            if !is_known {
                let there = UnknownDim::list(&unknown);
                let there = if there.is_empty() { "it has none" } else { &there };
                return Err(format!("no unknown dimension is bound by `{bind}`; unknown are: {there}"));
            }
        }
        Ok(())
    }

    /// The dimensions of the model's inputs that are still unknown.
    pub fn unbound_dims(&self) -> Vec<UnknownDim> {
        let graph = self.outer.as_ref().unwrap_or(&self.graph);
        let is_unbound = |dim: &UnknownDim| match self.scopes[0].get(dim.input.as_str()) {
            Some(Value::Tensor(tensor)) => graph.tensor(*tensor).ty.shape.get(dim.axis) == Some(&Dim::Any),
            _ => false,
        };
        self.interface.unknown_dims().filter(is_unbound).collect()
    }

    pub fn initializers(&mut self, graph: &'m GraphProto) -> Result<()> {
        for initializer in &graph.initializer {
            let name = initializer.name.as_deref().unwrap_or_default();
            let located = |what| format!("initializer `{}`: {what}", shown(name));
            let value = match tensor::content_type(initializer) {
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
}
