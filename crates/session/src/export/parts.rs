//! A plan as ONNX models, one for each device's stage, for what runs them: ONNX Runtime, Ray Serve, Triton.

use std::path::Path;

use edgecut_graph::{TensorId, units::Bytes};
use edgecut_onnx::Exported;
use edgecut_plan::Plan;
use edgecut_report::{
    onnx_parts::{PartFile, RUNNER, onnx_parts},
    ray_serve::APPLICATION,
    triton,
};

use super::{
    file::{Content, Export, ExportedFile},
    options::ExportOptions,
};
use crate::{Error, Model};

/// What runs the models.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Runtime {
    Onnx,
    Ray,
    Triton,
}

/// The models of `plan`, and what the runtime needs next to them.
pub(super) fn export(plan: &Plan, model: &Model, options: &ExportOptions, runtime: Runtime) -> Result<Export, Error> {
    let folder = options.folder()?;
    let contents = model.contents(model.graph())?;
    let content = |id: TensorId| contents.of(id).map(Some).map_err(|error| error.to_string());
    let made = onnx_parts(plan, model.graph(), &content).map_err(Error::bad_input)?;
    let count = made.models.len();
    let mut files = Vec::new();
    for (part, model) in made.manifest.parts.iter().zip(made.models) {
        add_part(&mut files, folder, part, model, options.external_data, runtime)?;
    }
    let manifest = serde_json::to_string_pretty(&made.manifest).map_err(Error::failed)? + "\n";
    files.push(ExportedFile::new(folder.join("manifest.json"), Content::Text(manifest)));
    let program = match runtime {
        Runtime::Onnx => Some(("runner.py", RUNNER)),
        Runtime::Ray => Some(("ray_serve.py", APPLICATION)),
        Runtime::Triton => None,
    };
    if let Some((name, text)) = program {
        files.push(ExportedFile::new(folder.join(name), Content::Text(text.to_string())));
    }
    let models = if count == 1 { "model" } else { "models" };
    let program = program.map(|(name, _)| format!(" and {name}")).unwrap_or_default();
    let mut summary = vec![format!("{count} {models}, manifest.json{program} in {}", folder.display())];
    if runtime != Runtime::Onnx {
        summary.push(exchanges(plan, count));
    }
    Ok(Export { files, text: None, summary })
}

fn add_part(
    files: &mut Vec<ExportedFile>,
    folder: &Path,
    part: &PartFile,
    model: Exported,
    external_data: bool,
    runtime: Runtime,
) -> Result<(), Error> {
    let content = Content::Onnx { model: Box::new(model), external_data };
    if runtime != Runtime::Triton {
        files.push(ExportedFile::new(folder.join(&part.file), content));
        return Ok(());
    }
    let place = folder.join(triton::repository(part)).join(triton::model_name(part));
    let config = triton::config(part).map_err(Error::bad_input)?;
    files.push(ExportedFile::new(place.join("config.pbtxt"), Content::Text(config)));
    files.push(ExportedFile::new(place.join("1").join("model.onnx"), content));
    Ok(())
}

/// What the parts exchange for each input, and what the agents would take.
fn exchanges(plan: &Plan, parts: usize) -> String {
    let between = plan.transfers.iter().filter(|transfer| {
        let server = |device: edgecut_plan::DeviceId| plan.devices.get(device.0 as usize).map(|of| &of.server);
        server(transfer.from) != server(transfer.to)
    });
    let (count, bytes) = between.fold((0, Bytes::ZERO), |(count, bytes), of| (count + 1, bytes + of.bytes));
    let split = match plan.splits.len() {
        0 => String::new(),
        splits => format!(
            "; {splits} operators are split, so that parts exchange often, each time by a call: agents, which stream tensors, suit \
             such a plan better"
        ),
    };
    format!(
        "for each input {parts} parts exchange {count} tensors of {bytes} between servers; agents are predicted to take {}, with a \
         result each {}{split}",
        plan.predicted.latency_us, plan.predicted.interval_us,
    )
}
