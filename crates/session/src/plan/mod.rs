//! Plans: where each group of operators runs, in which order, and what that costs.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`], `no_plan` | what is asked of a plan; why there is none |
//! | [`planner`] | devices, costs and rules, ready for a plan, a front or a question about another plan |
//! | `agents` | a planner whose profiles are measured on the agents of a site |
//! | [`recorded`] | a planner whose profiles are files |

mod agents;
mod no_plan;
pub mod options;
pub mod planner;
pub mod recorded;

use edgecut_plan::{Plan, file::ModelRef};

use crate::{Error, Model, Profiles, Site};
use options::PlanOptions;

impl Site {
    /// Plans where the operators of `model` run. Measures what `profiles` lack, and runs candidates on the agents.
    ///
    /// # Errors
    /// If no plan satisfies the targets, the options contradict each other, an agent fails, or it is cancelled.
    pub fn plan(&self, model: &Model, profiles: &Profiles, options: &PlanOptions) -> Result<Plan, Error> {
        Ok(self.planner(model, profiles, options)?.plan()?.plan)
    }
}

/// How a plan names `model`: with the inputs that selected its branches, if they did.
fn model_ref(model: &Model) -> Result<ModelRef, Error> {
    let (options, import) = (&model.options, &model.import);
    let inputs = options.inputs.as_ref().filter(|_| model.selected);
    Ok(ModelRef {
        path: model.path.display().to_string(),
        blake3: import.hash.clone(),
        bind_dims: options.binding()?.dims().to_vec(),
        seed_parameters: options.seed_parameters.iter().map(ToString::to_string).collect(),
        inputs: inputs.map(|inputs| inputs.display().to_string()),
    })
}
