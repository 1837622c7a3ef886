//! Mutual TLS from PEM files, which are read again when they change; without it, an agent listens on loopback only.

use std::{
    collections::HashSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        client::WebPkiServerVerifier,
        crypto::{self, CryptoProvider},
        pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};
use tracing::{info, warn};

use super::{holder::Holder, role::Role};
use crate::TlsFiles;
use edgecut_values::input_file::{self, MAX_DOCUMENT_BYTES};

/// How often the files are looked at, at most.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The protocol over TLS, by its ALPN name.
const HTTP_2: &[u8] = b"h2";

/// A party's certificate and key, the authority that it trusts, and the certificates that are revoked. An agent uses them
/// as a server for its clients and as a client of other agents. Clones share what was read; files that change are read
/// again, and if they are not valid, what was read before stays in use.
#[derive(Clone)]
pub struct Identity {
    files: Arc<TlsFiles>,
    current: Arc<Mutex<Current>>,
}

struct Current {
    loaded: Arc<Loaded>,
    stamps: Vec<Stamp>,
    /// Those of files that could not be used.
    refused: Option<Vec<Stamp>>,
    looked_at: Instant,
}

/// When a file was changed, and its size; `None` if it cannot be told.
type Stamp = Option<(SystemTime, u64)>;

/// The contents of the files.
struct Loaded {
    /// Its own certificate first, then those that sign it, if any.
    chain: Vec<CertificateDer<'static>>,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// Serial numbers of revoked certificates.
    revoked: HashSet<Vec<u8>>,
}

/// Why an identity or an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}: no `-----BEGIN {expected}-----`: expected a PEM file")]
    NotPem { path: PathBuf, expected: &'static str },
    #[error("the {what} cannot be used for TLS: {cause}")]
    Tls { what: &'static str, cause: String },
    #[error(
        "{0} can be reached from other machines: give option `tls_cert`, option `tls_key` and option `client_ca`, or option `insecure` to accept \
         any client"
    )]
    Open(SocketAddr),
}

impl Identity {
    /// Reads the PEM files.
    ///
    /// # Errors
    /// If one cannot be read, or is not a PEM file of its kind; or if certificate and key do not belong together.
    pub fn read(files: &TlsFiles) -> Result<Identity, SecurityError> {
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(files);
        let current =
            Current { loaded: Arc::new(Loaded::read(files)?), stamps, refused: None, looked_at: Instant::now() };
        Ok(Identity { files: Arc::new(files.clone()), current: Arc::new(Mutex::new(current)) })
    }

    /// For connections to agents with a certificate of the authority that is not revoked, and to no others.
    pub(crate) fn connector(&self) -> TlsConnector {
        self.current().connector.clone()
    }

    /// For accepting clients with a certificate of the authority that is not revoked, and no others.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current().acceptor.clone()
    }

    /// The role that its own certificate has.
    pub fn role(&self) -> Option<Role> {
        Holder::of(self.current().chain.first()?)?.role
    }

    /// Whether the certificate with this serial number is revoked.
    pub(crate) fn is_revoked(&self, serial: &[u8]) -> bool {
        self.current().revoked.contains(serial)
    }

    /// What the files hold.
    fn current(&self) -> Arc<Loaded> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked_at.elapsed() < RELOAD_INTERVAL {
            return current.loaded.clone();
        }
        current.looked_at = Instant::now();
        let stamps = stamps(&self.files);
        if stamps != current.stamps {
            match Loaded::read(&self.files) {
                Ok(loaded) => {
                    info!("the certificates have changed: read again from {}", self.files.cert.display());
                    (current.loaded, current.stamps) = (Arc::new(loaded), stamps);
                }
                // It is tried again, and told once.
                Err(error) if current.refused.as_ref() != Some(&stamps) => {
                    warn!("the certificates have changed, those from before stay in use: {error}");
                    current.refused = Some(stamps);
                }
                Err(_) => {}
            }
        }
        current.loaded.clone()
    }
}

