//! `edgecut devices`: which servers answer, what they have, what their links cost, and what runs on them take beyond profiles.

use std::path::PathBuf;

use edgecut_session::devices::{DeviceRow, Devices as Found, DevicesOptions, LinkOfDevices, ServerNote, devices};

use super::{
    Outcome,
    calibration::calibration_table,
    cluster_flag::{ClusterFlag, ThreadsFlag},
    engine::EngineFlags,
    flag_text::with_flags,
    format::{Format, print_csv, print_json},
    stderr,
    table::{Table, table},
};

/// Show the devices of a cluster: what answers, with processors, memory and links, and what does not.
#[derive(clap::Args)]
pub struct Devices {
    #[command(flatten)]
    cluster: ClusterFlag,
    /// Where measured links are kept
    #[arg(long, help_heading = "Links", default_value = "profiles/links.csv", value_name = "FILE")]
    links: PathBuf,
    /// Measure the links again even if they are known
    #[arg(long, help_heading = "Links")]
    measure: bool,
    /// Learn what runs take beyond profiles, once for all models
    ///
    /// Profiles a small model on every device, runs it on each and on pairs of them, and fits the parameters of
    /// calibration.csv, which `edgecut plan` uses from then on.
    #[arg(long, help_heading = "Profiles")]
    calibrate: bool,
    /// Where calibrations are kept
    #[arg(long, help_heading = "Profiles", default_value = "profiles/calibration.csv", value_name = "FILE")]
    calibration: PathBuf,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten)]
    engine: EngineFlags,
    /// How to print the result: CSV has a row a device
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Devices {
    pub fn run(self) -> Outcome {
        let site = self.cluster.options_with(&self.threads, &self.engine);
        let options = DevicesOptions {
            links: self.links.clone(),
            measure: self.measure,
            calibrate: self.calibrate,
            calibration: self.calibration.clone(),
        };
        let found = devices(&site, &options, &stderr::events())?;
        self.print(&found)?;
        found.failure.map_or(Ok(()), Err)
    }

    fn print(&self, found: &Found) -> Outcome {
        let Found { devices, links, notes, calibrations, .. } = found;
        match self.format {
            Format::Csv => print_csv(devices),
            Format::Json => {
                let mut all = serde_json::json!({ "devices": devices, "links": links, "notes": notes });
                if self.calibrate {
                    all["calibrations"] = serde_json::json!(calibrations);
                }
                print_json(&all)
            }
            Format::Table => {
                println!("{}", device_table(devices));
                energy_lines(devices).iter().for_each(|line| println!("{line}"));
                for ServerNote { server, note } in notes {
                    println!("{server}: {}", with_flags(note));
                }
                if !links.is_empty() {
                    println!("\n{}", link_table(links));
                }
                if !calibrations.is_empty() {
                    println!("\n{}", calibration_table(calibrations));
                }
                Ok(())
            }
        }
    }
}

fn device_table(rows: &[DeviceRow]) -> Table {
    let mut devices =
        table(["device", "at", "model", ">cores", ">threads", "caches", ">limit", ">free of total", "engine"]);
    for row in rows {
        devices.add_row([
            row.device.clone(),
            row.address.clone(),
            row.model.clone(),
            row.cores.to_string(),
            row.threads.to_string(),
            row.caches.clone(),
            row.memory_bytes.to_string(),
            format!("{} of {}", row.server_memory_available_bytes, row.server_memory_bytes),
            if row.engines.is_empty() { row.engine.to_string() } else { row.engines.clone() },
        ]);
    }
    devices
}

/// What tells the energy of each device, or why nothing does.
fn energy_lines(rows: &[DeviceRow]) -> Vec<String> {
    let line = |row: &DeviceRow| match (row.energy_source.as_str(), row.energy_absent.as_str()) {
        ("", "") => None,
        ("", why) => Some(format!("{}: no energy: {why}", row.device)),
        (source, _) => Some(format!("{}: energy by {source}", row.device)),
    };
    rows.iter().filter_map(line).collect()
}

fn link_table(lines: &[LinkOfDevices]) -> Table {
    let mut links = table(["from", "to", ">latency", ">rate", "origin"]);
    for line in lines {
        links.add_row([
            line.from.clone(),
            line.to.clone(),
            line.latency_us.to_string(),
            line.bytes_per_us.to_string(),
            line.origin.to_string(),
        ]);
    }
    links
}
