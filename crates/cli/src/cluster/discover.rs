//! `edgecut cluster discover`: the agents on the local network, and a cluster file of them.

use edgecut_session::{cluster::bad_cluster, input::read_document, located::Located, output};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use edgecut_session::error::Message;

use crate::{Failure, Outcome, cluster_flag::time_to_wait};
use edgecut_agent::{
    AddedServers,
    mdns::{AnnouncedAgent, browse},
};
use edgecut_graph::units::Micros;

/// Find the agents on the local network that announce themselves.
///
/// Those are agents that were started with --mdns. What a cluster file has already stays as it is: servers in other networks,
/// links and limits can be written there by hand.
#[derive(clap::Args)]
pub struct Discover {
    /// The cluster file that they are added to, and that is made if there is none
    #[arg(value_name = "CLUSTER.toml")]
    file: Option<PathBuf>,
    /// How long to look for them
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = time_to_wait)]
    time: Micros,
}

impl Discover {
    pub fn run(self) -> Outcome {
        // Before anything is looked for, what it is to be added to.
        self.file.as_deref().map(|file| added(file, &[])).transpose()?;
        let agents = browse(self.time.to_duration().unwrap_or_default()).map_err(Failure::failed)?;
        if agents.is_empty() {
            let what = "no agent answered: only those that were started with --mdns do, on networks of this machine";
            return Err(Failure::Failed(Message::from(what)));
        }
        for AnnouncedAgent { name, address, has_tls } in &agents {
            println!("{name}: {address}, {}", if *has_tls { "mutual TLS" } else { "no TLS" });
        }
        let Some(file) = &self.file else { return Ok(()) };
        let AddedServers { text, count, skipped } = added(file, &agents)?;
        skipped.iter().for_each(|line| eprintln!("{}: not added: {line}", file.display()));
        if count > 0 {
            output::write(file, text.as_bytes())?;
        }
        println!("{}: {count} added", file.display());
        Ok(())
    }
}

/// The text of a cluster file, which may not exist yet, with the servers of `agents`.
fn added(file: &Path, agents: &[AnnouncedAgent]) -> Result<AddedServers, Failure> {
    let text = match read_document(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::bad_input(Located::new(file, error))),
    };
    let folder = file.parent().unwrap_or(Path::new(""));
    AddedServers::new(&text, folder, agents).map_err(|error| bad_cluster(file, text, error))
}
