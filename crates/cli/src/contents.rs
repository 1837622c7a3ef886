//! Where the contents of a model's inputs and parameters come from on the command line.

use std::{collections::BTreeMap, path::Path};

use miette::Report;
use smol_str::SmolStr;

use super::{
    Failure,
    kind::{self, Kind},
};
use edgecut_engine::EngineError;
use edgecut_graph::{Dim, Graph, Origin, Tensor, TensorData, TensorId, TensorType};
use edgecut_ops::passes::index_ranges::{ValueRange, index_ranges};
use edgecut_relay::Params;
use edgecut_values::{SeedError, read_npz, seeded, seeded_within};

/// The arrays of an `--inputs` file.
#[derive(Clone, Default)]
pub struct Given(BTreeMap<String, TensorData>);

impl Given {
    /// Reads the `inputs` file, if there is one.
    pub fn open(inputs: Option<&Path>) -> Result<Given, Failure> {
        let Some(path) = inputs else { return Ok(Given::default()) };
        let given = read_npz(path).map_err(|error| match std::fs::read(path) {
            Ok(bytes) if !bytes.starts_with(b"PK") => {
                kind::instead(path, &bytes, Kind::Npz, "expected an .npz file, as `numpy.savez` writes them")
            }
            _ => Failure::bad_input(error),
        })?;
        let is_foreign = |name: &&String| !name.starts_with("in_") && !name.starts_with("out_");
        let names = || given.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let what = match given.keys().find(is_foreign) {
            Some(name) => format!("array `{name}` is for nothing: the content of an input `x` is called `in_x`"),
            None if !given.is_empty() && given.keys().all(|name| !name.starts_with("in_")) => {
                format!("it has no array `in_…` for an input, only {}", names())
            }
            None => return Ok(Given(given)),
        };
        Err(Failure::BadInput(Report::msg(format!("{}: {what}", path.display()))))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The array for the tensor `name`.
    pub fn get(&self, name: &str) -> Option<&TensorData> {
        self.0.get(&format!("in_{name}"))
    }
}

/// Of a constant the model's; else the `.npz` file, else the `.params` file, else generated from the name: indices and lengths
/// within their ranges.
pub struct Contents<'a> {
    graph: &'a Graph,
    given: Given,
    params: &'a Params,
    /// By name: what the generated content of an input must lie within.
    ranges: BTreeMap<SmolStr, ValueRange>,
}

impl<'a> Contents<'a> {
    /// The contents of `graph`. Checks that every array of `given` is for a tensor that the model declares.
    pub fn new(graph: &'a Graph, given: Given, params: &'a Params) -> Result<Contents<'a>, Failure> {
        let declared: Vec<String> =
            graph.inputs().chain(graph.parameters()).map(|id| format!("in_{}", graph.tensor(id).name)).collect();
        for name in given.0.keys().filter(|name| name.starts_with("in_")) {
            if !declared.contains(name) {
                let error = EngineError::Other(format!(
                    "the inputs file has an array `{name}`, but the model declares no %{}; it declares {}",
                    &name["in_".len()..],
                    declared.iter().take(8).map(|d| d.as_str()).collect::<Vec<_>>().join(", ")
                ));
                return Err(Failure::bad_input(error));
            }
        }
        for id in graph.inputs().chain(graph.parameters()) {
            let tensor = graph.tensor(id);
            let data = given.get(&tensor.name).or_else(|| params.get(&tensor.name));
            if let Some(data) = data.filter(|data| !fits(&data.ty(), &tensor.ty)) {
                let what = format!("the model declares {}, {} was given", tensor.ty, data.ty());
                return Err(Failure::bad_input(EngineError::Tensor { name: tensor.name.to_string(), what }));
            }
        }
        Ok(Contents { graph, given, params, ranges: BTreeMap::new() })
    }

    /// The same with generated indices and lengths that are valid in `whole`, the model that the graph is made of.
    pub fn within_ranges_of(mut self, whole: &Graph) -> Contents<'a> {
        let ranges = index_ranges(whole).into_iter();
        self.ranges = ranges.map(|(id, range)| (whole.tensor(id).name.clone(), range)).collect();
        self
    }

    /// The content of one tensor.
    pub fn of(&self, id: TensorId) -> Result<TensorData, EngineError> {
        self.of_tensor(self.graph.tensor(id))
    }

    /// The content of a tensor of this graph, or of one of the same name in a graph that computes the same.
    pub fn of_tensor(&self, tensor: &Tensor) -> Result<TensorData, EngineError> {
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
        match self.ranges.get(&tensor.name) {
            Some(range) => seeded_within(&tensor.name, &tensor.ty, *range),
            None => seeded(&tensor.name, &tensor.ty),
        }
    }

    /// The contents that do not follow from names and types alone, by name.
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
        self.given.get(name).or_else(|| self.params.get(name))
    }

    /// The contents of all inputs, in order.
    pub fn inputs(&self) -> Result<Vec<TensorData>, EngineError> {
        self.graph.inputs().map(|id| self.of(id)).collect()
    }
}

/// Whether content of type `found` can be that of a tensor of type `wanted`, whose dimensions may be unknown.
fn fits(found: &TensorType, wanted: &TensorType) -> bool {
    let same = |(found, wanted): (&Dim, &Dim)| wanted.get().is_none() || found == wanted;
    found.dtype == wanted.dtype
        && found.shape.rank() == wanted.shape.rank()
        && found.shape.iter().zip(wanted.shape.iter()).all(same)
}

/// A tensor that does not fit is bad input; all else failed while running.
pub fn engine_failure(error: EngineError) -> Failure {
    match error {
        EngineError::Tensor { .. } | EngineError::Unsupported(_) => Failure::bad_input(error),
        _ => Failure::failed(error),
    }
}