impl std::fmt::Debug for Identity {
    /// Does not print the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

impl Loaded {
    fn read(files: &TlsFiles) -> Result<Loaded, SecurityError> {
        let authority = pem(&files.ca, "CERTIFICATE")?;
        let (certificate, key) = (pem(&files.cert, "CERTIFICATE")?, pem(&files.key, "")?);
        let lists = match &files.crl {
            Some(path) => revocation_lists(&pem(path, "X509 CRL")?)?,
            None => Vec::new(),
        };
        let mut revoked = HashSet::new();
        for list in &lists {
            let (_, list) = x509_parser::parse_x509_crl(list).map_err(failed("revocation list"))?;
            revoked.extend(list.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec()));
        }
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&authority) {
            let certificate = certificate.map_err(failed("authority's certificate"))?;
            roots.add(certificate).map_err(failed("authority's certificate"))?;
        }
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(failed("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(failed("private key"))?;
        let party = Party { provider: Arc::new(crypto::ring::default_provider()), roots: Arc::new(roots), lists };
        let (acceptor, connector) = (party.acceptor(&chain, &key)?, party.connector(&chain, &key)?);
        Ok(Loaded { chain, acceptor, connector, revoked })
    }
}

/// What verifies the other side of a connection: both ways, as agents accept connections and open them.
struct Party {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    /// Revocation lists. Of several authorities, not all need one.
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Party {
    fn acceptor(
        &self,
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
    ) -> Result<TlsAcceptor, SecurityError> {
        let mut clients = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        if !self.lists.is_empty() {
            clients = clients
                .with_crls(self.lists.clone())
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status();
        }
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(failed("protocol"))?
            .with_client_cert_verifier(clients.build().map_err(failed("authority's certificate"))?)
            .with_single_cert(chain.to_vec(), key.clone_key())
            .map_err(failed("certificate"))?;
        config.alpn_protocols = vec![HTTP_2.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn connector(
        &self,
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
    ) -> Result<TlsConnector, SecurityError> {
        let mut servers = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        if !self.lists.is_empty() {
            servers = servers
                .with_crls(self.lists.clone())
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status();
        }
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(failed("protocol"))?
            .with_webpki_verifier(servers.build().map_err(failed("authority's certificate"))?)
            .with_client_auth_cert(chain.to_vec(), key.clone_key())
            .map_err(failed("certificate"))?;
        config.alpn_protocols = vec![HTTP_2.to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> SecurityError {
    move |error| SecurityError::Tls { what, cause: error.to_string() }
}

fn revocation_lists(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, SecurityError> {
    let lists: Result<_, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
    lists.map_err(failed("revocation list"))
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| fs::metadata(path).ok().and_then(|about| Some((about.modified().ok()?, about.len())));
    [&files.ca, &files.cert, &files.key].into_iter().chain(&files.crl).map(stamp).collect()
}

/// Refuses an address that other machines can reach, unless there is an identity or `insecure` is set.
///
/// # Errors
/// If the address is refused.
pub fn check_address(address: SocketAddr, identity: Option<&Identity>, insecure: bool) -> Result<(), SecurityError> {
    if address.ip().is_loopback() || identity.is_some() || insecure {
        Ok(())
    } else {
        Err(SecurityError::Open(address))
    }
}

/// Reads a file that must hold a PEM section with this label, or, if it is empty, a label that ends in `PRIVATE KEY`.
fn pem(path: &Path, label: &'static str) -> Result<Vec<u8>, SecurityError> {
    let text = input_file::read(path, MAX_DOCUMENT_BYTES)
        .map_err(|cause| SecurityError::File { path: path.to_path_buf(), cause })?;
    let (marker, expected) = match label {
        "" => ("PRIVATE KEY-----".to_string(), "PRIVATE KEY"),
        label => (format!("-----BEGIN {label}-----"), label),
    };
    if memchr::memmem::find(&text, marker.as_bytes()).is_none() {
        return Err(SecurityError::NotPem { path: path.to_path_buf(), expected });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open_without_tls() {
        for (address, insecure, allowed) in [
            ("127.0.0.1:7", false, true),
            ("[::1]:7", false, true),
            ("0.0.0.0:7", false, false),
            ("10.0.0.2:7", false, false),
            ("[::]:7", false, false),
            ("10.0.0.2:7", true, true),
        ] {
            let found = check_address(address.parse().unwrap(), None, insecure).is_ok();
            assert_eq!(found, allowed, "{address} insecure={insecure}");
        }
    }

    #[test]
    fn a_file_without_the_pem_section_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "-----BEGIN CERTIFICATE-----").unwrap();
        assert!(pem(&path, "CERTIFICATE").is_ok());
        assert!(pem(&path, "").unwrap_err().to_string().contains("PRIVATE KEY"));
        assert!(pem(&folder.path().join("none"), "").unwrap_err().to_string().contains("none"));
    }
}
