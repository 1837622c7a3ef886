//! The planner: makes plans of a model from devices, costs and rules.

use std::{collections::BTreeSet, path::PathBuf};

use edgecut_agent::{Inventory, client::Fleet, protocol::named_tensors::NamedTensors};
use edgecut_graph::DeviceName;
use edgecut_plan::{
    self as plan, Candidate, Plan, PlanRequest, Stop,
    adopt::adopted,
    broken_rule::{BrokenRule, broken_rules},
    moved::{Moved, movable, moved, targets},
    rule,
    split::front::{self, Front, Point},
    without,
};
use edgecut_profile::{CacheFlush, Sampling};

use super::options::{PlanOptions, TimeLimit};
use crate::{
    Error, Event, Events, Model, Site,
    calibrations::Calibrations,
    pilot::{PilotAgents, PilotOptions, PlanEvent, PlanningError, adopt_on_agents, plan_on_agents, rehearsed},
    request::{DeviceRows, ModelGroups, PlanSettings, RequestError, energy_warnings, shards::Shards},
    survey::DeviceProfile,
};

/// Makes plans of one model from devices, costs and rules.
pub struct Planner<'a> {
    pub(super) events: &'a Events,
    pub(super) options: &'a PlanOptions,
    pub(super) settings: PlanSettings,
    pub(super) groups: ModelGroups<'a>,
    pub(super) inventory: Inventory,
    /// Costs, by device.
    pub(super) measured: Vec<DeviceRows>,
    pub(super) calibrations: Calibrations,
    /// Notes that are added to plans.
    pub(super) notes: Vec<String>,
    /// The agents that measure and run candidates. Without them, all costs are from files.
    pub(super) agents: Option<PlanningAgents<'a>>,
}

/// The agents of a planner.
pub(super) struct PlanningAgents<'a> {
    pub site: &'a Site,
    pub model: &'a Model,
    pub fleet: Fleet,
    /// Contents that cannot be generated from names.
    pub given: NamedTensors,
    pub surveyed: Vec<DeviceProfile>,
    /// The folder of profiles.
    pub folder: PathBuf,
    pub sampling: Sampling,
}

/// A plan, with the candidate and the request that it was made from.
#[derive(Debug, Clone)]
pub struct Planned<'a> {
    pub plan: Plan,
    pub candidate: Candidate,
    /// The request with the costs that are known after the search.
    pub request: PlanRequest<'a>,
}

/// A front, with the request that it was found for.
pub struct PlannedFront<'a> {
    pub front: Front,
    pub request: PlanRequest<'a>,
    /// The error of a requested pilot run of an end of the front, if it failed.
    pub rehearsed: Result<(), Error>,
}

impl<'a> Planner<'a> {
    /// Checks, before anything is measured, that the rules name groups of the model.
    pub(super) fn check_groups(settings: &PlanSettings, groups: &ModelGroups<'_>) -> Result<(), Error> {
        rule::check_groups(&settings.rules, &groups.group_names()).map_err(Error::bad_input)
    }

    /// Checks, before anything is measured, that the moves name groups and devices, and that these groups of the other
    /// plan can move. Emits a notice for each move that breaks a rule of that plan.
    pub(super) fn check_moves(
        options: &PlanOptions,
        groups: &ModelGroups<'_>,
        inventory: &Inventory,
        other: Option<&Plan>,
        events: &Events,
    ) -> Result<(), Error> {
        let devices: Vec<String> = inventory.devices.iter().map(|device| device.name.to_string()).collect();
        let names = groups.group_names();
        let found = targets(&options.moves, &names, &devices);
        let movable = |_| other.map_or(Ok(()), |other| movable(other, &options.moves));
        found.and_then(movable).map_err(|error| options.move_error(error))?;
        let broken = other.map_or(Vec::new(), |other| broken_rules(other, &options.moves, &names));
        for BrokenRule { wish, rule } in broken {
            events.notice(format_args!(
                "warning: option `move={wish}` contradicts {}, by which the plan was made",
                rule.option()
            ));
        }
        Ok(())
    }

