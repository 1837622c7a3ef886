//! The servers of a cluster: the cluster file, connections to agents, links between servers.

use std::path::Path;

use edgecut_cluster::{
    Cluster, ClusterError, DeviceDescription, DeviceKind, Link, LinkTable, Oversubscribed, agent::Fleet,
};
use edgecut_values::input_file::{self, MAX_DOCUMENT_BYTES, MAX_TABLE_BYTES, read_text};

use crate::{
    Error, Events,
    error::Message,
    file_kind::{self as kind, FileKind},
    located::Located,
    runtime::runtime,
};

/// Reads a cluster file; errors are shown at their line and column.
///
/// # Errors
/// If it cannot be read, is not a cluster file, or the servers that it names cannot be looked for.
pub fn read_cluster(path: &Path, events: &Events) -> Result<Cluster, Error> {
    let text =
        read_text(path, MAX_DOCUMENT_BYTES).map_err(|e| Error::Cluster(Located::new(path, e).to_string().into()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let found = match Cluster::discovery(&text, folder) {
        Ok(Some((place, tls))) => {
            let found = runtime()?.block_on(place.discover(tls.as_ref()));
            let (found, silent) = found.map_err(|error| Error::failed(Located::new(path, error)))?;
            silent.iter().for_each(|error| events.notice(format_args!("{place}: {error}")));
            found
        }
        Ok(None) => Vec::new(),
        Err(error) => return Err(bad_cluster(path, text, error)),
    };
    Cluster::parse_with(&text, folder, found).map_err(|error| bad_cluster(path, text, error))
}

/// The failure by an error of a cluster file, shown at its line and column.
pub fn bad_cluster(path: &Path, text: String, error: ClusterError) -> Error {
    if kind::other(text.as_bytes(), FileKind::Toml).is_some() || kind::is_json_object(text.as_bytes()) {
        return kind::instead(path, text.as_bytes(), FileKind::Toml, error);
    }
    Error::Cluster(Message::in_toml(error.message, path, text, error.span))
}

/// Servers of the cluster whose agents did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Missing(Vec<String>);

impl Missing {
    /// # Errors
    /// If any agent did not answer; the message lists all of them.
    pub fn check(fleet: &Fleet) -> Result<(), Error> {
        let missing: Vec<String> = fleet.unreachable().map(|e| e.to_string()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::agent(Missing(missing))) }
    }
}

/// Connects to the agents of all servers; fails if any does not answer, warns of CPUs with more threads than cores.
///
/// # Errors
/// If one does not answer, or lacks the engine that is asked of it.
pub async fn reach_all(cluster: &Cluster, events: &Events) -> Result<Fleet, Error> {
    let fleet = reach(cluster, events).await?;
    Missing::check(&fleet)?;
    check_engines(cluster, &fleet)?;
    let described = fleet.connected().map(|(server, _, description)| (server, description));
    for warning in Oversubscribed::of_cluster(cluster, described) {
        events.notice(warning);
    }
    Ok(fleet)
}

/// Fails if a server lacks the engine that is asked of it.
fn check_engines(cluster: &Cluster, fleet: &Fleet) -> Result<(), Error> {
    for (name, _, description) in fleet.connected() {
        let Some(engine) = cluster.server(name).and_then(|server| server.engine) else { continue };
        let lacking =
            |device: &&DeviceDescription| device.kind == DeviceKind::Cpu && device.engine_of(engine).is_none();
        if let Some(device) = description.devices.iter().find(lacking) {
            let has = if device.engines.is_empty() { device.engine.clone() } else { device.engines.join(", ") };
            let what = format!("{name}/{} has no engine {engine}, only {has}", device.name);
            let help = "`pip install onnxruntime` there, and start its agent again";
            return Err(Error::BadInput(Message::from(what).with_help(help)));
        }
    }
    Ok(())
}

/// Connects to the agents; those that do not answer are [`Fleet::unreachable`].
///
/// # Errors
/// If the certificates of the cluster file cannot be used.
pub async fn reach(cluster: &Cluster, events: &Events) -> Result<Fleet, Error> {
    let failure = |error| Error::Cluster(format!("[tls] in the cluster file: {error}").into());
    events.until_cancelled(async { Fleet::connect(cluster).await.map_err(failure) }).await
}

/// The links between the servers that answered, from the cluster file, from the table at `path`, or measured now and
/// added to that table. With `again` the table is ignored and all links are measured.
///
/// # Errors
/// If the table cannot be read or written, or an agent fails.
pub async fn links(
    fleet: &Fleet,
    cluster: &Cluster,
    path: &Path,
    again: bool,
    events: &Events,
) -> Result<Vec<Link>, Error> {
    let mut known = if again { LinkTable::default() } else { link_table(path)? };
    let before = known.clone();
    let measure = fleet.links(cluster, &mut known, |from, to| {
        events.status(format_args!("measuring the link {from} → {to}"));
    });
    let links = events.until_cancelled(async { measure.await.map_err(Error::agent) }).await;
    // Links measured before a failure are saved.
    if known != before {
        let new = known.rows.into_iter().filter(|row| !before.rows.contains(row));
        LinkTable::update(path, new).map_err(|e| Error::failed(Located::new(path, e)))?;
    }
    links
}

/// Reads the table of measured links at `path`; an empty one if there is no file.
///
/// # Errors
/// If the file is no such table.
pub fn link_table(path: &Path) -> Result<LinkTable, Error> {
    LinkTable::load(path).map_err(|error| {
        let bytes = input_file::read(path, MAX_TABLE_BYTES).unwrap_or_default();
        kind::instead(path, &bytes, FileKind::Links, error)
    })
}
