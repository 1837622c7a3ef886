//! What a plan optimises.

use std::str::FromStr;

use edgecut_plan::problem::Objective;

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanObjective {
    /// Of one inference; of a decoder, of a step of one token.
    Inference(Objective),
    /// The time from the start of a prompt to the first token.
    FirstToken,
}

impl PlanObjective {
    /// What a search optimises, in the phase that the objective is of.
    pub(crate) fn of_search(self) -> Objective {
        match self {
            PlanObjective::Inference(objective) => objective,
            PlanObjective::FirstToken => Objective::Latency,
        }
    }
}

impl Default for PlanObjective {
    fn default() -> PlanObjective {
        Objective::default().into()
    }
}

impl From<Objective> for PlanObjective {
    fn from(objective: Objective) -> PlanObjective {
        PlanObjective::Inference(objective)
    }
}

impl FromStr for PlanObjective {
    type Err = String;

    fn from_str(text: &str) -> Result<PlanObjective, String> {
        match text {
            "first-token" => Ok(PlanObjective::FirstToken),
            text => text.parse().map(PlanObjective::Inference).map_err(|_| {
                format!("`{text}` is not an objective: expected latency, throughput, memory, energy or first-token")
            }),
        }
    }
}
