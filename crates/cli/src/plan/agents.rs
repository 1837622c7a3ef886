//! A model planned for the agents of a cluster: profiles, measured shards and pilot runs.

use std::{collections::BTreeMap, path::Path};

use edgecut_cluster::{
    Inventory,
    run::{
        pilot::{PilotAgents, PilotOptions, plan_on_agents, rehearsed},
        request::{DeviceRows, ModelGroups, energy_warnings},
        shards::Shards,
    },
    survey::{DeviceProfile, MissingPolicy, SurveyRequest},
};
use edgecut_graph::{DeviceName, Graph, units::Bytes};
use edgecut_plan::{Candidate, problem::Objective, rule};
use edgecut_profile::{CacheFlush, Calibration, MeasurementMode, Sampling};

use super::{
    flags::Plan,
    found::{Found, Rehearse},
    moved,
    progress::{self, PlanProgress},
};
use crate::{
    Failure,
    calibration::{self, Calibrations},
    caller::{is_stopped, notice, status},
    cluster_flag::{links, reach_all, runtime},
    model::ModelArguments,
    survey::{profiles, stored_profiles},
};

/// Plans the model of `arguments`.
pub(super) fn run<T>(arguments: &Plan, finish: impl FnOnce(Found<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
    let model = arguments.model.clone();
    let source = ModelArguments { model, flags: arguments.flags.for_engine(&arguments.engine) };
    let model = source.load()?;
    model.check_sizes(&source.model)?;
    let graph = &model.import.graph;
    let given = model.contents(graph)?.given();
    let groups = ModelGroups::of(graph, arguments.granularity.into());
    let settings = arguments.settings(arguments.model_ref(&source.model, &model.import.hash, model.selected)?)?;
    rule::check_groups(&settings.rules, &groups.group_names()).map_err(Failure::bad_input)?;
    let cluster = arguments.cluster.read_with(&arguments.threads, &arguments.engine)?;
    let folder = Path::new(arguments.profile.first().map_or("profiles", String::as_str));
    let stem = source.stem();
    let survey =
        SurveyRequest { contents: given.clone(), ..survey_of(arguments, graph, &stem, &model.import.hash, folder)? };
    let rows_of = |surveyed: &DeviceProfile| match arguments.estimate {
        true => DeviceRows::with_related(surveyed, folder).map_err(Failure::bad_input),
        false => Ok(DeviceRows::from(surveyed)),
    };
    let runtime = runtime()?;
    let (fleet, inventory, surveyed, calibrations) = runtime.block_on(async {
        let fleet = reach_all(&cluster).await?;
        let inventory = fleet.inventory(&cluster, Vec::new());
        settings.check(&groups, &inventory).map_err(|e| arguments.failure(e))?;
        warn_of_memory(arguments, &inventory);
        moved::check(arguments, &groups, &inventory, settings.like.as_ref())?;
        if arguments.objective == Objective::Energy {
            let stored = stored_profiles(&fleet, &cluster, &inventory, &survey).await?;
            let known = stored.iter().map(rows_of).collect::<Result<Vec<_>, _>>()?;
            let absent = |device: &DeviceName| fleet.energy_absent(device).map(str::to_string);
            let checked = settings.check_energy(&groups, &inventory.devices, &known, !arguments.estimate, absent);
            checked.map_err(|e| arguments.failure(e))?;
        }
        let table = arguments.links.clone().unwrap_or_else(|| folder.join("links.csv"));
        let inventory = fleet.inventory(&cluster, links(&fleet, &cluster, &table, false).await?);
        let table = arguments.calibration.clone().unwrap_or_else(|| folder.join(calibration::FILE));
        let calibrations = Calibrations::read(&table, &inventory.devices)?;
        let surveyed = profiles(&fleet, &cluster, &inventory, &survey).await?;
        Ok::<_, Failure>((fleet, inventory, surveyed, calibrations))
    })?;
    let profile = |(surveyed, calibration): (&DeviceProfile, &Option<Calibration>)| {
        Ok(DeviceRows { calibration: *calibration, ..rows_of(surveyed)? })
    };
    let measured = surveyed.iter().zip(&calibrations.found).map(profile).collect::<Result<Vec<_>, Failure>>()?;
    let address = |device: &DeviceName| cluster.server(&device.server).map(|server| server.endpoint.clone());
    let request = settings.request(&groups, &inventory, &measured, address);
    let mut request = request.map_err(|error| arguments.failure(error))?;
    if let Some(other) = settings.like.as_ref().filter(|_| !arguments.moves.is_empty()) {
        return finish(Found::Moves { request: &request, of: other });
    }
    request.search.stop = progress::stop(arguments.longest(true))?;

    let shards = Shards::open(folder, &surveyed, &groups.items, survey.sampling, CacheFlush::working_set(graph));
    let applied = measured.iter().map(|profile| groups.calibration(profile)).collect();
    let mut shards = shards.map_err(Failure::bad_input)?.with_calibrations(applied);
    let agents = PilotAgents { fleet: &fleet, cluster: &cluster, given: &given, runtime: &runtime };
    let options = options(arguments);
    let progress = PlanProgress::new(request.search.stop);
    let planned = plan_on_agents(&agents, &request, &mut shards, &options, &|event| progress.show(&event));
    drop(progress);
    // Even a plan that was found: it is not the one that was asked for.
    if is_stopped() {
        return Err(Failure::Stopped);
    }
    let planned = planned.map_err(|error| arguments.planning_failure(error))?;
    if !arguments.pareto && request.search.stop.is_over() {
        status!("time limit reached: this is the best plan so far{}", arguments.longer());
    }
    if arguments.pareto {
        let options = PilotOptions::default();
        let rehearse = |candidate: &Candidate| {
            let run = rehearsed(&agents, &planned.request, candidate, &options);
            run.map_err(|error| arguments.planning_failure(error))
        };
        let rehearse: Option<&Rehearse<'_>> = arguments.has_pilot_runs().then_some(&rehearse);
        return finish(Found::Front { request: &planned.request, rehearse });
    }
    let notes = calibrations.notes().into_iter().chain(energy_warnings(&inventory, &measured)).collect();
    finish(Found::Candidate { request: &planned.request, candidate: &planned.candidate, notes })
}

/// What is measured of each group, without contents.
fn survey_of<'a>(
    arguments: &Plan,
    graph: &'a Graph,
    model: &'a str,
    model_hash: &'a str,
    folder: &'a Path,
) -> Result<SurveyRequest<'a>, Failure> {
    Ok(SurveyRequest {
        graph,
        model,
        model_hash,
        binding: arguments.flags.profiled_binding()?,
        mode: MeasurementMode::Isolated,
        granularity: arguments.granularity.into(),
        sampling: Sampling { budget: arguments.profile_budget, ..Sampling::default() },
        whole: false,
        shard_budget: None,
        remeasure: false,
        missing: if arguments.estimate { MissingPolicy::Skip } else { MissingPolicy::Measure },
        folder,
        contents: BTreeMap::new(),
    })
}

