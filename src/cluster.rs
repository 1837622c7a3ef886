//! What verbs that speak to agents share: the `--cluster` flag, its agents and links, and the runtime that the
//! conversations run on.

use std::path::{Path, PathBuf};

use miette::{LabeledSpan, NamedSource, Report, miette};

use super::{
    Failure, Outcome,
    kind::{self, Kind},
    located::Located,
};
use edgecut_cluster::{
    Cluster, Link, LinkTable, MAX_THREADS,
    agent::{Fleet, io_priority::raise_io_priority},
};

/// Which servers to use.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterFlag {
    /// The cluster's servers (TOML); this machine alone if not given
    ///
    /// docs/cluster.md describes the file.
    #[arg(long, help_heading = "Cluster", value_name = "FILE")]
    cluster: Option<PathBuf>,
}

/// How to compute there.
#[derive(Debug, Clone, clap::Args)]
pub struct ThreadsFlag {
    /// Threads that compute, on every server
    ///
    /// If not given, one on this machine, and on a cluster the number of its file or its agents.
    #[arg(long, help_heading = "Cluster", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    pub threads: Option<u32>,
}

impl ClusterFlag {
    pub fn path(&self) -> Option<&Path> {
        self.cluster.as_deref()
    }

    /// Reads the file, if one is named.
    pub fn read(&self) -> Result<Cluster, Failure> {
        self.path().map_or_else(|| Ok(Cluster::embedded()), read_cluster)
    }

    /// Reads the file, if one is named, with the threads that are asked for.
    pub fn read_with(&self, threads: &ThreadsFlag) -> Result<Cluster, Failure> {
        let mut cluster = self.read()?;
        let asked = match self.path() {
            None => Some(threads.threads.unwrap_or(1)),
            Some(_) => threads.threads,
        };
        if asked.is_some() {
            for server in &mut cluster.servers {
                server.threads = asked;
                server.devices.iter_mut().for_each(|device| device.threads = None);
            }
        }
        Ok(cluster)
    }
}

/// Reads a cluster file; what is wrong with it is shown in its place.
pub fn read_cluster(path: &Path) -> Result<Cluster, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::bad_input(Located::new(path, e)))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Cluster::parse(&text, folder).map_err(|error| {
        if kind::other(text.as_bytes(), Kind::Toml).is_some() {
            return kind::instead(path, text.as_bytes(), Kind::Toml, error);
        }
        let labels = error.span.map(|span| LabeledSpan::new_with_span(None, span));
        let report: Report = miette!(labels = labels.into_iter().collect::<Vec<_>>(), "{}", error.message);
        let source = NamedSource::new(path.to_string_lossy(), text).with_language("toml");
        Failure::BadInput(report.with_source_code(source))
    })
}

/// Servers that were asked for and did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Missing(Vec<String>);

impl Missing {
    /// Fails if any agent did not answer, and names all that did not.
    pub fn check(fleet: &Fleet) -> Outcome {
        let missing: Vec<String> = fleet.unreachable().map(|e| e.to_string()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::failed(Missing(missing))) }
    }
}

/// Reaches the agents of all servers.
pub async fn reach_all(cluster: &Cluster) -> Result<Fleet, Failure> {
    let fleet = reach(cluster).await?;
    Missing::check(&fleet)?;
    Ok(fleet)
}

/// Reaches the agents that answer.
pub async fn reach(cluster: &Cluster) -> Result<Fleet, Failure> {
    let fleet = Fleet::connect(cluster).await;
    fleet.map_err(|error| Failure::BadInput(Report::msg(format!("[tls] of the cluster file: {error}"))))
}

/// The links between the servers that answered, from the cluster file, from the table at `path`, or measured now and
/// added to that table. With `again` the table is not believed.
pub async fn links(fleet: &Fleet, cluster: &Cluster, path: &Path, again: bool) -> Result<Vec<Link>, Failure> {
    let stored = || link_table(path);
    let mut known = if again { LinkTable::default() } else { stored()? };
    let before = known.clone();
    let links = fleet.links(cluster, &mut known, |from, to| eprintln!("measuring the link {from} → {to}"));
    let links = links.await;
    // What was measured before one failed is kept.
    if known != before {
        let mut all = stored()?;
        known.rows.into_iter().for_each(|row| all.insert(row));
        all.save(path).map_err(|e| Failure::failed(Located::new(path, e)))?;
    }
    links.map_err(Failure::failed)
}

/// Reads the table of measured links at `path`; an empty one if there is no file.
pub fn link_table(path: &Path) -> Result<LinkTable, Failure> {
    LinkTable::load(path).map_err(|error| {
        let bytes = std::fs::read(path).unwrap_or_default();
        kind::instead(path, &bytes, Kind::Links, error)
    })
}

/// The runtime for conversations with agents. Computing is not done on it.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(raise_io_priority)
        .enable_all()
        .build()
        .map_err(Failure::failed)
}
