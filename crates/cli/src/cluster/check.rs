//! `edgecut cluster check`: whether each server of a cluster file can be used, and if not, why.

use edgecut_session::{
    cluster::{connect, read_cluster},
    runtime::runtime,
};
use std::path::PathBuf;

use edgecut_session::error::Message;
use serde::Serialize;
use smol_str::SmolStr;
use time::OffsetDateTime;

use crate::{
    Failure, Outcome,
    format::{Format, print_csv, print_json},
    stderr,
    table::table,
};
use edgecut_agent::{
    Cluster, Description, Server,
    authority::RENEWAL,
    client::{Agent, AgentError, FleetMember, ServerCertificate},
    protocol::Identity,
};
use edgecut_graph::units::{Bytes, Micros};

/// A clock that is further off is a problem: times in logs and the validity of certificates are compared by it.
const MAX_CLOCK_OFFSET: Micros = Micros(10e6);

/// Check whether each server can be used: certificate, version, clock, memory and devices.
///
/// Exit code 1 if a server does not answer, or anything is wrong with it: another role or name in its certificate, an end of
/// the certificate within 30 days, a clock that is 10 s off.
#[derive(clap::Args)]
pub struct Check {
    /// The cluster's servers (TOML)
    #[arg(value_name = "CLUSTER.toml")]
    file: PathBuf,
    /// How to print the result: CSV has a row a server
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// One server as a row; what is not known is empty.
#[derive(Debug, Default, Serialize)]
struct ServerCheck {
    server: SmolStr,
    address: String,
    /// What its agent calls itself.
    agent: String,
    version: String,
    certificate_role: String,
    /// Until the certificate ends.
    certificate_days: Option<i64>,
    /// How far its clock is ahead of the one here.
    clock_offset_us: Option<Micros>,
    /// Of the fastest exchange with its agent.
    round_trip_us: Option<Micros>,
    memory_total_bytes: Option<Bytes>,
    memory_available_bytes: Option<Bytes>,
    devices: String,
    /// What is wrong, one after the other.
    problems: String,
}

impl Check {
    pub fn run(self) -> Outcome {
        let events = stderr::events();
        let cluster = read_cluster(&self.file, &events)?;
        let rows = runtime()?.block_on(async {
            let fleet = connect(&cluster, &events).await?;
            let identity = cluster.tls.as_ref().map(Identity::read).transpose().map_err(Failure::bad_input)?;
            let mut rows = Vec::new();
            for member in &fleet.members {
                rows.push(check(&cluster, member, identity.as_ref()).await);
            }
            Ok::<_, Failure>(rows)
        })?;
        match self.format {
            Format::Csv => print_csv(&rows)?,
            Format::Json => print_json(&rows)?,
            Format::Table => print(&rows),
        }
        let wrong: Vec<String> = rows
            .iter()
            .filter(|row| !row.problems.is_empty())
            .map(|row| format!("{}: {}", row.server, row.problems))
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Failed(Message::from(wrong.join("\n")))) }
    }
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

fn print(rows: &[ServerCheck]) {
    let mut servers = table([
        "server",
        "at",
        "version",
        "certificate",
        ">ends in",
        ">clock",
        ">round trip",
        ">free of total",
        "devices",
        "state",
    ]);
    for row in rows {
        let signed = |time: Micros| format!("{}{}", if time.0 < 0.0 { "−" } else { "+" }, Micros(time.0.abs()));
        let memory = row.memory_available_bytes.zip(row.memory_total_bytes);
        servers.add_row([
            row.server.to_string(),
            row.address.clone(),
            row.version.clone(),
            row.certificate_role.clone(),
            row.certificate_days.map_or(String::new(), |days| format!("{days} d")),
            row.clock_offset_us.map_or(String::new(), signed),
            row.round_trip_us.map_or(String::new(), |time| time.to_string()),
            memory.map_or(String::new(), |(free, total)| format!("{free} of {total}")),
            row.devices.clone(),
            if row.problems.is_empty() { "ok" } else { "see below" }.to_string(),
        ]);
    }
    println!("{servers}");
}
