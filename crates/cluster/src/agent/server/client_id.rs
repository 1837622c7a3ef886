//! By what clients are told apart, where each has limits of its own.

use std::net::IpAddr;

/// Who is told apart: the holder of a certificate, or an address where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// The BLAKE3 hash of its certificate.
    Certificate([u8; 32]),
    Address(Option<IpAddr>),
}
