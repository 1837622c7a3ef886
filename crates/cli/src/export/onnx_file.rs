//! ONNX models as files.

use std::path::Path;

use crate::{Failure, Outcome, source_file as file};
use edgecut_onnx::Exported;

/// Writes an ONNX model, its weights to a file next to it if that is asked for or they do not fit inside.
pub(super) fn write_model(exported: &Exported, path: &Path, external_data: bool) -> Outcome {
    if external_data || exported.needs_external_data() {
        let data = path.with_extension("onnx.data");
        let data = data.file_name().unwrap_or_default().to_string_lossy();
        return exported.write_external(path, &data).map_err(Failure::failed);
    }
    file::write(path, &exported.to_bytes().map_err(Failure::bad_input)?)
}
