//! `edgecut memory MODEL --cluster FILE --run`: a schedule on the agents of its cluster, with tensors on a neighbour
//! meanwhile, beside program order on the same agent.

use std::path::Path;

use miette::Report;
use tokio::runtime::Runtime;

use super::{
    Memory, schedule,
    subject::{InProportion, Subject},
};
use crate::{
    agent::fleet::Fleet,
    cli::{
        Failure, Outcome,
        cluster::{links, reach_all, read_cluster, runtime},
        contents::{Contents, Given, engine_failure},
        deployed::{on_this_machine, outputs},
        file,
        format::Format,
    },
    cluster::{Cluster, DeviceName},
    graph::{Granularity, TensorData},
    memory::{
        check,
        model::{Costs, Fitted, Schedule, Stepped},
        workload::Target,
    },
    plan::{
        self, DeviceId,
        away::{Away, Hosts, away},
        file::ModelRef,
        problem::Cost,
    },
    run::{
        self, Difference, network,
        perform::{PerformError, Stage, perform},
    },
    units::{Bytes, Micros},
};

/// Where measured links are kept.
const LINKS: &str = "profiles/links.csv";
/// Runs that count.
const REPEAT: u64 = 10;

/// What running a plan came to.
struct Ran {
    outputs: Vec<TensorData>,
    time: Micros,
    /// On the device that computes: parameters, and the most of all else at one time.
    parameters: Bytes,
    peak: Bytes,
    /// The most that a step took there beyond what was predicted of it.
    scratch: Bytes,
    /// On the neighbour.
    there: Bytes,
}

/// The agents, and who does what.
struct Place<'a> {
    memory: &'a Memory,
    subject: &'a Subject,
    cluster: Cluster,
    fleet: Fleet,
    runtime: Runtime,
    hosts: Hosts<'a>,
}

/// Chooses a schedule by what it comes to as a plan of both devices, runs it, and prints what was measured.
pub fn run(memory: &Memory, subject: &Subject, fitted: &Fitted, target: Target, neighbour: &str) -> Outcome {
    let copy = |bytes: Bytes| InProportion.copy(bytes);
    let place = Place::reach(memory, subject, neighbour, &copy)?;
    let (best, chosen) = place.chosen(fitted, target)?;
    let stepped = Stepped { graph: subject.graph.clone(), groups: subject.groups.clone() };
    check::values::values(&best.variant.stepped.graph, &chosen.graph).map_err(Failure::failed)?;
    if let Some(path) = &memory.output {
        file::write(path, schedule::lines(&best.graph()).as_bytes())?;
    }
    let in_order = stepped.in_order().map_err(Failure::bad_input)?;
    let costs: Vec<Cost> = stepped.groups.iter().map(|group| cost(group.time, group.workspace)).collect();
    let plain = away(&in_order, &costs, &place.hosts).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
    let (plain, ran) = (place.run(&plain)?, place.run(&chosen)?);
    let contents = Contents::new(&subject.graph, Given::default(), &subject.params)?;
    let difference = Difference::between(&ran.outputs, &on_this_machine(&subject.graph, &contents)?);
    let arena = place.arena(&chosen);
    let row = schedule::Point {
        arena_bytes: Some(arena),
        run_peak_bytes: Some(ran.peak),
        run_time_us: Some(ran.time),
        run_parameter_bytes: Some(ran.parameters),
        plain_peak_bytes: Some(plain.peak),
        plain_time_us: Some(plain.time),
        plain_parameter_bytes: Some(plain.parameters),
        wrong: Some(difference.wrong),
        neighbour_peak_bytes: Some(ran.there),
        ..schedule::detailed(fitted, &best)
    };
    schedule::print(memory, subject, &[row], fitted)?;
    if memory.format == Format::Table {
        let here = &chosen.problem.device(place.hosts.here).full_name();
        let predicted = chosen.solution.evaluation.latency();
        println!("predicted of both devices: {predicted}, an arena of {arena} on {here}");
        println!("{:<16} {:>14} {:>12} {:>12} {:>12}", "measured", "with scratch", "parameters", "neighbour", "time");
        for (name, ran) in [("schedule", &ran), ("program order", &plain)] {
            let [peak, parameters, there] = [ran.peak, ran.parameters, ran.there].map(|bytes| bytes.to_string());
            println!("{name:<16} {peak:>14} {parameters:>12} {there:>12} {:>12}", ran.time.to_string());
        }
        println!("results          {difference}");
    }
    let flaw = if !difference.is_tolerable() {
        format!("the schedule's results are not the model's: {difference}")
    } else if ran.peak > arena + ran.scratch {
        let (peak, scratch) = (ran.peak, ran.scratch);
        format!(
            "the schedule took {peak} when it ran; an arena of {arena} was predicted, and steps took {scratch} more"
        )
    } else {
        return Ok(());
    };
    Err(Failure::Failed(Report::msg(flaw)))
}

