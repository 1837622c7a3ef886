//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

/// An extension of every request.
#[derive(Debug, Clone)]
pub(super) struct ConnectionInfo {
    pub address: SocketAddr,
    pub client_id: ClientId,
}

/// Who is told apart: the holder of a certificate, or an address where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// The BLAKE3 hash of its certificate.
    Certificate([u8; 32]),
    Address(Option<IpAddr>),
}
