//! Runs of a plan on the agents of its cluster: deploy, execute, compare with one device. When an agent is lost, a plan
//! for the remaining servers continues.

use std::path::Path;

use edgecut_agent::{
    deployment::Deployment,
    engine_choice,
    protocol::setup::EnforcedLimit,
    results::{
        Difference, Outcome, Tolerance,
        file::{RunAbout, RunResult},
        record::Record,
    },
};
use edgecut_engine::{EngineChoice, EngineError, EngineOptions};
use edgecut_graph::{DeviceName, Graph, TensorData};
use edgecut_plan::{Plan, Stop, file::DevicePlan, pipeline_depth, planned_graph};
use edgecut_report::timeline::run::trace;

use super::{
    DeployError, DeployOptions, RunError, agents_of,
    binding::ChosenBinding,
    deploy,
    execute::{ExecuteOptions, execute},
    failover::{Cause, Failover, Interruption},
    options::RunOptions,
    progress::RunWatch,
    replan::replan,
};
use crate::{
    Error, Events, Model, Site,
    cluster::connect_all,
    model::contents::{Contents, engine_error},
    outputs::{on_this_machine, only, outputs},
};

/// The measurements of one plan.
pub struct MeasuredRun<'a> {
    pub plan: &'a Plan,
    /// The graph that was deployed: the model's graph with splits and schedules applied.
    pub graph: &'a Graph,
    pub deployment: &'a Deployment,
    pub record: &'a Record,
    pub result: RunResult,
    /// The model's outputs in the first run, without states.
    pub outputs: Vec<TensorData>,
}

impl MeasuredRun<'_> {
    /// The timeline as content of the file at `path`: Chrome's format for `.json`, otherwise Perfetto's.
    pub fn trace(&self, path: &Path) -> Vec<u8> {
        trace(path, self.plan, self.graph, self.deployment, self.record)
    }
}

/// The measurements of one plan, without the data that only traces need.
#[derive(Debug, Clone)]
pub struct PlanRun {
    pub plan: Plan,
    pub result: RunResult,
    /// The model's outputs in the first run, without states.
    pub outputs: Vec<TensorData>,
}

impl Site {
    /// Runs `plan` of `model` on the agents. Compares the measurements with the predictions, and the outputs with those
    /// of one device. If agents are lost and other plans continue, the result has one entry for each plan with results.
    ///
    /// # Errors
    /// If the plan is not of this model, an agent fails and no other plan can continue, the outputs are not those of
    /// one device, or the runs are cancelled.
    pub fn run(&self, model: &Model, plan: &Plan, options: &RunOptions) -> Result<Vec<PlanRun>, Error> {
        let mut runs = Vec::new();
        self.run_with(model, plan, options, &mut |run| {
            runs.push(PlanRun { plan: run.plan.clone(), result: run.result, outputs: run.outputs });
            Ok(())
        })?;
        Ok(runs)
    }

    /// Like [`Site::run`], but calls `each` with the measurements of each plan.
    ///
    /// # Errors
    /// As of [`Site::run`], and those of `each`.
    fn run_with(
        &self,
        model: &Model,
        plan: &Plan,
        options: &RunOptions,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let about = RunSource { name: &plan.model.path, binding: &ChosenBinding::sole() };
        self.run_plan(model, plan, about, options, each)
    }

    pub(super) fn run_plan(
        &self,
        model: &Model,
        plan: &Plan,
        about: RunSource<'_>,
        options: &RunOptions,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        options.check()?;
        check_model(model, plan)?;
        let events = &self.events;
        let stop = events.stop(None, KEPT);
        let (mut plan, mut failover) = (plan.clone(), Failover::new(options, plan));
        loop {
            let runs = Runs { repeat: failover.left, stop, about };
            let execution = Execution::of(self, options, &plan, model, runs)?;
            let Some(interruption) = execution.run(model, each)? else { return Ok(()) };
            let failure = interruption.failure.clone();
            let is_of_agent = matches!(interruption.cause, Cause::Agent(_));
            if stop.is_requested() || !failover.goes_on(interruption) {
                return Err(if is_of_agent { Error::Agent(failure.into()) } else { Error::Failed(failure.into()) });
            }
            events.notice(format_args!("{failure}; planning again for the servers that answer"));
            let rest = failover.without_blamed(&self.cluster);
            let again = replan(events, &options.profile, model, &plan, &rest, failover.may_split);
            plan = self.runtime.block_on(again).map_err(|error| error.at(format!("{failure}; no other plan")))?;
            let names = DeviceName::join(plan.used_devices().map(DevicePlan::device_name), ", ");
            events.notice(format_args!("{} runs left, on {names}", failover.left));
        }
    }
}

