//! The plans in a plan file: one, or one for each of several bindings of the model. A file with one plan is the plan itself.

use serde::{Deserialize, Serialize};

use super::{
    file::{Plan, PlanFileError, VERSION},
    table::{self, PlanRow},
};
use edgecut_ops::passes::bindings::{Binding, MAX_BINDINGS};

/// At least one plan, all for the same model with different bindings.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanSet(Vec<Plan>);

impl From<Plan> for PlanSet {
    fn from(plan: Plan) -> PlanSet {
        PlanSet(vec![plan])
    }
}

/// A file of several plans.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    plans: Vec<Plan>,
}

impl PlanSet {
    /// The plans of one model, in the order of its bindings.
    ///
    /// # Errors
    /// If there is none, there are more than [`MAX_BINDINGS`], models differ, or two have the same binding.
    pub fn new(plans: Vec<Plan>) -> Result<PlanSet, PlanFileError> {
        let wrong = |what: String| Err(PlanFileError::Inconsistent(what));
        let Some(first) = plans.first() else { return wrong("it has no plans".to_string()) };
        if plans.len() > MAX_BINDINGS {
            return wrong(format!("it has {} plans; at most {MAX_BINDINGS} are read", plans.len()));
        }
        if let Some(other) = plans.iter().find(|plan| plan.model.blake3 != first.model.blake3) {
            return wrong(format!("it has plans for different models: {} and {}", first.model.path, other.model.path));
        }
        let bindings: Vec<String> = plans.iter().map(|plan| plan.model.binding().to_string()).collect();
        if let Some((at, twice)) = bindings.iter().enumerate().find(|(at, binding)| bindings[..*at].contains(binding)) {
            return wrong(format!("plan {at} has the same sizes as an earlier one: `{twice}`"));
        }
        Ok(PlanSet(plans))
    }

    /// Reads a plan file.
    ///
    /// # Errors
    /// Those of [`Plan::from_json`] for each plan, and of [`PlanSet::new`].
    pub fn from_json(text: &[u8]) -> Result<PlanSet, PlanFileError> {
        match Plan::from_json(text) {
            Ok(plan) => Ok(PlanSet::from(plan)),
            Err(PlanFileError::Several { .. }) => {
                let File { plans, .. } = serde_json::from_slice(text)?;
                if let Some(other) = plans.iter().find(|plan| plan.version != VERSION) {
                    return Err(PlanFileError::Version { found: other.version.into() });
                }
                plans.iter().try_for_each(Plan::check)?;
                PlanSet::new(plans)
            }
            Err(error) => Err(error),
        }
    }

    /// # Errors
    /// If a plan cannot be serialised.
    pub fn to_json(&self) -> Result<String, PlanFileError> {
        match &self.0[..] {
            [plan] => plan.to_json(),
            plans => Ok(serde_json::to_string_pretty(&File { version: VERSION, plans: plans.to_vec() })? + "\n"),
        }
    }

    /// The rows of all plans as CSV with a header; with several plans, there is a column with the binding.
    ///
    /// # Errors
    /// If a row cannot be serialised.
    pub fn to_csv(&self) -> Result<String, csv::Error> {
        let of = |plan| {
            let binding = self.binding_of(plan).map_or(String::new(), |binding| binding.to_string());
            table::rows(plan).into_iter().map(move |row| PlanRow { binding: binding.clone(), ..row })
        };
        table::to_csv(self.0.iter().flat_map(of))
    }

    pub fn plans(&self) -> &[Plan] {
        &self.0
    }

    /// The binding of `plan`, if there are several plans.
    pub fn binding_of(&self, plan: &Plan) -> Option<Binding> {
        (self.0.len() > 1).then(|| plan.model.binding())
    }

    /// The plans whose binding `is_chosen`.
    ///
    /// # Errors
    /// If there is none.
    pub fn chosen(self, is_chosen: impl Fn(&Binding) -> bool) -> Result<PlanSet, PlanFileError> {
        let bindings = self.bindings();
        let plans: Vec<Plan> = self.0.into_iter().filter(|plan| is_chosen(&plan.model.binding())).collect();
        if plans.is_empty() { Err(PlanFileError::NotChosen { bindings }) } else { Ok(PlanSet(plans)) }
    }

    /// The only plan.
    ///
    /// # Errors
    /// If there are several.
    pub fn only(mut self) -> Result<Plan, PlanFileError> {
        match self.0.pop() {
            Some(plan) if self.0.is_empty() => Ok(plan),
            last => {
                self.0.extend(last);
                Err(PlanFileError::Several { count: self.0.len(), bindings: self.bindings() })
            }
        }
    }

    /// All bindings as text for messages.
    pub fn bindings(&self) -> String {
        Binding::list(self.0.iter().map(|plan| plan.model.binding()))
    }
}
