//! `edgecut workload`: device-placement problems in the JSON of Tarnawski et al., under their cost models.

use edgecut_session::file_kind::{self as kind, FileKind};
use std::{collections::BTreeMap, path::PathBuf};

use crate::stderr::status;
use edgecut_interop::placement::{
    PlacementSolution, PlacementWorkload,
    file::Operator,
    solve::{Objective, SolveError, SolveOptions, solve},
};
use edgecut_session::error::Message;
use serde::Serialize;

use crate::{
    Failure, Outcome,
    format::{Format, print_all, print_csv},
    source_file,
    stdout::print_line,
    table::{Table, table},
};

/// Place the operators of a device-placement workload (JSON of Tarnawski et al.) on accelerators and CPUs.
///
/// The workload has times, devices and transfer costs of its own. The assignment is printed with a lower bound and the
/// gap to it.
#[derive(clap::Args)]
pub struct Workload {
    /// Nodes, edges, the numbers of devices and their memory
    #[arg(value_name = "FILE.json")]
    file: PathBuf,

    /// What to minimize
    #[arg(long, value_enum, default_value_t)]
    objective: ObjectiveFlag,

    /// The same seed and budget give the same assignment
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Moves to try, without a time limit; if not given, 12 million within 8 s
    #[arg(long, value_name = "N")]
    budget: Option<u64>,

    /// Also write the assignment to this file, as JSON
    #[arg(long, value_name = "FILE.json")]
    output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum ObjectiveFlag {
    /// The largest load of a device
    Throughput,
    /// The time until one sample is finished
    #[default]
    Latency,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Output {
    objective: f64,
    bound: f64,
    gap: f64,
    bound_by: &'static str,
    assignment: Vec<Row>,
}

/// One operator of the assignment, and one line of `--format csv`.
#[derive(Serialize)]
struct Row {
    id: i64,
    device: String,
}

impl Workload {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        let text = source_file::read(&self.file)?;
        let problem = PlacementWorkload::from_json(&text)
            .map_err(|error| kind::mismatch_error(&self.file, &text, FileKind::Workload, error))?;
        let objective = match self.objective {
            ObjectiveFlag::Throughput => Objective::Throughput,
            ObjectiveFlag::Latency => Objective::Latency,
        };
        let options = SolveOptions { seed: self.seed, budget: self.budget };
        let answer = solve(&problem, objective, &options).map_err(|error| match error {
            SolveError::NoAnswer(_) => Failure::NoPlan(Message::from(error.to_string())),
            SolveError::Check(_) => Failure::failed(error),
        })?;
        self.print(objective, &problem, &answer)
    }

    fn print(&self, objective: Objective, problem: &PlacementWorkload, answer: &PlacementSolution) -> Outcome {
        let assignment = problem.operators.iter().zip(&answer.places);
        let output = Output {
            objective: answer.objective,
            bound: answer.bound,
            gap: answer.gap(),
            bound_by: answer.bound_by,
            assignment: assignment
                .map(|(operator, place)| Row { id: operator.id, device: place.to_string() })
                .collect(),
        };
        let json = serde_json::to_string(&output).map_err(Failure::failed)? + "\n";
        match self.format {
            Format::Json => print_all(json.as_bytes())?,
            Format::Csv => print_csv(&output.assignment)?,
            Format::Table => {
                print_line!("{}", devices(&problem.operators, &output.assignment));
                print_line!("{objective} {:.4}", answer.objective);
                print_line!("bound {:.4} ({}), gap {:.1} %", answer.bound, answer.bound_by, 100.0 * answer.gap());
            }
        }
        let Some(path) = &self.output else { return Ok(()) };
        source_file::write(path, json.as_bytes())?;
        status!("assignment written to {}", path.display());
        Ok(())
    }
}

/// A line for each device that is used: its operators and their computing time.
fn devices(operators: &[Operator], assignment: &[Row]) -> Table {
    let mut devices: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for (operator, row) in operators.iter().zip(assignment) {
        let time = if row.device.starts_with("acc") { operator.accelerator_time } else { operator.cpu_time };
        let (count, sum) = devices.entry(&row.device).or_default();
        (*count, *sum) = (*count + 1, *sum + time);
    }
    let mut table = table(["device", ">operators", ">computing"]);
    for (device, (count, time)) in devices {
        table.add_row([device.to_string(), count.to_string(), format!("{time:.4}")]);
    }
    table
}
