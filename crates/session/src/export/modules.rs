//! A plan as Relay modules, one for each device's stage, with a manifest.

use std::collections::HashMap;

use edgecut_graph::TensorId;
use edgecut_plan::Plan;
use edgecut_report::modules::{Source, modules};

use super::{
    file::{Content, Export, ExportedFile},
    model::params_file,
    options::ExportOptions,
};
use crate::{Error, Model};

pub(super) fn export(plan: &Plan, model: &Model, options: &ExportOptions) -> Result<Export, Error> {
    let (graph, folder) = (model.graph(), options.folder()?);
    let made = modules(plan, graph).map_err(Error::bad_input)?;
    let module = |(name, text): (String, String)| ExportedFile::new(folder.join(name), Content::Text(text));
    let mut files: Vec<ExportedFile> = made.modules.into_iter().map(module).collect();
    let count = files.len();
    if options.with_params {
        let contents = model.contents(graph)?;
        let by_name: HashMap<&str, TensorId> = graph.tensors().map(|(id, tensor)| (tensor.name.as_str(), id)).collect();
        for module in &made.manifest.modules {
            let named = module.inputs.iter().filter_map(|input| match &input.from {
                Source::Parameter(name) => Some((*by_name.get(name.as_str())?, input.name.clone())),
                _ => None,
            });
            files.push(params_file(&folder.join(&module.file), named, &contents)?);
        }
    }
    let manifest = serde_json::to_string_pretty(&made.manifest).map_err(Error::failed)? + "\n";
    files.push(ExportedFile::new(folder.join("manifest.json"), Content::Text(manifest)));
    let modules = if count == 1 { "module" } else { "modules" };
    let summary = format!("{count} {modules} and manifest.json in {}", folder.display());
    Ok(Export { files, text: None, summary: vec![summary] })
}
