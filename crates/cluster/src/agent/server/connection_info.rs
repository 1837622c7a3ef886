//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use crate::agent::protocol::Holder;

/// An extension of every request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionInfo {
    pub address: SocketAddr,
    pub client_id: ClientId,
    /// The holder of its certificate, with TLS.
    pub holder: Option<Holder>,
}

/// Who is told apart: the holder of a certificate, or an address where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// The BLAKE3 hash of its certificate.
    Certificate([u8; 32]),
    Address(Option<IpAddr>),
}
