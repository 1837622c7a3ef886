//! Shared by the verbs that use agents: the `--cluster` flag, connections to its agents, its links, and the runtime for
//! network I/O.

use std::path::{Path, PathBuf};

use miette::{LabeledSpan, NamedSource, Report, miette};

use super::{
    Failure, Outcome,
    caller::{notice, status, until_stopped},
    config::default_cluster,
    engine::EngineFlags,
    kind::{self, Kind},
    located::Located,
};
use edgecut_cluster::{
    Cluster, ClusterError, DeviceDescription, DeviceKind, Link, LinkTable, MAX_THREADS, Oversubscribed,
    agent::{Fleet, MAX_TIME, io_priority::raise_io_priority},
};
use edgecut_graph::units::{Micros, UnitError};
use edgecut_values::input_file::{self, MAX_DOCUMENT_BYTES, MAX_TABLE_BYTES, read_text};

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

    /// Reads the cluster file; without one, the cluster is this machine with an embedded agent.
    pub fn read(&self) -> Result<Cluster, Failure> {
        let cluster = self.path().map_or_else(|| Ok(Cluster::embedded()), |path| read_cluster(&path))?;
        Ok(self.with_wait(cluster))
    }

    /// `cluster` with the wait of these flags.
    pub fn with_wait(&self, cluster: Cluster) -> Cluster {
        Cluster { wait: self.wait, ..cluster }
    }

    /// As [`ClusterFlag::read`], with threads and engines overridden by flags.
    pub fn read_with(&self, threads: &ThreadsFlag, engine: &EngineFlags) -> Result<Cluster, Failure> {
        let mut cluster = self.read()?;
        for server in &mut cluster.servers {
            server.engine = engine.engine.or(server.engine);
            server.embedded = engine.options();
        }
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

/// Reads a cluster file; errors are shown at their line and column.
pub fn read_cluster(path: &Path) -> Result<Cluster, Failure> {
    let text = read_text(path, MAX_DOCUMENT_BYTES).map_err(|e| Failure::Cluster(Report::msg(Located::new(path, e))))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let found = match Cluster::discovery(&text, folder) {
        Ok(Some((place, tls))) => {
            let found = runtime()?.block_on(place.discover(tls.as_ref()));
            let (found, silent) = found.map_err(|error| Failure::failed(Located::new(path, error)))?;
            silent.iter().for_each(|error| notice!("{place}: {error}"));
            found
        }
        Ok(None) => Vec::new(),
        Err(error) => return Err(bad_cluster(path, text, error)),
    };
    Cluster::parse_with(&text, folder, found).map_err(|error| bad_cluster(path, text, error))
}

/// The failure by an error of a cluster file, shown at its line and column.
pub fn bad_cluster(path: &Path, text: String, error: ClusterError) -> Failure {
    if kind::other(text.as_bytes(), Kind::Toml).is_some() || kind::is_json_object(text.as_bytes()) {
        return kind::instead(path, text.as_bytes(), Kind::Toml, error);
    }
    let labels = error.span.map(|span| LabeledSpan::new_with_span(None, span));
    let report: Report = miette!(labels = labels.into_iter().collect::<Vec<_>>(), "{}", error.message);
    let source = NamedSource::new(path.to_string_lossy(), text).with_language("toml");
    Failure::Cluster(report.with_source_code(source))
}

/// Servers of the cluster whose agents did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Missing(Vec<String>);

impl Missing {
    /// Fails if any agent did not answer; the message lists all of them.
    pub fn check(fleet: &Fleet) -> Outcome {
        let missing: Vec<String> = fleet.unreachable().map(|e| e.to_string()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failure::agent(Missing(missing))) }
    }
}

/// Connects to the agents of all servers; fails if any does not answer, warns of CPUs with more threads than cores.
pub async fn reach_all(cluster: &Cluster) -> Result<Fleet, Failure> {
    let fleet = reach(cluster).await?;
    Missing::check(&fleet)?;
    check_engines(cluster, &fleet)?;
    let described = fleet.connected().map(|(server, _, description)| (server, description));
    warn(&Oversubscribed::of_cluster(cluster, described));
    Ok(fleet)
}

/// Fails if a server lacks the engine that is asked of it.
fn check_engines(cluster: &Cluster, fleet: &Fleet) -> Outcome {
    for (name, _, description) in fleet.connected() {
        let Some(engine) = cluster.server(name).and_then(|server| server.engine) else { continue };
        let lacking =
            |device: &&DeviceDescription| device.kind == DeviceKind::Cpu && device.engine_of(engine).is_none();
        if let Some(device) = description.devices.iter().find(lacking) {
            let has = if device.engines.is_empty() { device.engine.clone() } else { device.engines.join(", ") };
            return Err(Failure::BadInput(miette!(
                help = "`pip install onnxruntime` there, and start its agent again",
                "{name}/{} has no engine {engine}, only {has}",
                device.name
            )));
        }
    }
    Ok(())
}

/// Prints each warning on stderr.
pub fn warn(warnings: &[Oversubscribed]) {
    warnings.iter().for_each(|warning| notice!("{warning}"));
}

/// Connects to the agents; those that do not answer are [`Fleet::unreachable`].
pub async fn reach(cluster: &Cluster) -> Result<Fleet, Failure> {
    let failure = |error| Failure::Cluster(Report::msg(format!("[tls] in the cluster file: {error}")));
    until_stopped(async { Fleet::connect(cluster).await.map_err(failure) }).await
}

/// The links between the servers that answered, from the cluster file, from the table at `path`, or measured now and
/// added to that table. With `again` the table is ignored and all links are measured.
pub async fn links(fleet: &Fleet, cluster: &Cluster, path: &Path, again: bool) -> Result<Vec<Link>, Failure> {
    let mut known = if again { LinkTable::default() } else { link_table(path)? };
    let before = known.clone();
    let measure = fleet.links(cluster, &mut known, |from, to| status!("measuring the link {from} → {to}"));
    let links = until_stopped(async { measure.await.map_err(Failure::agent) }).await;
    // Links measured before a failure are saved.
    if known != before {
        let new = known.rows.into_iter().filter(|row| !before.rows.contains(row));
        LinkTable::update(path, new).map_err(|e| Failure::failed(Located::new(path, e)))?;
    }
    links
}

/// Reads the table of measured links at `path`; an empty one if there is no file.
pub fn link_table(path: &Path) -> Result<LinkTable, Failure> {
    LinkTable::load(path).map_err(|error| {
        let bytes = input_file::read(path, MAX_TABLE_BYTES).unwrap_or_default();
        kind::instead(path, &bytes, Kind::Links, error)
    })
}

/// The runtime for network I/O with agents; nothing is computed on it.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(raise_io_priority)
        .enable_all()
        .build()
        .map_err(Failure::failed)
}
