//! Plans that stay loaded on their agents and compute inputs as they come: what a session of `edgecut.InferenceSession` calls.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use edgecut_graph::{DType, TensorData};
use edgecut_plan::Plan;
use edgecut_session::{
    Deployed, Error, Events, Model, ModelOptions, RunOptions, SiteOptions,
    option_values::read as read_options,
    run::planned::{PlanSource, PlannedModel},
};
use pyo3::{prelude::*, pybacked::PyBackedBytes};

use crate::{
    errors::{bug, exception},
    tensor::Tensor,
    work::light_work,
};

/// A loaded plan. When it is dropped, its agents unload it.
#[pyclass(frozen, module = "edgecut._edgecut")]
pub struct NativeDeployment(Deployed);

/// An input: its name, the type of its elements, its sizes, its elements row by row and little-endian.
type Input = (String, String, Vec<u64>, PyBackedBytes);

#[pymethods]
impl NativeDeployment {
    /// The names, types and sizes of the inputs.
    #[getter]
    fn inputs(&self) -> Vec<(String, String, Vec<Option<u64>>)> {
        let sizes = |ty: &edgecut_graph::TensorType| ty.shape.iter().map(|dim| dim.get()).collect();
        self.0.inputs().map(|(name, ty)| (name.to_string(), ty.dtype.to_string(), sizes(ty))).collect()
    }

    /// The model's outputs for `inputs`, in order. Other threads of Python go on meanwhile; of several callers, each waits for
    /// those before.
    fn run(&self, py: Python<'_>, inputs: Vec<Input>) -> PyResult<Vec<Tensor>> {
        let tensor = |(name, dtype, shape, bytes): Input| {
            let dtype: DType = dtype.parse().map_err(bug)?;
            Ok((name, TensorData::new(dtype, shape, Bytes::from_owner(bytes)).map_err(bug)?))
        };
        let tensors: Vec<(String, TensorData)> = inputs.into_iter().map(tensor).collect::<PyResult<_>>()?;
        let outputs = py.detach(|| {
            let inputs: BTreeMap<&str, TensorData> =
                tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
            self.0.run(&inputs)
        });
        Ok(outputs.map_err(|error| exception(py, &error))?.into_iter().map(Tensor).collect())
    }
}

/// A plan, and where what it names is.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PlanPlaces {
    /// The plan, as JSON.
    text: Vec<u8>,
    /// Its file.
    path: PathBuf,
    /// Its model, if it is not where the plan says.
    model: Option<PathBuf>,
    /// Options, as JSON.
    options: String,
    site: String,
}

impl PlanPlaces {
    fn open(&self, events: &Events) -> Result<PlannedModel, Error> {
        let (options, site): (ModelOptions, SiteOptions) = (read_options(&self.options)?, read_options(&self.site)?);
        let source = PlanSource { path: &self.path, text: &self.text, model: self.model.as_deref() };
        let planned = PlannedModel::open(source, &options, &site, &RunOptions::default(), events)?;
        match planned.plan.model.states.first() {
            None => Ok(planned),
            Some(state) => {
                let what = format!("the plan keeps `{}` on its agents, as a state: run it by `generate`", state.input);
                Err(Error::BadInput(what.into()))
            }
        }
    }
}

/// Loads a plan on its agents.
#[pyfunction]
pub fn deploy_plan(py: Python<'_>, plan: PlanPlaces, progress: Option<Py<PyAny>>) -> PyResult<NativeDeployment> {
    let deployed = light_work(py, progress, move |events| {
        let planned = plan.open(events)?;
        planned.site.deploy(&planned.model, &planned.plan).map(Deployed::detached)
    });
    deployed.map(NativeDeployment)
}

/// A plan like this one for the servers that answer now, from the profiles in the folder `profiles`, as JSON.
#[pyfunction]
pub fn replan(py: Python<'_>, plan: PlanPlaces, profiles: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let plan: Plan = light_work(py, progress, move |events| plan.open(events)?.replan(Path::new(&profiles)))?;
    plan.to_json().map_err(bug)
}

/// The inputs of the model at `path` whose contents decide branches or sizes. A model that it returns can be planned.
#[pyfunction]
pub fn deciding_inputs(
    py: Python<'_>,
    path: PathBuf,
    options: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    light_work(py, progress, move |_| {
        let model = Model::open(&path, &read_options(&options)?)?;
        model.check_sizes()?;
        Ok(model.deciding.iter().map(ToString::to_string).collect())
    })
}
