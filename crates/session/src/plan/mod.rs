//! Plans: where each group of operators runs, in which order, and what that costs.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`], [`objective`], `no_plan` | options of a plan; errors if there is none |
//! | [`planner`] | makes a plan, a front or the effect of a move from devices, costs and rules |
//! | `phases` | plans of a decoder for tokens and prompts |
//! | `agents` | a planner that measures profiles and runs candidates on the agents of a site |
//! | [`recorded`] | a planner that reads profiles from files |

mod agents;
mod no_plan;
pub mod objective;
pub mod options;
mod phases;
pub mod planner;
pub mod recorded;

use edgecut_plan::{Plan, file::ModelRef};

use crate::{Error, Model, Profiles, Site};
use options::PlanOptions;

impl Site {
    /// Plans where the groups of `model` run. Measures what `profiles` lack, and runs candidates on the agents.
    ///
    /// # Errors
    /// If no plan satisfies the targets, the options contradict each other, an agent fails, or the call is cancelled.
    pub fn plan(&self, model: &Model, profiles: &Profiles, options: &PlanOptions) -> Result<Plan, Error> {
        Ok(self.planner(model, profiles, options)?.plan()?.plan)
    }
}

/// The reference to `model` in a plan. It includes the inputs file if its contents decided branches or sizes.
fn model_ref(model: &Model) -> Result<ModelRef, Error> {
    let (options, import) = (&model.options, &model.import);
    let inputs = options.inputs.as_ref().filter(|_| model.selected);
    if inputs.is_some() {
        // The plan names the file, and each run would refuse the content of a state.
        model.contents(&import.graph)?.beginning(&model.states)?;
    }
    Ok(ModelRef {
        path: model.path.display().to_string(),
        blake3: import.hash.clone(),
        bind_dims: options.binding()?.dims().to_vec(),
        seed_parameters: options.seed_parameters.iter().map(ToString::to_string).collect(),
        inputs: inputs.map(|inputs| inputs.display().to_string()),
        states: model.states.clone(),
    })
}
