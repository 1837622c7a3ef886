//! A model planned for the agents of a cluster: import, profiles, problem, search.

use std::path::Path;

use miette::Report;

use super::{
    Plan,
    finish::{Found, finish, in_file, options, within_memory},
    like,
    rehearse::{Rehearsed, Theatre},
    rules,
    settle::Settling,
};
use crate::{
    agent::{
        fleet::Fleet,
        survey::{Lacking, Survey, Surveyed},
    },
    cli::{
        Failure, Outcome,
        cluster::{links, reach_all, runtime},
        model::ModelArguments,
        survey::profiles,
    },
    cluster::Inventory,
    graph::OperatorId,
    plan::{
        file::{ModelRef, Split},
        fitted::Fitted,
        problem::Targets,
        split::{self, Ratios, Sampled, Task, Ways},
    },
    profile::{Mode, Row, Sampling, Surroundings, files, items},
    run::{costs::Costs, in_place::InPlace, network, shards::Shards},
};

/// Plans the model of `arguments`, prints the plan and writes it to its files.
pub(super) fn run(arguments: &Plan) -> Outcome {
    let Some(model) = arguments.model.clone() else {
        return Err(Failure::BadInput(Report::msg("nothing to plan: give a model, or --workload FILE")));
    };
    let source = ModelArguments { model, flags: arguments.flags.clone() };
    let model = source.load()?;
    model.check_sizes(&source.model)?;
    let graph = &model.import.graph;
    let contents = model.contents(graph)?;
    let granularity = arguments.granularity.into();
    let items = items(graph, granularity);
    let names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
    let rules = rules::rules(arguments, &names)?;
    let cluster = arguments.cluster.read_with(&arguments.threads)?;
    let folder = Path::new(arguments.profile.first().map_or("profiles", String::as_str));
    let survey = Survey {
        graph,
        model: &source.stem(),
        model_hash: &model.import.hash,
        mode: Mode::Isolated,
        granularity,
        sampling: Sampling { budget: arguments.profile_budget, ..Sampling::default() },
        whole: false,
        fractions: None,
        again: false,
        lacking: if arguments.estimate { Lacking::Left } else { Lacking::Measured },
        folder,
        contents: contents.given(),
    };
    let runtime = runtime()?;
    let (fleet, inventory, profiles, like) = runtime.block_on(async {
        let fleet = reach_all(&cluster).await?;
        let devices = fleet.inventory(&cluster, Vec::new());
        rules::check(&rules, &names, &devices)?;
        let like = like::splits(arguments, &model.import.hash, granularity, &devices)?;
        let table = arguments.links.clone().unwrap_or_else(|| folder.join("links.csv"));
        let links = links(&fleet, &cluster, &table, false).await?;
        let inventory = fleet.inventory(&cluster, links);
        let profiles = profiles(&fleet, &cluster, &inventory, &survey).await?;
        let found: (Fleet, Inventory, Vec<Surveyed>, Option<Vec<Split>>) = (fleet, inventory, profiles, like);
        Ok::<_, Failure>(found)
    })?;

    let address =
        |device: &crate::cluster::DeviceName| cluster.server(&device.server).map(|server| server.place.clone());
    let network = network(&inventory, address, arguments.memory).map_err(Failure::failed)?;
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let mut costs = Costs::of(&items);
    for profile in &profiles {
        let others = if arguments.estimate { others(folder, profile)? } else { Vec::new() };
        costs.add(&profile.device.name.to_string(), &profile.rows, &others).map_err(Failure::bad_input)?;
    }
    let mut task = Task {
        ways: if arguments.no_split { Ways::none(graph, &groups) } else { Ways::of(graph, &groups) },
        names,
        costs: costs.rows,
        network,
        objective: arguments.objective,
        targets: Targets { latency: arguments.latency, throughput: arguments.throughput },
        shards: &Sampled::default(),
    };
    rules::apply(&rules, &mut task);
    let options = options(arguments);
    let displaces = Surroundings::bytes(graph);
    let shards = Shards::open(folder, &profiles, &items, survey.sampling, displaces);
    let mut shards = shards.map_err(Failure::bad_input)?;
    let rehearsals = match arguments.estimate || arguments.pareto {
        true => 0,
        false => arguments.rehearse.unwrap_or(REHEARSALS),
    };
    let rounds = match (arguments.estimate, rehearsals) {
        (true, _) => 0,
        (false, 0) => ROUNDS,
        // Rehearsals say it better.
        (false, _) => ROUNDS_BEFORE_REHEARSALS,
    };
    let mut settling =
        Settling { task: &task, options: &options, shards: &mut shards, fleet: &fleet, runtime: &runtime, rounds };
    let within = |task: &Task<'_>, answer| within_memory(arguments, task, answer, &options);
    let (fitted, told) = match &like {
        None => {
            let (answer, told) = settling.settled(arguments.ratios)?;
            settling.refitted(answer, told, &within)?
        }
        Some(splits) => {
            let told = settling.told();
            let task = Task { shards: &told, ..task.clone() };
            let answer = split::plan_like(&task, &options, arguments.ratios, splits);
            (within(&task, answer)?, told)
        }
    };
    let reference = ModelRef {
        path: source.model.display().to_string(),
        blake3: model.import.hash.clone(),
        bind_dims: source.flags.bind_dim.clone(),
        inputs: source.flags.inputs.as_ref().filter(|_| model.selected).map(|inputs| inputs.display().to_string()),
    };
    let threads: Vec<Option<u32>> = inventory.devices.iter().map(|device| Some(device.threads)).collect();
    let known_alone = Task { shards: &told, ..task.clone() };
    let theatre = Theatre {
        fleet: &fleet,
        cluster: &cluster,
        model: &model,
        runtime: &runtime,
        options: &options,
        is_free: arguments.ratios == Ratios::Tuned && arguments.like.is_none(),
        rounds: rehearsals,
        within: &within,
        in_file: &|answer| in_file(arguments, granularity, &reference, &threads, answer),
    };
    let is_rehearsed = rehearsals > 0;
    let (Rehearsed { fitted, known, notes }, told) = match is_rehearsed {
        true => settling.weighed(theatre.rehearsed(&known_alone, &told, fitted)?, told.clone()),
        false => (Rehearsed { fitted, known: InPlace::default(), notes: Vec::new() }, told),
    };
    let Fitted { answer, schedules } = fitted;
    let (task, sampled) = Theatre::with(&known, &task, &told);
    let task = Task { shards: &sampled, ..task };
    let mut estimated = costs.estimated;
    estimated.retain(|(device, group)| !known.has(*device, *group));
    let found = Found {
        task: &task,
        answer,
        is_measured: is_rehearsed && !schedules.is_empty(),
        schedules,
        sampled: &sampled,
        estimated,
        reference: reference.clone(),
        rules,
        threads: threads.clone(),
        notes,
    };
    finish(arguments, &options, granularity, found)
}

/// What was measured of other models on the device of `profile`.
fn others(folder: &Path, profile: &Surveyed) -> Result<Vec<Row>, Failure> {
    let all = match folder.is_dir() {
        true => files::read_all(&[folder.to_path_buf()]).map_err(Failure::bad_input)?,
        false => Vec::new(),
    };
    let alike = |row: &Row| profile.key.is_of_device(row) && row.mode == profile.key.mode;
    Ok(all.into_iter().filter(alike).collect())
}

/// Rounds of rehearsal if nothing is said.
const REHEARSALS: usize = 3;

/// How often a plan is made anew after its shards were measured.
const ROUNDS: usize = 24;
const ROUNDS_BEFORE_REHEARSALS: usize = 2;
