//! Parser of the cluster file (TOML), documented in `docs/cluster.md`. Its result is a checked [`Cluster`].

use std::{
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de};
use smol_str::SmolStr;
use toml::Spanned;

use crate::{
    cluster::{Cluster, DeviceOverride, Endpoint, MAX_THREADS, Server, TlsFiles},
    discovery::Discovery,
    link::Link,
};
use edgecut_engine::{EngineChoice, EngineOptions};
use edgecut_graph::{
    LinkCost, check_name,
    units::{Bytes, Micros, Rate},
};

/// Why a cluster file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    pub message: String,
    /// The bytes of the text that the message is about.
    pub span: Option<Range<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    source: Option<Spanned<SmolStr>>,
    sink: Option<Spanned<SmolStr>>,
    tls: Option<TlsText>,
    #[serde(rename = "servers")]
    discovery: Option<Spanned<String>>,
    #[serde(rename = "server", default)]
    servers: Vec<Spanned<ServerText>>,
    #[serde(rename = "link", default)]
    links: Vec<LinkText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsText {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    crl: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerText {
    name: Spanned<SmolStr>,
    address: Option<Spanned<String>>,
    tls_name: Option<String>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<Bytes>,
    threads: Option<Spanned<u32>>,
    #[serde(default, deserialize_with = "with_unit")]
    engine: Option<EngineChoice>,
    #[serde(rename = "device", default)]
    devices: Vec<DeviceText>,
    #[serde(rename = "lab")]
    _lab: Option<LabText>,
}

/// Options of a server for `cluster/lab.sh`; only the script reads them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabText {
    /// Its cores, in the syntax of `taskset`.
    #[serde(rename = "cores")]
    _cores: Option<String>,
    /// Its CPU quota, such as `60%`.
    #[serde(rename = "cpu")]
    _cpu: Option<String>,
    /// The time dilation of its agent.
    #[serde(rename = "dilate")]
    _dilate: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceText {
    name: Spanned<SmolStr>,
    #[serde(default, deserialize_with = "size")]
    memory: Option<Bytes>,
    threads: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    from: Spanned<SmolStr>,
    to: Spanned<SmolStr>,
    #[serde(deserialize_with = "with_unit")]
    latency: Option<Micros>,
    #[serde(deserialize_with = "with_unit")]
    rate: Option<Rate>,
    /// Whether the reverse direction has the same cost.
    #[serde(default)]
    both_ways: bool,
}

/// A quantity as a string with a unit.
fn with_unit<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

/// A size as a string; the unit is required.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
    Bytes::with_unit(&String::deserialize(deserializer)?).map(Some).map_err(de::Error::custom)
}

impl Cluster {
    /// Parses a cluster file. Relative paths in it are relative to `folder`, the file's own.
    ///
    /// # Errors
    /// If the text is not TOML, has unknown fields, or is inconsistent; the error has the position.
    pub fn parse(text: &str, folder: &Path) -> Result<Cluster, ClusterError> {
        Cluster::parse_with(text, folder, Vec::new())
    }

    /// Where the servers that a file does not name are to be found, if it says so, and the certificates for that.
    ///
    /// # Errors
    /// If the text is not TOML, has unknown fields, or names no such place.
    pub fn discovery(text: &str, folder: &Path) -> Result<Option<(Discovery, Option<TlsFiles>)>, ClusterError> {
        let file = read(text)?;
        let Some(place) = file.discovery else { return Ok(None) };
        let found = place.get_ref().parse().map_err(|message| at(place.span(), message))?;
        Ok(Some((found, file.tls.map(|tls| tls.files(folder)))))
    }

