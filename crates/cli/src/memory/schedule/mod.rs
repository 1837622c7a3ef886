//! `edgecut memory schedule`: schedules that need less memory, of models and of other planners' graphs.

mod batch;
mod flags;
mod graph;
mod model;
mod seeds;

use std::path::Path;

use edgecut_session::memory::{self, SearchOptions, schedule::Scheduled};

pub use flags::Schedule;

use crate::{
    Failure, Outcome,
    format::{self, Format},
    ineffective, source_file, stderr,
    stdout::print_line,
};

impl Schedule {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        if let Some(list) = &self.target.configs {
            return self.batch(list);
        }
        // clap requires one of them.
        let Some(input) = &self.input else { return Ok(()) };
        match memory::schedule(input, &self.options(), &stderr::events())? {
            Scheduled::Model(schedules) => {
                model::print(&self, &schedules)?;
                self.write(|| match &schedules.csv {
                    Some(steps) => Ok(steps.clone().into_bytes()),
                    None => format::to_csv(&schedules.rows),
                })?;
                schedules.check()
            }
            Scheduled::Graph(schedule) => {
                match self.format {
                    Format::Csv => format::print_csv(&[&schedule.summary])?,
                    Format::Json => format::print_json(&schedule.summary)?,
                    Format::Table => print_line!("{}", graph::SummaryTable(&schedule.summary)),
                }
                self.write(|| Ok(schedule.json.into_bytes()))
            }
            Scheduled::Front(front) => {
                match self.format {
                    Format::Csv => format::print_csv(&front.points)?,
                    Format::Json => format::print_json(&front.points)?,
                    Format::Table => graph::print_front(&front),
                }
                self.write(|| format::to_csv(&front.points))
            }
            Scheduled::Seeds(rows) => {
                match self.format {
                    Format::Csv => format::print_csv(&rows)?,
                    Format::Json => format::print_json(&rows)?,
                    Format::Table => seeds::print(&rows),
                }
                self.write(|| format::to_csv(&rows))
            }
        }
    }

    /// Schedules the graphs of a list.
    fn batch(&self, list: &Path) -> Outcome {
        let mut flags = self.flags.all();
        flags.extend(self.execution.all());
        flags.push(("--seeds", self.search.seeds.is_some()));
        ineffective::refuse(&flags, "--configs")?;
        let options = SearchOptions { seed: self.search.seed, effort: self.search.effort };
        let batch = memory::schedule_batch(list, &options, &stderr::events())?;
        match self.format {
            Format::Json => format::print_json(&batch.rows)?,
            Format::Csv => format::print_csv(&batch.rows)?,
            Format::Table => batch::print(&batch.rows),
        }
        self.write(|| format::to_csv(&batch.rows))?;
        batch.check()
    }

    /// Writes the file that was asked for.
    fn write(&self, content: impl FnOnce() -> Result<Vec<u8>, Failure>) -> Outcome {
        self.output.as_deref().map_or(Ok(()), |path| source_file::write(path, &content()?))
    }
}
