//! A plan on the agents of its cluster: deploy, execute, compare with one device, print predicted against measured; and once an
//! agent is lost, the same with a plan for those that are left.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use miette::Report;
use smol_str::SmolStr;

use super::{
    binding::{BindingChoice, ChosenBinding},
    flags::Run,
    output::{self, KEPT, tell_interrupted},
    progress::RunLine,
    replan::replan,
};
use crate::{
    Failure, Outcome,
    caller::{notice, until_stopped},
    cluster_flag::{reach_all, read_cluster, runtime},
    contents::{Contents, engine_failure},
    deployed::{on_this_machine, only, outputs},
    ineffective, interrupt,
    model::{Model, ModelArguments, resolve},
    plan_file, source_file as file,
};
use edgecut_cluster::{
    Cluster,
    agent::protocol::setup::EnforcedLimit,
    engine_choice,
    run::{
        self, DeployError, DeployOptions, Deployment, Difference, RunError, RunOptions, Tolerance, agents_of, deploy,
        execute,
        record::Record,
        results::{RunAbout, RunResult},
    },
};
use edgecut_engine::{EngineChoice, EngineError, EngineOptions};
use edgecut_graph::{DeviceName, Graph, TensorData};
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::{Plan, Stop, file::DevicePlan, pipeline_depth, schedule::apply_schedules, split::divided};
use edgecut_report::timeline::{self, chrome, perfetto};

/// Runs that count where the person does not say.
const REPEAT: u32 = 10;

/// How many plans in a row may fail without a result.
const MOST_FAILURES: u32 = 5;

/// What was measured of one plan.
pub struct MeasuredRun<'a> {
    pub plan: &'a Plan,
    pub result: RunResult,
    /// The model's, of the last run.
    pub outputs: Vec<TensorData>,
}

/// Runs the plan whose file is `text`, and hands `each` what was measured.
pub(super) fn run(arguments: &Run, text: &[u8], mut each: impl FnMut(MeasuredRun<'_>) -> Outcome) -> Outcome {
    let fixed = [("--threads", arguments.threads.threads.is_some()), ("--engine", arguments.engine.engine.is_some())];
    ineffective::refuse(&fixed, "a plan, which has the threads and engines that it was made for")?;
    let (mut plan, chosen) = choose(arguments, text)?;
    let (model, name) = load(arguments, &plan, &chosen)?;
    let cluster = cluster(arguments, &plan)?;
    let runtime = runtime()?;
    let stop = interrupt::watch(KEPT).map_err(Failure::failed)?;
    let mut failover = Failover::new(arguments, &plan);
    loop {
        let run = Runs { repeat: failover.left, stop, binding: &chosen };
        let execution = Execution::of(arguments, &plan, &model, &cluster, run)?;
        let Some(interruption) = execution.run(&runtime, &model, &mut each)? else { return Ok(()) };
        let failure = interruption.failure.clone();
        let is_of_agent = matches!(interruption.cause, Cause::Agent(_));
        if stop.load(Ordering::Relaxed) || !failover.goes_on(interruption) {
            let report = Report::msg(failure);
            return Err(if is_of_agent { Failure::Agent(report) } else { Failure::Failed(report) });
        }
        notice!("{failure}; planning again for the servers that answer");
        let rest = failover.without_blamed(&cluster);
        let again = runtime.block_on(replan(arguments, &model, &name, &plan, &rest, failover.may_split));
        plan = again.map_err(|error| error.at(format!("{failure}; no other plan")))?;
        let devices = plan.devices.iter().filter(|device| !device.order.is_empty());
        let names = DeviceName::join(devices.map(DevicePlan::device_name), ", ");
        notice!("{} runs left, on {names}", failover.left);
    }
}

/// What becomes of runs that are interrupted.
struct Failover<'a> {
    arguments: &'a Run,
    /// Runs that are not finished.
    left: u64,
    /// Plans in a row without a result.
    failures: u32,
    /// Whether any run was finished.
    has_results: bool,
    is_replanned: bool,
    /// Whether another plan may split groups: the memory of shards that were not measured is an estimate.
    may_split: bool,
    /// How often each agent failed.
    blamed: BTreeMap<SmolStr, u32>,
}

/// Runs that ended early, after what was measured of them is printed.
struct Interruption {
    finished: u64,
    failure: String,
    cause: Cause,
}

enum Cause {
    /// An agent failed or was lost: this one, if it is known.
    Agent(Option<SmolStr>),
    /// A device has too little memory.
    Memory,
    Other,
}

