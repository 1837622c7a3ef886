//! `--cluster`: tensors wait on the nearest other server; with `--run` on its agents, compared with program order.

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
use edgecut_session::{
    cluster::{connect_all, links, read_cluster},
    error::Message,
    model::contents::{Contents, engine_error},
    outputs::on_this_machine,
    request::network,
    run::{
        offload::{OffloadRun, OffloadRunError, OffloadRunner},
        outputs::OutputError,
        perform::PerformError,
    },
    runtime::runtime,
};
use tokio::runtime::Runtime;

use super::{
    flags::Schedule,
    notes::notes,
    rows::{self, Row},
};
use crate::{Failure, Outcome, format::Format, memory::subject::Subject, source_file, stderr, stdout::print_line};

/// Where measured links are kept.
const LINKS: &str = "profiles/links.csv";

/// The server that the source of the cluster can copy to and back from in the least time, and what a copy costs.
pub(super) fn nearest(path: &Path) -> Result<(String, LinkCost), Failure> {
    let cluster = read_cluster(path, &stderr::events())?;
    let measured = LinkTable::load(Path::new(LINKS)).map_err(Failure::bad_input)?;
    nearest_server(&cluster, &measured).ok_or_else(|| {
        let (here, path) = (&cluster.source, path.display());
        Failure::BadInput(Message::from(format!(
            "{path}: no link from `{here}` to another server and back is known; `edgecut devices --cluster {path}` \
             measures them, or give them as [[link]] in the file"
        )))
    })
}

/// The agents and links of the cluster.
struct Agents {
    cluster: Cluster,
    fleet: Fleet,
    runtime: Runtime,
}

/// Chooses a schedule by its plan of both devices, runs it and program order, and prints what was measured.
pub(super) fn run(
    arguments: &Schedule,
    subject: &Subject,
    fitted: &ScheduleFront,
    target: Target,
    neighbour: &str,
) -> Outcome {
    let copy = |bytes: Bytes| Roofline::default().copy(bytes);
    let (agents, devices) = reach(arguments, neighbour, &copy)?;
    let (best, chosen) =
        choose(fitted, target, &devices).map_err(|why| Failure::NoPlan(Message::from(why.to_string())))?;
    check::values::values(&best.variant.grouped.graph, &chosen.graph).map_err(Failure::failed)?;
    let no_plan = |why: NoPlan| Failure::NoPlan(Message::from(why.to_string()));
    let program_order = program_order(subject, &devices)?.map_err(no_plan)?;

    let whole = &subject.problem.graph;
    let params = subject.params_of_run()?;
    let contents = Contents::new(whole, subject.given.clone(), &params)?.within_ranges_of(whole);
    let given = contents.given();
    let content = |graph: &Graph, id: TensorId| contents.of_tensor(graph.tensor(id));
    let Agents { cluster, fleet, runtime } = &agents;
    let runner = OffloadRunner { fleet, cluster, devices: &devices, content: &content, given: &given };
    let run = |plan: &OffloadPlan| runtime.block_on(runner.run(plan, arguments.search.seed)).map_err(run_failure);
    let (plain, ran) = (run(&program_order)?, run(&chosen)?);
    let wanted = on_this_machine(whole, &contents, &[]).map_err(engine_error)?;
    let difference = Difference::between(&ran.outputs, &wanted, Tolerance::of(whole));

    let arena = chosen.arena(devices.device);
    let row = measured_row(Row::detailed(fitted, &best), arena, &ran, &plain, &difference);
    rows::print(arguments.format, &[row], &notes(arguments, subject, fitted))?;
    if arguments.format == Format::Table {
        let here = chosen.problem.device(devices.device).device_name();
        let predicted = chosen.solution.evaluation.latency();
        print_line!("predicted of both devices: {predicted}, an arena of {arena} on {here}");
        print_runs(&[("schedule", &ran), ("program order", &plain)]);
        print_line!("results          {difference}");
    }
    let write = |path: &Path| source_file::write(path, best.graph().to_csv().as_bytes());
    arguments.output.as_deref().map_or(Ok(()), write)?;
    ran.check(arena, difference).map_err(Failure::failed)
}

/// Reaches the agents, and says which devices compute and keep.
fn reach<'a>(
    arguments: &Schedule,
    neighbour: &str,
    copy: &'a dyn Fn(Bytes) -> Micros,
) -> Result<(Agents, OffloadDevices<'a>), Failure> {
    let events = stderr::events();
    let cluster = arguments
        .execution
        .cluster
        .as_deref()
        .map_or_else(|| Ok(Cluster::embedded()), |path| read_cluster(path, &events))?;
    let runtime = runtime()?;
    let (fleet, inventory) = runtime.block_on(async {
        let fleet = connect_all(&cluster, &events).await?;
        let links = links(&fleet, &cluster, Path::new(LINKS), false, &events).await?;
        let inventory = fleet.inventory(&cluster, links);
        Ok::<_, Failure>((fleet, inventory))
    })?;
    let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.endpoint.clone());
    let network = network(&inventory, address, None).map_err(Failure::failed)?;
    let there = network.devices.iter().position(|device| device.server == neighbour);
    let there = there.ok_or_else(|| Failure::Failed(Message::from(format!("{neighbour} offers no device"))))?;
    let devices = OffloadDevices { device: network.source, host: DeviceId(there as u32), network, copy };
    Ok((Agents { cluster, fleet, runtime }, devices))
}

/// The model's groups in program order, as a plan of the same devices.
fn program_order(subject: &Subject, devices: &OffloadDevices<'_>) -> Result<Result<OffloadPlan, NoPlan>, Failure> {
    let grouped = subject.problem.grouped();
    let costs: Vec<Cost> = grouped.groups.iter().map(|group| cost((group.time, group.workspace))).collect();
    let in_order = grouped.in_order().map_err(Failure::bad_input)?;
    Ok(offload(&in_order, &costs, devices))
}

fn measured_row(row: Row, arena: Bytes, ran: &OffloadRun, plain: &OffloadRun, difference: &Difference) -> Row {
    Row {
        arena_bytes: Some(arena),
        run_peak_bytes: Some(ran.peak),
        run_time_us: Some(ran.time),
        run_parameter_bytes: Some(ran.parameters),
        plain_peak_bytes: Some(plain.peak),
        plain_time_us: Some(plain.time),
        plain_parameter_bytes: Some(plain.parameters),
        wrong: Some(difference.wrong),
        neighbour_peak_bytes: Some(ran.neighbour_peak),
        ..row
    }
}

fn print_runs(runs: &[(&str, &OffloadRun)]) {
    print_line!("{:<16} {:>14} {:>12} {:>12} {:>12}", "measured", "with scratch", "parameters", "neighbour", "time");
    for (name, ran) in runs {
        let [peak, parameters, neighbour] =
            [ran.peak, ran.parameters, ran.neighbour_peak].map(|bytes| bytes.to_string());
        print_line!("{name:<16} {peak:>14} {parameters:>12} {neighbour:>12} {:>12}", ran.time.to_string());
    }
}

fn run_failure(error: OffloadRunError) -> Failure {
    match error {
        OffloadRunError::Perform(PerformError::Contents(error))
        | OffloadRunError::Outputs(OutputError::Content(error)) => engine_error(error),
        error => Failure::failed(error),
    }
}
