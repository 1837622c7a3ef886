//! Schedules whose tensors wait on the nearest other server, run on the agents of both and compared with program order.

use std::path::Path;

use edgecut_agent::{
    Cluster, LinkTable,
    client::Fleet,
    nearest::nearest as nearest_server,
    results::{Difference, Tolerance},
};
use edgecut_graph::{
    DeviceName, Graph, LinkCost, TensorId,
    units::{Bytes, Micros},
};
use edgecut_memory::{
    check,
    model::{GroupCosts, ScheduleFront},
    roofline::Roofline,
    target::Target,
};
use edgecut_plan::{
    DeviceId, NoPlan,
    offload::{
        OffloadDevices, OffloadPlan,
        choose::{choose, cost},
        offload,
    },
    problem::Cost,
};
use tokio::runtime::Runtime;

use super::row::ScheduleRow;
pub use crate::run::offload::OffloadRun;
use crate::{
    Error, Events,
    cluster::{connect_all, links, read_cluster},
    memory::subject::MemorySubject,
    model::contents::{Contents, engine_error},
    outputs::on_this_machine,
    profile::{DEFAULT_FOLDER, link_table_in},
    request::network,
    run::{
        offload::{OffloadRunError, OffloadRunner},
        outputs::OutputError,
        perform::PerformError,
    },
    runtime::runtime,
};

/// A schedule that ran on the agents of two servers, and the model in program order.
pub struct OffloadExecution {
    /// The device that computes.
    pub device: DeviceName,
    /// Its predicted arena.
    pub arena: Bytes,
    /// The predicted time of both devices.
    pub predicted: Micros,
    pub schedule: OffloadRun,
    pub program_order: OffloadRun,
    /// Of the schedule's results from the model's.
    pub difference: Difference,
}

impl OffloadExecution {
    /// Checks the run.
    ///
    /// # Errors
    /// If its results are not the model's, or it took more memory than was predicted.
    pub fn check(&self) -> Result<(), Error> {
        self.schedule.check(self.arena, self.difference).map_err(Error::failed)
    }
}

/// The server that the source of the cluster can copy to and back from in the least time, and what a copy costs.
pub(super) fn nearest(path: &Path, events: &Events) -> Result<(String, LinkCost), Error> {
    let cluster = read_cluster(path, events)?;
    let measured = LinkTable::load(&link_table_in(Path::new(DEFAULT_FOLDER))).map_err(Error::bad_input)?;
    nearest_server(&cluster, &measured).ok_or_else(|| {
        let (here, path) = (&cluster.source, path.display());
        let text = format!(
            "{path}: no link from `{here}` to another server and back is known; `edgecut devices` with \
             option `cluster={path}` measures them, or give them as [[link]] in the file"
        );
        Error::BadInput(text.into())
    })
}

/// The agents and links of the cluster.
struct Agents {
    cluster: Cluster,
    fleet: Fleet,
    runtime: Runtime,
}

/// Chooses a schedule by its plan of both devices, and runs it and program order. Returns its row and its steps as CSV.
pub(super) fn run(
    subject: &MemorySubject,
    fitted: &ScheduleFront,
    target: Target,
    seed: u64,
    (cluster, neighbour): (&Path, &str),
    events: &Events,
) -> Result<(ScheduleRow, String, OffloadExecution), Error> {
    let copy = |bytes: Bytes| Roofline::default().copy(bytes);
    let (agents, devices) = reach(cluster, neighbour, &copy, events)?;
    let (best, chosen) = choose(fitted, target, &devices).map_err(|why| Error::NoPlan(why.to_string().into()))?;
    check::values::values(&best.variant.grouped.graph, &chosen.graph).map_err(Error::failed)?;
    let no_plan = |why: NoPlan| Error::NoPlan(why.to_string().into());
    let program_order = program_order(subject, &devices)?.map_err(no_plan)?;

    let whole = &subject.problem.graph;
    let params = subject.params_of_run()?;
    let contents = Contents::new(whole, subject.given.clone(), &params)?.within_ranges_of(whole);
    let given = contents.given();
    let content = |graph: &Graph, id: TensorId| contents.of_tensor(graph.tensor(id));
    let Agents { cluster, fleet, runtime } = &agents;
    let runner = OffloadRunner { fleet, cluster, devices: &devices, content: &content, given: &given };
    let run = |plan: &OffloadPlan| runtime.block_on(runner.run(plan, seed)).map_err(run_error);
    let (plain, ran) = (run(&program_order)?, run(&chosen)?);
    let wanted = on_this_machine(whole, &contents, &[]).map_err(engine_error)?;
    let difference = Difference::between(&ran.outputs, &wanted, Tolerance::of(whole));

    let arena = chosen.arena(devices.device);
    let mut row = ScheduleRow::detailed(fitted, &best);
    row.arena_bytes = Some(arena);
    row.add_offload(&ran, &plain, &difference);
    let execution = OffloadExecution {
        device: chosen.problem.device(devices.device).device_name(),
        arena,
        predicted: chosen.solution.evaluation.latency(),
        schedule: ran,
        program_order: plain,
        difference,
    };
    Ok((row, best.graph().to_csv(), execution))
}

/// Reaches the agents, and determines which devices compute and keep.
fn reach<'a>(
    cluster: &Path,
    neighbour: &str,
    copy: &'a dyn Fn(Bytes) -> Micros,
    events: &Events,
) -> Result<(Agents, OffloadDevices<'a>), Error> {
    let cluster = read_cluster(cluster, events)?;
    let runtime = runtime()?;
    let (fleet, inventory) = runtime.block_on(async {
        let fleet = connect_all(&cluster, events).await?;
        let links = links(&fleet, &cluster, &link_table_in(Path::new(DEFAULT_FOLDER)), false, events).await?;
        let inventory = fleet.inventory(&cluster, links);
        Ok::<_, Error>((fleet, inventory))
    })?;
    let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.endpoint.clone());
    let network = network(&inventory, address, None).map_err(Error::failed)?;
    let there = network.devices.iter().position(|device| device.server == neighbour);
    let there = there.ok_or_else(|| Error::Failed(format!("{neighbour} offers no device").into()))?;
    let devices = OffloadDevices { device: network.source, host: DeviceId(there as u32), network, copy };
    Ok((Agents { cluster, fleet, runtime }, devices))
}

/// The model's groups in program order, as a plan of the same devices.
fn program_order(subject: &MemorySubject, devices: &OffloadDevices<'_>) -> Result<Result<OffloadPlan, NoPlan>, Error> {
    let grouped = subject.problem.grouped();
    let costs: Vec<Cost> = grouped.groups.iter().map(|group| cost((group.time, group.workspace))).collect();
    let in_order = grouped.in_order().map_err(Error::bad_input)?;
    Ok(offload(&in_order, &costs, devices))
}

fn run_error(error: OffloadRunError) -> Error {
    match error {
        OffloadRunError::Perform(PerformError::Contents(error))
        | OffloadRunError::Outputs(OutputError::Content(error)) => engine_error(error),
        error => Error::failed(error),
    }
}
