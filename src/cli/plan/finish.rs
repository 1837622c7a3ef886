//! The end of planning, wherever times came from: the front or the advice that was asked for, marks on what is
//! estimated, the check, the files, what is printed.

use std::{collections::BTreeSet, path::Path};

use miette::Report;

use super::{
    Plan,
    print::{front_csv, print, print_front},
};
use crate::{
    cli::{Failure, Outcome, file},
    graph::Granularity,
    plan::{
        self, DeviceId, check,
        file::ModelRef,
        fitted::{Fitted, fitted},
        problem::Device,
        rule::Rule,
        schedule::Schedule,
        search::Options,
        solve::NoPlan,
        split::{
            Answer, Ratios, Sampled, Task,
            front::{self, Point},
        },
        table,
    },
    run::estimates::mark,
    units::Bytes,
};

/// A plan that was found, and what it is of.
pub(super) struct Found<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) answer: Answer,
    /// By which it keeps the limits.
    pub(super) schedules: Vec<Schedule>,
    pub(super) sampled: &'a Sampled,
    /// Groups of the task that nobody measured on a device.
    pub(super) estimated: BTreeSet<(DeviceId, usize)>,
    pub(super) reference: ModelRef,
    pub(super) rules: Vec<Rule>,
    /// Whether all of it was measured in rehearsals, as it is.
    pub(super) is_measured: bool,
    /// By device.
    pub(super) threads: Vec<Option<u32>>,
    /// What a person should know of the plan beside.
    pub(super) notes: Vec<String>,
}

/// Where a plan goes if nothing else is said.
pub(super) const DEFAULT_OUTPUT: &str = "plan.json";

/// The searches' options.
pub(super) fn options(arguments: &Plan) -> Options {
    Options { seed: arguments.seed, budget: arguments.budget, ..Options::default() }
}

/// Prints what was found and writes it to its files.
pub(super) fn finish(arguments: &Plan, options: &Options, granularity: Granularity, found: Found<'_>) -> Outcome {
    let Found { task, answer, schedules, sampled, estimated, reference, rules, is_measured, threads, notes } = found;
    let in_file = |answer: &Answer, schedules: &[Schedule]| -> Result<plan::Plan, Failure> {
        let mut plan = in_file(arguments, granularity, &reference, &threads, answer)?;
        plan.rules.clone_from(&rules);
        plan.schedules = schedules.to_vec();
        plan.notes.extend(schedules.iter().map(|schedule| told(schedule, task)));
        if !is_measured {
            mark(&mut plan, &answer.expanded, sampled, &estimated);
        }
        let name = |of: &Option<usize>| of.and_then(|group| task.names.get(group)).map(String::as_str);
        let names: Vec<Option<&str>> = answer.expanded.of.iter().map(name).collect();
        check::rules(&plan, &names).map_err(Failure::failed)?;
        Ok(plan)
    };
    if arguments.pareto {
        let points = front::front(task, options).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
        if let Some(output) = &arguments.output {
            write_front(output, &points, |answer| in_file(answer, &[]))?;
        }
        return print_front(arguments.format, &points);
    }
    let advice = if arguments.advise { front::without(task, &answer, options) } else { Vec::new() };
    let mut plan = in_file(&answer, &schedules)?;
    plan.notes.extend(notes.into_iter().chain(advice.iter().map(ToString::to_string)));
    write(arguments.output.as_deref().unwrap_or(Path::new(DEFAULT_OUTPUT)), &plan)?;
    print(arguments.format, &answer.expanded.problem, &plan, &answer.solution)
}

/// `answer` as the plan file has it, checked.
pub(super) fn in_file(
    arguments: &Plan,
    granularity: Granularity,
    reference: &ModelRef,
    threads: &[Option<u32>],
    answer: &Answer,
) -> Result<plan::Plan, Failure> {
    let problem = &answer.expanded.problem;
    let mut plan = plan::Plan::new(problem, &answer.solution, reference.clone(), granularity, arguments.seed);
    plan.splits = answer.splits.clone();
    plan.cluster = arguments.cluster.path().map(|path| path.display().to_string());
    for (device, threads) in plan.devices.iter_mut().zip(threads) {
        device.threads = *threads;
    }
    check::plan(problem, &plan).map_err(Failure::failed)?;
    Ok(plan)
}

