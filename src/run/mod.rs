//! `edgecut run`: executes a model on this machine's processor, or a plan on the agents of its cluster.

mod flags;
mod model;
mod output;
mod plan;
mod print;
mod replan;

pub use flags::Run;

use crate::{Failure, Outcome, kind, source_file as file};

impl Run {
    pub fn run(self) -> Outcome {
        let name = self.input.display().to_string();
        let bytes = std::fs::read(&self.input).map_err(|error| Failure::unreadable(&name, &error))?;
        [&self.outputs, &self.trace].into_iter().flatten().try_for_each(|path| file::check_place(path))?;
        self.output.as_deref().map_or(Ok(()), output::check)?;
        match kind::is_json_object(&bytes) {
            true => plan::run(&self, &bytes),
            false => {
                drop(bytes);
                model::run(&self)
            }
        }
    }
}
