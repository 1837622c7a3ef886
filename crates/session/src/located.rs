//! Errors with the path of the file that they are about.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// An error with the path of the file that it is about.
#[derive(Debug)]
pub struct Located<E> {
    path: PathBuf,
    error: E,
}

impl<E> Located<E> {
    pub fn new(path: &Path, error: E) -> Located<E> {
        Located { path: path.to_path_buf(), error }
    }
}

impl<E: fmt::Display> fmt::Display for Located<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Located<E> {}
