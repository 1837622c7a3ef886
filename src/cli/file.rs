//! Files that appear whole or not at all.

use std::{io::Write, path::Path};

use super::Failure;

/// Writes `content` to a temporary file beside `path` and renames it. A folder that is missing is made.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let unwritable = |error: std::io::Error| Failure::unwritable(&path.display().to_string(), &error);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
    temporary.write_all(content).map_err(unwritable)?;
    temporary.persist(path).map_err(|e| unwritable(e.error))?;
    Ok(())
}

/// Reads a file that was named on the command line.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::unreadable(&path.display().to_string(), &error))
}
