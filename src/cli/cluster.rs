//! What verbs that speak to agents share: the `--cluster` flag, and the runtime that the conversations run on.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use miette::{LabeledSpan, NamedSource, Report, miette};

use super::Failure;
use crate::cluster::Cluster;

/// Which servers to use.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterFlag {
    /// The cluster's servers (TOML, see docs/cluster.md); this machine alone if not given.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
}

impl ClusterFlag {
    /// Reads the file, if one is named.
    pub fn read(&self) -> Result<Cluster, Failure> {
        let Some(path) = &self.cluster else { return Ok(Cluster::embedded()) };
        let text = std::fs::read_to_string(path).map_err(|e| Failure::bad_input(Located::new(path, e)))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Cluster::parse(&text, folder).map_err(|error| {
            let labels = error.span.map(|span| LabeledSpan::new_with_span(None, span));
            let report: Report = miette!(labels = labels.into_iter().collect::<Vec<_>>(), "{}", error.message);
            let source = NamedSource::new(path.to_string_lossy(), text).with_language("toml");
            Failure::BadInput(report.with_source_code(source))
        })
    }
}

/// The runtime for conversations with agents. Computing is not done on it.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::failed)
}

/// An error with the file it is about.
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
