//! `edgecut run`: executes a model on this machine's processor, or a plan on the agents of its cluster.

mod breakdown;
mod flags;
mod generation;
mod model_latency;
mod output;
mod print;

use std::path::Path;

use edgecut_graph::TensorData;
use edgecut_session::{
    Error, RunOptions,
    file_kind::is_json_object,
    outputs::write_outputs,
    run::{
        execution::MeasuredRun,
        generate::{GenerateOptions, generate},
        options::Padding,
        planned::{PlanSource, PlannedModel},
        whole_model::run_model,
    },
};

use crate::{Outcome, config, ineffective, source_file as file, stderr};

pub use flags::Run;

impl Run {
    pub fn run(self) -> Outcome {
        // A decoder is a folder.
        let bytes = if self.input.is_dir() { Vec::new() } else { file::read(&self.input)? };
        self.check_places()?;
        if self.generate.is_some() {
            self.check_generation()?;
        }
        if is_json_object(&bytes) {
            return self.run_plan(&bytes);
        }
        drop(bytes);
        self.run_model()
    }

    fn check_generation(&self) -> Outcome {
        let of_runs = [
            ("--repeat", self.repeat.is_some()),
            ("--throughput", self.throughput),
            ("--output", self.output.is_some()),
            ("--outputs", self.outputs.is_some()),
            ("--trace", self.trace.is_some()),
            ("--breakdown", self.breakdown),
            ("--inputs", self.flags.inputs.is_some()),
            ("--pad-inputs", self.pad_inputs && !config::is_configured("--pad-inputs")),
        ];
        ineffective::refuse(&of_runs, "--generate, which runs a decoder once for each token")
    }

    fn generate_options(&self, tokens: usize) -> GenerateOptions {
        GenerateOptions {
            tokens,
            prompts: self.prompt_ids.iter().map(|prompt| prompt.0.clone()).collect(),
            sequences: self.sequences,
            prompt_step: self.flags.prompt,
            top_k: self.top_k,
            seed: self.seed,
            no_check: self.no_check,
            replan: self.options().replan,
            profile: self.options().profile,
        }
    }

    fn run_model(&self) -> Outcome {
        let of_plans = [
            ("--cluster", self.cluster.given().is_some()),
            ("--model", self.model.is_some()),
            ("--throughput", self.throughput),
            ("--output", self.output.is_some()),
            ("--trace", self.trace.is_some()),
            ("--breakdown", self.breakdown),
            ("--no-check", self.no_check),
            ("--replan", self.replan),
            ("--no-replan", self.no_replan),
        ];
        ineffective::refuse(&of_plans, "a model: only with a plan, as `edgecut plan` writes them")?;
        let (options, site) =
            (self.flags.options_for(&self.engine), self.cluster.options_with(&self.threads, &self.engine));
        if let Some(tokens) = self.generate {
            let generations =
                generate(&self.input, &options, &site, &self.generate_options(tokens), &stderr::events())?;
            return generation::print(&generations, self.format);
        }
        let (latency, outputs) = run_model(&self.input, &options, &site, &self.options(), &stderr::events())?;
        model_latency::print(&latency, self.format)?;
        self.write_outputs(&outputs)
    }

    fn run_plan(&self, text: &[u8]) -> Outcome {
        let is_prompt_read = self.generate.is_none() && self.flags.prompt.is_some();
        let sizes = [("--context", self.flags.context.is_some()), ("--prompt", is_prompt_read)];
        ineffective::refuse(&sizes, "a plan, which has the sizes that it was made for")?;
        let fixed = [("--threads", self.threads.threads.is_some()), ("--engine", self.engine.engine.is_some())];
        ineffective::refuse(&fixed, "a plan, which has the threads and engines that it was made for")?;
        let source = PlanSource { path: &self.input, text, model: self.model.as_deref() };
        let mut site = self.cluster.options_with(&self.threads, &self.engine);
        // A plan names its cluster: the default is for plans that are made.
        site.cluster = self.cluster.given().map(Path::to_path_buf);
        let (mut model, options) = (self.flags.options_for(&self.engine), self.options());
        // The model is read as it was planned.
        model.prompt = None;
        let planned = PlannedModel::open(source, &model, &site, &options, &stderr::events())?;
        match self.generate {
            Some(tokens) => {
                let generations = planned.generate(&self.generate_options(tokens))?;
                generation::print(&generations, self.format)?;
                match generations.is_equal() {
                    Some(false) if planned.plan.transfer.is_exact() => {
                        Err(Error::Failed("the plan's tokens are not those of one device".into()))
                    }
                    _ => Ok(()),
                }
            }
            None => planned.run(&options, &mut |run| self.finish(&run)),
        }
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            repeat: self.repeat,
            throughput: self.throughput,
            replan: match (self.replan, self.no_replan) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
            profile: self.profile.clone(),
            no_check: self.no_check,
            pad_inputs: match (self.pad_inputs, config::is_configured("--pad-inputs")) {
                (false, _) => Padding::Never,
                (true, true) => Padding::WhereGiven,
                (true, false) => Padding::Always,
            },
        }
    }

    /// Prints what was measured of a plan, then writes the files that are asked for.
    fn finish(&self, run: &MeasuredRun<'_>) -> Outcome {
        let printed = print::print(self.format, run.plan, &run.result.outcome, self.breakdown);
        let trace = self.trace.as_ref().map(|path| (path, run.trace(path)));
        let writes: [&dyn Fn() -> Outcome; 3] = [
            &|| self.write_outputs(&run.outputs),
            &|| trace.as_ref().map_or(Ok(()), |(path, content)| file::write(path, content)),
            &|| self.output.as_deref().map_or(Ok(()), |path| output::append(path, run.result.clone())),
        ];
        let written = file::all(writes.into_iter().map(|write| write()));
        printed.and(written)
    }

    fn write_outputs(&self, outputs: &[TensorData]) -> Outcome {
        self.outputs.as_deref().map_or(Ok(()), |path| write_outputs(path, outputs))
    }

    fn check_places(&self) -> Outcome {
        [&self.outputs, &self.trace].into_iter().flatten().try_for_each(|path| file::check_writable(path))?;
        self.output.as_deref().map_or(Ok(()), output::check)
    }
}
