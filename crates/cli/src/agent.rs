//! `edgecut agent`: serves this machine's devices to clients that plan and run on the cluster.

use edgecut_graph::check_name;
use edgecut_session::runtime::runtime;
use std::{
    io::{self, Write},
    net::{self, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::{Duration, Instant},
};

use edgecut_session::{
    engine::{Dilation, EngineOptions},
    error::Message,
};
use smol_str::SmolStr;
use tokio::net::TcpListener;

use super::{Failure, Outcome, engine::EngineFlags, log_format::LogFormat, stderr::notice};
use crate::verbosity::Verbosity;
#[cfg(target_os = "linux")]
use edgecut_agent::{DeviceKind, Supervisor, Worker, limit_memory};
use edgecut_agent::{
    Limits, LogQueue, MAX_THREADS, Oversubscribed, Shutdown, TlsFiles, WorkLog, descriptors,
    mdns::{AnnouncedAgent, Announcement},
    protocol::{Identity, check_address, role::Role},
    server::{Host, HostOptions, OfferedGpus, serve, serve_metrics, total_memory},
};
use edgecut_graph::units::{Bytes, counted};

/// Serve this machine's devices to others: profile, load and run parts of models.
///
/// SIGTERM lets what is under way end within the limit drain-time, and refuses what is new; SIGINT, or a second SIGTERM,
/// cancels it and notifies clients. On Linux a supervisor restarts the process that computes if an operator crashes it.
#[derive(clap::Args)]
pub struct Agent {
    /// Where to listen; port 0 takes a free one, which is printed
    #[arg(long, help_heading = "Server", default_value = "127.0.0.1:7600", value_name = "HOST:PORT")]
    listen: String,
    /// This server's name in messages; the host's name if not given
    #[arg(long, help_heading = "Server", value_parser = agent_name)]
    name: Option<SmolStr>,
    /// Announce it on the local network, so that `edgecut cluster discover` finds it
    #[arg(long, help_heading = "Server")]
    mdns: bool,
    /// Threads that compute; all that this process may use if not given
    #[arg(long, help_heading = "Limits", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    threads: Option<u32>,
    /// Limit on parameters, activations and workspace together, such as 512MiB
    ///
    /// On Linux without GPUs, the system also limits the memory of the process that computes, to twice this size and an
    /// overhead (docs/operations.md).
    #[arg(long, help_heading = "Limits", value_name = "SIZE", value_parser = Bytes::with_unit)]
    memory: Option<Bytes>,
    /// Another limit on what clients can do, such as connections=128 (repeatable)
    ///
    /// docs/cluster.md lists them: connections, client-connections, connection-idle-time, handshakes, handshake-time, streams, jobs, client-jobs, message-time,
    /// idle-time, lease-wait, drain-time, document, weights, weights-time, in-flight, peers, values, stages, monitors, monitor-time, probe-time.
    #[arg(long, help_heading = "Limits", value_name = "NAME=VALUE")]
    limit: Vec<String>,
    /// Where to serve metrics (/metrics) and probes (/livez, /readyz) over HTTP, such as 127.0.0.1:9600
    ///
    /// Without TLS or certificates: they tell what the agent does, and take no commands.
    #[arg(long, help_heading = "Monitoring", value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// How to log on stderr
    #[arg(long, help_heading = "Monitoring", value_enum, default_value_t)]
    log_format: LogFormat,
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
    /// Certificates that are revoked (PEM, X.509 CRL), as `edgecut cluster revoke` writes them
    ///
    /// This file and the other three are read again when they change.
    #[arg(long, help_heading = "Mutual TLS", requires = "tls_cert", value_name = "FILE")]
    crl: Option<PathBuf>,
    /// Listen without TLS on an address that other machines can reach
    #[arg(long, help_heading = "Mutual TLS", conflicts_with = "tls_cert")]
    insecure: bool,
}

impl Agent {
    pub fn run(self, verbosity: Verbosity) -> Outcome {
        let identity = identity(self.tls_cert, self.tls_key, self.client_ca, self.crl)?;
        let addresses = self.listen.to_socket_addrs().map_err(|cause| bad_address(&self.listen, cause))?;
        for address in addresses {
            check_address(address, identity.as_ref(), self.insecure).map_err(Failure::bad_input)?;
        }
        let limits = Limits::with(&self.limit).map_err(Failure::bad_input)?.within_descriptors(descriptors());
        let name = self.name.unwrap_or_else(host_name);
        let serving = match Serving::inherited()? {
            Some(serving) => serving,
            None => match supervised(&name, &self.listen, self.metrics.as_deref())? {
                Some(serving) => serving,
                None => return Ok(()),
            },
        };
        let log_queue = self.log_format.install_queued(verbosity.level()).map_err(Failure::failed)?;
        let runtime = runtime()?;
        let served = runtime.block_on(async {
            let shutdown = serving.shutdown().map_err(Failure::failed)?;
            let is_first = serving.crash.is_none();
            let options = HostOptions {
                name,
                threads: self.threads,
                memory: self.memory,
                dilation: self.dilate,
                gpus: OfferedGpus::Usable,
                engine: EngineOptions { look_for_all: true, ..self.engine.options().engine_options() },
                identity: identity.clone(),
                limits,
                log: serving.log.clone(),
                log_queue: Some(log_queue.clone()),
                crash: serving.crash,
            };
            if let Some(crash) = &options.crash {
                tracing::error!("the agent's process was {crash}; it has restarted");
            }
            // Clients that come while engines are looked for wait instead of being refused.
            let (listener, address) = accepting(serving.listener)?;
            let host = Host::start(options, shutdown).map_err(Failure::failed)?;
            let metrics = serving.metrics.map(accepting).transpose()?;
            #[cfg(target_os = "linux")]
            if serving.is_worker {
                limit_worker(&host, self.memory);
            }
            if is_first {
                announce(&host, address, identity.is_some());
                warn_of_memory(self.memory);
            }
            let (name, has_tls) = (host.name().clone(), identity.is_some());
            let announced = AnnouncedAgent { name, address, has_tls };
            let announcement = self.mdns.then(|| Announcement::new(&announced));
            let announcement = announcement.transpose().map_err(Failure::failed)?;
            if let Some((listener, address)) = metrics {
                if is_first {
                    notice!("agent {}: http://{address}/metrics, /livez and /readyz", host.name());
                }
                let (host, name, log_queue) = (host.clone(), host.name().clone(), log_queue.clone());
                tokio::spawn(async move {
                    if let Err(error) = serve_metrics(listener, host).await {
                        queued(&log_queue, &format!("agent {name}: metrics have stopped: {error}"));
                    }
                });
            }
            serving.log.set_serving();
            serve(listener, host.clone()).await.map_err(Failure::failed)?;
            drop(announcement);
            queued(&log_queue, &format!("agent {} has stopped", host.name()));
            Ok(())
        });
        log_queue.flush(FLUSH_TIME);
        served
    }
}

/// Sets the system's memory limit of a worker that offers limited memory; not with GPUs: their drivers reserve more
/// than they use.
#[cfg(target_os = "linux")]
fn limit_worker(host: &Host, offered: Option<Bytes>) {
    let has_gpus = host.describe().devices.iter().any(|device| device.kind == DeviceKind::Gpu);
    if let Some(offered) = offered.filter(|_| !has_gpus)
        && let Err(error) = limit_memory(offered)
    {
        tracing::warn!("cannot set the memory limit of the agent's process (RLIMIT_DATA): {error}");
    }
}

/// A line among those of the log, in no format.
fn queued(log_queue: &LogQueue, line: &str) {
    // The queue takes everything.
    let _ = log_queue.clone().write_all(format!("{line}\n").as_bytes());
}

/// The certificates that the flags name; `None` if they name none.
fn identity(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    crl: Option<PathBuf>,
) -> Result<Option<Identity>, Failure> {
    let identity = match (cert, key, ca) {
        (Some(cert), Some(key), Some(ca)) => {
            Identity::read(&TlsFiles { ca, cert, key, crl }).map_err(Failure::bad_input)?
        }
        (None, None, None) => return Ok(None),
        _ => {
            let what = "--tls-cert, --tls-key and --client-ca must be given together";
            return Err(Failure::BadInput(Message::from(what)));
        }
    };
    match identity.role() {
        Some(Role::Agent) => Ok(Some(identity)),
        role => {
            let found = role.map_or("without a role".to_string(), |role| format!("of {role}"));
            let what =
                format!("--tls-cert: the certificate is {found}, expected one of an agent: see `edgecut cluster init`");
            Err(Failure::BadInput(Message::from(what)))
        }
    }
}

/// What a process serves with: as a worker, from its supervisor; alone, of its own.
struct Serving {
    listener: net::TcpListener,
    metrics: Option<net::TcpListener>,
    log: WorkLog,
    crash: Option<String>,
    is_worker: bool,
}

impl Serving {
    /// What a supervisor gave to this process, if one started it.
    #[cfg(target_os = "linux")]
    fn inherited() -> Result<Option<Serving>, Failure> {
        let worker = Worker::inherited().map_err(Failure::failed)?;
        Ok(worker.map(|Worker { listener, metrics, log, crash }| Serving {
            listener,
            metrics,
            log,
            crash,
            is_worker: true,
        }))
    }

    #[cfg(not(target_os = "linux"))]
    fn inherited() -> Result<Option<Serving>, Failure> {
        Ok(None)
    }

    fn shutdown(&self) -> io::Result<Shutdown> {
        match self.is_worker {
            #[cfg(target_os = "linux")]
            true => Shutdown::on_supervisor(),
            _ => Shutdown::on_signal(),
        }
    }
}

/// Supervises a worker until it ends. Exits with the worker's code if that is not 0: the worker has printed why.
///
/// # Errors
/// If no socket can be opened, or no worker can be started.
#[cfg(target_os = "linux")]
fn supervised(name: &str, listen: &str, metrics: Option<&str>) -> Result<Option<Serving>, Failure> {
    let code = single_threaded()?.block_on(async {
        let (listener, metrics) = sockets(listen, metrics).await?;
        let supervisor = Supervisor::new(name, listener, metrics).map_err(Failure::failed)?;
        supervisor.run().await.map_err(Failure::failed)
    })?;
    match code {
        0 => Ok(None),
        code => std::process::exit(code.into()),
    }
}

/// Nothing supervises here: the process itself serves.
#[cfg(not(target_os = "linux"))]
fn supervised(_: &str, listen: &str, metrics: Option<&str>) -> Result<Option<Serving>, Failure> {
    let (listener, metrics) = single_threaded()?.block_on(sockets(listen, metrics))?;
    Ok(Some(Serving { listener, metrics, log: WorkLog::default(), crash: None, is_worker: false }))
}

/// A runtime on this thread.
fn single_threaded() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)
}

