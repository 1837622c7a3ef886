//! Contents of a model's inputs and parameters.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::given::Given;
use crate::Error;
use edgecut_engine::EngineError;
use edgecut_graph::{Graph, Origin, StatePair, Tensor, TensorData, TensorId, TensorType};
use edgecut_ops::passes::index_ranges::{ValueRange, index_ranges};
use edgecut_relay::Params;
use edgecut_values::{SeedError, seeded, seeded_within};

/// The contents of a graph's tensors. A constant has its content in the model. Other contents come from the `.npz`
/// file, else from the `.params` file, else they are generated from the name.
pub struct Contents<'a> {
    graph: &'a Graph,
    given: Given,
    params: &'a Params,
    /// The ranges of generated contents, by name.
    ranges: BTreeMap<SmolStr, ValueRange>,
    /// The contents of a decoder's inputs in a certain step.
    step_inputs: BTreeMap<SmolStr, TensorData>,
    /// Inputs that are states at the beginning of a sequence, which are zeros.
    states: BTreeSet<SmolStr>,
}

impl<'a> Contents<'a> {
    /// The contents of `graph`. Checks that the model declares a tensor of the right type for every array in `given`.
    pub fn new(graph: &'a Graph, given: Given, params: &'a Params) -> Result<Contents<'a>, Error> {
        let declared: Vec<String> =
            graph.inputs().chain(graph.parameters()).map(|id| format!("in_{}", graph.tensor(id).name)).collect();
        for name in given.names() {
            if !declared.iter().any(|known| known == name) {
                let error = EngineError::Other(format!(
                    "the inputs file has an array `{name}`, but the model declares no %{}; it declares {}",
                    &name["in_".len()..],
                    declared.iter().take(8).map(|d| d.as_str()).collect::<Vec<_>>().join(", ")
                ));
                return Err(Error::bad_input(error));
            }
        }
        for id in graph.inputs().chain(graph.parameters()) {
            let tensor = graph.tensor(id);
            let params = || params.get(&tensor.name).map(TensorData::ty);
            if let Some(found) = given.ty(&tensor.name).cloned().or_else(params) {
                check_type(tensor, &found).map_err(Error::bad_input)?;
            }
        }
        given.check()?;
        Ok(Contents {
            graph,
            given,
            params,
            ranges: BTreeMap::new(),
            step_inputs: BTreeMap::new(),
            states: BTreeSet::new(),
        })
    }

    /// The same contents, with generated indices and lengths that are valid in `whole`, the model that the graph was
    /// made from.
    pub(crate) fn within_ranges_of(mut self, whole: &Graph) -> Contents<'a> {
        let ranges = index_ranges(whole).into_iter();
        self.ranges = ranges.map(|(id, range)| (whole.tensor(id).name.clone(), range)).collect();
        self
    }

    /// The same contents, with generated contents of these tensors in `ranges`.
    pub(super) fn within(mut self, ranges: &[(SmolStr, ValueRange)]) -> Contents<'a> {
        self.ranges.extend(ranges.iter().cloned());
        self
    }

    /// The same contents, with `inputs` of a step where no file gives others.
    pub(super) fn of_step(mut self, inputs: &BTreeMap<SmolStr, TensorData>) -> Contents<'a> {
        self.step_inputs.clone_from(inputs);
        self
    }

    /// The same contents at the beginning of a sequence of `states`, whose inputs are zeros.
    ///
    /// # Errors
    /// If a content of one is given.
    pub(crate) fn beginning(mut self, states: &[StatePair]) -> Result<Contents<'a>, Error> {
        if let Some(state) = states.iter().find(|state| self.find(&state.input).is_some()) {
            return Err(given_state(&state.input));
        }
        self.states = states.iter().map(|state| state.input.clone()).collect();
        Ok(self)
    }

    /// The content of one tensor.
    pub fn of(&self, id: TensorId) -> Result<TensorData, EngineError> {
        self.of_tensor(self.graph.tensor(id))
    }

    /// The content of a tensor of this graph, or of the tensor of the same name in an equivalent graph.
    pub(crate) fn of_tensor(&self, tensor: &Tensor) -> Result<TensorData, EngineError> {
        let name = tensor.name.as_str();
        if let Origin::Constant(data) = &tensor.origin {
            return Ok(data.clone());
        }
        if let Some(data) = self.find(name) {
            return Ok(data.clone());
        }
        self.generated(tensor).map_err(|e| EngineError::Tensor { name: name.to_string(), what: e.to_string() })
    }

    fn generated(&self, tensor: &Tensor) -> Result<TensorData, SeedError> {
        if self.states.contains(&tensor.name)
            && let Some(zeros) = TensorData::zeros(&tensor.ty)
        {
            return Ok(zeros);
        }
        match self.ranges.get(&tensor.name) {
            Some(range) => seeded_within(&tensor.name, &tensor.ty, *range),
            None => seeded(&tensor.name, &tensor.ty),
        }
    }

    /// The contents that cannot be generated from names and types alone, by name.
    pub fn given(&self) -> BTreeMap<SmolStr, TensorData> {
        let tensors = self.graph.inputs().chain(self.graph.parameters()).map(|id| self.graph.tensor(id));
        let content = |tensor: &Tensor| match self.find(&tensor.name) {
            Some(data) => Some(data.clone()),
            None if self.ranges.contains_key(&tensor.name) => self.generated(tensor).ok(),
            None => None,
        };
        tensors.filter_map(|tensor| Some((tensor.name.clone(), content(tensor)?))).collect()
    }

    fn find(&self, name: &str) -> Option<&TensorData> {
        self.given.get(name).or_else(|| self.params.get(name)).or_else(|| self.step_inputs.get(name))
    }

    /// The contents of all inputs, in order.
    pub fn inputs(&self) -> Result<Vec<TensorData>, EngineError> {
        self.graph.inputs().map(|id| self.of(id)).collect()
    }
}

/// The error that the content of a state is given.
pub(crate) fn given_state(input: &str) -> Error {
    Error::BadInput(format!("input `{input}` is a state: it begins as zeros and cannot be given").into())
}

/// Checks that content of type `found` fits `tensor`.
///
/// # Errors
/// If it does not fit.
pub(crate) fn check_type(tensor: &Tensor, found: &TensorType) -> Result<(), EngineError> {
    match found.is_instance_of(&tensor.ty) {
        true => Ok(()),
        false => {
            let what = format!("the model declares {}, {found} was given", tensor.ty);
            Err(EngineError::Tensor { name: tensor.name.to_string(), what })
        }
    }
}

/// Converts an error of an engine. A tensor that does not fit or an unsupported operator is bad input. Other errors are
/// failures while running.
pub(crate) fn engine_error(error: EngineError) -> Error {
    match error {
        EngineError::Tensor { .. } | EngineError::Unsupported(_) => Error::bad_input(error),
        _ => Error::failed(error),
    }
}