/// `answer`, or where devices have too little memory for everything what is better: a plan of the front, or one whose devices
/// compute what is too much for them in schedules that need less.
pub(super) fn within_memory(
    arguments: &Plan,
    task: &Task<'_>,
    answer: Result<Answer, NoPlan>,
    options: &Options,
) -> Result<Fitted, Failure> {
    match arguments.ratios {
        Ratios::Tuned if is_limited(task) && !arguments.pareto && arguments.like.is_none() => {
            best(task, answer, options)
        }
        _ => answer.map(Fitted::from).map_err(no_plan),
    }
}

/// Whether some device has room for less than everything there is.
pub(super) fn is_limited(task: &Task<'_>) -> bool {
    let tensors = task.ways.graph.tensors().filter_map(|(_, tensor)| tensor.ty.bytes()).sum::<Bytes>();
    let costs = task.costs.iter().flat_map(|row| row.iter().flatten().map(|cost| cost.held + cost.workspace).max());
    let all = tensors + costs.sum::<Bytes>();
    task.network.devices.iter().any(|device| device.memory.is_some_and(|limit| limit < all))
}

/// How much better a plan must be for whose sake devices compute in parts or again: those times are estimates.
const WORTH: f64 = 0.97;

/// The best plan within limits: `answer`, whose shards have been measured; one that was found without looking at the limits;
/// one whose devices compute what is too much for them in schedules that need less.
fn best(task: &Task<'_>, answer: Result<Answer, NoPlan>, options: &Options) -> Result<Fitted, Failure> {
    let value = |answer: &Answer| front::value(task.objective, answer);
    let other = front::within(task, options).ok();
    let plain = match (answer, other) {
        (Ok(answer), Some(other)) if value(&other) < value(&answer) => Ok(other),
        (Err(_), Some(other)) => Ok(other),
        (answer, _) => answer,
    };
    if plain.as_ref().is_ok_and(|plain| plain.solution.gap() <= 1.0 - WORTH) {
        return plain.map(Fitted::from).map_err(no_plan);
    }
    match (plain, fitted(task, options)) {
        (Ok(plain), Some(fitted)) if value(&fitted.answer) < WORTH * value(&plain) => Ok(fitted),
        (Err(_), Some(fitted)) => Ok(fitted),
        (plain, _) => plain.map(Fitted::from).map_err(no_plan),
    }
}

fn no_plan(why: NoPlan) -> Failure {
    Failure::NoPlan(Report::msg(why.to_string()))
}

/// A schedule in a line.
fn told(schedule: &Schedule, task: &Task<'_>) -> String {
    let device = task.network.devices.get(schedule.device.0 as usize).map(Device::full_name).unwrap_or_default();
    let distinct: BTreeSet<_> = schedule.steps.iter().collect();
    let again = schedule.steps.len() - distinct.len();
    let parts: u64 = schedule.stretches.iter().map(|stretch| stretch.parts).sum();
    let (steps, stretches) = (schedule.steps.len(), schedule.stretches.len());
    format!(
        "{device} computes {steps} steps in an order of their own to need less memory: {stretches} stretches in {parts} \
             parts, {again} steps again"
    )
}

/// Writes a plan and, beside it, its rows as CSV.
fn write(path: &Path, plan: &plan::Plan) -> Outcome {
    let csv = path.with_extension("csv");
    let files =
        [(path, plan.to_json().map_err(Failure::failed)?), (csv.as_path(), table::csv(plan).map_err(Failure::failed)?)];
    for (path, text) in files {
        file::write(path, text.as_bytes())?;
        eprintln!("plan written to {}", path.display());
    }
    Ok(())
}

/// Writes a front: to a file as CSV, or into a folder as `front.csv` with the plan of each row.
fn write_front(path: &Path, points: &[Point], in_file: impl Fn(&Answer) -> Result<plan::Plan, Failure>) -> Outcome {
    let csv = front_csv(points)?;
    if path.extension().is_some_and(|extension| extension == "csv") && !path.is_dir() {
        file::write(path, &csv)?;
        eprintln!("front written to {}", path.display());
        return Ok(());
    }
    if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
        let what = format!("--output {}: a front goes to FILE.csv, or with its plans into a folder", path.display());
        return Err(Failure::BadInput(Report::msg(what)));
    }
    std::fs::create_dir_all(path).map_err(|e| Failure::Failed(Report::msg(format!("{}: {e}", path.display()))))?;
    for (number, point) in (1..).zip(points) {
        write(&path.join(format!("plan-{number}.json")), &in_file(&point.answer)?)?;
    }
    let table = path.join("front.csv");
    file::write(&table, &csv)?;
    eprintln!("front written to {}", table.display());
    Ok(())
}
