//! Where an agent listens, and whose certificate shows that it is the one.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{holder::Holder, role::Role};
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

/// Why what answers at a peer's address is not that peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("it showed no certificate")]
    NoCertificate,
    #[error("the certificate of `{holder}` has {found}, expected that of an agent: see `edgecut cluster init`")]
    Role { holder: String, found: String },
    #[error("its certificate is issued to `{found}` and is not valid for `{host}`")]
    Host { found: String, host: String },
    #[error(
        "its certificate is that of `{found}`, expected that of `{expected}`: is this the address of another server?"
    )]
    Name { found: String, expected: String },
}

impl Peer {
    /// Checks that `holder`, whose certificate TLS has verified, is this server's agent. Agents may share a host, so its name
    /// in the certificate counts too: that of the server, or `tls_name`.
    ///
    /// # Errors
    /// If the certificate has another role, or another name.
    pub fn check(&self, holder: &Holder) -> Result<(), PeerError> {
        check_agent(holder)?;
        let found = || holder.name.to_string();
        if !holder.is_called(self.host()) {
            return Err(PeerError::Host { found: found(), host: self.host().to_string() });
        }
        match holder.name == self.server || self.tls_name.as_deref() == Some(holder.name.as_str()) {
            true => Ok(()),
            false => Err(PeerError::Name { found: found(), expected: self.server.to_string() }),
        }
    }

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

/// Checks that `holder` is the agent of some server.
///
/// # Errors
/// If its certificate has another role.
pub(super) fn check_agent(holder: &Holder) -> Result<(), PeerError> {
    match holder.role {
        Some(Role::Agent) => Ok(()),
        _ => Err(PeerError::Role { holder: holder.name.to_string(), found: holder.role_text() }),
    }
}