/// Warns of a limit of memory that no device can exceed.
fn warn_of_memory(arguments: &Plan, inventory: &Inventory) {
    let largest = inventory.devices.iter().max_by_key(|device| device.memory);
    if let (Some(limit), Some(largest)) = (arguments.memory, largest)
        && largest.memory > Bytes::ZERO
        && limit > largest.memory
    {
        let (name, has) = (&largest.name, largest.memory);
        notice!("warning: --memory {limit} has no effect: the largest device, {name}, has {has}");
    }
}

/// What is measured and run beyond profiles before a plan is chosen. Of a front only the ends are run, later.
fn options(arguments: &Plan) -> PilotOptions {
    match (arguments.estimate, arguments.pareto, arguments.rehearse) {
        (true, ..) => PilotOptions { search_share: front_share(arguments), ..PilotOptions::estimates_only() },
        (false, true, _) => PilotOptions { search_share: front_share(arguments), ..PilotOptions::none() },
        (false, false, None) => PilotOptions::default(),
        (false, false, Some(0)) => PilotOptions::none(),
        (false, false, Some(rounds)) => PilotOptions { rounds, ..PilotOptions::default() },
    }
}

/// The part of the time limit before the front, which measures shards for it.
fn front_share(arguments: &Plan) -> f64 {
    if arguments.pareto { 0.25 } else { 1.0 }
}