impl<'a> Failover<'a> {
    fn new(arguments: &'a Run, plan: &Plan) -> Failover<'a> {
        Failover {
            arguments,
            left: u64::from(arguments.repeat.unwrap_or(REPEAT)),
            failures: 0,
            has_results: false,
            is_replanned: false,
            may_split: !plan.splits.is_empty(),
            blamed: BTreeMap::new(),
        }
    }

    /// Whether another plan may do better.
    fn goes_on(&mut self, interruption: Interruption) -> bool {
        let Interruption { finished, cause, .. } = interruption;
        self.left = self.left.saturating_sub(finished);
        self.has_results |= finished > 0;
        self.failures = if finished > 0 { 1 } else { self.failures + 1 };
        let may_help = match cause {
            Cause::Agent(agent) => {
                *self.blamed.entry(agent.unwrap_or_default()).or_default() += 1;
                self.arguments.replans(self.has_results)
            }
            // Of a plan that was made here: without shards, all is measured.
            Cause::Memory => self.is_replanned && std::mem::take(&mut self.may_split),
            Cause::Other => false,
        };
        let goes_on = may_help && self.failures <= MOST_FAILURES;
        self.is_replanned |= goes_on;
        goes_on
    }

    /// `cluster` without what failed twice although it answers.
    fn without_blamed(&self, cluster: &Cluster) -> Cluster {
        let mut rest = cluster.clone();
        rest.servers.retain(|server| self.blamed.get(&server.name).is_none_or(|count| *count < 2));
        rest
    }
}

/// The runs of one plan.
struct Execution<'a> {
    arguments: &'a Run,
    plan: &'a Plan,
    cluster: &'a Cluster,
    /// The graph that is deployed: the model's, with splits and schedules written out.
    graph: Graph,
    runs: Runs<'a>,
    /// Whether given contents decided branches or sizes of the graph.
    is_decided: bool,
}

/// How a plan is run.
#[derive(Clone, Copy)]
struct Runs<'a> {
    repeat: u64,
    /// Set when no more runs are to start.
    stop: &'static AtomicBool,
    binding: &'a ChosenBinding,
}

