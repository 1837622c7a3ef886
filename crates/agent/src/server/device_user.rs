//! Who uses a device, and for what: reported to clients that wait, and logged with each lease.

use std::fmt;

use super::job_log::Client;

/// A job that leases devices.
#[derive(Debug, Clone)]
pub(super) struct DeviceUser {
    job: &'static str,
    /// `None` in the agent's own process.
    client: Option<Client>,
}

impl DeviceUser {
    /// The user of a device for a `job`, such as "run".
    pub fn new(job: &'static str, client: Option<Client>) -> DeviceUser {
        DeviceUser { job, client }
    }

    /// Logs a lease of `device`.
    pub fn log_lease(&self, device: &str) {
        if let Some(client) = &self.client {
            client.log_lease(device, self.job);
        }
    }
}

impl fmt::Display for DeviceUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.client {
            Some(client) => write!(f, "the {} of {client}", self.job),
            None => write!(f, "another {}", self.job),
        }
    }
}
