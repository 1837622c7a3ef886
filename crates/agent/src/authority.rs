//! The certificate authority of a cluster: a folder with its certificate and key, the certificates of agents and operators
//! that it has issued, and the list of those that are revoked.
//!
//! Keys are ECDSA on P-256, as X.509 by rcgen. What a certificate allows is its [`Role`].

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use smol_str::SmolStr;
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate, parse_x509_crl};

use crate::{
    Endpoint, Server,
    protocol::{Holder, peer::Peer, role::Role},
};
use edgecut_values::{
    files::{FileLock, lock, write_atomic, write_private},
    input_file::{MAX_DOCUMENT_BYTES, read_text},
};

/// How long an authority and its list of revoked certificates are valid.
const AUTHORITY_VALIDITY: Duration = Duration::days(3650);

/// Certificates are valid from this long ago: clocks of servers differ.
const CLOCK_SKEW: Duration = Duration::days(1);

/// A certificate that ends sooner is replaced.
pub const RENEWAL: Duration = Duration::days(30);

/// The files of the authority: its certificate, its key, the list of revoked certificates, and who got which serial number.
const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";
const REVOKED: &str = "revoked.pem";
const ISSUED: &str = "issued.csv";

/// Names that the authority's own files have.
const RESERVED: [&str; 2] = ["ca", "revoked"];

/// A folder of certificates whose authority can issue more.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    revoked: Vec<Revoked>,
    /// The number of the next list of revoked certificates.
    next_list: u64,
    /// One command at a time changes the folder.
    _lock: FileLock,
}

/// A revoked certificate.
struct Revoked {
    serial: Vec<u8>,
    at: OffsetDateTime,
}

/// Whom a certificate is issued to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Also the name of its files.
    pub name: SmolStr,
    pub role: Role,
    /// Names and addresses by which others connect to it.
    pub hosts: Vec<String>,
}

/// What was done about a subject's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issue {
    New,
    /// There was one, which is valid for its names.
    Kept,
}

/// Why an authority cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}: {cause}: expected what `edgecut cluster init` writes")]
    Content { path: PathBuf, cause: String },
    #[error("`{0}` is neither a host name nor an address")]
    Host(String),
    #[error("no certificate was issued to {name} in {folder}: nothing to revoke")]
    NotIssued { name: String, folder: PathBuf },
    #[error("{0} is the name of the authority's own files: choose another one")]
    Reserved(String),
    #[error("{0} is there, but not {1}: restore it, or give another folder for a new authority")]
    Incomplete(PathBuf, PathBuf),
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl Subject {
    /// The agent of a server; `None` if it is embedded.
    pub fn of_server(server: &Server) -> Option<Subject> {
        let peer = Peer::of(server)?;
        let Endpoint::Remote { address, .. } = &server.endpoint else { return None };
        let address = Peer { tls_name: None, address: address.clone(), server: server.name.clone() };
        let mut hosts = vec![peer.host().to_string(), address.host().to_string()];
        hosts.dedup();
        Some(Subject { name: server.name.clone(), role: Role::Agent, hosts })
    }

    pub fn operator(name: SmolStr) -> Subject {
        Subject { name, role: Role::Operator, hosts: Vec::new() }
    }
}

