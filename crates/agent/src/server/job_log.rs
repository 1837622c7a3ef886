//! The log of an agent's jobs: who asked for what, when it began and how it ended.

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use smol_str::SmolStr;
use tonic::Request;
use tracing::{info, warn};

use super::{
    connection_info::ConnectionInfo,
    metrics::{JobKind, JobOutcome, Metrics},
};
use crate::protocol::Holder;

/// A job that is logged when it begins and when it ends, and counted then.
pub(super) struct JobLog {
    kind: JobKind,
    what: String,
    client: Client,
    begin: Instant,
    has_ended: bool,
    metrics: Arc<Metrics>,
}

/// Who asked for a job.
#[derive(Debug, Clone)]
pub(super) struct Client {
    address: Option<SocketAddr>,
    /// That of its certificate.
    name: Option<SmolStr>,
    /// The serial number of its certificate, in hexadecimal.
    serial: Option<String>,
}

impl Client {
    pub fn of<T>(request: &Request<T>) -> Client {
        let connection = request.extensions().get::<ConnectionInfo>();
        let holder = connection.and_then(|connection| connection.holder.as_ref());
        Client {
            address: connection.map(|connection| connection.address),
            name: holder.map(|holder| holder.name.clone()).filter(|name| !name.is_empty()),
            serial: holder.map(Holder::serial_text),
        }
    }

    pub fn at(address: SocketAddr) -> Client {
        Client { address: Some(address), name: None, serial: None }
    }

    /// Logs that a request of it is refused.
    pub fn log_refusal(&self, why: &dyn fmt::Display) {
        warn!("refused to {}: {why}", self.audited());
    }

    /// Logs that it has a device for a job.
    pub fn log_lease(&self, device: &str, job: &str) {
        info!("{device} is leased for a {job} to {}", self.audited());
    }

    /// The client with the serial number of its certificate, which a name may have had several of.
    fn audited(&self) -> String {
        match &self.serial {
            Some(serial) => format!("{self} (certificate {serial})"),
            None => self.to_string(),
        }
    }

    /// Logs that it is connected.
    pub fn log_connection(&self) {
        info!("connection from {self}");
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.address) {
            (Some(name), Some(address)) => write!(f, "{} at {address}", name.escape_debug()),
            (_, Some(address)) => address.fmt(f),
            (_, None) => f.write_str("an unknown address"),
        }
    }
}

impl JobLog {
    /// Logs that `what` begins for `client`.
    pub fn begin(kind: JobKind, what: impl Into<String>, client: Client, metrics: &Arc<Metrics>) -> JobLog {
        let what = what.into();
        info!("{what} for {} begins", client.audited());
        JobLog { kind, what, client, begin: Instant::now(), has_ended: false, metrics: metrics.clone() }
    }

    /// Logs that the job has ended, with its error if it failed or was refused.
    pub fn end(mut self, error: Option<&dyn fmt::Display>) {
        self.has_ended = true;
        let outcome = if error.is_none() { JobOutcome::Done } else { JobOutcome::Failed };
        self.metrics.count_job(self.kind, outcome);
        let JobLog { what, client, begin, .. } = &self;
        let client = client.audited();
        let seconds = begin.elapsed().as_secs_f64();
        match error {
            None => info!("{what} for {client} ended after {seconds:.1} s"),
            Some(error) => warn!("{what} for {client} failed after {seconds:.1} s: {error}"),
        }
    }
}

impl Drop for JobLog {
    /// A job that has not ended is dropped with its client's connection.
    fn drop(&mut self) {
        if !self.has_ended {
            self.metrics.count_job(self.kind, JobOutcome::Cancelled);
            info!("{} for {} is cancelled: the client is gone", self.what, self.client.audited());
        }
    }
}
