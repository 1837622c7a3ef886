//! A plan on the agents of its cluster: deploy, execute, compare with one device, print predicted against measured.

use miette::Report;

use super::{flags::Run, print::print};
use crate::{
    Failure, Outcome,
    cluster::{reach_all, read_cluster, runtime},
    contents::{Contents, engine_failure},
    deployed::{on_this_machine, only, outputs},
    ineffective, kind,
    located::Located,
    model::{Model, ModelArguments, resolve},
    source_file as file,
};
use edgecut_cluster::{
    Cluster,
    run::{
        self, DeployError, DeployOptions, Deployment, Difference, RunError, RunOptions, agents_of, deploy, execute,
        execute::Record,
    },
};
use edgecut_graph::Graph;
use edgecut_plan::{Plan, pipeline_depth, schedule::apply_schedules, split::divided};
use edgecut_values::write_npz;

/// Runs that count where the person does not say.
const REPEAT: u32 = 10;

/// Runs the plan whose file is `text`.
pub(crate) fn run(arguments: &Run, text: &[u8]) -> Outcome {
    let fixed = [("--threads", arguments.threads.threads.is_some()), ("--engine", arguments.engine.engine.is_some())];
    ineffective::refuse(&fixed, "a plan, which has the threads and engines that it was made for")?;
    let plan = Plan::from_json(text).map_err(|error| kind::no_plan(&arguments.input, text, error))?;
    let model = load(arguments, &plan)?;
    let whole = &model.import.graph;
    let split = divided(whole, &plan.splits).map_err(|e| Failure::bad_input(Located::new(&arguments.input, e)))?;
    let written = apply_schedules(&split, &plan.schedules);
    let graph = &written.map_err(|e| Failure::bad_input(Located::new(&arguments.input, e)))?.graph;
    let cluster = cluster(arguments, &plan)?;
    let contents = model.contents(graph)?;
    let runtime = runtime()?;
    let stream = || plan.in_flight.unwrap_or(plan.predicted.in_flight);
    let mut in_flight = if arguments.throughput { stream().clamp(1, pipeline_depth::MAX_IN_FLIGHT) } else { 1 };
    let (deployment, record, failure) = loop {
        let attempt = Attempt { arguments, plan: &plan, cluster: &cluster, contents: &contents, in_flight };
        match runtime.block_on(attempt.run(graph))? {
            (deployment, Ok(record)) => break (deployment, record, None),
            // Every input in flight takes memory.
            (_, Err(error)) if in_flight > 1 && error.memory().is_some() => {
                eprintln!("with {in_flight} inputs in flight, {error}; trying {}", in_flight - 1);
                in_flight -= 1;
            }
            (deployment, Err(error)) => {
                let message = error.to_string();
                let RunError::Interrupted { finished, .. } = error else { return Err(Failure::failed(error)) };
                break (deployment, *finished, Some(message));
            }
        }
    };
    let outputs = outputs(&deployment, &record, &contents)?;
    if let Some(path) = &arguments.outputs {
        let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
        write_npz(path, named).map_err(Failure::failed)?;
    }
    let difference = match arguments.no_check {
        true => None,
        false => {
            let contents = model.contents(whole)?;
            Some(Difference::between(&outputs, &on_this_machine(whole, &contents)?))
        }
    };
    if let Some(path) = &arguments.trace {
        let text = run::trace::trace(&plan, &deployment, &record).map_err(Failure::failed)?;
        file::write(path, text.as_bytes())?;
    }
    let outcome = run::Outcome::of(&plan, &deployment, &record);
    let mut outcome = outcome.ok_or_else(|| Failure::Failed(Report::msg("no run was measured")))?;
    outcome.outputs = difference;
    print(arguments.format, &plan, &outcome)?;
    if arguments.throughput && in_flight == 1 {
        eprintln!("throughput was not measured: the memory limits leave room for one input at a time");
    }
    if let Some(message) = failure {
        return Err(Failure::Failed(Report::msg(message)));
    }
    match difference {
        Some(difference) if !plan.transfer.is_exact() && difference.is_finite() => Ok(()),
        Some(difference) if !difference.is_tolerable() => {
            Err(Failure::Failed(Report::msg(format!("the plan's outputs are not those of one device: {difference}"))))
        }
        _ => Ok(()),
    }
}

/// The plan run with this number of inputs in flight.
struct Attempt<'a> {
    arguments: &'a Run,
    plan: &'a Plan,
    cluster: &'a Cluster,
    contents: &'a Contents<'a>,
    in_flight: u32,
}

impl Attempt<'_> {
    async fn run(&self, graph: &Graph) -> Result<(Deployment, Result<Record, RunError>), Failure> {
        let given = self.contents.given();
        let options = DeployOptions::new(self.in_flight, &given);
        let deployment = deploy(graph, self.plan, self.cluster, &options).map_err(|error| match error {
            DeployError::Setup(_) => Failure::failed(error),
            _ => Failure::bad_input(Located::new(&self.arguments.input, error)),
        })?;
        let how = RunOptions {
            repeat: self.arguments.repeat.unwrap_or(REPEAT).into(),
            in_flight: self.in_flight,
            expected: self.plan.predicted.latency_us,
            on_queued: |server, queued| eprintln!("{server}: {queued}"),
        };
        let fleet = reach_all(&only(self.cluster, &deployment)).await?;
        let agents = agents_of(&deployment, &fleet).map_err(Failure::failed)?;
        let inputs = deployment.inputs.iter().map(|id| self.contents.of(*id)).collect::<Result<Vec<_>, _>>();
        let inputs = inputs.map_err(engine_failure)?;
        let record = execute(&deployment, &agents, &inputs, &given, &how).await;
        Ok((deployment, record))
    }
}

/// The model that the plan was made for.
fn load(arguments: &Run, plan: &Plan) -> Result<Model, Failure> {
    let path = arguments.model.clone().unwrap_or_else(|| resolve(&arguments.input, &plan.model.path));
    let source = ModelArguments { model: path.clone(), flags: arguments.flags.for_plan(&arguments.input, &plan.model) };
    let model = source.load()?;
    if model.import.hash != plan.model.blake3 {
        let what = "this is not the file that the plan was made for (its hash differs): make the plan again, or name the right \
                    one with --model";
        return Err(Failure::BadInput(Report::msg(format!("{}: {what}", path.display()))));
    }
    Ok(model)
}

/// The cluster that the plan was made for, or the one that is named instead.
fn cluster(arguments: &Run, plan: &Plan) -> Result<Cluster, Failure> {
    let cluster = match (arguments.cluster.path(), &plan.cluster) {
        (Some(path), _) => read_cluster(path)?,
        (None, Some(path)) => read_cluster(&resolve(&arguments.input, path))?,
        (None, None) => Cluster::embedded(),
    };
    Ok(arguments.cluster.with_wait(cluster))
}
