//! Where the certificates of a cluster are, and what is wrong with them.

use std::path::{Path, PathBuf};

use crate::Failure;
use edgecut_agent::authority::AuthorityError;

/// The cluster file, and the folder of its certificates.
#[derive(clap::Args)]
pub struct Certificates {
    /// The cluster's servers (TOML)
    #[arg(value_name = "CLUSTER.toml")]
    pub file: PathBuf,
    /// The folder of the certificates; `certs` next to the cluster file if not given
    #[arg(long, value_name = "DIR")]
    certs: Option<PathBuf>,
}

impl Certificates {
    pub fn folder(&self) -> PathBuf {
        let next_to_it = || self.file.parent().unwrap_or(Path::new("")).join("certs");
        self.certs.clone().unwrap_or_else(next_to_it)
    }
}

/// The failure of a verb by an error of an authority.
pub fn failure(error: AuthorityError) -> Failure {
    match error {
        AuthorityError::File { .. } | AuthorityError::Make(_) => Failure::failed(error),
        _ => Failure::bad_input(error),
    }
}
