//! `edgecut export`: a model or a plan for other tools.

use std::{io::Write, path::PathBuf};

use miette::Report;

use super::{Failure, Outcome, file, model::ModelArguments};
use crate::{
    graph::{Graph, OperatorId},
    plan::Plan,
    relay::print::print_graph,
    report::{dot::dot, modules::modules},
};

/// Write a model as Relay text, for Graphviz or as JSON; or a plan as Relay modules, one for each device's stage.
#[derive(clap::Args)]
pub struct Export {
    /// A model, or a plan that `edgecut plan` wrote
    #[command(flatten)]
    input: ModelArguments,

    #[arg(long, value_enum)]
    format: Format,

    /// The file to write; for a plan's modules the folder. Without it a single text goes to stdout
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Format {
    /// Relay text that TVM reads; a plan becomes a folder of modules with a manifest
    Relay,
    /// The DOT language of Graphviz; a plan's devices are told apart by colour
    Dot,
    /// The graph as edgecut has it
    Json,
}

impl Export {
    pub fn run(self) -> Outcome {
        let bytes = file::read(&self.input.model)?;
        let is_plan = bytes.trim_ascii_start().starts_with(b"{");
        if !is_plan {
            let graph = self.input.load()?.import.graph;
            return self.write(&self.text(&graph, &|_| None)?);
        }
        let plan = Plan::from_json(&bytes).map_err(Failure::bad_input)?;
        let graph = self.planned(&plan)?;
        if self.format == Format::Relay {
            return self.write_modules(&plan, &graph);
        }
        let place = |operator: OperatorId| {
            let group = plan.groups.iter().find(|group| group.operators.contains(&operator))?;
            let device = group.strategy.devices().next()?.0 as usize;
            let named = plan.devices.get(device)?;
            Some((device, format!("{}/{}", named.server, named.device)))
        };
        self.write(&self.text(&graph, &place)?)
    }

    fn text(&self, graph: &Graph, place: &dyn Fn(OperatorId) -> Option<(usize, String)>) -> Result<String, Failure> {
        match self.format {
            Format::Relay => Ok(print_graph(graph)),
            Format::Dot => Ok(dot(graph, place)),
            Format::Json => serde_json::to_string_pretty(graph).map(|text| text + "\n").map_err(Failure::failed),
        }
    }

    fn write(&self, text: &str) -> Outcome {
        match &self.output {
            Some(path) => file::write(path, text.as_bytes()),
            None => std::io::stdout().write_all(text.as_bytes()).map_err(Failure::failed),
        }
    }

    fn write_modules(&self, plan: &Plan, graph: &Graph) -> Outcome {
        let Some(folder) = &self.output else {
            return Err(Failure::BadInput(Report::msg(
                "a plan becomes several files: give their folder with --output",
            )));
        };
        let export = modules(plan, graph).map_err(Failure::bad_input)?;
        std::fs::create_dir_all(folder).map_err(|error| Failure::unwritable(&folder.display().to_string(), &error))?;
        for (name, text) in &export.modules {
            file::write(&folder.join(name), text.as_bytes())?;
        }
        let manifest = serde_json::to_string_pretty(&export.manifest).map_err(Failure::failed)? + "\n";
        file::write(&folder.join("manifest.json"), manifest.as_bytes())?;
        println!("{} modules and manifest.json in {}", export.modules.len(), folder.display());
        Ok(())
    }

    /// The graph of the model that `plan` was made for, which must not have changed since.
    fn planned(&self, plan: &Plan) -> Result<Graph, Failure> {
        let model = ModelArguments { model: PathBuf::from(&plan.model.path), ..self.input.clone() };
        let import = model.load()?.import;
        if import.hash != plan.model.blake3 {
            let what = format!("{} is not the file that was planned: make the plan again", plan.model.path);
            return Err(Failure::BadInput(Report::msg(what)));
        }
        Ok(import.graph)
    }
}
