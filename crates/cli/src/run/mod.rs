//! `edgecut run`: executes a model on this machine's processor, or a plan on the agents of its cluster.

mod binding;
mod flags;
mod model;
mod output;
mod plan;
mod print;
mod progress;
mod replan;

use edgecut_graph::TensorData;

use crate::{Failure, Outcome, kind, source_file as file};

pub use flags::Run;
pub use model::ModelLatency;
pub use plan::MeasuredRun;

impl Run {
    pub fn run(self) -> Outcome {
        let bytes = self.read()?;
        match kind::is_json_object(&bytes) {
            true => plan::run(&self, &bytes, |run| print::print(self.format, run.plan, &run.result.outcome)),
            false => {
                drop(bytes);
                let (latency, outputs) = model::run(&self)?;
                latency.print(self.format)?;
                self.write_outputs(&outputs)
            }
        }
    }

    /// Runs the model, and returns what was measured with the outputs.
    pub fn of_model(&self) -> Result<(ModelLatency, Vec<TensorData>), Failure> {
        self.read()?;
        let (latency, outputs) = model::run(self)?;
        self.write_outputs(&outputs)?;
        Ok((latency, outputs))
    }

    fn write_outputs(&self, outputs: &[TensorData]) -> Outcome {
        self.outputs.as_deref().map_or(Ok(()), |path| output::write_outputs(path, outputs))
    }

    /// Runs the plan that `text` is. `each` gets what was measured: of one plan, or of one after the other where agents are lost.
    pub fn of_plan(&self, text: &[u8], each: impl FnMut(MeasuredRun<'_>) -> Outcome) -> Outcome {
        self.check_places()?;
        plan::run(self, text, each)
    }

    /// The input, once it is known that results can be written.
    fn read(&self) -> Result<Vec<u8>, Failure> {
        let bytes = file::read(&self.input)?;
        self.check_places()?;
        Ok(bytes)
    }

    fn check_places(&self) -> Outcome {
        [&self.outputs, &self.trace].into_iter().flatten().try_for_each(|path| file::check_place(path))?;
        self.output.as_deref().map_or(Ok(()), output::check)
    }
}
