//! ONNX models as files.

use std::path::Path;

use edgecut_session::error::Message;

use crate::{Failure, Outcome, source_file as file};
use edgecut_onnx::Exported;

/// Writes an ONNX model, its weights to a file next to it if that is asked for or they do not fit inside.
pub(super) fn write_model(exported: &Exported, path: &Path, external_data: bool) -> Outcome {
    if !external_data && !exported.needs_external_data() {
        return file::write(path, &exported.to_bytes().map_err(Failure::bad_input)?);
    }
    if !file::is_file(path) {
        let what = format!("{}: the weights go to a file next to the model: name a file for it", path.display());
        return Err(Failure::BadInput(Message::from(what)));
    }
    let data = path.with_extension("onnx.data");
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let mut model = Vec::new();
    file::write_with(&data, |weights| {
        model = exported.with_external_data(&name, weights)?;
        Ok(())
    })?;
    file::write(path, &model)
}