impl Authority {
    /// The authority in `folder`; creates it there, called `name`, if there is none.
    ///
    /// # Errors
    /// If files are missing or not those of an authority, or cannot be written.
    pub fn open(folder: &Path, name: &str) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let lock = locked(folder)?;
        match (certificate.exists(), key.exists()) {
            (true, true) => Authority::read(folder, lock),
            (false, false) => Authority::create(folder, name, lock),
            (true, false) => Err(AuthorityError::Incomplete(certificate, key)),
            (false, true) => Err(AuthorityError::Incomplete(key, certificate)),
        }
    }

    fn create(folder: &Path, name: &str, lock: FileLock) -> Result<Authority, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("edgecut authority of {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let now = OffsetDateTime::now_utc();
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + AUTHORITY_VALIDITY);
        let certificate = params.self_signed(&key)?;
        private(&folder.join(KEY), &key.serialize_pem())?;
        public(&folder.join(CERTIFICATE), &certificate.pem())?;
        let authority = Authority {
            folder: folder.to_path_buf(),
            issuer: Issuer::new(params, key),
            revoked: Vec::new(),
            next_list: 1,
            _lock: lock,
        };
        authority.write_list()?;
        Ok(authority)
    }

    /// The authority in `folder`.
    ///
    /// # Errors
    /// If there is none, or its files are not those of one.
    pub fn existing(folder: &Path) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        // A folder that is locked is created if it is missing.
        text(&certificate)?;
        match key.exists() {
            true => Authority::read(folder, locked(folder)?),
            false => Err(AuthorityError::Incomplete(certificate, key)),
        }
    }

    fn read(folder: &Path, lock: FileLock) -> Result<Authority, AuthorityError> {
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let invalid = |path: &Path, cause: String| AuthorityError::Content { path: path.to_path_buf(), cause };
        let pair = KeyPair::from_pem(&text(&key)?).map_err(|error| invalid(&key, error.to_string()))?;
        let issuer = Issuer::from_ca_cert_pem(&text(&certificate)?, pair);
        let issuer = issuer.map_err(|error| invalid(&certificate, error.to_string()))?;
        let mut authority =
            Authority { folder: folder.to_path_buf(), issuer, revoked: Vec::new(), next_list: 1, _lock: lock };
        let list = authority.revoked_file();
        if list.exists() {
            let der = CertificateRevocationListDer::from_pem_slice(text(&list)?.as_bytes());
            let der = der.map_err(|error| invalid(&list, error.to_string()))?;
            let (_, parsed) = parse_x509_crl(&der).map_err(|error| invalid(&list, error.to_string()))?;
            let entries = parsed.iter_revoked_certificates();
            let revoked = entries
                .map(|entry| Revoked { serial: entry.raw_serial().to_vec(), at: entry.revocation_date.to_datetime() });
            authority.revoked = revoked.collect();
            let number = parsed.crl_number().and_then(|number| number.try_into().ok());
            authority.next_list = number.map_or(1, |number: u64| number.saturating_add(1));
        } else {
            authority.write_list()?;
        }
        Ok(authority)
    }

    pub fn certificate_file(&self) -> PathBuf {
        self.folder.join(CERTIFICATE)
    }

    /// The list of revoked certificates.
    pub fn revoked_file(&self) -> PathBuf {
        self.folder.join(REVOKED)
    }

    /// Certificate and key of a subject.
    pub fn files(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")))
    }

    /// Issues a certificate that is valid for `validity`, unless the subject has one that is not revoked, of the same role
    /// and names, and that ends no sooner than in 30 days, and `renew` is not set.
    ///
    /// # Errors
    /// If a host is no name of one, or a file cannot be read or written.
    pub fn issue(&self, subject: &Subject, validity: Duration, renew: bool) -> Result<Issue, AuthorityError> {
        if RESERVED.iter().any(|reserved| subject.name.eq_ignore_ascii_case(reserved)) {
            return Err(AuthorityError::Reserved(subject.name.to_string()));
        }
        let (certificate, key) = self.files(&subject.name);
        if !renew && key.exists() && certificate.exists() && self.is_good(&certificate, &key, subject)? {
            return Ok(Issue::Kept);
        }
        let pair = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject.name.as_str());
        params.distinguished_name.push(DnType::OrganizationName, subject.role.organization());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // An agent is a client of others when it sends tensors.
        params.extended_key_usages = match subject.role {
            Role::Operator => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Role::Agent => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.subject_alt_names = subject.hosts.iter().map(|host| alternative_name(host)).collect::<Result<_, _>>()?;
        params.use_authority_key_identifier_extension = true;
        let now = OffsetDateTime::now_utc();
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + validity);
        let issued = params.signed_by(&pair, &self.issuer)?;
        self.note(&subject.name, issued.der())?;
        private(&key, &pair.serialize_pem())?;
        public(&certificate, &issued.pem())?;
        Ok(Issue::New)
    }

    /// Adds all certificates that were issued to `name` to the list of revoked ones.
    ///
    /// # Errors
    /// If none was, or the list cannot be written.
    pub fn revoke(&mut self, name: &str) -> Result<(), AuthorityError> {
        let issued = self.issued(name)?;
        if issued.is_empty() {
            return Err(AuthorityError::NotIssued { name: name.to_string(), folder: self.folder.clone() });
        }
        let now = OffsetDateTime::now_utc();
        let new: Vec<Vec<u8>> = issued.into_iter().filter(|serial| !self.is_revoked(serial)).collect();
        if !new.is_empty() {
            self.revoked.extend(new.into_iter().map(|serial| Revoked { serial, at: now }));
            self.write_list()?;
            self.next_list = self.next_list.saturating_add(1);
        }
        Ok(())
    }

    /// To whom certificates were issued, in order and each once.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn names(&self) -> Result<Vec<String>, AuthorityError> {
        let path = self.folder.join(ISSUED);
        let text = if path.exists() { text(&path)? } else { String::new() };
        let mut names: Vec<String> = Vec::new();
        for (name, _) in text.lines().skip(1).filter_map(|line| line.split_once(',')) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_string());
            }
        }
        Ok(names)
    }

    /// Notes to whom a certificate is issued, since the next one of the same name takes its file.
    fn note(&self, name: &str, certificate: &CertificateDer<'_>) -> Result<(), AuthorityError> {
        let path = self.folder.join(ISSUED);
        let serial = Holder::of(certificate).map(|holder| holder.serial_text()).unwrap_or_default();
        let before = if path.exists() { text(&path)? } else { "name,serial\n".to_string() };
        public(&path, &format!("{before}{name},{serial}\n"))
    }

    /// The serial numbers of all certificates that were issued to `name`.
    fn issued(&self, name: &str) -> Result<Vec<Vec<u8>>, AuthorityError> {
        let path = self.folder.join(ISSUED);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = text(&path)?;
        let own = text.lines().filter_map(|line| line.split_once(',')).filter(|(of, _)| *of == name);
        let read = |(_, serial): (&str, &str)| {
            let invalid =
                || AuthorityError::Content { path: path.clone(), cause: format!("`{serial}` is no serial number") };
            bytes_of(serial).ok_or_else(invalid)
        };
        own.map(read).collect()
    }

    fn is_revoked(&self, serial: &[u8]) -> bool {
        self.revoked.iter().any(|revoked| revoked.serial == serial)
    }

    /// Whether a certificate can still be used for a subject: it belongs to the key, and this authority has issued it.
    fn is_good(&self, path: &Path, key: &Path, subject: &Subject) -> Result<bool, AuthorityError> {
        let soon = OffsetDateTime::now_utc() + RENEWAL;
        let holder = {
            let text = text(path)?;
            CertificateDer::from_pem_slice(text.as_bytes()).ok().and_then(|der| Holder::of(&der))
        };
        let Some(holder) = holder else { return Ok(false) };
        let ends = with_certificate(path, |certificate| certificate.validity().not_after.to_datetime())?;
        let public_key =
            with_certificate(path, |certificate| certificate.public_key().subject_public_key.data.to_vec())?;
        let is_key = KeyPair::from_pem(&text(key)?).is_ok_and(|pair| pair.public_key_raw() == public_key);
        Ok(ends > soon
            && is_key
            && self.has_issued(path)?
            && !self.is_revoked(&holder.serial)
            && holder.role == Some(subject.role)
            && subject.hosts.iter().all(|host| holder.is_called(host)))
    }

    /// Whether a certificate is signed with the authority's key.
    fn has_issued(&self, path: &Path) -> Result<bool, AuthorityError> {
        with_certificate(&self.certificate_file(), |own| {
            with_certificate(path, |certificate| certificate.verify_signature(Some(own.public_key())).is_ok())
        })?
    }

    fn write_list(&self) -> Result<(), AuthorityError> {
        let now = OffsetDateTime::now_utc();
        let entry = |revoked: &Revoked| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&revoked.serial),
            revocation_time: revoked.at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - CLOCK_SKEW,
            next_update: now + AUTHORITY_VALIDITY,
            crl_number: SerialNumber::from(self.next_list),
            issuing_distribution_point: None,
            revoked_certs: self.revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        public(&self.revoked_file(), &list.signed_by(&self.issuer)?.pem()?)
    }
}

