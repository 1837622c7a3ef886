//! The flags of verbs that use agents: `--cluster`, `--wait`, `--threads`.

use std::path::{Path, PathBuf};

use edgecut_agent::{MAX_THREADS, MAX_TIME};
use edgecut_graph::units::{Micros, UnitError};
use edgecut_session::SiteOptions;

use super::{config::default_cluster, engine::EngineFlags};

/// Which servers to use.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterFlag {
    /// The cluster's servers (TOML); this machine alone if not given
    ///
    /// docs/cluster.md describes the file. EDGECUT_CLUSTER or the configuration file may name another default.
    #[arg(long, help_heading = "Cluster", value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// How long to wait for devices that others use; as their agents say if not given
    #[arg(long, help_heading = "Cluster", hide_short_help = true, value_name = "TIME", value_parser = time_to_wait)]
    wait: Option<Micros>,
}

/// The number of compute threads.
#[derive(Debug, Clone, clap::Args)]
pub struct ThreadsFlag {
    /// Number of compute threads on every server
    ///
    /// If not given, 1 without --cluster, else the number in the cluster file or of the agent.
    #[arg(long, help_heading = "Cluster", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub threads: Option<u32>,
}

/// A time to wait, of at most a day.
pub fn time_to_wait(text: &str) -> Result<Micros, String> {
    let time: Micros = text.parse().map_err(|error: UnitError| error.to_string())?;
    if time <= Micros::from(MAX_TIME) { Ok(time) } else { Err(format!("{time} is too long: at most a day")) }
}

impl ClusterFlag {
    /// The file that was given on the command line: the configuration file cannot give this flag a default.
    pub fn given(&self) -> Option<&Path> {
        self.cluster.as_deref()
    }

    /// The file that was given, or the default of the environment or the configuration file.
    pub fn path(&self) -> Option<PathBuf> {
        self.cluster.clone().or_else(default_cluster)
    }

    /// The options of these flags.
    pub fn options_with(&self, threads: &ThreadsFlag, engine: &EngineFlags) -> SiteOptions {
        SiteOptions { cluster: self.path(), wait: self.wait, threads: threads.threads, ..engine.options() }
    }
}
