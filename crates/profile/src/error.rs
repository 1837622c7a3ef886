//! Why a profile could not be read or written.

use std::path::PathBuf;

/// An error of a profile file.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {what}")]
    Malformed { path: PathBuf, what: String },
    #[error("{path}: not a profile of this device: {what}; move the file away or choose another --output")]
    Content { path: PathBuf, what: String },
}
