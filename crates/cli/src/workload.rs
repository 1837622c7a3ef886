//! `edgecut workload`: device-placement problems in the JSON of Tarnawski et al., under their cost models.

use std::path::PathBuf;

use edgecut_session::workload::{Assignment, Objective, WorkloadOptions, place};

use crate::{
    Failure, Outcome,
    format::{Format, print_all, print_csv},
    source_file,
    stderr::status,
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

impl From<ObjectiveFlag> for Objective {
    fn from(flag: ObjectiveFlag) -> Objective {
        match flag {
            ObjectiveFlag::Throughput => Objective::Throughput,
            ObjectiveFlag::Latency => Objective::Latency,
        }
    }
}

impl Workload {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        let objective = self.objective.into();
        let found = place(&self.file, &WorkloadOptions { objective, seed: self.seed, budget: self.budget })?;
        let json = serde_json::to_string(&found).map_err(Failure::failed)? + "\n";
        match self.format {
            Format::Json => print_all(json.as_bytes())?,
            Format::Csv => print_csv(&found.assignment)?,
            Format::Table => {
                print_line!("{}", devices(&found));
                print_line!("{objective} {:.4}", found.objective);
                print_line!("bound {:.4} ({}), gap {:.1} %", found.bound, found.bound_by, 100.0 * found.gap);
            }
        }
        let Some(path) = &self.output else { return Ok(()) };
        source_file::write(path, json.as_bytes())?;
        status!("assignment written to {}", path.display());
        Ok(())
    }
}

/// A line for each device that is used: its operators and their computing time.
fn devices(found: &Assignment) -> Table {
    let mut table = table(["device", ">operators", ">computing"]);
    for (device, load) in &found.devices {
        table.add_row([device.clone(), load.operators.to_string(), format!("{:.4}", load.computing)]);
    }
    table
}