impl<'a> Execution<'a> {
    fn of(
        arguments: &'a Run,
        plan: &'a Plan,
        model: &Model,
        cluster: &'a Cluster,
        runs: Runs<'a>,
    ) -> Result<Execution<'a>, Failure> {
        let split = divided(&model.import.graph, &plan.splits);
        let is_decided = model.selected;
        let split = split.map_err(|error| unfit(arguments, is_decided, &error))?;
        let written = apply_schedules(&split, &plan.schedules);
        let graph = written.map_err(|error| unfit(arguments, is_decided, &error))?.graph;
        Ok(Execution { arguments, plan, cluster, graph, runs, is_decided })
    }

    /// Hands on what was measured, and gives why it ended early, if it did.
    fn run(
        &self,
        runtime: &tokio::runtime::Runtime,
        model: &Model,
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Outcome,
    ) -> Result<Option<Interruption>, Failure> {
        let contents = model.contents(&self.graph)?;
        let stream = || self.plan.in_flight.unwrap_or(self.plan.predicted.in_flight);
        let is_stream = self.arguments.throughput;
        let mut in_flight = if is_stream { stream().clamp(1, pipeline_depth::MAX_IN_FLIGHT) } else { 1 };
        loop {
            let attempt = match runtime.block_on(until_stopped(self.attempt(&contents, in_flight))) {
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
                        tell_interrupted(finished, self.runs.repeat)?;
                    }
                    self.hand_on(self.measured(model, &contents, &deployment, &record, in_flight, true)?, each)?;
                    return Ok(None);
                }
                (_, Err(RunError::Stopped)) => return Err(Failure::Stopped),
                // Every input in flight takes memory.
                (_, Err(error)) if in_flight > 1 && error.memory().is_some() => {
                    notice!("with {in_flight} inputs in flight, {error}; trying {}", in_flight - 1);
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
                        // Another plan goes on at once: the outputs of the last one are compared.
                        let check = !(matches!(cause, Cause::Agent(_)) && self.arguments.replans(finished > 0));
                        let measured = self.measured(model, &contents, &deployment, &record, in_flight, check)?;
                        self.hand_on(measured, each)?;
                    }
                    return Ok(Some(Interruption { finished, failure, cause }));
                }
            }
        }
    }

    async fn attempt(&self, contents: &Contents<'_>, in_flight: u32) -> Result<Attempt, Unreached> {
        let line = RunLine::start();
        let given = contents.given();
        let mut options = DeployOptions::new(in_flight, &given);
        if in_flight == 1 {
            // With more, fewer inputs in flight keep the plan's limits.
            options.enforced = EnforcedLimit::PlanWithTransfers;
        }
        let deployment = deploy(&self.graph, self.plan, self.cluster, &options).map_err(|error| match error {
            DeployError::Setup(_) => Failure::failed(error),
            _ => unfit(self.arguments, self.is_decided, &error),
        })?;
        let how = RunOptions {
            repeat: self.runs.repeat,
            in_flight,
            expected: self.plan.predicted.latency_us,
            progress: &|progress| line.show(progress),
            stop: Stop::new(None, self.runs.stop),
        };
        let fleet = reach_all(&only(self.cluster, &deployment)).await.map_err(|failure| match failure {
            Failure::Agent(report) => Unreached::Agent(report.to_string()),
            other => Unreached::Other(other),
        })?;
        let agents = agents_of(&deployment, &fleet).map_err(Failure::failed)?;
        let inputs = deployment.inputs.iter().map(|id| contents.of(*id)).collect::<Result<Vec<_>, _>>();
        let inputs = inputs.map_err(engine_failure)?;
        let record = execute(&deployment, &agents, &inputs, &given, &how).await;
        Ok((deployment, record))
    }

    /// What was measured, with the content of the trace if one is asked for.
    fn measured(
        &self,
        model: &Model,
        contents: &Contents<'_>,
        deployment: &Deployment,
        record: &Record,
        in_flight: u32,
        check: bool,
    ) -> Result<(MeasuredRun<'_>, Option<Trace>), Failure> {
        let arguments = self.arguments;
        let outputs = outputs(deployment, record, contents)?;
        let difference = match check && !arguments.no_check {
            false => None,
            true => self.reference(model)?.map(|wanted| {
                let tolerance = Tolerance::of(&model.import.graph);
                Difference::between(&outputs, &wanted, tolerance)
            }),
        };
        let trace = arguments.trace.as_ref().map(|path| {
            let timeline = timeline::run::timeline(self.plan, &self.graph, deployment, record);
            // Perfetto knows its own format by the content.
            let is_json = path.extension().is_none_or(|extension| extension.eq_ignore_ascii_case("json"));
            let content = if is_json { chrome::json(&timeline).into_bytes() } else { perfetto::bytes(&timeline) };
            (path.clone(), content)
        });
        let outcome = run::Outcome::of(self.plan, deployment, record);
        let mut outcome = outcome.ok_or_else(|| Failure::Failed(Report::msg("no run was measured")))?;
        outcome.outputs = difference;
        outcome.binding.clone_from(&self.runs.binding.label);
        let name = arguments.input.display().to_string();
        let about = RunAbout::now(self.plan, &name, in_flight).map_err(Failure::failed)?;
        let result = RunResult { about, latencies_us: record.latencies.clone(), outcome };
        Ok((MeasuredRun { plan: self.plan, result, outputs: self.runs.binding.crop(outputs) }, trace))
    }

    /// What the model's outputs should be, by an engine of the plan; `None` if no engine that is here computes them.
    fn reference(&self, model: &Model) -> Result<Option<Vec<TensorData>>, Failure> {
        let whole = &model.import.graph;
        let used = self.plan.devices.iter().filter(|device| !device.order.is_empty());
        let mut choices: Vec<EngineChoice> =
            used.filter_map(|device| engine_choice(device.engine.as_deref()?)).collect();
        choices.dedup();
        let line = RunLine::start();
        line.tell("computing the model on this machine, to compare the outputs");
        let options = self.arguments.engine.options();
        let engines: Vec<EngineOptions> = choices.into_iter().map(|choice| options.with(Some(choice))).collect();
        match on_this_machine(whole, &model.contents(whole)?, &engines) {
            Ok(outputs) => Ok(Some(outputs)),
            Err(error @ EngineError::Unsupported(_)) => {
                notice!("the outputs were not checked, as no engine of this machine computes the model: {error}");
                Ok(None)
            }
            Err(error) => Err(engine_failure(error)),
        }
    }

    /// Hands on what was measured, then writes the files that are asked for; fails if the outputs are not those of one device.
    fn hand_on(
        &self,
        (measured, trace): (MeasuredRun<'_>, Option<Trace>),
        each: &mut dyn FnMut(MeasuredRun<'_>) -> Outcome,
    ) -> Outcome {
        let (difference, in_flight) = (measured.result.outcome.outputs, measured.result.about.in_flight);
        let (result, outputs) = (measured.result.clone(), measured.outputs.clone());
        for (device, excess) in measured.result.outcome.over_limit() {
            notice!(
                "{device} took {excess} more than the plan's memory limit: how much it holds depends on when tensors arrive and leave. \
                 To keep a reserve, plan with a smaller --memory"
            );
        }
        let given_out = each(measured);
        let Run { output, outputs: outputs_file, .. } = self.arguments;
        let writes: [&dyn Fn() -> Outcome; 3] = [
            &|| outputs_file.as_deref().map_or(Ok(()), |path| output::write_outputs(path, &outputs)),
            &|| trace.as_ref().map_or(Ok(()), |(path, content)| file::write(path, content)),
            &|| output.as_deref().map_or(Ok(()), |path| output::append(path, result.clone())),
        ];
        let written = file::all(writes.into_iter().map(|write| write()));
        given_out.and(written)?;
        if self.arguments.throughput && in_flight == 1 {
            notice!("throughput was not measured: the memory limits leave room for one input at a time");
        }
        match difference {
            Some(difference) if !self.plan.transfer.is_exact() && difference.is_finite() => Ok(()),
            Some(difference) if !difference.is_tolerable() => {
                let what = format!("the plan's outputs are not those of one device: {difference}");
                Err(Failure::Failed(Report::msg(what)))
            }
            _ => Ok(()),
        }
    }
}

/// That the plan does not fit the graph of its model. Where given contents decided branches or sizes, that may be why.
fn unfit(arguments: &Run, is_decided: bool, error: &dyn std::fmt::Display) -> Failure {
    let hint = match is_decided {
        true => {
            ": given contents decide branches or sizes, and may be others than those that the plan was made with; make it again \
                 with these --inputs"
        }
        false => "",
    };
    Failure::BadInput(Report::msg(format!("{}: {error}{hint}", arguments.input.display())))
}

/// The file of a trace, and its content.
type Trace = (PathBuf, Vec<u8>);

/// What was deployed, and what came of it.
type Attempt = (Deployment, Result<Record, RunError>);

/// Why nothing was run.
enum Unreached {
    /// Agents do not answer.
    Agent(String),
    Other(Failure),
}

impl From<Failure> for Unreached {
    fn from(failure: Failure) -> Unreached {
        Unreached::Other(failure)
    }
}

/// The plan in `text`; of several plans, the one whose binding the shapes of the inputs select.
fn choose(arguments: &Run, text: &[u8]) -> Result<(Plan, ChosenBinding), Failure> {
    let plans = plan_file::chosen(&arguments.input, text, &arguments.flags)?;
    let source = source(arguments, &plans.plans()[0]);
    let mut bindings: Vec<Binding> = plans.plans().iter().map(|plan| plan.model.binding()).collect();
    if let [only] = &mut bindings[..] {
        // Flags may override the sizes of a single plan.
        *only = source.flags.binding()?;
    }
    let choice = BindingChoice { model: &source.model, flags: &source.flags, bindings: &bindings };
    let chosen = choice.choose(arguments)?;
    Ok((plans.plans()[chosen.at].clone(), chosen))
}

/// Where the model of the plan is, and how to read it.
fn source(arguments: &Run, plan: &Plan) -> ModelArguments {
    let model = arguments.model.clone().unwrap_or_else(|| resolve(&arguments.input, &plan.model.path));
    ModelArguments {
        model,
        flags: arguments.flags.for_engine(&arguments.engine).for_plan(&arguments.input, &plan.model),
    }
}

/// The model that the plan was made for, and its name.
fn load(arguments: &Run, plan: &Plan, chosen: &ChosenBinding) -> Result<(Model, String), Failure> {
    let source = source(arguments, plan);
    let (model, path) = (chosen.load(&source)?, &source.model);
    if model.import.hash != plan.model.blake3 {
        let what = "this is not the file that the plan was made for (its hash differs): make the plan again, or name the right \
                    one with --model";
        return Err(Failure::BadInput(Report::msg(format!("{}: {what}", path.display()))));
    }
    Ok((model, source.stem()))
}

/// The cluster that the plan was made for, or the one that is named instead.
fn cluster(arguments: &Run, plan: &Plan) -> Result<Cluster, Failure> {
    let cluster = match (arguments.cluster.given(), &plan.cluster) {
        (Some(path), _) => read_cluster(path)?,
        (None, Some(path)) => read_cluster(&resolve(&arguments.input, path))?,
        (None, None) => Cluster::embedded(),
    };
    Ok(arguments.cluster.with_wait(cluster))
}