/// Checks that `plan` was made for the file of `model`.
///
/// # Errors
/// If `plan` is of another file than `model`.
pub(super) fn check_model(model: &Model, plan: &Plan) -> Result<(), Error> {
    check_hash(&model.path, &model.import.hash, plan)
}

/// Checks that `plan` was made for the file at `path`, with this BLAKE3 `hash`.
pub(super) fn check_hash(path: &Path, hash: &str, plan: &Plan) -> Result<(), Error> {
    if hash == plan.model.blake3 {
        return Ok(());
    }
    let what = "this is not the file that the plan was made for (its hash differs): make the plan again, or name the right one \
                with option `model`";
    Err(Error::BadInput(format!("{}: {what}", path.display()).into()))
}

/// What a cancellation keeps.
pub(super) const KEPT: &str = "the finished runs are reported";

/// Reports how many runs were finished before a cancellation.
///
/// # Errors
/// If no run was finished, or results are discarded.
pub(super) fn tell_interrupted(finished: u64, wanted: u64, events: &Events) -> Result<(), Error> {
    if finished == 0 {
        return Err(Error::Cancelled);
    }
    events.check()?;
    events.notice(format_args!("interrupted: {finished} of {wanted} runs were finished, and are what follows"));
    Ok(())
}

/// The names of the plan and the binding in results.
#[derive(Clone, Copy)]
pub(super) struct RunSource<'a> {
    /// The path of the plan file, or of the model.
    pub name: &'a str,
    pub binding: &'a ChosenBinding,
}

/// The runs of one plan.
struct Execution<'a> {
    site: &'a Site,
    options: &'a RunOptions,
    plan: &'a Plan,
    /// The graph that is deployed: the model's graph with splits and schedules applied.
    graph: Graph,
    runs: Runs<'a>,
    /// Whether given contents decided branches or sizes of the graph.
    is_decided: bool,
}

/// How a plan is run.
#[derive(Clone, Copy)]
struct Runs<'a> {
    repeat: u64,
    /// Condition for starting no more runs.
    stop: Stop,
    about: RunSource<'a>,
}

