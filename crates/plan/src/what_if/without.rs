//! What each server is worth: the objective's value without it.

use std::{collections::BTreeSet, fmt};

use crate::{
    candidate::Candidate,
    request::{PlanRequest, goal::Goal, ratios::Ratios},
    split::solve::solve,
};

/// What a plan would be without one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Without {
    pub server: String,
    /// The objective's value then, over its value now; `None` where no plan meets the targets then.
    pub ratio: Option<f64>,
}

/// What the objective's value would be without each server that `candidate` uses, those of source and sink apart.
pub fn without(request: &PlanRequest<'_>, candidate: &Candidate) -> Vec<Without> {
    let network = &request.instance.network;
    let server = |device: u32| network.devices[device as usize].server.as_str();
    let used: BTreeSet<&str> =
        candidate.solution.evaluation.task_graph.tasks.iter().map(|task| server(task.device.0)).collect();
    let needed = [server(network.source.0), server(network.sink.0)];
    let spared = |name: &str| {
        let mut less = request.with_goal(Goal { ratios: Ratios::Tuned, like: None, ..request.goal.clone() });
        for row in &mut less.instance_mut().costs {
            for (device, cost) in network.devices.iter().zip(row) {
                *cost = cost.filter(|_| device.server != name);
            }
        }
        let value = solve(&less, None).ok().map(|other| other.solution.value());
        Without { server: name.to_string(), ratio: value.map(|value| value / candidate.solution.value()) }
    };
    used.into_iter().filter(|name| !needed.contains(name)).map(spared).collect()
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ratio {
            None => write!(f, "without server {} no plan was found", self.server),
            Some(ratio) if (ratio - 1.0).abs() < 5e-4 => {
                write!(f, "without server {} the plan is as good", self.server)
            }
            Some(ratio) => {
                let (percent, word) = (100.0 * (ratio - 1.0).abs(), if ratio < 1.0 { "better" } else { "worse" });
                write!(f, "without server {} the plan is {percent:.1} % {word}", self.server)
            }
        }
    }
}
