//! Checks of a cluster: whether each server can be used, and if not, why.

use std::path::Path;

use edgecut_agent::{
    Cluster, Description, Server,
    authority::RENEWAL,
    client::{Agent, AgentError, FleetMember, ServerCertificate},
    protocol::Identity,
};
use edgecut_graph::units::{Bytes, Micros};
use serde::Serialize;
use smol_str::SmolStr;
use time::OffsetDateTime;

use crate::{
    Error, Events,
    cluster::{connect, read_cluster},
    runtime::runtime,
};

/// A clock that is further off is a problem: times in logs and the validity of certificates are compared by it.
const MAX_CLOCK_OFFSET: Micros = Micros(10e6);

/// One server as a row. Unknown figures are empty.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServerCheck {
    pub server: SmolStr,
    pub address: String,
    /// What its agent calls itself.
    pub agent: String,
    pub version: String,
    pub certificate_role: String,
    /// Until the certificate ends.
    pub certificate_days: Option<i64>,
    /// How far its clock is ahead of the one here.
    pub clock_offset_us: Option<Micros>,
    /// Of the fastest exchange with its agent.
    pub round_trip_us: Option<Micros>,
    pub memory_total_bytes: Option<Bytes>,
    pub memory_available_bytes: Option<Bytes>,
    pub devices: String,
    /// What is wrong, one after the other.
    pub problems: String,
}

/// Checks the servers of the cluster file: certificate, version, clock, memory and devices.
///
/// # Errors
/// If the cluster file or its certificates cannot be used. What is wrong with a server is in its row.
pub fn check_cluster(file: &Path, events: &Events) -> Result<Vec<ServerCheck>, Error> {
    let cluster = read_cluster(file, events)?;
    runtime()?.block_on(async {
        let fleet = connect(&cluster, events).await?;
        let identity = cluster.tls.as_ref().map(Identity::read).transpose().map_err(Error::bad_input)?;
        let mut rows = Vec::new();
        for member in &fleet.members {
            rows.push(check(&cluster, member, identity.as_ref()).await);
        }
        Ok(rows)
    })
}

/// What is known of one server.
async fn check(cluster: &Cluster, member: &FleetMember, identity: Option<&Identity>) -> ServerCheck {
    let mut row = ServerCheck { server: member.server.clone(), ..ServerCheck::default() };
    let Some(server) = cluster.server(&member.server) else { return row };
    row.address = server.endpoint.to_string();
    let mut problems = Vec::new();
    match &member.agent {
        Err(error) => problems.push(error.to_string()),
        Ok((agent, description)) => {
            row.describe(description);
            let certificate = row.check_certificate(server, identity, &mut problems).await;
            let clock = row.check_clock(agent, &mut problems).await;
            problems.extend([certificate, clock].into_iter().filter_map(|checked| Some(checked.err()?.to_string())));
        }
    }
    row.problems = problems.join("; ");
    row
}

impl ServerCheck {
    fn describe(&mut self, description: &Description) {
        self.agent = description.name.to_string();
        self.version.clone_from(&description.version);
        self.memory_total_bytes = Some(description.memory_total);
        self.memory_available_bytes = Some(description.memory_available);
        let names: Vec<&str> = description.devices.iter().map(|device| device.name.as_str()).collect();
        self.devices = names.join(", ");
    }

    async fn check_certificate(
        &mut self,
        server: &Server,
        identity: Option<&Identity>,
        problems: &mut Vec<String>,
    ) -> Result<(), AgentError> {
        let Some(identity) = identity else { return Ok(()) };
        let Some(certificate) = ServerCertificate::of(server, identity).await? else { return Ok(()) };
        let days = (certificate.until - OffsetDateTime::now_utc()).whole_days();
        self.certificate_days = Some(days);
        self.certificate_role = certificate.role.map_or("none".to_string(), |role| role.to_string());
        if days < RENEWAL.whole_days() {
            problems.push(format!("its certificate ends in {days} days: `edgecut cluster init` issues a new one"));
        }
        Ok(())
    }

    async fn check_clock(&mut self, agent: &Agent, problems: &mut Vec<String>) -> Result<(), AgentError> {
        let Some(clock) = agent.calendar_offset().await? else { return Ok(()) };
        self.clock_offset_us = Some(clock.offset);
        self.round_trip_us = Some(Micros(2.0 * clock.uncertainty.0));
        if clock.offset.0.abs() > MAX_CLOCK_OFFSET.0 {
            problems.push(format!("its clock is {} off", Micros(clock.offset.0.abs())));
        }
        Ok(())
    }
}
