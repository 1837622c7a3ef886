//! The profile of a model in the folder `profiles`.

use std::path::{Path, PathBuf};

use edgecut_profile::{ProfileRow, reader};

use crate::{
    Error,
    file_kind::{self as kind, FileKind},
    input as file,
    profile::DEFAULT_FOLDER,
};

/// A profile of single operators of the model `stem` with this hash: that of the binding `label`, else the one without a
/// binding, else that of another binding. Of several candidates, the first by name.
pub(super) fn find(stem: &str, hash: &str, label: &str) -> Option<PathBuf> {
    let short: String = hash.chars().take(8).collect();
    let folder = Path::new(DEFAULT_FOLDER).join(format!("{stem}-{short}"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    let is_own = |path: &Path| path.to_string_lossy().ends_with("-op.csv");
    files.retain(|path| {
        let name = path.to_string_lossy();
        let is_of_binding = ["-isolated-op-", "-in-situ-op-"].iter().any(|part| name.contains(part));
        is_own(path) || (is_of_binding && name.ends_with(".csv") && !name.ends_with(".summary.csv"))
    });
    files.sort_by_cached_key(|path| (!is_own(path), path.clone()));
    let is_of_label = |path: &&PathBuf| {
        !is_own(path) && rows(path).is_ok_and(|rows| rows.first().is_some_and(|row| row.binding == label))
    };
    files.iter().find(is_of_label).or(files.first()).cloned()
}

/// Reads the rows of the profile at `path`.
pub(super) fn rows(path: &Path) -> Result<Vec<ProfileRow>, Error> {
    let bytes = file::read(path)?;
    let rows = std::str::from_utf8(&bytes).map_err(|error| error.to_string()).and_then(reader::parse);
    rows.map_err(|error| kind::mismatch_error(path, &bytes, FileKind::Profile, error))
}
