//! `edgecut devices`: which servers answer, what they have, what their links cost, and what runs on them take beyond profiles.

use edgecut_session::{
    cluster::{UnreachableAgents, connect, links},
    runtime::runtime,
};
use std::path::PathBuf;

use serde::Serialize;

use super::{
    Outcome,
    calibration::{calibrate_devices, calibration_table},
    cluster_flag::{ClusterFlag, ThreadsFlag},
    engine::EngineFlags,
    flag_text::with_flags,
    format::{Format, print_csv, print_json},
    stderr,
    table::{Table, table},
};
use edgecut_agent::{Cluster, DeviceKind, Inventory, client::Fleet};
use edgecut_graph::units::{Bytes, Micros, Rate};
use edgecut_profile::CalibrationRow;

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

/// One device as a row.
#[derive(Serialize)]
struct DeviceRow {
    device: String,
    address: String,
    kind: &'static str,
    model: String,
    cores: u32,
    threads: u32,
    caches: String,
    memory_bytes: Bytes,
    server_memory_bytes: Bytes,
    server_memory_available_bytes: Bytes,
    engine: String,
    /// All that it has, if it has a choice.
    engines: String,
    system: String,
    version: String,
    /// What tells its energy, with its parts; else why nothing does.
    energy_source: String,
    energy_absent: String,
}

/// One direction of a link as a row.
#[derive(Serialize)]
struct LinkLine {
    from: String,
    to: String,
    latency_us: Micros,
    bytes_per_us: Rate,
    /// `given` by the cluster file or `measured`.
    origin: &'static str,
}

/// What a server says of its devices: why it offers no GPU.
#[derive(Serialize)]
struct Note {
    server: String,
    note: String,
}

impl Devices {
    pub fn run(self) -> Outcome {
        // Plans without a cluster use one thread unless told otherwise, and so do calibrations for them.
        let is_for_plans = self.calibrate || self.threads.threads.is_some() || self.engine.engine.is_some();
        let events = stderr::events();
        let mut cluster = match is_for_plans {
            true => self.cluster.options_with(&self.threads, &self.engine).configured_cluster(&events)?,
            false => self.cluster.options().cluster(&events)?,
        };
        cluster.servers.iter_mut().for_each(|server| server.embedded.look_for_all = true);
        let runtime = runtime()?;
        runtime.block_on(async {
            let fleet = connect(&cluster, &events).await?;
            // Devices are shown whatever becomes of the links.
            let (links, failure) = match links(&fleet, &cluster, &self.links, self.measure, &events).await {
                Ok(links) => (links, None),
                Err(failure) => (Vec::new(), Some(failure)),
            };
            let inventory = fleet.inventory(&cluster, links);
            let calibrations = match (self.calibrate, &failure) {
                (true, None) => {
                    UnreachableAgents::check(&fleet)?;
                    calibrate_devices(&fleet, &cluster, &inventory, &self.calibration).await?
                }
                _ => Vec::new(),
            };
            let rows = device_rows(&cluster, &fleet, &inventory);
            self.print(&rows, &link_lines(&cluster, &inventory), &notes(&fleet), &calibrations)?;
            UnreachableAgents::check(&fleet)?;
            failure.map_or(Ok(()), Err)
        })
    }

    fn print(
        &self,
        devices: &[DeviceRow],
        links: &[LinkLine],
        notes: &[Note],
        calibrations: &[CalibrationRow],
    ) -> Outcome {
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
                for Note { server, note } in notes {
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

fn device_rows(cluster: &Cluster, fleet: &Fleet, inventory: &Inventory) -> Vec<DeviceRow> {
    let mut rows = Vec::new();
    for (server, _, told) in fleet.connected() {
        let address = cluster.server(server).map_or(String::new(), |s| s.endpoint.to_string());
        let caches: Vec<String> = told.cpu.caches.iter().map(|c| format!("{} {}", c.name, c.size)).collect();
        for device in inventory.devices.iter().filter(|d| d.name.server == *server) {
            let described = told.devices.iter().find(|d| d.name == device.name.device);
            rows.push(DeviceRow {
                device: device.name.to_string(),
                address: address.clone(),
                kind: device.kind.name(),
                model: described.map_or(String::new(), |d| d.model.clone()),
                cores: told.cpu.cores,
                threads: device.threads,
                // Those of the processor.
                caches: if device.kind == DeviceKind::Cpu { caches.join(", ") } else { String::new() },
                memory_bytes: device.memory,
                server_memory_bytes: told.memory_total,
                server_memory_available_bytes: told.memory_available,
                engine: device.engine.clone(),
                engines: described.map_or(String::new(), |d| d.engines.join(", ")),
                system: told.system.clone(),
                version: told.version.clone(),
                energy_source: described.and_then(|d| d.energy.source()).unwrap_or_default().to_string(),
                energy_absent: described.and_then(|d| d.energy.absent()).unwrap_or_default().to_string(),
            });
        }
    }
    rows
}

fn notes(fleet: &Fleet) -> Vec<Note> {
    let mut notes = Vec::new();
    for (server, _, told) in fleet.connected() {
        notes.extend(told.notes.iter().map(|note| Note { server: server.to_string(), note: note.clone() }));
    }
    notes
}

fn link_lines(cluster: &Cluster, inventory: &Inventory) -> Vec<LinkLine> {
    let line = |link: &edgecut_agent::Link| LinkLine {
        from: link.from.to_string(),
        to: link.to.to_string(),
        latency_us: link.cost.latency,
        bytes_per_us: link.cost.rate,
        origin: if cluster.link(&link.from, &link.to).is_some() { "given" } else { "measured" },
    };
    inventory.links.iter().map(line).collect()
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
            if row.engines.is_empty() { row.engine.clone() } else { row.engines.clone() },
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

fn link_table(lines: &[LinkLine]) -> Table {
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
