//! `edgecut agent`: serves this machine's devices to clients that plan and run on the cluster.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use smol_str::SmolStr;

use super::{
    Failure, Outcome,
    cluster::{runtime, warn},
    engine::EngineFlags,
};
use edgecut_cluster::{
    MAX_THREADS, Oversubscribed, TlsFiles,
    agent::{Host, HostOptions, Identity, Limits, Shutdown, check_address, descriptors, serve},
    check_name,
};
use edgecut_engine::{Dilation, EngineOptions};
use edgecut_graph::units::Bytes;

/// Serve this machine's devices to others: profile, load and run parts of models.
///
/// Stops on SIGINT and SIGTERM; running requests are cancelled and their clients notified.
#[derive(clap::Args)]
pub struct Agent {
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, help_heading = "Server", default_value = "127.0.0.1:7600", value_name = "HOST:PORT")]
    listen: String,
    /// This server's name in messages; the host's name if not given
    #[arg(long, help_heading = "Server", value_parser = agent_name)]
    name: Option<SmolStr>,
    /// Threads that compute; all that this process may use if not given
    #[arg(long, help_heading = "Limits", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u32>,
    /// Limit on parameters, activations and workspace together, such as 512MiB
    #[arg(long, help_heading = "Limits", value_name = "SIZE", value_parser = Bytes::with_unit)]
    memory: Option<Bytes>,
    /// Another limit on what clients can do, such as connections=128 (repeatable)
    ///
    /// docs/cluster.md lists them: connections, client-connections, handshakes, handshake-time, streams, jobs, client-jobs, message-time, idle-time, lease-wait,
    /// document, in-flight.
    #[arg(long, help_heading = "Limits", value_name = "NAME=VALUE")]
    limit: Vec<String>,
    #[command(flatten)]
    engine: EngineFlags,
    /// Compute N times as slowly, by sleeping: a test option
    ///
    /// Every step takes N times the processor time that it needs, so that several slow devices share the cores of one
    /// machine. What is sent and received is not slowed down. Its hardware is reported as dilated, without GPUs.
    #[arg(long, help_heading = "Testing", value_name = "N")]
    dilate: Option<Dilation>,
    /// This agent's certificate (PEM)
    #[arg(long, help_heading = "Mutual TLS", requires_all = ["tls_key", "client_ca"], value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, help_heading = "Mutual TLS", requires_all = ["tls_cert", "client_ca"], value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The authority that signs the certificates of clients and other agents (PEM)
    #[arg(long, help_heading = "Mutual TLS", requires_all = ["tls_cert", "tls_key"], value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Listen without TLS on an address that other machines can reach
    #[arg(long, help_heading = "Mutual TLS", conflicts_with = "tls_cert")]
    insecure: bool,
}

impl Agent {
    pub fn run(self) -> Outcome {
        let identity = match (self.tls_cert, self.tls_key, self.client_ca) {
            (Some(cert), Some(key), Some(ca)) => {
                Some(Identity::read(&TlsFiles { ca, cert, key }).map_err(Failure::bad_input)?)
            }
            _ => None,
        };
        let addresses = self.listen.to_socket_addrs().map_err(|cause| bad_address(&self.listen, cause))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        for address in &addresses {
            check_address(*address, identity.as_ref(), self.insecure).map_err(Failure::bad_input)?;
        }
        let limits = Limits::with(&self.limit).map_err(Failure::bad_input)?.within_descriptors(descriptors());
        let name = self.name.unwrap_or_else(host_name);
        // A second subscriber would be refused; there is none before.
        let _ = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing::Level::INFO)
            .with_target(false)
            .with_ansi(false)
            .try_init();
        let runtime = runtime()?;
        runtime.block_on(async {
            let shutdown = Shutdown::on_signal().map_err(Failure::failed)?;
            let options = HostOptions {
                name,
                threads: self.threads,
                memory: self.memory,
                dilation: self.dilate,
                engine: EngineOptions { look_for_all: true, ..self.engine.options() },
                identity: identity.clone(),
                limits,
            };
            let host = Host::start(options, shutdown).map_err(Failure::failed)?;
            let listener = tokio::net::TcpListener::bind(&*addresses);
            let listener = listener.await.map_err(|cause| bad_address(&self.listen, cause))?;
            let address = listener.local_addr().map_err(Failure::failed)?;
            announce(&host, address, identity.is_some());
            serve(listener, host.clone(), identity.as_ref()).await.map_err(Failure::failed)?;
            eprintln!("agent {} has stopped", host.name());
            Ok(())
        })
    }
}

/// Prints the address where the agent listens: on stdout, so that a caller who asked for port 0 can read it.
fn announce(host: &Host, address: SocketAddr, tls: bool) {
    println!("listening on {address}");
    let how = if tls { "mutual TLS" } else { "no TLS" };
    let description = host.describe();
    warn(&Oversubscribed::of_agent(&description));
    for device in description.devices {
        eprintln!(
            "agent {}: {} ({}), {} threads, {} of memory, {}, {how}",
            host.name(),
            device.name,
            device.model,
            device.threads,
            device.memory,
            device.engine,
        );
    }
}

fn agent_name(text: &str) -> Result<SmolStr, String> {
    check_name(text).map_err(|error| format!("an agent {error}"))
}

fn host_name() -> SmolStr {
    let name = sysinfo::System::host_name().ok().and_then(|name| check_name(&name).ok());
    name.unwrap_or(SmolStr::new_static("agent"))
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {cause}; expected HOST:PORT of this machine, such as 127.0.0.1:7600")]
struct BadAddress {
    address: String,
    cause: std::io::Error,
}

fn bad_address(address: &str, cause: std::io::Error) -> Failure {
    Failure::bad_input(BadAddress { address: address.to_string(), cause })
}