    /// The request for a plan, with the costs that are known now.
    pub(super) fn request(&self) -> Result<PlanRequest<'_>, RequestError> {
        let address = |device: &DeviceName| {
            let cluster = self.agents.as_ref().map(|agents| &agents.site.cluster)?;
            cluster.server(&device.server).map(|server| server.endpoint.clone())
        };
        self.settings.request(&self.groups, &self.inventory, &self.measured, address)
    }

    fn stop(&self) -> Stop {
        self.events.stop(self.options.longest(self.agents.is_some()), "the best plan so far is used")
    }

    /// Searches for the best plan.
    ///
    /// # Errors
    /// If no plan satisfies the targets, an agent fails, or the search is cancelled.
    pub fn plan(&self) -> Result<Planned<'_>, Error> {
        if self.options.pareto || !self.options.moves.is_empty() {
            return Err(Error::BadInput("option `pareto` and option `move` give no plan".into()));
        }
        match self.options.prompt {
            Some(prompt) => self.plan_of_phases(prompt),
            None => self.plan_of_step(None),
        }
    }

    /// The best plan for the steps that the model computes, or `other`, judged for them.
    ///
    /// # Errors
    /// As of [`Planner::plan`], or if `other` is not a plan of this model and these devices.
    pub(super) fn plan_of_step(&self, other: Option<&Plan>) -> Result<Planned<'_>, Error> {
        let mut request = self.checked_request()?;
        request.goal.search.stop = self.stop();
        let (candidate, request) = self.searched(request, other)?;
        if request.goal.search.stop.is_over() && self.agents.is_some() {
            let longer = match self.options.time_limit {
                TimeLimit::Auto => " (option `time_limit=none` lets it end)",
                TimeLimit::None | TimeLimit::Of(_) => "",
            };
            self.events.status(format_args!("time limit reached: this is the best plan so far{longer}"));
        }
        let advice =
            if self.options.advise && other.is_none() { without::without(&request, &candidate) } else { Vec::new() };
        let mut plan = candidate.to_plan(&request).map_err(Error::failed)?;
        plan.notes.extend(self.notes.iter().cloned());
        plan.notes.extend(self.calibrations.notes());
        plan.notes.extend(energy_warnings(&self.inventory, &self.measured));
        plan.notes.extend(advice.iter().map(ToString::to_string));
        Ok(Planned { plan, candidate, request })
    }

    /// Finds the Pareto-optimal plans for latency, time between results and memory. Calls `grown` with the plans so far
    /// whenever it finds more.
    ///
    /// # Errors
    /// As of [`Planner::plan`].
    pub fn front(&self, mut grown: impl FnMut(&[Point])) -> Result<PlannedFront<'_>, Error> {
        let mut request = self.checked_request()?;
        request.goal.search.stop = self.stop();
        // Measures the shards that candidates need.
        let request = match self.agents {
            Some(_) => self.searched(request, None)?.1,
            None => request,
        };
        let shown = self.events.progress();
        let left = || request.goal.search.stop.remaining();
        let found = front::front(&request, |points| {
            let what = &format!("front: {} plans so far", points.len());
            self.events.emit(Event::Planning { what, remaining: left() });
            grown(points);
        });
        let mut front = found.map_err(|why| self.options.no_plan(&why.to_string(), Some(&why)))?;
        let mut rehearsed = Ok(());
        if let Some(agents) = self.agents.as_ref().filter(|_| self.options.has_pilot_runs()) {
            self.events.emit(Event::Planning { what: "running the ends of the front", remaining: left() });
            rehearsed = self.run_ends(&request, agents, &mut front.points);
        }
        drop(shown);
        self.events.check()?;
        Ok(PlannedFront { front, request, rehearsed })
    }

    /// The effect of the moves on the plan of [`PlanOptions::like`], with the request that it was evaluated for.
    ///
    /// # Errors
    /// If a group cannot be moved, or [`PlanOptions::like`] is not given.
    pub fn moved(&self) -> Result<(Moved, PlanRequest<'_>), Error> {
        let request = self.checked_request()?;
        let Some(other) = self.settings.like_plan() else {
            return Err(Error::BadInput(
                "option `move` is of groups in another plan: name it with option `like`".into(),
            ));
        };
        let moved = moved(&request, other, &self.options.moves).map_err(|error| self.options.move_error(error))?;
        Ok((moved, request))
    }

    fn checked_request(&self) -> Result<PlanRequest<'_>, Error> {
        self.request().map_err(|error| match error {
            RequestError::Network(error) if self.agents.is_none() => {
                let advice = "give it in a file as option `links`, or in that of option `cluster`";
                Error::BadInput(format!("{error}: {advice}").into())
            }
            error => self.options.request_error(error),
        })
    }

    /// The best candidate, or `other`, and the request with the costs that are known then.
    fn searched<'r>(
        &'r self,
        request: PlanRequest<'r>,
        other: Option<&Plan>,
    ) -> Result<(Candidate, PlanRequest<'r>), Error> {
        let shown = self.events.progress();
        let stop = request.goal.search.stop;
        let show = |event: &PlanEvent| match event.is_transient() {
            true => self.events.emit(Event::Planning { what: &event.to_string(), remaining: stop.remaining() }),
            false => self.events.status(event),
        };
        let found = match &self.agents {
            None => {
                show(&PlanEvent::Searching);
                let found = match other {
                    None => plan::plan(&request).map_err(PlanningError::from),
                    Some(other) => adopted(&request, other).map_err(PlanningError::from),
                };
                let found = found.map_err(|error| self.options.planning_error(error));
                found.map(|candidate| (candidate, request))
            }
            Some(agents) => {
                let displaced = CacheFlush::working_set(self.groups.graph);
                let (surveyed, items) = (&agents.surveyed, &self.groups.items);
                let shards = Shards::open(&agents.folder, surveyed, items, agents.sampling, displaced);
                let applied = self.measured.iter().map(|profile| self.groups.calibration(profile)).collect();
                let mut shards = shards.map_err(Error::bad_input)?.with_calibrations(applied);
                let options = self.options.pilot();
                let (pilot, show) = (agents.pilot(), |event: PlanEvent| show(&event));
                let planned = match other {
                    None => plan_on_agents(&pilot, &request, &mut shards, &options, &show),
                    Some(other) => adopt_on_agents(&pilot, &request, &mut shards, &options, &show, other),
                };
                let planned = planned.map_err(|error| self.options.planning_error(error));
                planned.map(|planned| (planned.candidate, planned.request))
            }
        };
        drop(shown);
        // After a cancellation, a plan that was found is not the requested one.
        self.events.check()?;
        found
    }
}

impl PlanningAgents<'_> {
    pub fn pilot(&self) -> PilotAgents<'_> {
        let Site { cluster, runtime, .. } = self.site;
        PilotAgents { fleet: &self.fleet, cluster, given: &self.given, runtime }
    }
}

impl Planner<'_> {
    /// Runs the plan with the lowest latency, which is the first one, and the plan with the least memory.
    fn run_ends(
        &self,
        request: &PlanRequest<'_>,
        agents: &PlanningAgents<'_>,
        points: &mut [Point],
    ) -> Result<(), Error> {
        let leanest = (0..points.len()).min_by_key(|at| points[*at].peak);
        let ends: BTreeSet<usize> = leanest.into_iter().chain((!points.is_empty()).then_some(0)).collect();
        for at in ends {
            let run = rehearsed(&agents.pilot(), request, &points[at].candidate, &PilotOptions::default());
            points[at].measured = run.map_err(|error| self.options.planning_error(error))?;
        }
        Ok(())
    }
}
