//! A model on the cluster: its plan, which stays loaded on the agents, and what happens when one of them is lost.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use edgecut_graph::{TensorData, TensorId};
use edgecut_plan::Plan;
use edgecut_session::{
    Deployed, Error as SessionError, Events, Model, Profiles, RunOptions, Site, output,
    run::planned::{PlanSource, PlannedModel},
};

use crate::{error::Error, settings::Settings};

/// The stack of threads that plan: as that of the command line.
const STACK: usize = 8 << 20;

/// Attempts per call. More than two, because the failure of a concurrent call also ends the plan that this call runs.
const ATTEMPTS: usize = 3;

/// A model whose plan is loaded.
pub struct Placement {
    planned: PlannedModel,
    profile: PathBuf,
    current: Mutex<Current>,
}

/// The plan in use, which differs from that of the session once an agent was lost.
struct Current {
    plan: Plan,
    /// `None` from the loss of an agent until a plan is loaded again.
    deployed: Option<Arc<Deployed>>,
}

impl Placement {
    /// Loads the plan of the model in `file`, which is made if there is none.
    ///
    /// # Errors
    /// If the model or the plan cannot be used, or an agent does not answer.
    pub fn of(file: &Path, settings: &Settings) -> Result<Placement, Error> {
        on_deep_stack(|| {
            let (path, text) = plan(file, settings)?;
            let source = PlanSource { path: &path, text: &text, model: Some(file) };
            let (options, site) = (settings.model_options(), settings.site_options());
            let mut planned = PlannedModel::open(source, &options, &site, &RunOptions::default(), &Events::default())?;
            if let Some(state) = planned.plan.model.states.first() {
                let what = "on its agents, but a session passes states in and out: set option `plan` to a new file";
                return Err(Error::Refused(format!("{}: the plan keeps `{}` {what}", path.display(), state.input)));
            }
            if let Some(input) = planned.model.deciding.first() {
                let what = "determines branches or sizes, which a plan fixes";
                return Err(Error::Model(format!("{}: input `{input}` {what}", file.display())));
            }
            let outputs = planned.model.interface.as_ref().map_or(0, |interface| interface.outputs().count());
            if outputs != planned.model.graph().outputs.len() {
                return Err(Error::Model(format!("{}: an output is no tensor", file.display())));
            }
            planned.model.states.clear();
            let deployed = planned.site.deploy(&planned.model, &planned.plan)?;
            let current = Current { plan: planned.plan.clone(), deployed: Some(Arc::new(deployed)) };
            Ok(Placement { planned, profile: settings.profile.clone(), current: Mutex::new(current) })
        })
    }

    /// The names of the inputs that the plan reads.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let graph = self.planned.model.graph();
        let consumers = graph.consumers();
        let is_read = move |id: &TensorId| !consumers[id.0 as usize].is_empty() || graph.outputs.contains(id);
        graph.inputs().filter(is_read).map(|id| graph.tensor(id).name.as_str())
    }

    /// The names of the outputs as the file of the model has them, in order.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.planned.model.interface.iter().flat_map(|interface| interface.outputs())
    }

    /// The outputs of the model, in its order. If an agent is lost, those that are left go on by another plan.
    ///
    /// # Errors
    /// If an input does not fit, or no agents are left that can go on.
    pub fn run(&self, inputs: &BTreeMap<&str, TensorData>) -> Result<Vec<TensorData>, Error> {
        let mut attempts = 1;
        loop {
            // Whatever keeps a plan from being loaded again is a consequence of the loss, not of the call's inputs.
            let deployed = self.deployed().map_err(Error::of_loss)?;
            match deployed.run(inputs) {
                Err(SessionError::Agent(_) | SessionError::Failed(_)) if attempts < ATTEMPTS => self.lose(&deployed),
                done => return Ok(done?),
            }
            attempts += 1;
        }
    }

    fn lose(&self, lost: &Arc<Deployed>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Another call may have loaded the next plan.
        if current.deployed.as_ref().is_some_and(|deployed| Arc::ptr_eq(deployed, lost)) {
            current.deployed = None;
        }
    }

    /// The loaded plan; if there is none, the last one is loaded again, or one for the agents that answer.
    fn deployed(&self) -> Result<Arc<Deployed>, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(deployed) = &current.deployed {
            return Ok(deployed.clone());
        }
        let PlannedModel { site, model, .. } = &self.planned;
        let (plan, loaded) = on_deep_stack(|| match site.deploy(model, &current.plan) {
            Err(SessionError::Agent(_) | SessionError::Failed(_)) => {
                let plan = self.planned.replan(&self.profile)?;
                let loaded = site.deploy(model, &plan)?;
                Ok((Some(plan), loaded))
            }
            done => Ok((None, done?)),
        })?;
        if let Some(plan) = plan {
            current.plan = plan;
        }
        Ok(current.deployed.insert(Arc::new(loaded)).clone())
    }
}

/// The plan file of the session, and its content. A plan that is made is written there, if nothing was meanwhile.
fn plan(model: &Path, settings: &Settings) -> Result<(PathBuf, Vec<u8>), Error> {
    let read = |path: &Path| fs::read(path).map_err(|error| Error::Refused(format!("{}: {error}", path.display())));
    let Some(path) = &settings.plan else { return Ok(("plan.json".into(), made(model, settings)?)) };
    if path.exists() || settings.cluster.is_none() {
        return Ok((path.clone(), read(path)?));
    }
    output::check_writable(path)?;
    let made = made(model, settings)?;
    if !path.exists() {
        output::write(path, &made)?;
    }
    Ok((path.clone(), made))
}

/// A new plan, as JSON.
fn made(model: &Path, settings: &Settings) -> Result<Vec<u8>, Error> {
    let mut model = Model::open(model, &settings.model_options())?;
    // The caller passes states from one call to the next.
    model.states.clear();
    let site = Site::open(&settings.site_options(), &Events::default())?;
    let plan = site.plan(&model, &Profiles::in_folder(&settings.profile), &settings.plan_options)?;
    plan.to_json().map(String::into_bytes).map_err(|error| Error::Refused(error.to_string()))
}

/// Does `work` on a thread with a stack for it: the caller's may be small.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let failed = |error: std::io::Error| Error::Refused(format!("no thread can be started: {error}"));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("edgecut".into()).stack_size(STACK).spawn_scoped(scope, work);
        thread.map_err(failed)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
