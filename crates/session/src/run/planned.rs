//! What a plan file names: the plan for the given inputs, its model, and its cluster.

use std::path::{Path, PathBuf};

use edgecut_agent::Cluster;
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::Plan;

use super::{
    binding::{BindingChoice, ChosenBinding},
    execution::{MeasuredRun, RunSource, check_hash, check_model},
    options::RunOptions,
    replan::replan,
};
use crate::{
    Error, Events, Model, ModelOptions, Site, SiteOptions,
    cluster::read_cluster,
    input::{self, resolve},
    plan_file,
};

/// A plan from a file, with its model and its cluster.
pub struct PlannedModel {
    pub plan: Plan,
    pub model: Model,
    /// The servers that the plan is for.
    pub site: Site,
    file: PathBuf,
    binding: ChosenBinding,
}

/// A plan file, and where to find its model.
#[derive(Debug, Clone, Copy)]
pub struct PlanSource<'a> {
    /// The path of the plan file. Relative paths in the plan are also resolved from its folder.
    pub path: &'a Path,
    /// The content of the plan file.
    pub text: &'a [u8],
    /// The path of the model, if it is not where the plan says.
    pub model: Option<&'a Path>,
}

impl PlannedModel {
    /// Opens the plan of `source` with its model and its cluster. Of several plans, the shapes of the inputs select
    /// one. The cluster is the one of `site`, or the one that the plan was made for. Model options that are not given
    /// are those of the plan.
    ///
    /// # Errors
    /// If the file is not a plan, no plan fits the inputs, or the model or the cluster file cannot be read.
    pub fn open(
        source: PlanSource<'_>,
        model: &ModelOptions,
        site: &SiteOptions,
        run: &RunOptions,
        events: &Events,
    ) -> Result<PlannedModel, Error> {
        run.check()?;
        let plans = plan_file::select(source.path, source.text, model)?;
        let (path, options) = source.model_of(&plans.plans()[0], model);
        let mut bindings: Vec<Binding> = plans.plans().iter().map(|plan| plan.model.binding()).collect();
        if let [only] = &mut bindings[..] {
            // Options may override the sizes of a single plan.
            *only = options.binding()?;
        }
        let choice =
            BindingChoice { model: &path, options: &options, bindings: &bindings, returns_states: false, events };
        let binding = choice.choose(run.pad_inputs)?;
        let plan = plans.plans()[binding.at].clone();
        let (path, options) = source.model_of(&plan, model);
        let model = binding.open(&path, &options).map_err(|error| of_other_model(&path, &plan).unwrap_or(error))?;
        events.notices(&model.notices);
        check_model(&model, &plan)?;
        let site = Site::of(source.cluster_of(&plan, site, events)?, site, events)?;
        Ok(PlannedModel { plan, model, site, file: source.path.to_path_buf(), binding })
    }

    /// A plan with the same objective, limits and rules for the servers that answer now, from the profiles in `folder`.
    ///
    /// # Errors
    /// If the server of the inputs or of the results does not answer, profiles are missing, or no plan meets the limits.
    pub fn replan(&self, folder: &Path) -> Result<Plan, Error> {
        let (Site { cluster, runtime, events, .. }, may_split) = (&self.site, !self.plan.splits.is_empty());
        runtime.block_on(replan(events, folder, &self.model, &self.plan, cluster, may_split))
    }

    /// Runs the plan, and calls `each` with the measurements. If agents are lost and other plans continue, `each` is
    /// called once for each plan with results.
    ///
    /// # Errors
    /// As of [`Site::run`], and those of `each`.
    pub fn run(
        &self,
        options: &RunOptions,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let about = RunSource { name: &self.file.display().to_string(), binding: &self.binding };
        self.site.run_plan(&self.model, &self.plan, about, options, each)
    }
}

/// The error that the file at `path` is not the one that `plan` was made for: its states and sizes are then another model's.
fn of_other_model(path: &Path, plan: &Plan) -> Option<Error> {
    let hash = blake3::hash(&input::read(path).ok()?).to_hex();
    check_hash(path, hash.as_str(), plan).err()
}

impl PlanSource<'_> {
    /// The path of the plan's model, and the options for reading it.
    fn model_of(&self, plan: &Plan, options: &ModelOptions) -> (PathBuf, ModelOptions) {
        let path = self.model.map_or_else(|| resolve(self.path, &plan.model.path), Path::to_path_buf);
        (path, options.for_plan(self.path, &plan.model))
    }

    /// The cluster that `site` names, or the one that the plan was made for.
    fn cluster_of(&self, plan: &Plan, site: &SiteOptions, events: &Events) -> Result<Cluster, Error> {
        let cluster = match (&site.cluster, &plan.cluster) {
            (Some(path), _) => read_cluster(path, events)?,
            (None, Some(path)) => read_cluster(&resolve(self.path, path), events)?,
            (None, None) => Cluster::embedded(),
        };
        Ok(Cluster { wait: site.wait, ..cluster })
    }
}