fn alternative_name(host: &str) -> Result<SanType, AuthorityError> {
    match IpAddr::from_str(host) {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => {
            let name = host.to_string().try_into().map_err(|_| AuthorityError::Host(host.to_string()))?;
            Ok(SanType::DnsName(name))
        }
    }
}

/// The bytes of a number in hexadecimal; `None` if it is none.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

/// Exclusive use of an authority's folder.
fn locked(folder: &Path) -> Result<FileLock, AuthorityError> {
    let path = folder.join(CERTIFICATE);
    lock(&path).map_err(|cause| AuthorityError::File { path, cause })
}

fn with_certificate<T>(path: &Path, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, AuthorityError> {
    let invalid = |cause: String| AuthorityError::Content { path: path.to_path_buf(), cause };
    let text = text(path)?;
    let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| invalid(error.to_string()))?;
    let (_, certificate) = parse_x509_certificate(&der).map_err(|error| invalid(error.to_string()))?;
    Ok(read(&certificate))
}

fn text(path: &Path) -> Result<String, AuthorityError> {
    read_text(path, MAX_DOCUMENT_BYTES).map_err(|cause| AuthorityError::File { path: path.to_path_buf(), cause })
}

fn public(path: &Path, content: &str) -> Result<(), AuthorityError> {
    let written = write_atomic(path, |file| io::Write::write_all(file, content.as_bytes()));
    written.map_err(|cause: io::Error| AuthorityError::File { path: path.to_path_buf(), cause })
}