    /// As [`Cluster::parse`], with the servers that were `found` after those that the file names.
    ///
    /// # Errors
    /// The same.
    pub fn parse_with(text: &str, folder: &Path, found: Vec<Server>) -> Result<Cluster, ClusterError> {
        let file = read(text)?;
        let mut servers: Vec<Server> = Vec::new();
        for spanned in file.servers {
            let server = server(spanned.into_inner(), &servers)?;
            servers.push(server);
        }
        for server in found {
            if servers.iter().any(|known| known.name == server.name) {
                let message = format!("two servers are called `{}`: names must be unique", server.name);
                return Err(ClusterError { message, span: file.discovery.map(|place| place.span()) });
            }
            servers.push(server);
        }
        let Some(first) = servers.first() else {
            return Err(ClusterError {
                message: "no server: expected at least one [[server]] with a name, or servers = \"dns:HOST:PORT\""
                    .to_string(),
                span: None,
            });
        };
        let known = |name: Spanned<SmolStr>, role: &str| {
            let found = servers.iter().any(|s| s.name == *name.get_ref());
            let message = || format!("{role} `{}` is not the name of any [[server]]", name.get_ref());
            if found { Ok(name.get_ref().clone()) } else { Err(at(name.span(), message())) }
        };
        let source = file.source.map(|name| known(name, "source")).transpose()?.unwrap_or(first.name.clone());
        let sink = file.sink.map(|name| known(name, "sink")).transpose()?.unwrap_or(first.name.clone());
        let mut links: Vec<Link> = Vec::new();
        for link in file.links {
            let span = link.from.span();
            let (from, to) = (known(link.from, "link's from")?, known(link.to, "link's to")?);
            if from == to {
                return Err(at(span, format!("a link from `{from}` to itself: expected two servers")));
            }
            let (Some(latency), Some(rate)) = (link.latency, link.rate) else {
                return Err(at(span, "a link needs `latency` and `rate`".to_string()));
            };
            let cost = LinkCost { latency, rate };
            let mut directions = vec![Link { from: from.clone(), to: to.clone(), cost }];
            if link.both_ways {
                directions.push(Link { from: to, to: from, cost });
            }
            for link in directions {
                if links.iter().any(|l| (&l.from, &l.to) == (&link.from, &link.to)) {
                    return Err(at(span, format!("the link from `{}` to `{}` is given twice", link.from, link.to)));
                }
                links.push(link);
            }
        }
        let tls = file.tls.map(|tls| tls.files(folder));
        Ok(Cluster { servers, links, source, sink, tls, wait: None })
    }
}

impl TlsText {
    fn files(self, folder: &Path) -> TlsFiles {
        TlsFiles {
            ca: folder.join(self.ca),
            cert: folder.join(self.cert),
            key: folder.join(self.key),
            crl: self.crl.map(|crl| folder.join(crl)),
        }
    }
}

fn read(text: &str) -> Result<FileText, ClusterError> {
    toml::from_str(text).map_err(|e| ClusterError { message: e.message().to_string(), span: e.span() })
}

fn at(span: Range<usize>, message: String) -> ClusterError {
    ClusterError { message, span: Some(span) }
}

/// Checks one server against the previous ones.
fn server(text: ServerText, before: &[Server]) -> Result<Server, ClusterError> {
    let name = named(&text.name, "a server")?;
    if before.iter().any(|s| s.name == name) {
        return Err(at(text.name.span(), format!("two servers are called `{name}`: names must be unique")));
    }
    let endpoint = match text.address {
        None => Endpoint::Embedded,
        Some(address) => {
            if !is_address(address.get_ref()) {
                let message = format!("`{}` is not an address: expected host:port", address.get_ref());
                return Err(at(address.span(), message));
            }
            if let Some(other) = before
                .iter()
                .find(|s| matches!(&s.endpoint, Endpoint::Remote { address: a, .. } if a == address.get_ref()))
            {
                return Err(at(address.span(), format!("server `{}` has this address already", other.name)));
            }
            Endpoint::Remote { address: address.into_inner(), tls_name: text.tls_name }
        }
    };
    if let Some(other) = before.iter().find(|s| s.endpoint == Endpoint::Embedded || endpoint == Endpoint::Embedded) {
        let message = format!(
            "a server without an address is this process, which other servers cannot reach: give `{}` and `{name}` \
             an address each, or keep only one server",
            other.name
        );
        return Err(at(text.name.span(), message));
    }
    let mut devices: Vec<DeviceOverride> = Vec::new();
    for device in text.devices {
        let name = named(&device.name, "a device")?;
        if devices.iter().any(|d| d.name == name) {
            return Err(at(device.name.span(), format!("device `{name}` is given twice")));
        }
        devices.push(DeviceOverride { name, memory: device.memory, threads: threads(device.threads)? });
    }
    Ok(Server {
        name,
        endpoint,
        memory: text.memory,
        threads: threads(text.threads)?,
        engine: text.engine,
        embedded: EngineOptions::default(),
        devices,
    })
}

fn named(name: &Spanned<SmolStr>, what: &str) -> Result<SmolStr, ClusterError> {
    check_name(name.get_ref()).map_err(|error| at(name.span(), format!("{what} {error}")))
}

