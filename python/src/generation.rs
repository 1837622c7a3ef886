//! Tokens of a decoder, as an iterator.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use edgecut_session::{
    Error, Events, ModelOptions, RunOptions, SiteOptions,
    option_values::read as read_options,
    run::{
        generate::{GenerateOptions, generate},
        generation::{Generation, Generations},
        planned::{PlanSource, PlannedModel},
    },
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{errors::bug, work::Work};

/// Tokens while they are generated; then their figures.
#[pyclass(frozen, module = "edgecut._edgecut")]
pub struct NativeGeneration(Mutex<State>);

struct State {
    /// Until the last token.
    work: Option<Work<Generation>>,
    /// As JSON, after the last token.
    figures: Option<String>,
}

/// Begins to generate tokens with the decoder at `path`, or with the plan that `plan` is, whose file `path` would be. Options
/// are JSON.
#[pyfunction]
pub fn begin_generation(
    path: PathBuf,
    plan: Option<Vec<u8>>,
    model: String,
    site: String,
    generation: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<NativeGeneration> {
    let work = Work::begin(progress, move |events| {
        let (model, site): (ModelOptions, SiteOptions) = (read_options(&model)?, read_options(&site)?);
        let generation: GenerateOptions = read_options(&generation)?;
        let generations = match plan {
            None => generate(&path, &model, &site, &generation, events),
            Some(plan) => generate_planned((&path, &plan), &model, &site, &generation, events),
        };
        let sequence = generations?.sequences.into_iter().next();
        sequence.ok_or_else(|| Error::Failed("nothing was generated".into()))
    })?;
    Ok(NativeGeneration(Mutex::new(State { work: Some(work), figures: None })))
}

fn generate_planned(
    (path, text): (&Path, &[u8]),
    model: &ModelOptions,
    site: &SiteOptions,
    generation: &GenerateOptions,
    events: &Events,
) -> Result<Generations, Error> {
    let source = PlanSource { path, text, model: None };
    PlannedModel::open(source, model, site, &RunOptions::default(), events)?.generate(generation)
}

#[pymethods]
impl NativeGeneration {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let mut state = self.state()?;
        let Some(work) = &mut state.work else { return Ok(None) };
        if let Some(token) = work.token(py) {
            return Ok(Some(token));
        }
        let Some(work) = state.work.take() else { return Ok(None) };
        state.figures = Some(serde_json::to_string(&work.finish(py)?).map_err(bug)?);
        Ok(None)
    }

    /// Ends the generation; its agents unload the plan.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.state()?.work.take();
        work.into_iter().for_each(|work| work.cancel(py));
        Ok(())
    }

    /// The figures, as JSON; `None` until the iterator has ended, and of a generation that was closed.
    #[getter]
    fn figures(&self) -> PyResult<Option<String>> {
        Ok(self.state()?.figures.clone())
    }
}

impl NativeGeneration {
    /// # Errors
    /// If another thread has it: to wait for that one here, with the GIL, for which it may wait, would be a deadlock.
    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        self.0.try_lock().map_err(|_| PyValueError::new_err("the generation is in use by another thread"))
    }
}