fn private(path: &Path, content: &str) -> Result<(), AuthorityError> {
    write_private(path, content.as_bytes()).map_err(|cause| AuthorityError::File { path: path.to_path_buf(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn subjects() -> [Subject; 2] {
        let hosts = vec!["camera.lab".to_string(), "10.0.0.11".to_string()];
        [Subject { name: "camera".into(), role: Role::Agent, hosts }, Subject::operator("ann".into())]
    }

    #[test]
    fn certificates_are_kept_until_names_or_roles_change_or_they_are_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let [agent, operator] = subjects();
        let year = Duration::days(365);
        let open = || Authority::open(folder.path(), "lab").unwrap();
        assert_eq!(open().issue(&agent, year, false).unwrap(), Issue::New);
        assert_eq!(open().issue(&agent, year, false).unwrap(), Issue::Kept);
        assert_eq!(open().issue(&agent, year, true).unwrap(), Issue::New);
        let moved = Subject { hosts: vec!["10.0.0.12".to_string()], ..agent.clone() };
        assert_eq!(open().issue(&moved, year, false).unwrap(), Issue::New);
        assert_eq!(open().issue(&Subject { role: Role::Operator, ..moved }, year, false).unwrap(), Issue::New);
        assert_eq!(open().issue(&operator, Duration::days(7), false).unwrap(), Issue::New);
        assert_eq!(open().issue(&operator, year, false).unwrap(), Issue::New, "it would have ended soon");
        open().revoke("ann").unwrap();
        open().revoke("ann").unwrap();
        assert_eq!(open().revoked.len(), 2, "the one before too");
        assert_eq!(open().issue(&operator, year, false).unwrap(), Issue::New);
        open().revoke("ann").unwrap();
        {
            let authority = open();
            assert_eq!((authority.revoked.len(), authority.next_list), (3, 4));
        }
        let error = open().revoke("bob").unwrap_err().to_string();
        assert!(error.contains("issued to bob") && error.contains("nothing to revoke"), "{error}");
        let error = open().issue(&Subject::operator("CA".into()), year, false).unwrap_err().to_string();
        assert!(error.contains("the authority's own files"), "{error}");
    }

    #[test]
    fn certificates_of_another_key_or_authority_are_replaced() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [agent, operator] = subjects();
        let year = Duration::days(365);
        let authority = Authority::open(folder.path(), "lab").unwrap();
        authority.issue(&agent, year, false).unwrap();
        authority.issue(&operator, year, false).unwrap();
        // The key of one is there, and the certificate of another one.
        fs::copy(folder.path().join("ann.key"), folder.path().join("camera.key")).unwrap();
        assert_eq!(authority.issue(&agent, year, false).unwrap(), Issue::New);
        let strangers = Authority::open(other.path(), "lab").unwrap();
        strangers.issue(&agent, year, false).unwrap();
        for file in ["camera.pem", "camera.key"] {
            fs::copy(other.path().join(file), folder.path().join(file)).unwrap();
        }
        assert_eq!(authority.issue(&agent, year, false).unwrap(), Issue::New);
        assert_eq!(authority.issue(&agent, year, false).unwrap(), Issue::Kept);
    }

    #[test]
    fn an_authority_is_complete_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        Authority::open(folder.path(), "lab").unwrap();
        fs::remove_file(folder.path().join(KEY)).unwrap();
        let error = Authority::open(folder.path(), "lab").err().unwrap().to_string();
        assert!(error.contains("ca.key: restore it"), "{error}");
        fs::write(folder.path().join(KEY), "no key").unwrap();
        let error = Authority::open(folder.path(), "lab").err().unwrap().to_string();
        assert!(error.contains("ca.key") && error.contains("expected what"), "{error}");
    }

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (host, is_one) in [("pi.lab", true), ("10.0.0.1", true), ("fe80::1", true), ("ä.lab", false)] {
            assert_eq!(alternative_name(host).is_ok(), is_one, "{host}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_readable_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path(), "lab").unwrap();
        authority.issue(&subjects()[1], Duration::days(365), false).unwrap();
        for name in ["ca.key", "ann.key"] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
