//! A plan as placement of ONNX Runtime on one host: the whole model with an annotation for each operator, the session options
//! that read these, and statistics of memory.
//!
//! | module | what it makes |
//! |---|---|
//! | `settings` | annotations, session options, notices of what they cannot say |
//! | `memory` | statistics of memory |

mod memory;
mod settings;

use std::collections::BTreeMap;

use edgecut_graph::{OperatorId, TensorId};
use edgecut_interop::ort_memory::{is_writable, write};
use edgecut_onnx::{ExportOptions as OnnxOptions, export as export_onnx};
use edgecut_plan::Plan;

use super::{
    file::{Content, Export, ExportedFile},
    options::ExportOptions,
    placement::whole_placement,
};
use crate::{Error, Events, Model};

const MODEL: &str = "model.onnx";
const OPTIONS: &str = "session_options.json";
const MEMORY: &str = "memory.csv";

/// The files of `plan` for its `model`, whose graph has no splits and schedules.
pub(super) fn export(plan: &Plan, model: &Model, options: &ExportOptions, events: &Events) -> Result<Export, Error> {
    let (graph, folder) = (model.graph(), options.folder()?);
    let placed = whole_placement(plan, graph).map_err(Error::bad_input)?;
    let contents = model.contents(graph)?;
    let content = |id: TensorId| contents.of(id).map(Some).map_err(|error| error.to_string());
    let mut written = export_onnx(graph, &OnnxOptions::new(&content)).map_err(Error::bad_input)?;
    let annotations = settings::Annotations::of(plan);
    let device = |operators: &[OperatorId]| placed.device(operators, plan);
    written.annotate(settings::ANNOTATION, &|operators| annotations.of_device(device(operators)));
    let mut chosen = BTreeMap::from([(settings::ASSIGNMENT, annotations.rules(plan))]);
    chosen.extend(settings::budget(plan, MEMORY).map(|budget| (settings::BUDGET, budget)));
    let mut notices = settings::notices(plan, placed.divided);
    let entries = written.entries();
    let kernels = memory::kernel_memory(&entries, graph, &placed.groups);
    let differs = |operators: &[OperatorId]| operators.iter().any(|id| device(&[*id]) != device(operators));
    notices.extend(joined(entries.iter().filter(|entry| differs(entry.operators)).count()));
    notices.extend(unwritable(kernels.iter().filter(|kernel| !is_writable(&kernel.name)).count()));
    events.notices(&notices);
    let count = entries.len();
    let text = serde_json::to_string_pretty(&chosen).map_err(Error::failed)? + "\n";
    let mut summary =
        vec![format!("{MODEL} with {count} annotated operators, {OPTIONS} and {MEMORY} in {}", folder.display())];
    summary.extend(chosen.iter().map(|(key, value)| format!("{key} = {value}")));
    let memory = Content::Text(write(&kernels));
    let model = Content::Onnx { model: Box::new(written), external_data: options.external_data };
    let files = [(MODEL, model), (OPTIONS, Content::Text(text)), (MEMORY, memory)];
    let files = files.into_iter().map(|(name, content)| ExportedFile::new(folder.join(name), content)).collect();
    Ok(Export { files, text: None, summary })
}

/// The notice of ONNX operators that compute several of the plan, on several devices.
fn joined(count: usize) -> Option<String> {
    let what =
        "ONNX operators compute several of the plan, which are on several devices: each goes to that of the first";
    (count > 0).then(|| format!("{count} {what}"))
}

/// The notice of operators that statistics of memory cannot have.
fn unwritable(count: usize) -> Option<String> {
    let what = "operators have names with commas or line breaks, which ONNX Runtime's statistics of memory cannot hold: they are left out";
    (count > 0).then(|| format!("{count} {what}"))
}
