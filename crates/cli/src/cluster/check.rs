//! `edgecut cluster check`: whether each server of a cluster file can be used, and if not, why.

use std::path::PathBuf;

use edgecut_graph::units::Micros;
use edgecut_session::{
    cluster_check::{ServerCheck, check_cluster},
    error::Message,
};

use crate::{
    Failure, Outcome,
    format::{Format, print_csv, print_json},
    stderr,
    table::table,
};

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

impl Check {
    pub fn run(self) -> Outcome {
        let rows = check_cluster(&self.file, &stderr::events())?;
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