fn cost(time: Micros, workspace: Bytes) -> Cost {
    Cost { time, workspace, held: Bytes::ZERO }
}

impl<'a> Place<'a> {
    fn reach(
        memory: &'a Memory,
        subject: &'a Subject,
        neighbour: &str,
        copy: &'a dyn Fn(Bytes) -> Micros,
    ) -> Result<Place<'a>, Failure> {
        let cluster = memory.cluster.as_deref().map_or_else(|| Ok(Cluster::embedded()), read_cluster)?;
        let runtime = runtime()?;
        let (fleet, inventory) = runtime.block_on(async {
            let fleet = reach_all(&cluster).await?;
            let links = links(&fleet, &cluster, Path::new(LINKS), false).await?;
            let inventory = fleet.inventory(&cluster, links);
            Ok::<_, Failure>((fleet, inventory))
        })?;
        let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.place.clone());
        let network = network(&inventory, address, None).map_err(Failure::failed)?;
        let there = network.devices.iter().position(|device| device.server == neighbour);
        let there = there.ok_or_else(|| Failure::Failed(Report::msg(format!("{neighbour} offers no device"))))?;
        let hosts = Hosts { here: network.source, there: DeviceId(there as u32), network, copy };
        Ok(Place { memory, subject, cluster, fleet, runtime, hosts })
    }

    /// What the computing device must reserve.
    fn arena(&self, away: &Away) -> Bytes {
        away.solution.arenas[self.hosts.here.0 as usize]
    }

    /// The fastest schedule whose plan keeps a limit; under a slowdown the one that is predicted to.
    fn chosen<'f>(&self, fitted: &'f Fitted, target: Target) -> Result<(Schedule<'f>, Away), Failure> {
        let first = schedule::chosen(fitted, target);
        let limit = match target {
            Target::Limit(limit) => limit.of(Bytes(fitted.original.0)),
            Target::Slowdown(_) => Bytes(u64::MAX),
        };
        let peak = first.map_or(0, |first| first.peak);
        let mut least = None;
        for schedule in fitted.front().into_iter().rev().filter(|schedule| schedule.peak <= peak) {
            let costs: Vec<Cost> = schedule.costs().into_iter().map(|(time, space)| cost(time, space)).collect();
            let Ok(planned) = away(&schedule.graph(), &costs, &self.hosts) else { continue };
            let arena = self.arena(&planned);
            if arena <= limit {
                return Ok((schedule, planned));
            }
            least = Some(least.map_or(arena, |least: Bytes| least.min(arena)));
        }
        let found = least.map_or(String::new(), |least| format!(": the smallest arena found takes {least}"));
        let bound = Bytes(fitted.least_peak);
        Err(Failure::NoPlan(Report::msg(format!("no schedule keeps the target{found}; the lower bound is {bound}"))))
    }

    /// Runs a plan on the agents.
    fn run(&self, away: &Away) -> Result<Ran, Failure> {
        let (problem, solution) = (&away.problem, &away.solution);
        let plan = plan::Plan::new(problem, solution, ModelRef::default(), Granularity::Fused, self.memory.seed);
        plan::check::plan(problem, &plan).map_err(Failure::failed)?;
        let contents = Contents::new(&away.graph, Given::default(), &self.subject.params)?;
        let given = contents.given();
        let stage = Stage {
            fleet: &self.fleet,
            cluster: &self.cluster,
            graph: &away.graph,
            content: &|id| contents.of(id),
            given: &given,
        };
        let performed = self.runtime.block_on(perform(&stage, &plan, REPEAT, 1));
        let (deployment, record) = performed.map_err(|error| match error {
            PerformError::Contents(error) => engine_failure(error),
            error => Failure::failed(error),
        })?;
        let outcome = run::Outcome::of(&plan, &deployment, &record);
        let outcome = outcome.ok_or_else(|| Failure::Failed(Report::msg("no run was measured")))?;
        let memory = |device: DeviceId| outcome.memory.iter().find(|m| m.device == problem.device(device).full_name());
        let beside = |device: DeviceId| memory(device).map(|m| m.peak_bytes - m.parameter_bytes).unwrap_or_default();
        let here = problem.device(self.hosts.here).full_name();
        let groups = outcome.groups.iter().filter(|group| group.device == here);
        let scratch = groups.map(|group| group.predicted_workspace_bytes.shortfall(group.workspace_bytes));
        Ok(Ran {
            outputs: outputs(&deployment, &record, &contents)?,
            time: outcome.latency.median_us,
            parameters: memory(self.hosts.here).map(|m| m.parameter_bytes).unwrap_or_default(),
            peak: beside(self.hosts.here),
            scratch: scratch.max().unwrap_or_default(),
            there: beside(self.hosts.there),
        })
    }
}
