//! The devices of a cluster: what answers, what it has, what its links cost, and what runs on it take beyond profiles.

use std::path::{Path, PathBuf};

use edgecut_agent::{Cluster, DeviceDescription, DeviceKind, Inventory, Link, client::Fleet};
use edgecut_graph::{
    EngineId,
    units::{Bytes, Micros, Rate},
};
use edgecut_profile::CalibrationRow;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Event, Events, SiteOptions,
    calibration::{CalibrationRequest, CalibrationTable, calibrate},
    calibrations,
    cluster::{UnreachableAgents, connect, links},
    located::Located,
    profile::{DEFAULT_FOLDER, link_table_in},
    runtime::runtime,
};

/// What is measured of a cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DevicesOptions {
    /// The table of measured links.
    pub links: PathBuf,
    /// Measure links that the table has again.
    pub measure: bool,
    /// Learn what runs take beyond profiles. This measures every device and pairs of them.
    pub calibrate: bool,
    /// The table of calibrations.
    pub calibration: PathBuf,
}

impl Default for DevicesOptions {
    fn default() -> DevicesOptions {
        let folder = Path::new(DEFAULT_FOLDER);
        DevicesOptions {
            links: link_table_in(folder),
            measure: false,
            calibrate: false,
            calibration: folder.join(calibrations::FILE),
        }
    }
}

/// The devices of a cluster.
#[derive(Debug)]
pub struct Devices {
    pub devices: Vec<DeviceRow>,
    pub links: Vec<LinkOfDevices>,
    pub notes: Vec<ServerNote>,
    /// Empty without [`DevicesOptions::calibrate`].
    pub calibrations: Vec<CalibrationRow>,
    /// Why agents did not answer or links could not be measured. Rows of the others are complete.
    pub failure: Option<Error>,
}

/// One device as a row.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceRow {
    pub device: String,
    pub address: String,
    pub kind: &'static str,
    pub model: String,
    pub cores: u32,
    pub threads: u32,
    /// Of a CPU.
    pub caches: String,
    /// The limit on what plans may use.
    pub memory_bytes: Bytes,
    pub server_memory_bytes: Bytes,
    pub server_memory_available_bytes: Bytes,
    pub engine: EngineId,
    /// All engines, if there is a choice.
    pub engines: String,
    pub system: String,
    pub version: String,
    /// The source of energy readings. If empty, `energy_absent` is the reason.
    pub energy_source: String,
    pub energy_absent: String,
}

/// One direction of a link as a row.
#[derive(Debug, Clone, Serialize)]
pub struct LinkOfDevices {
    pub from: String,
    pub to: String,
    pub latency_us: Micros,
    pub bytes_per_us: Rate,
    /// `given` by the cluster file or `measured`.
    pub origin: &'static str,
}

/// A note of a server about its devices, such as why it offers no GPU.
#[derive(Debug, Clone, Serialize)]
pub struct ServerNote {
    pub server: String,
    pub note: String,
}

/// The devices of `site`. Links are measured if neither the cluster file nor the table has them.
///
/// # Errors
/// If the cluster file or the table of calibrations cannot be used, or a calibration fails. See also
/// [`Devices::failure`].
pub fn devices(site: &SiteOptions, options: &DevicesOptions, events: &Events) -> Result<Devices, Error> {
    // Plans on this machine use one thread by default, and so do calibrations for them.
    let is_for_plans = options.calibrate || site.threads.is_some() || site.engine.is_some();
    let mut cluster = if is_for_plans { site.configured_cluster(events)? } else { site.cluster(events)? };
    cluster.servers.iter_mut().for_each(|server| server.embedded.look_for_all = true);
    runtime()?.block_on(async {
        let fleet = connect(&cluster, events).await?;
        // Devices are returned even if links cannot be measured.
        let (links, failure) = match links(&fleet, &cluster, &options.links, options.measure, events).await {
            Ok(links) => (links, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let inventory = fleet.inventory(&cluster, links);
        let calibrations = match (options.calibrate, &failure) {
            (true, None) => {
                UnreachableAgents::check(&fleet)?;
                calibrated(&fleet, &cluster, &inventory, &options.calibration, events).await?
            }
            _ => Vec::new(),
        };
        Ok(Devices {
            devices: device_rows(&cluster, &fleet, &inventory),
            links: inventory.links.iter().map(|link| link_row(&cluster, link)).collect(),
            notes: notes(&fleet),
            calibrations,
            failure: UnreachableAgents::check(&fleet).err().or(failure),
        })
    })
}

/// Calibrates the devices of `inventory`, adds them to the table at `path` and returns their rows.
async fn calibrated(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    path: &Path,
    events: &Events,
) -> Result<Vec<CalibrationRow>, Error> {
    // A file that is not a table is found before anything is measured.
    CalibrationTable::load(path).map_err(|error| Error::bad_input(Located::new(path, error)))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = events.progress();
    let progress =
        |what: &str| events.emit(Event::Running { what: &format!("calibrating: {what}"), measures_here: false });
    let request = CalibrationRequest { fleet, cluster, inventory, folder, progress: &progress };
    let rows = calibrate(&request).await.map_err(Error::failed)?;
    drop(shown);
    CalibrationTable::update(path, &rows).map_err(|error| Error::failed(Located::new(path, error)))?;
    events.status(format_args!("calibration written to {}", path.display()));
    Ok(rows)
}

fn device_rows(cluster: &Cluster, fleet: &Fleet, inventory: &Inventory) -> Vec<DeviceRow> {
    let mut rows = Vec::new();
    for (server, _, description) in fleet.connected() {
        let address = cluster.server(server).map_or(String::new(), |s| s.endpoint.to_string());
        let caches: Vec<String> = description.cpu.caches.iter().map(|c| format!("{} {}", c.name, c.size)).collect();
        for device in inventory.devices.iter().filter(|d| d.name.server == *server) {
            let described = description.devices.iter().find(|d| d.name == device.name.device);
            rows.push(DeviceRow {
                device: device.name.to_string(),
                address: address.clone(),
                kind: device.kind.name(),
                model: described.map_or(String::new(), |d| d.model.clone()),
                cores: description.cpu.cores,
                threads: device.threads,
                caches: if device.kind == DeviceKind::Cpu { caches.join(", ") } else { String::new() },
                memory_bytes: device.memory,
                server_memory_bytes: description.memory_total,
                server_memory_available_bytes: description.memory_available,
                engine: device.engine.clone(),
                engines: described.map_or(String::new(), DeviceDescription::engine_choices),
                system: description.system.clone(),
                version: description.version.clone(),
                energy_source: described.and_then(|d| d.energy.source()).unwrap_or_default().to_string(),
                energy_absent: described.and_then(|d| d.energy.absent()).unwrap_or_default().to_string(),
            });
        }
    }
    rows
}

fn link_row(cluster: &Cluster, link: &Link) -> LinkOfDevices {
    LinkOfDevices {
        from: link.from.to_string(),
        to: link.to.to_string(),
        latency_us: link.cost.latency,
        bytes_per_us: link.cost.rate,
        origin: if cluster.link(&link.from, &link.to).is_some() { "given" } else { "measured" },
    }
}

fn notes(fleet: &Fleet) -> Vec<ServerNote> {
    let mut notes = Vec::new();
    for (server, _, description) in fleet.connected() {
        let note = |note: &String| ServerNote { server: server.to_string(), note: note.clone() };
        notes.extend(description.notes.iter().map(note));
    }
    notes
}
