//! The servers of a cluster: cluster file, connections to agents, and links.

use std::path::Path;

use edgecut_agent::{
    Cluster, ClusterError, DeviceDescription, DeviceKind, Endpoint, Link, LinkTable, Oversubscribed, Server,
    client::Fleet,
};
use edgecut_values::input_file::{self, MAX_TABLE_BYTES};

use crate::{
    Error, Events,
    error::Message,
    file_kind::{self as kind, FileKind},
    input::read_document,
    located::Located,
    runtime::runtime,
};

/// Reads a cluster file. Errors have the line and the column.
///
/// # Errors
/// If the file cannot be read, is not a cluster file, or servers cannot be discovered.
pub fn read_cluster(path: &Path, events: &Events) -> Result<Cluster, Error> {
    let text = read_document(path).map_err(|e| Error::Cluster(Located::new(path, e).to_string().into()))?;
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

/// Whether all servers of the cluster file at `path` are other processes. `false` if it cannot be read, or finds its servers by discovery.
pub fn is_remote(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    let cluster = read_document(path).ok().and_then(|text| Cluster::parse(&text, folder).ok());
    let is_remote = |server: &Server| matches!(server.endpoint, Endpoint::Remote { .. });
    cluster.is_some_and(|cluster| !cluster.servers.is_empty() && cluster.servers.iter().all(is_remote))
}

/// The error for a bad cluster file, with line and column. If the file is of another kind, the error says so.
pub fn bad_cluster(path: &Path, text: String, error: ClusterError) -> Error {
    if kind::mismatch(text.as_bytes(), FileKind::Toml).is_some() || kind::is_json_object(text.as_bytes()) {
        return kind::mismatch_error(path, text.as_bytes(), FileKind::Toml, error);
    }
    Error::Cluster(Message::in_toml(error.message, path, text, error.span))
}

/// Servers whose agents did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct UnreachableAgents(Vec<String>);

impl UnreachableAgents {
    /// Checks that every agent of `fleet` answered.
    ///
    /// # Errors
    /// If an agent did not answer. The message lists all of them.
    pub fn check(fleet: &Fleet) -> Result<(), Error> {
        let missing: Vec<String> = fleet.unreachable().map(|e| e.to_string()).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::agent(UnreachableAgents(missing))) }
    }
}

/// Connects to the agents of all servers. Warns about CPUs with more threads than cores.
///
/// # Errors
/// If an agent does not answer, or a server lacks the requested engine.
pub(crate) async fn connect_all(cluster: &Cluster, events: &Events) -> Result<Fleet, Error> {
    let fleet = connect(cluster, events).await?;
    UnreachableAgents::check(&fleet)?;
    check_engines(cluster, &fleet)?;
    let described = fleet.connected().map(|(server, _, description)| (server, description));
    for warning in Oversubscribed::of_cluster(cluster, described) {
        events.notice(warning);
    }
    Ok(fleet)
}

/// Checks that every server has the requested engine.
fn check_engines(cluster: &Cluster, fleet: &Fleet) -> Result<(), Error> {
    for (name, _, description) in fleet.connected() {
        let Some(engine) = cluster.server(name).and_then(|server| server.engine) else { continue };
        let lacking =
            |device: &&DeviceDescription| device.kind == DeviceKind::Cpu && device.engine_of(engine).is_none();
        if let Some(device) = description.devices.iter().find(lacking) {
            let has = if device.engines.is_empty() { device.engine.to_string() } else { device.engine_choices() };
            let what = format!("{name}/{} has no engine {engine}, only {has}", device.name);
            let help = "`pip install onnxruntime` there, and start its agent again";
            return Err(Error::BadInput(Message::from(what).with_help(help)));
        }
    }
    Ok(())
}

/// Connects to the agents. [`Fleet::unreachable`] lists those that do not answer.
///
/// # Errors
/// If the certificates of the cluster file cannot be used.
pub async fn connect(cluster: &Cluster, events: &Events) -> Result<Fleet, Error> {
    let failure = |error| Error::Cluster(format!("[tls] in the cluster file: {error}").into());
    events.until_cancelled(async { Fleet::connect(cluster).await.map_err(failure) }).await
}

/// The links between the servers that answered: from the cluster file, else from the table at `path`, else measured and
/// added to that table. With `again`, the table is ignored.
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

/// Reads the table of measured links at `path`. Without a file, the table is empty.
///
/// # Errors
/// If the file is not a table of links.
pub(crate) fn link_table(path: &Path) -> Result<LinkTable, Error> {
    LinkTable::load(path).map_err(|error| {
        let bytes = input_file::read(path, MAX_TABLE_BYTES).unwrap_or_default();
        kind::mismatch_error(path, &bytes, FileKind::Links, error)
    })
}
