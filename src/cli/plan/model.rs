//! A model planned: import, profiles, problem, search, check, print.

use std::path::PathBuf;

use miette::Report;

use super::{Plan, pin::pin, print::print};
use crate::{
    agent::survey::{Survey, Surveyed},
    cli::{
        Failure, Outcome,
        cluster::{links, reach_all, runtime},
        contents::Contents,
        file,
        model::ModelArguments,
        survey::profiles,
    },
    cluster::Inventory,
    graph::Operator,
    ops::{self, Alias},
    plan::{
        self,
        assemble::{CostedGroup, assemble},
        check,
        file::ModelRef,
        problem::{Cost, Targets},
        search::Options,
        solve::solve,
        table,
    },
    profile::{Mode, Row, Sampling, items},
    run::network,
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
    let contents = Contents::open(graph, None, &model.params)?;
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
        again: false,
        folder: &arguments.profile,
        contents: contents.given(),
    };
    let (inventory, profiles) = runtime()?.block_on(async {
        let fleet = reach_all(&cluster).await?;
        let table = arguments.links.clone().unwrap_or_else(|| arguments.profile.join("links.csv"));
        let links = links(&fleet, &cluster, &table, false).await?;
        let inventory = fleet.inventory(&cluster, links);
        let profiles = profiles(&fleet, &cluster, &inventory, &survey).await?;
        Ok::<(Inventory, Vec<Surveyed>), Failure>((inventory, profiles))
    })?;

    let address =
        |device: &crate::cluster::DeviceName| cluster.server(&device.server).map(|server| server.place.clone());
    let network = network(&inventory, address, arguments.memory).map_err(Failure::failed)?;
    let groups = items(graph, granularity).into_iter().enumerate().map(|(index, item)| CostedGroup {
        costs: profiles.iter().map(|profile| profile.rows.get(index).and_then(cost)).collect(),
        name: item.name,
        operators: item.operators,
    });
    let is_view = |operator: &Operator| ops::lookup(&operator.name).is_some_and(|def| def.alias == Alias::View);
    let targets = Targets { latency: arguments.latency, throughput: arguments.throughput };
    let mut problem = assemble(graph, groups.collect(), network, is_view, arguments.objective, targets);
    pin(&mut problem, &arguments.pin)?;
    let options = Options {
        seed: arguments.seed,
        budget: arguments.budget.unwrap_or(Options::default().budget),
        ..Options::default()
    };
    let solution = solve(&problem, &options).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
    let reference = ModelRef { path: source.model.display().to_string(), blake3: model.import.hash.clone() };
    let mut plan = plan::Plan::new(&problem, &solution, reference, granularity, arguments.seed);
    plan.cluster = arguments.cluster.path().map(|path| path.display().to_string());
    for (device, spec) in plan.devices.iter_mut().zip(&inventory.devices) {
        device.threads = Some(spec.threads);
    }
    check::plan(&problem, &plan).map_err(Failure::failed)?;
    write(arguments, &plan)?;
    print(arguments.format, &problem, &plan, &solution)
}

/// What a row of the profile says a group costs.
fn cost(row: &Row) -> Option<Cost> {
    let cost = row.cost()?;
    let held = cost.held - Bytes(row.parameter_bytes);
    Some(Cost { time: cost.time.median, workspace: cost.workspace, held })
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
