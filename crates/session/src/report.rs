//! Reports: profiles, plans, fronts and results of runs as one HTML page, and cost models of devices.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use edgecut_profile::{FamilyError, ProfileRow, ProfiledDevice, model::CostModel, reader};
use edgecut_report::page::{Page, document::document};

use crate::{
    Error, Events,
    subjects::{Models, read},
};

/// The HTML page of the files and folders at `paths`.
///
/// # Errors
/// If a file cannot be read, or is none that a page shows.
pub fn page(paths: &[PathBuf], events: &Events) -> Result<String, Error> {
    let subjects = paths.iter().map(|path| read(path, Models::Read, events)).collect::<Result<Vec<_>, _>>()?.concat();
    let title = names(paths);
    document(&Page::of(&subjects), &format!("{title} – edgecut")).map_err(Error::failed)
}

/// Whether both paths lead to the same file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// The cost model of one device: by family of operators, how times grow, and how well each is predicted from the others.
#[derive(Debug, Clone)]
pub struct DeviceCosts {
    pub device: ProfiledDevice,
    pub families: Vec<FamilyError>,
}

/// The cost models of the devices in `profiles`, files or folders. Devices of the same name with other hardware, another
/// engine or another number of threads are apart.
///
/// # Errors
/// If a profile cannot be read, or there are no rows.
pub fn costs(profiles: &[PathBuf]) -> Result<Vec<DeviceCosts>, Error> {
    let rows = reader::read_all(profiles).map_err(Error::bad_input)?;
    if rows.is_empty() {
        return Err(Error::BadInput(format!("{}: no profile, or none with rows", names(profiles)).into()));
    }
    let mut devices: BTreeMap<ProfiledDevice, Vec<&ProfileRow>> = BTreeMap::new();
    for row in &rows {
        devices.entry(row.profiled_device()).or_default().push(row);
    }
    let families = |rows: Vec<&ProfileRow>| CostModel::of(rows.iter().copied()).errors(&rows);
    Ok(devices.into_iter().map(|(device, rows)| DeviceCosts { device, families: families(rows) }).collect())
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