/// The socket for clients, and that for metrics.
async fn sockets(
    address: &str,
    metrics: Option<&str>,
) -> Result<(net::TcpListener, Option<net::TcpListener>), Failure> {
    let listener = listen(address).await?;
    let metrics = match metrics {
        Some(metrics) => Some(listen(metrics).await?),
        None => None,
    };
    Ok((listener, metrics))
}

/// How long an agent that ends waits for what reads its log.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// How long an address may be in use by an agent that was killed: its worker ends after it, and frees its memory first.
const REBIND_TIME: Duration = Duration::from_secs(5);

/// A socket that listens on `address`.
async fn listen(address: &str) -> Result<net::TcpListener, Failure> {
    let begin = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < REBIND_TIME => {
                tokio::time::sleep(REBIND_TIME / 100).await;
            }
            bound => return bound.and_then(TcpListener::into_std).map_err(|cause| bad_address(address, cause)),
        }
    }
}

/// The runtime's form of a socket, and where it listens.
fn accepting(listener: net::TcpListener) -> Result<(TcpListener, SocketAddr), Failure> {
    let of_runtime = || {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok::<_, io::Error>((listener, address))
    };
    of_runtime().map_err(Failure::failed)
}

/// Prints the address where the agent listens: on stdout, so that a caller who asked for port 0 can read it.
fn announce(host: &Host, address: SocketAddr, tls: bool) {
    // A caller that has closed it does not need the address.
    let _ = writeln!(io::stdout(), "listening on {address}");
    let how = if tls { "mutual TLS" } else { "no TLS" };
    let description = host.describe();
    Oversubscribed::of_agent(&description).iter().for_each(|warning| notice!("{warning}"));
    for device in description.devices {
        notice!(
            "agent {}: {} ({}), {}, {} of memory, {}, {how}",
            host.name(),
            device.name,
            device.model,
            counted(device.threads as usize, "thread"),
            device.memory,
            device.engine,
        );
    }
}

/// Warns of an offer of more memory than there is: what fails then is not the client's request, but the machine.
fn warn_of_memory(offered: Option<Bytes>) {
    let has = total_memory();
    if let Some(offered) = offered.filter(|offered| has > Bytes::ZERO && *offered > has) {
        eprintln!("warning: --memory {offered} is more than this machine has ({has}): plans may count on it, and fail");
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
