//! Errors of reading DLMO files.

use edgecut_memory::program::ProgramError;

/// Why a file is not a valid DLMO program.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("not a valid DLMO graph: {0}")]
    Json(#[from] serde_json::Error),
    #[error("code[{record}] (`{name}`): {what}")]
    Record { record: usize, name: String, what: String },
    #[error("outputs: tensor {0} is never written")]
    Output(u64),
    #[error("the sizes add up to more than 2^60 bytes")]
    Size,
    #[error(transparent)]
    Program(#[from] ProgramError),
}
