//! `edgecut report`: profiles, plans, fronts and results of runs as one HTML page; `report costs`, the cost model as a table.

mod costs;

use std::path::PathBuf;

use clap::Subcommand;
use edgecut_graph::units::Bytes;
use edgecut_session::{
    error::Message,
    report::{is_same_file, page},
};

use crate::{
    Failure, Outcome, source_file as file,
    stderr::{self, status},
};
use costs::Costs;

/// Make one HTML page of profiles, plans, fronts and results of runs
///
/// It holds what its subjects have: the cluster, plans as charts of devices and links over time, memory over time, fronts,
/// operators by time, rooflines, predicted against measured times, bounds. docs/report.md describes it.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Report {
    #[command(subcommand)]
    what: Option<What>,

    /// Profiles or folders of them, links.csv, plan.json, fronts of `plan --pareto`, results of `run --output`
    ///
    /// What a file is, its content says.
    #[arg(required = true, value_name = "SUBJECT")]
    subjects: Vec<PathBuf>,

    /// Where the page goes
    #[arg(long, short, value_name = "FILE.html", default_value = "report.html")]
    output: PathBuf,
}

#[derive(Subcommand)]
enum What {
    Costs(Costs),
}

impl Report {
    pub fn run(self) -> Outcome {
        if let Some(What::Costs(costs)) = self.what {
            return costs.run();
        }
        file::check_writable(&self.output)?;
        if let Some(subject) = self.subjects.iter().find(|path| is_same_file(path, &self.output)) {
            let what = format!("--output {}: that is a subject of the page", subject.display());
            return Err(Failure::BadInput(Message::from(what)));
        }
        let html = page(&self.subjects, &stderr::events())?;
        file::write(&self.output, html.as_bytes())?;
        status!("report written to {} ({})", self.output.display(), Bytes(html.len() as u64));
        Ok(())
    }
}
