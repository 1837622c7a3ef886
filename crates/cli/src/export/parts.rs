//! A plan as ONNX models, one for each device's stage, for what runs them: ONNX Runtime, Ray Serve, Triton.

use std::path::{Path, PathBuf};

use edgecut_session::{Model, error::Message};

use super::onnx_file::write_model;
use crate::{Failure, Outcome, source_file as file, stdout::print_line};
use edgecut_graph::{TensorId, units::Bytes};
use edgecut_onnx::Exported;
use edgecut_plan::Plan;
use edgecut_report::{
    onnx_parts::{OnnxParts, PartFile, RUNNER, onnx_parts},
    ray_serve::APPLICATION,
    triton,
};

/// What runs the models.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Runtime {
    Onnx,
    Ray,
    Triton,
}

/// Where and how parts are written.
pub(super) struct Parts<'a> {
    pub folder: Option<&'a Path>,
    /// Weights go to a file next to each model.
    pub external_data: bool,
    pub runtime: Runtime,
}

impl Parts<'_> {
    /// Writes the models of `plan` and what the runtime needs next to them.
    pub(super) fn write(&self, plan: &Plan, model: &Model) -> Outcome {
        let Some(folder) = self.folder else {
            return Err(Failure::BadInput(Message::from(
                "a plan becomes several files: give their folder with --output",
            )));
        };
        let contents = model.contents(&model.import.graph)?;
        let content = |id: TensorId| contents.of(id).map(Some).map_err(|error| error.to_string());
        let made = onnx_parts(plan, &model.import.graph, &content).map_err(Failure::bad_input)?;
        file::create_folder(folder)?;
        for (part, exported) in made.manifest.parts.iter().zip(&made.models) {
            self.write_part(folder, part, exported)?;
        }
        let manifest = serde_json::to_string_pretty(&made.manifest).map_err(Failure::failed)? + "\n";
        file::write(&folder.join("manifest.json"), manifest.as_bytes())?;
        let with = match self.runtime {
            Runtime::Onnx => Some(("runner.py", RUNNER)),
            Runtime::Ray => Some(("ray_serve.py", APPLICATION)),
            Runtime::Triton => None,
        };
        if let Some((name, text)) = with {
            file::write(&folder.join(name), text.as_bytes())?;
        }
        let count = made.models.len();
        let models = if count == 1 { "model" } else { "models" };
        let program = with.map(|(name, _)| format!(" and {name}")).unwrap_or_default();
        print_line!("{count} {models}, manifest.json{program} in {}", folder.display());
        if self.runtime != Runtime::Onnx {
            print_line!("{}", exchanges(plan, &made));
        }
        Ok(())
    }

    fn write_part(&self, folder: &Path, part: &PartFile, exported: &Exported) -> Outcome {
        if self.runtime != Runtime::Triton {
            return write_model(exported, &folder.join(&part.file), self.external_data);
        }
        let place: PathBuf = folder.join(triton::repository(part)).join(triton::model_name(part));
        file::create_folder(&place.join("1"))?;
        let config = triton::config(part).map_err(Failure::bad_input)?;
        file::write(&place.join("config.pbtxt"), config.as_bytes())?;
        write_model(exported, &place.join("1").join("model.onnx"), self.external_data)
    }
}

/// What the parts exchange for each input, and what the agents would take.
fn exchanges(plan: &Plan, made: &OnnxParts) -> String {
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
        "for each input {} parts exchange {count} tensors of {bytes} between servers; agents are predicted to take {}, with a result \
         each {}{split}",
        made.models.len(),
        plan.predicted.latency_us,
        plan.predicted.interval_us,
    )
}
