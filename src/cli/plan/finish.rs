//! The end of planning, wherever times came from: the front or the advice that was asked for, marks on what is
//! estimated, the check, the files, what is printed.

use std::{collections::BTreeSet, path::PathBuf};

use miette::Report;

use super::{
    Plan,
    print::{print, print_front},
};
use crate::{
    cli::{Failure, Outcome, file},
    graph::Granularity,
    plan::{
        self, DeviceId, check,
        file::ModelRef,
        search::Options,
        split::{Answer, Sampled, Task, front},
        table,
    },
    run::estimates::mark,
};

/// A plan that was found, and what it is of.
pub(super) struct Found<'a> {
    pub(super) task: &'a Task<'a>,
    pub(super) answer: Answer,
    pub(super) sampled: &'a Sampled,
    /// Groups of the task that nobody measured on a device.
    pub(super) estimated: BTreeSet<(DeviceId, usize)>,
    pub(super) reference: ModelRef,
    /// By device.
    pub(super) threads: Vec<Option<u32>>,
}

/// The searches' options.
pub(super) fn options(arguments: &Plan) -> Options {
    let budget = arguments.budget.unwrap_or(Options::default().budget);
    Options { seed: arguments.seed, budget, ..Options::default() }
}

/// Prints what was found and writes it to its files.
pub(super) fn finish(arguments: &Plan, options: &Options, granularity: Granularity, found: Found<'_>) -> Outcome {
    let Found { task, answer, sampled, estimated, reference, threads } = found;
    if arguments.pareto {
        let points = front::front(task, options).map_err(|why| Failure::NoPlan(Report::msg(why.to_string())))?;
        return print_front(arguments.format, &points);
    }
    let advice = if arguments.advise { front::without(task, &answer, options) } else { Vec::new() };
    let (expanded, solution) = (answer.expanded, answer.solution);
    let mut plan = plan::Plan::new(&expanded.problem, &solution, reference, granularity, arguments.seed);
    plan.splits = answer.splits;
    mark(&mut plan, &expanded, sampled, &estimated);
    plan.notes.extend(advice.iter().map(ToString::to_string));
    plan.cluster = arguments.cluster.path().map(|path| path.display().to_string());
    for (device, threads) in plan.devices.iter_mut().zip(threads) {
        device.threads = threads;
    }
    check::plan(&expanded.problem, &plan).map_err(Failure::failed)?;
    write(arguments, &plan)?;
    print(arguments.format, &expanded.problem, &plan, &solution)
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