impl<'a> Execution<'a> {
    fn of(
        site: &'a Site,
        options: &'a RunOptions,
        plan: &'a Plan,
        model: &Model,
        runs: Runs<'a>,
    ) -> Result<Execution<'a>, Error> {
        let is_decided = model.selected;
        let graph = planned_graph(&model.import.graph, plan);
        let graph = graph.map_err(|error| unfit(runs.about.name, is_decided, &error))?;
        Ok(Execution { site, options, plan, graph, runs, is_decided })
    }

    /// Runs the plan, and calls `each` with the measurements. Returns the interruption if the runs ended early.
    fn run(
        &self,
        model: &Model,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<Option<Interruption>, Error> {
        let (events, runtime) = (&self.site.events, &self.site.runtime);
        model.contents(model.graph())?.beginning(&self.plan.model.states)?;
        let contents = model.contents(&self.graph)?.beginning(&self.plan.states)?;
        let stream = || self.plan.in_flight.unwrap_or(self.plan.predicted.in_flight);
        let mut in_flight = if self.options.throughput { stream().clamp(1, pipeline_depth::MAX_IN_FLIGHT) } else { 1 };
        loop {
            let attempt = match runtime.block_on(events.until_unwanted(self.attempt(&contents, in_flight))) {
                Err(Unreached::Agent(failure)) => {
                    return Ok(Some(Interruption { finished: 0, failure, cause: Cause::Agent(None) }));
                }
                Err(Unreached::Other(failure)) => return Err(failure),
                Ok(attempt) => attempt,
            };
            match attempt {
                (deployment, Ok(record)) => {
                    let finished = record.latencies.len() as u64;
                    if finished < self.runs.repeat {
                        tell_interrupted(finished, self.runs.repeat, events)?;
                    }
                    self.hand_on(self.measured(model, &contents, (&deployment, &record), in_flight, true)?, each)?;
                    return Ok(None);
                }
                (_, Err(RunError::Stopped)) => return Err(Error::Cancelled),
                // Each input in flight takes memory.
                (_, Err(error)) if in_flight > 1 && error.memory().is_some() => {
                    events.notice(format_args!("with {in_flight} inputs in flight, {error}; trying {}", in_flight - 1));
                    in_flight -= 1;
                }
                (deployment, Err(error)) => {
                    let failure = error.to_string();
                    let cause = match (error.is_of_agent(), error.memory()) {
                        (true, _) => Cause::Agent(error.agent().cloned()),
                        (false, Some(_)) => Cause::Memory,
                        (false, None) => Cause::Other,
                    };
                    let mut finished = 0;
                    if let RunError::Interrupted { finished: record, .. } = error {
                        finished = record.latencies.len() as u64;
                        // If another plan continues, only the outputs of the last plan are compared.
                        let check = !(matches!(cause, Cause::Agent(_)) && self.options.replans(finished > 0));
                        let measured = self.measured(model, &contents, (&deployment, &record), in_flight, check)?;
                        self.hand_on(measured, each)?;
                    }
                    return Ok(Some(Interruption { finished, failure, cause }));
                }
            }
        }
    }

    async fn attempt(&self, contents: &Contents<'_>, in_flight: u32) -> Result<Attempt, Unreached> {
        let watch = RunWatch::start(&self.site.events);
        let given = contents.given();
        let mut options = DeployOptions::new(in_flight, &given);
        if in_flight == 1 {
            // With several inputs in flight, the limits are kept by reducing their number.
            options.enforced = EnforcedLimit::PlanWithTransfers;
        }
        let deployment = deploy(&self.graph, self.plan, &self.site.cluster, &options).map_err(|error| match error {
            DeployError::Setup(_) => Error::failed(error),
            _ => unfit(self.runs.about.name, self.is_decided, &error),
        })?;
        let how = ExecuteOptions {
            repeat: self.runs.repeat,
            in_flight,
            expected: self.plan.predicted.latency_us,
            progress: &|progress| watch.show(progress),
            stop: self.runs.stop,
        };
        let part = only(&self.site.cluster, &deployment);
        let fleet = connect_all(&part, &self.site.events).await.map_err(|error| match error {
            Error::Agent(message) => Unreached::Agent(message.text),
            other => Unreached::Other(other),
        })?;
        let agents = agents_of(&deployment, &fleet).map_err(Error::failed)?;
        let inputs = deployment.terminals.inputs.iter().map(|id| contents.of(*id)).collect::<Result<Vec<_>, _>>();
        let inputs = inputs.map_err(engine_error)?;
        let record = execute(&deployment, &agents, &inputs, &given, &how).await;
        Ok((deployment, record))
    }

    /// The measurements of a run. If `check`, the outputs are compared with those of one device.
    fn measured<'r>(
        &'r self,
        model: &Model,
        contents: &Contents<'_>,
        (deployment, record): (&'r Deployment, &'r Record),
        in_flight: u32,
        check: bool,
    ) -> Result<MeasuredRun<'r>, Error> {
        let outputs = outputs(deployment, record, contents)?;
        let difference = match check && !self.options.no_check {
            false => None,
            true => self.reference(model)?.map(|wanted| {
                let tolerance = Tolerance::of(&model.import.graph);
                Difference::between(&outputs, &wanted, tolerance)
            }),
        };
        let outcome = Outcome::of(self.plan, deployment, record);
        let mut outcome = outcome.ok_or_else(|| Error::Failed("no run was measured".into()))?;
        let RunSource { name, binding } = self.runs.about;
        outcome.outputs = difference;
        outcome.binding.clone_from(&binding.label);
        let about = RunAbout::now(self.plan, name, in_flight).map_err(Error::failed)?;
        let result = RunResult { about, latencies_us: record.latencies.clone(), outcome };
        let outputs = binding.crop(outputs, &self.site.events);
        Ok(MeasuredRun { plan: self.plan, graph: &self.graph, deployment, record, result, outputs })
    }

    /// The model's outputs on this machine, by an engine of the plan; `None` if no engine of this machine supports the
    /// model.
    fn reference(&self, model: &Model) -> Result<Option<Vec<TensorData>>, Error> {
        let whole = &model.import.graph;
        let contents = model.contents(whole)?.beginning(&self.plan.model.states)?;
        let watch = RunWatch::start(&self.site.events);
        watch.tell("computing the model on this machine, to compare the outputs");
        match on_this_machine(whole, &contents, &reference_engines(self.site, self.plan)) {
            Ok(outputs) => {
                let is_state = |id| self.plan.model.states.iter().any(|state| state.output == whole.tensor(id).name);
                let returned = whole.outputs.iter().zip(outputs).filter(|(id, _)| !is_state(**id));
                Ok(Some(returned.map(|(_, output)| output).collect()))
            }
            Err(error @ EngineError::Unsupported(_)) => {
                self.site.events.notice(format_args!(
                    "the outputs were not checked, as no engine of this machine computes the model: {error}"
                ));
                Ok(None)
            }
            Err(error) => Err(engine_error(error)),
        }
    }

    /// Calls `each` with the measurements. Fails if the outputs are not those of one device.
    fn hand_on(
        &self,
        measured: MeasuredRun<'_>,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let events = &self.site.events;
        let (difference, in_flight) = (measured.result.outcome.outputs, measured.result.about.in_flight);
        for (device, excess) in measured.result.outcome.over_limit() {
            events.notice(format_args!(
                "{device} took {excess} more than the plan's memory limit: how much it holds depends on when tensors arrive and \
                 leave. To keep a reserve, plan with a smaller option `memory`"
            ));
        }
        each(measured)?;
        if self.options.throughput && in_flight == 1 {
            events.notice("throughput was not measured: the memory limits leave room for one input at a time");
        }
        match difference {
            Some(difference) if !self.plan.transfer.is_exact() && difference.is_finite() => Ok(()),
            Some(difference) if !difference.is_tolerable() => {
                let what = format!("the plan's outputs are not those of one device: {difference}");
                Err(Error::Failed(what.into()))
            }
            _ => Ok(()),
        }
    }
}

