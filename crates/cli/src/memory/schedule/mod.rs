//! `edgecut memory schedule`: schedules that need less memory, of models and of other planners' graphs.

mod batch;
mod flags;
mod graph;
mod model;
mod notes;
mod offload;
mod rows;
mod search;
mod seeds;

use std::path::Path;

use edgecut_interop::network::Network;

pub use flags::Schedule;

use edgecut_session::file_kind as kind;

use crate::{Outcome, ineffective, source_file};

impl Schedule {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        if let Some(list) = &self.target.configs {
            let mut flags = self.of_models();
            flags.push(("--seeds", self.search.seeds.is_some()));
            ineffective::refuse(&flags, "--configs")?;
            return batch::run(&self, list);
        }
        // clap requires one of them.
        let Some(input) = &self.input else { return Ok(()) };
        let bytes = source_file::read(input)?;
        match () {
            () if !kind::is_json_object(&bytes) => self.model(input),
            () if Network::states_elementwise(&bytes) => self.network(input, &bytes),
            () => {
                ineffective::refuse(&self.of_models(), "a graph of DLMO or MAGIS")?;
                graph::run(&self, input, &bytes)
            }
        }
    }

    fn model(&self, input: &Path) -> Outcome {
        ineffective::refuse(&[("--seeds", self.search.seeds.is_some())], "a model")?;
        model::run(self, &self.flags.read_model(input)?)
    }

    fn network(&self, input: &Path, bytes: &[u8]) -> Outcome {
        let mut flags = self.flags.of_models();
        flags.extend(self.execution.all());
        flags.push(("--seeds", self.search.seeds.is_some()));
        ineffective::refuse(&flags, "a network of bare tensors")?;
        model::run(self, &self.flags.read_network(input, bytes)?)
    }
}
