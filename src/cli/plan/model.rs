//! A model planned: import, profiles, problem, search, check, print.

use std::path::PathBuf;

use miette::Report;

use super::{
    Plan,
    pin::pin,
    print::{print, print_front},
};
use tokio::runtime::Runtime;

use crate::{
    agent::{
        fleet::Fleet,
        survey::{Survey, Surveyed},
    },
    cli::{
        Failure, Outcome,
        cluster::{links, reach_all, runtime},
        file,
        model::ModelArguments,
        survey::profiles,
    },
    cluster::Inventory,
    graph::OperatorId,
    plan::{
        self, check,
        file::ModelRef,
        problem::{Cost, Targets},
        search::Options,
        split::{self, Answer, Ratios, Sampled, Task, Ways, front},
        table,
    },
    profile::{Mode, Row, Sampling, Surroundings, items},
    run::{
        network,
        shards::{Shards, planned},
    },
    units::Bytes,
};

/// Plans the model of `arguments`, prints the plan and writes it to its files.
pub(super) fn run(arguments: &Plan) -> Outcome {
    let Some(model) = arguments.model.clone() else {
        return Err(Failure::BadInput(Report::msg("nothing to plan: give a model, or --workload FILE")));
    };
    let source = ModelArguments { model, flags: arguments.flags.clone() };
    let model = source.load()?;
    let graph = &model.import.graph;
    let contents = model.contents(graph)?;
    let cluster = arguments.cluster.read_with(&arguments.threads)?;
    let granularity = arguments.granularity.into();
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
        folder: &arguments.profile,
        contents: contents.given(),
    };
    let runtime = runtime()?;
    let (fleet, inventory, profiles) = runtime.block_on(async {
        let fleet = reach_all(&cluster).await?;
        let table = arguments.links.clone().unwrap_or_else(|| arguments.profile.join("links.csv"));
        let links = links(&fleet, &cluster, &table, false).await?;
        let inventory = fleet.inventory(&cluster, links);
        let profiles = profiles(&fleet, &cluster, &inventory, &survey).await?;
        Ok::<(Fleet, Inventory, Vec<Surveyed>), Failure>((fleet, inventory, profiles))
    })?;

    let address =
        |device: &crate::cluster::DeviceName| cluster.server(&device.server).map(|server| server.place.clone());
    let network = network(&inventory, address, arguments.memory).map_err(Failure::failed)?;
    let items = items(graph, granularity);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let row = |index: usize| profiles.iter().map(|profile| profile.rows.get(index).and_then(cost)).collect();
    let mut task = Task {
        ways: if arguments.no_split { Ways::none(graph, &groups) } else { Ways::of(graph, &groups) },
        names: items.iter().map(|item| item.name.clone()).collect(),
        costs: (0..items.len()).map(row).collect(),
        network,
        objective: arguments.objective,
        targets: Targets { latency: arguments.latency, throughput: arguments.throughput },
        shards: &Sampled::default(),
    };
    pin(&mut task, &arguments.pin)?;
    let options = Options {
        seed: arguments.seed,
        budget: arguments.budget.unwrap_or(Options::default().budget),
        ..Options::default()
    };
    let displaces = Surroundings::bytes(graph);
    let shards = Shards::open(&arguments.profile, &profiles, &items, survey.sampling, displaces);
    let mut shards = shards.map_err(Failure::bad_input)?;
    let (answer, sampled) = settle(&task, &options, arguments.ratios, &mut shards, &fleet, &runtime)?;
    task.shards = &sampled;
    if arguments.pareto {
        let points = front::front(&task, &options).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
        return print_front(arguments.format, &points);
    }
    let advice = if arguments.advise { front::without(&task, &answer, &options) } else { Vec::new() };
    let (problem, solution) = (answer.expanded.problem, answer.solution);
    let reference = ModelRef {
        path: source.model.display().to_string(),
        blake3: model.import.hash.clone(),
        bind_dims: source.flags.bind_dim.clone(),
        inputs: source.flags.inputs.filter(|_| model.selected).map(|inputs| inputs.display().to_string()),
    };
    let mut plan = plan::Plan::new(&problem, &solution, reference, granularity, arguments.seed);
    plan.splits = answer.splits;
    plan.notes.extend(advice.iter().map(ToString::to_string));
    plan.cluster = arguments.cluster.path().map(|path| path.display().to_string());
    for (device, spec) in plan.devices.iter_mut().zip(&inventory.devices) {
        device.threads = Some(spec.threads);
    }
    check::plan(&problem, &plan).map_err(Failure::failed)?;
    write(arguments, &plan)?;
    print(arguments.format, &problem, &plan, &solution)
}

/// How often a plan is made anew after its shards were measured.
const ROUNDS: usize = 8;

/// Plans with estimates, measures the shards of what comes out, and plans again until nothing new is asked for. Gives
/// what it knew of shards in the end, too.
fn settle(
    task: &Task<'_>,
    options: &Options,
    ratios: Ratios,
    shards: &mut Shards<'_>,
    fleet: &Fleet,
    runtime: &Runtime,
) -> Result<(Answer, Sampled), Failure> {
    let mut before = None;
    for round in 0.. {
        let mut sampled = Sampled::default();
        shards.tell(&mut sampled);
        let task = Task { shards: &sampled, ..task.clone() };
        let answer = split::plan_from(&task, options, ratios, before.as_ref())
            .map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
        if answer.splits.is_empty() || round == ROUNDS {
            return Ok((answer, sampled));
        }
        let mut measured = 0;
        let mut count = |_: &str| measured += 1;
        let measuring = shards.measure(fleet, &answer.expanded, &mut count);
        let added = runtime.block_on(measuring).map_err(Failure::failed)?;
        if added == 0 {
            return Ok((answer, sampled));
        }
        eprintln!("measured {measured} shards, kept in the profiles");
        before = Some(answer.choices);
    }
    Err(Failure::Failed(Report::msg("no plan was made")))
}

/// What a row of the profile says a group costs.
fn cost(row: &Row) -> Option<Cost> {
    row.cost().map(|cost| planned(&cost, Bytes(row.parameter_bytes)))
}

/// Writes `plan.json` and, beside it, `plan.csv`.
fn write(arguments: &Plan, plan: &plan::Plan) -> Outcome {
    let csv: PathBuf = arguments.output.with_extension("csv");
    let files = [
        (&arguments.output, plan.to_json().map_err(Failure::failed)?),
        (&csv, table::csv(plan).map_err(Failure::failed)?),
    ];
    for (path, text) in files {
        file::write(path, text.as_bytes())?;
        eprintln!("plan written to {}", path.display());
    }
    Ok(())
}
