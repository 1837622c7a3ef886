//! Why a profile could not be read or written.

use std::path::PathBuf;

/// An error of a profile file.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {what}")]
    Malformed { path: PathBuf, what: String },
    /// A file in a folder of profiles that is not what its name says.
    #[error("{path}: {what}; move the file away, or name another folder of profiles")]
    Content { path: PathBuf, what: String },
}