fn threads(threads: Option<Spanned<u32>>) -> Result<Option<u32>, ClusterError> {
    match threads {
        Some(n) if !(1..=MAX_THREADS).contains(n.get_ref()) => {
            Err(at(n.span(), format!("expected 1 to {MAX_THREADS} threads")))
        }
        other => Ok(other.map(Spanned::into_inner)),
    }
}

/// Whether the text is `host:port` with a name, an IPv4 address or an IPv6 address in brackets.
fn is_address(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((host, port)) => {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            !host.is_empty() && (bracketed || !host.contains([':', '/', ' '])) && port.parse::<u16>().is_ok()
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Cluster, ClusterError> {
        Cluster::parse(text, Path::new("/etc"))
    }

    #[test]
    fn a_file_with_all_fields_parses() {
        let cluster = parse(
            "sink = \"b\"\n[tls]\nca = \"ca.pem\"\ncert = \"/x/c.pem\"\nkey = \"k.pem\"\n\
             [[server]]\nname = \"a\"\naddress = \"[::1]:7000\"\nmemory = \"1GiB\"\nthreads = 2\n\
             device = [{ name = \"gpu0\", memory = \"256MiB\" }]\n\
             [[server]]\nname = \"b\"\naddress = \"pi.lab:7000\"\ntls_name = \"pi\"\n\
             [[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"0.3ms\"\nrate = \"1Gbit/s\"\nboth_ways = true\n",
        )
        .unwrap();
        assert_eq!((cluster.source.as_str(), cluster.sink.as_str()), ("a", "b"));
        assert_eq!(cluster.tls.as_ref().unwrap().ca, Path::new("/etc/ca.pem"));
        let a = &cluster.servers[0];
        assert_eq!(a.memory_for("cpu"), Some(Bytes(1 << 30)));
        assert_eq!(a.memory_for("gpu0"), Some(Bytes(256 << 20)));
        assert_eq!(a.threads_for("gpu0"), Some(2));
        assert_eq!(cluster.link("b", "a").unwrap().cost.time(Bytes(125)), Micros(301.0));
    }

    #[test]
    fn the_shipped_cluster_files_parse() {
        assert_eq!(parse(include_str!("../../../cluster/local.toml")), Ok(Cluster::embedded()));
        let loopback = parse(include_str!("../../../cluster/loopback.toml")).unwrap();
        assert_eq!(loopback.servers.len(), 3);
    }

    #[test]
    fn inconsistent_files_are_refused_with_the_position() {
        let two = "[[server]]\nname = \"a\"\naddress = \"h:1\"\n[[server]]\nname = \"b\"\naddress = \"h:2\"\n";
        for (text, message, place) in [
            ("", "no server", ""),
            ("[[server]]\nname = 3\n", "invalid type", "3"),
            ("[[server]]\nname = \"a\"\nadress = \"h:1\"", "unknown field `adress`", "adress"),
            ("[[server]]\nname = \"a b\"", "cannot be called", "\"a b\""),
            ("[[server]]\nname = \"a\"\naddress = \"h\"", "expected host:port", "\"h\""),
            ("[[server]]\nname = \"a\"\nmemory = \"lots\"", "is not a size", "\"lots\""),
            ("[[server]]\nname = \"a\"\nmemory = \"12\"", "is not a size", "\"12\""),
            ("[[server]]\nname = \"a\"\nthreads = 0", "expected 1 to 1024", "0"),
            ("servers = \"dns:a:1\"", "no server", ""),
            ("[[server]]\nname = \"a\"\n[[server]]\nname = \"b\"", "cannot reach", "\"b\""),
            ("source = \"x\"\n[[server]]\nname = \"a\"", "not the name", "\"x\""),
            (&format!("{two}[[server]]\nname = \"b\"\naddress = \"h:3\""), "two servers", "\"b\""),
            (&format!("{two}[[server]]\nname = \"c\"\naddress = \"h:2\""), "has this address", "\"h:2\""),
            (
                &format!("{two}[[link]]\nfrom = \"a\"\nto = \"a\"\nlatency = \"1ms\"\nrate = \"1MB/s\""),
                "itself",
                "\"a\"",
            ),
            (&format!("{two}[[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"1ms\"\nrate = \"9\""), "rate", "\"9\""),
            (&format!("{two}[[link]]\nfrom = \"a\"\nto = \"b\"\nlatency = \"1ms\""), "missing field `rate`", ""),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.message.contains(message), "{text}\n{error}");
            if !place.is_empty() {
                assert_eq!(error.span.clone().map(|s| &text[s]), Some(place), "{text}\n{error}");
            }
        }
    }
}
