//! Where an agent listens.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{Endpoint, Server};

/// The address of an agent, for clients and for other agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub server: SmolStr,
    /// `host:port`.
    pub address: String,
    /// The name in its certificate, where that is not the host.
    pub tls_name: Option<String>,
}

impl Peer {
    /// The name or address that its certificate must be issued for.
    pub fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        self.tls_name.as_deref().unwrap_or(host.trim_matches(['[', ']']))
    }

    /// The address of a server's agent; `None` if it is embedded.
    pub fn of(server: &Server) -> Option<Peer> {
        match &server.endpoint {
            Endpoint::Embedded => None,
            Endpoint::Remote { address, tls_name } => {
                Some(Peer { server: server.name.clone(), address: address.clone(), tls_name: tls_name.clone() })
            }
        }
    }
}
