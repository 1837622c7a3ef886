//! Files that `edgecut memory` writes into folders: figures of a placement, liveness reports.

use std::path::Path;

use edgecut_graph::units::Bytes;
use edgecut_session::memory::figures::NamedFile;

use crate::{Outcome, source_file, stderr::status};

/// Writes files into a folder and says which.
pub fn write_all(folder: &Path, files: &[NamedFile]) -> Outcome {
    source_file::create_folder(folder)?;
    files.iter().try_for_each(|(name, content)| {
        let path = folder.join(name);
        source_file::write(&path, content)?;
        status!("wrote {} ({})", path.display(), Bytes(content.len() as u64));
        Ok(())
    })
}
