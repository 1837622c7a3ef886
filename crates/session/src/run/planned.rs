//! What a plan file names: the plan for given inputs, its model, its cluster.

use std::path::{Path, PathBuf};

use edgecut_cluster::Cluster;
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::Plan;

use super::{
    binding::{BindingChoice, ChosenBinding},
    execution::{MeasuredRun, RunSource},
    options::RunOptions,
};
use crate::{Error, Events, Model, ModelOptions, Site, SiteOptions, cluster::read_cluster, input::resolve, plan_file};

/// A plan of a file, with its model and its cluster.
pub struct PlannedModel {
    pub plan: Plan,
    pub model: Model,
    /// The servers that the plan is for.
    pub site: Site,
    file: PathBuf,
    binding: ChosenBinding,
}

/// Where a plan and what it names are.
#[derive(Debug, Clone, Copy)]
pub struct PlanSource<'a> {
    /// The plan's file: what the plan names is looked for from there.
    pub path: &'a Path,
    /// The content of the file.
    pub text: &'a [u8],
    /// The plan's model, if it is not where the plan says.
    pub model: Option<&'a Path>,
}

impl PlannedModel {
    /// The plan of `source`, of several plans the one whose binding the shapes of the inputs select; with its model and the
    /// cluster that it was made for, or the one of `site`. Where options of the model are not given, it is read as for the
    /// plan.
    ///
    /// # Errors
    /// If it is no plan file, no plan fits the inputs, or the model or the cluster file cannot be read.
    pub fn open(
        source: PlanSource<'_>,
        model: &ModelOptions,
        site: &SiteOptions,
        run: &RunOptions,
        events: &Events,
    ) -> Result<PlannedModel, Error> {
        let plans = plan_file::chosen(source.path, source.text, model)?;
        let (path, options) = source.model_of(&plans.plans()[0], model);
        let mut bindings: Vec<Binding> = plans.plans().iter().map(|plan| plan.model.binding()).collect();
        if let [only] = &mut bindings[..] {
            // Options may override the sizes of a single plan.
            *only = options.binding()?;
        }
        let choice = BindingChoice { model: &path, options: &options, bindings: &bindings, events };
        let binding = choice.choose(run.pad_inputs)?;
        let plan = plans.plans()[binding.at].clone();
        let (path, options) = source.model_of(&plan, model);
        let model = binding.open(&path, &options)?;
        events.notices(&model.notices);
        let site = Site::of(source.cluster_of(&plan, site, events)?, site, events)?;
        Ok(PlannedModel { plan, model, site, file: source.path.to_path_buf(), binding })
    }

    /// Runs the plan; `each` gets what was measured, of one plan after the other where agents are lost.
    ///
    /// # Errors
    /// As [`Site::run`], and those of `each`.
    pub fn run(
        &self,
        options: &RunOptions,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let about = RunSource { name: &self.file.display().to_string(), binding: &self.binding };
        self.site.run_plan(&self.model, &self.plan, about, options, each)
    }
}

impl PlanSource<'_> {
    /// Where the model of the plan is, and how to read it.
    fn model_of(&self, plan: &Plan, options: &ModelOptions) -> (PathBuf, ModelOptions) {
        let path = self.model.map_or_else(|| resolve(self.path, &plan.model.path), Path::to_path_buf);
        (path, options.for_plan(self.path, &plan.model))
    }

    /// The cluster that the plan was made for, or the one that is named instead.
    fn cluster_of(&self, plan: &Plan, site: &SiteOptions, events: &Events) -> Result<Cluster, Error> {
        let cluster = match (&site.cluster, &plan.cluster) {
            (Some(path), _) => read_cluster(path, events)?,
            (None, Some(path)) => read_cluster(&resolve(self.path, path), events)?,
            (None, None) => Cluster::embedded(),
        };
        Ok(Cluster { wait: site.wait, ..cluster })
    }
}
