//! A model planned on this machine: import, profile, problem, search, check, print.

use std::path::PathBuf;

use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use miette::Report;
use wildmatch::WildMatch;

use super::Plan;
use crate::{
    cli::{
        Failure, Outcome,
        contents::{Contents, engine_failure},
        file,
        format::Format,
        profile::{measure_here, place},
    },
    engine::CpuEngine,
    ops::{self, Alias},
    plan::{
        self, Problem,
        assemble::{CostedGroup, Network, assemble},
        check,
        file::ModelRef,
        problem::{Cost, Device, DeviceId, Targets},
        search::Options,
        solve::{Solution, solve},
        table,
    },
    profile::{Key, Mode, Row, Sampling, Store, items, measure::Subject},
    units::Bytes,
};

/// Plans the model of `arguments`, prints the plan and writes it to its files.
pub(super) fn run(arguments: &Plan) -> Outcome {
    let Some(source) = &arguments.model else {
        return Err(Failure::BadInput(Report::msg("nothing to plan: give a model, or --workload FILE")));
    };
    let model = source.load()?;
    let graph = &model.import.graph;
    let contents = Contents::open(graph, None, &model.params)?;
    let engine = CpuEngine::new(arguments.threads.into()).map_err(Failure::failed)?;
    let granularity = arguments.granularity.into();
    let items = items(graph, granularity);
    let stem = source.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let place = place(&engine);
    let (server, device) = (place.server.clone(), place.device.clone());
    let key = Key { model: stem, model_hash: model.import.hash.clone(), place, mode: Mode::Isolated, granularity };
    let mut store = Store::open(&arguments.profile, &key).map_err(Failure::bad_input)?;
    let inputs = contents.inputs().map_err(engine_failure)?;
    let parameter = |id| contents.of(id);
    let subject = Subject { engine: &engine, graph, items: &items, inputs: &inputs, parameter: &parameter };
    let sampling = Sampling { budget: arguments.profile_budget, ..Sampling::default() };
    let measured = measure_here(&subject, &sampling, Mode::Isolated, &mut store)?;
    let (profile, rows) = store.finish().map_err(Failure::failed)?;
    eprintln!("profile {} {}", if measured { "written to" } else { "read from" }, profile.display());

    let network = Network {
        devices: vec![Device { server, name: device, address: None, memory: arguments.memory }],
        links: Vec::new(),
        routes: vec![None],
        source: DeviceId(0),
        sink: DeviceId(0),
    };
    let groups = items.iter().zip(&rows).map(|(item, row)| CostedGroup {
        name: item.name.clone(),
        operators: item.operators.clone(),
        costs: vec![cost(row)],
    });
    let is_view =
        |operator: &crate::graph::Operator| ops::lookup(&operator.name).is_some_and(|def| def.alias == Alias::View);
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
    let plan = plan::Plan::new(&problem, &solution, reference, granularity, arguments.seed);
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

/// Forbids every device but the pinned one to the groups whose name fits the pattern.
fn pin(problem: &mut Problem, pins: &[String]) -> Outcome {
    let bad = |what: String| Failure::BadInput(Report::msg(what));
    for text in pins {
        let Some((pattern, wanted)) = text.rsplit_once('=') else {
            return Err(bad(format!("--pin {text}: expected PATTERN=server/device, such as 'nn.conv2d*=local/cpu'")));
        };
        let names: Vec<String> = problem.devices.iter().map(Device::full_name).collect();
        let Some(device) = names.iter().position(|name| name == wanted) else {
            return Err(bad(format!("--pin {text}: there is no device {wanted}; there are {}", names.join(", "))));
        };
        let pattern_matcher = WildMatch::new(pattern);
        let mut hits = 0;
        for group in problem.groups.iter_mut().filter(|group| pattern_matcher.matches(&group.name)) {
            hits += 1;
            for (other, cost) in group.costs.iter_mut().enumerate() {
                if other != device {
                    *cost = None;
                }
            }
        }
        if hits == 0 {
            return Err(bad(format!("--pin {text}: no group is called like `{pattern}`")));
        }
    }
    Ok(())
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

fn print(format: Format, problem: &Problem, plan: &plan::Plan, solution: &Solution) -> Outcome {
    match format {
        Format::Csv => print!("{}", table::csv(plan).map_err(Failure::failed)?),
        Format::Json => print!("{}", plan.to_json().map_err(Failure::failed)?),
        Format::Table => println!("{}", summary(problem, plan, solution)),
    }
    Ok(())
}

/// A line a group, a line a device, then the figures that judge the plan.
fn summary(problem: &Problem, plan: &plan::Plan, solution: &Solution) -> String {
    let mut groups = Table::new();
    groups.load_preset(UTF8_HORIZONTAL_ONLY).set_header(["group", "operators", "device", "start", "time", "workspace"]);
    for (id, group) in plan.groups.iter().enumerate() {
        let device = group.strategy.devices().map(|d| problem.device(d).full_name()).collect::<Vec<_>>().join(" ");
        groups.add_row([
            id.to_string(),
            group.name.clone(),
            device,
            group.start_us.to_string(),
            group.time_us.to_string(),
            group.workspace_bytes.to_string(),
        ]);
    }
    let mut devices = Table::new();
    devices.load_preset(UTF8_HORIZONTAL_ONLY).set_header([
        "device",
        "groups",
        "busy",
        "parameters",
        "peak load",
        "arena",
        "limit",
    ]);
    for device in &plan.devices {
        devices.add_row([
            format!("{}/{}", device.server, device.device),
            device.order.len().to_string(),
            device.busy_us.to_string(),
            device.memory.parameter_bytes.to_string(),
            device.memory.load_bytes.to_string(),
            device.memory.arena_bytes.to_string(),
            device.memory_limit_bytes.map_or("none".to_string(), |limit| limit.to_string()),
        ]);
    }
    let mut text = format!("{groups}\n\n{devices}\n\n");
    text += &format!(
        "latency {}, throughput {:.1}/s, {} transfers\n{} {} against a bound of {} ({}): gap {:.1} %",
        plan.predicted.latency_us,
        plan.predicted.throughput_per_s,
        plan.transfers.len(),
        problem.objective,
        solution.display(problem.objective, solution.value()),
        solution.display(problem.objective, plan.bound.value),
        plan.bound.by,
        100.0 * plan.gap
    );
    for note in &plan.notes {
        text += &format!("\nnote: {note}");
    }
    text
}
