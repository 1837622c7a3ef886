//! The holder of a certificate that TLS has verified: its name, its role, and under which names it may be called.

use std::{fmt, sync::Arc};

use smol_str::SmolStr;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

use super::role::Role;

/// Clones share the certificate.
#[derive(Clone)]
pub struct Holder {
    /// The common name of its subject; empty if it has none.
    pub name: SmolStr,
    /// `None` of certificates that no role was issued with.
    pub role: Option<Role>,
    /// The certificate's serial number, big-endian.
    pub serial: Arc<[u8]>,
    certificate: CertificateDer<'static>,
}

impl Holder {
    /// The holder of a certificate; `None` if it is not one of X.509.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Holder> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let name = parsed.subject().iter_common_name().find_map(|name| name.as_str().ok()).unwrap_or_default();
        let mut organizations = parsed.subject().iter_organization().filter_map(|name| name.as_str().ok());
        Some(Holder {
            name: SmolStr::new(name),
            role: organizations.find_map(Role::of_organization),
            serial: parsed.raw_serial().into(),
            certificate: certificate.clone().into_owned(),
        })
    }

    /// Its role, in messages.
    pub(crate) fn role_text(&self) -> String {
        self.role.map_or("no role".to_string(), |role| format!("the role of {role}"))
    }

    /// The certificate's serial number in hexadecimal.
    pub(crate) fn serial_text(&self) -> String {
        self.serial.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the certificate was issued for a host name or an address.
    pub fn is_called(&self, name: &str) -> bool {
        let (Ok(certificate), Ok(name)) = (EndEntityCert::try_from(&self.certificate), ServerName::try_from(name))
        else {
            return false;
        };
        certificate.verify_is_valid_for_subject_name(&name).is_ok()
    }

    /// The BLAKE3 hash of its certificate.
    pub(crate) fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.certificate).as_bytes()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.role)
    }
}