/// The engines of `plan`, to compute on this machine what it computes.
pub(super) fn reference_engines(site: &Site, plan: &Plan) -> Vec<EngineOptions> {
    let used = plan.used_devices();
    let mut choices: Vec<EngineChoice> = used.filter_map(|device| engine_choice(device.engine.as_ref()?)).collect();
    choices.dedup();
    let options = site.options.engine_options();
    choices.into_iter().map(|choice| options.with(Some(choice))).collect()
}

/// The error that the plan does not fit the graph of its model. If given contents decided branches or sizes, they may
/// be the cause.
fn unfit(name: &str, is_decided: bool, error: &dyn std::fmt::Display) -> Error {
    let hint = match is_decided {
        true => {
            ": given contents decide branches or sizes, and may be others than those that the plan was made with; make it again \
                 with the same option `inputs`"
        }
        false => "",
    };
    Error::BadInput(format!("{name}: {error}{hint}").into())
}

/// What was deployed, and the result of its runs.
type Attempt = (Deployment, Result<Record, RunError>);

/// Why nothing was run.
enum Unreached {
    /// Agents do not answer.
    Agent(String),
    Other(Error),
}

impl From<Error> for Unreached {
    fn from(error: Error) -> Unreached {
        Unreached::Other(error)
    }
}
