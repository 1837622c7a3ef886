//! The signature of a written model: its inputs and outputs by the names, in the order and of the types of an
//! [`Interface`], or of a graph.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Origin, Tensor, TensorId};
use smol_str::SmolStr;

use super::{
    builder::OnnxValue,
    error::ExportError,
    write_graph::{GraphWriter, check_type, type_error, type_proto},
};
use crate::{interface::Interface, proto::ValueInfoProto};

/// Inputs and outputs as the model declares them.
#[derive(Default)]
pub(super) struct Signature {
    pub inputs: Vec<ValueInfoProto>,
    pub outputs: Vec<ValueInfoProto>,
}

impl GraphWriter<'_> {
    /// The names of inputs and outputs come before those of all other values.
    pub(super) fn reserve_names(&mut self) -> Result<(), ExportError> {
        let graph = self.graph;
        match self.options.interface {
            None => {
                for id in graph.inputs() {
                    self.input(id)?;
                }
                for id in &graph.outputs {
                    let tensor = graph.tensor(*id);
                    if matches!(tensor.origin, Origin::Operator { .. }) && !self.reserved.contains_key(id) {
                        let name = self.builder.unique(&tensor.name);
                        self.reserved.insert(*id, name);
                    }
                }
                Ok(())
            }
            Some(interface) => self.reserve_interface(interface),
        }
    }

    fn reserve_interface(&mut self, interface: &Interface) -> Result<(), ExportError> {
        let graph = self.graph;
        let refused = interface.outputs.iter().find_map(|output| output.refusal.clone());
        if let Some(what) = refused {
            return Err(ExportError::Interface { what });
        }
        if interface.outputs.len() != graph.outputs.len() {
            let what = format!("it has {} outputs, the graph {}", interface.outputs.len(), graph.outputs.len());
            return Err(ExportError::Interface { what });
        }
        let parameters: HashSet<&str> = graph.parameters().map(|id| graph.tensor(id).name.as_str()).collect();
        for name in interface.inputs.iter().filter_map(|input| input.name.as_deref()) {
            if !parameters.contains(name) {
                self.builder.unique(name);
            }
        }
        for id in graph.inputs() {
            let tensor = graph.tensor(id);
            check_type(tensor)?;
            let name = tensor.name.clone();
            self.inputs.push((name.to_string(), id));
            self.values[id.0 as usize] = Some(OnnxValue { name, dtype: tensor.ty.dtype, content: None });
        }
        let inputs: HashSet<&str> = interface.inputs.iter().filter_map(|input| input.name.as_deref()).collect();
        for (output, id) in interface.outputs.iter().zip(&graph.outputs) {
            if inputs.contains(output.name.as_str()) {
                continue;
            }
            // Taken already where a file names an output twice.
            let name = if self.builder.is_free(&output.name) { self.builder.unique(&output.name) } else { continue };
            let tensor = graph.tensor(*id);
            if matches!(tensor.origin, Origin::Operator { .. }) {
                self.reserved.entry(*id).or_insert(name);
            } else if output.is_initializer
                && self.values[id.0 as usize].is_none()
                && let Some(content) = self.content(*id)?
            {
                check_type(tensor)?;
                let value = OnnxValue { name, dtype: tensor.ty.dtype, content: Some(content) };
                self.values[id.0 as usize] = Some(value);
            }
        }
        Ok(())
    }

    /// The outputs, with the names that an interface says the model must have for them.
    pub(super) fn wanted_outputs(&self) -> Vec<(TensorId, Option<SmolStr>)> {
        let names = self.options.interface.map(|interface| &interface.outputs);
        let wanted = |at: usize| names.and_then(|outputs| outputs.get(at)).map(|output| output.name.clone());
        self.graph.outputs.iter().enumerate().map(|(at, id)| (*id, wanted(at))).collect()
    }

    /// What the model declares. Defaults become initializers.
    pub(super) fn signature(&mut self, outputs: &[(SmolStr, TensorId)]) -> Result<Signature, ExportError> {
        let graph = self.graph;
        let declared = |name: &str, id: TensorId| value_info(name, graph.tensor(id));
        let outputs = outputs.iter().map(|(name, id)| declared(name, *id)).collect::<Result<_, _>>()?;
        let Some(interface) = self.options.interface else {
            let inputs = self.inputs.iter().map(|(name, id)| declared(name, *id)).collect::<Result<_, _>>()?;
            return Ok(Signature { inputs, outputs });
        };
        let written: HashMap<&str, TensorId> = self.inputs.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let parameters: HashSet<&str> = graph.parameters().map(|id| graph.tensor(id).name.as_str()).collect();
        let mut inputs = Vec::with_capacity(written.len());
        let mut declared_names: HashSet<&str> = HashSet::new();
        for input in &interface.inputs {
            let name = input.name.as_deref().unwrap_or_default();
            match written.get(name) {
                Some(id) => inputs.push(value_info(name, graph.tensor(*id))?),
                // A parameter with content is an initializer.
                None if parameters.contains(name) => continue,
                // Of a type that graphs do not have, so that nothing reads it.
                None => inputs.push(input.clone()),
            }
            declared_names.insert(name);
        }
        for (name, id) in self.inputs.iter().filter(|(name, _)| !declared_names.contains(name.as_str())) {
            inputs.push(value_info(name, graph.tensor(*id))?);
        }
        for (name, content) in &interface.defaults {
            let failed = |what| ExportError::Content { name: name.to_string(), what };
            if written.contains_key(name.as_str()) {
                self.builder.store(name.clone(), content).map_err(failed)?;
            }
        }
        Ok(Signature { inputs, outputs })
    }
}

fn value_info(name: &str, tensor: &Tensor) -> Result<ValueInfoProto, ExportError> {
    let ty = type_proto(&tensor.ty).map_err(|_| type_error(tensor))?;
    Ok(ValueInfoProto { name: Some(name.to_string()), r#type: Some(ty) })
}
