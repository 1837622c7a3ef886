//! Import of profiles that others measured. They are kept like profiles that were measured here.

use std::path::{Path, PathBuf};

use edgecut_interop::{ort_import::add_memory, profile_import::Imported};
use edgecut_profile::{ProfileKey, ProfileRow, ProfileStore, ProfileSummary, ProfiledBinding};
use serde::Serialize;

use crate::{
    Error, Events, ModelOptions,
    profile_source::{ProfiledModel, Source, is_of_one_device},
};

/// A profile that was imported.
#[derive(Debug, Clone, Serialize)]
pub struct ImportedProfile {
    pub device: String,
    pub operators: usize,
    pub sum_us: f64,
    /// Operators without a time.
    pub missing: usize,
    /// Number of entries of the file that are not operators of the model, and their time.
    pub unused: usize,
    pub unused_us: f64,
    /// The file of the profile.
    pub profile: PathBuf,
    #[serde(skip)]
    pub rows: Vec<ProfileRow>,
}

/// Imports `files`, each `FILE` or `FILE=SERVER/DEVICE`, for the model at `model` into the folder `output`. Without a
/// model, that is the graph next to each file, as TVM's debug executor dumps it. A file of memory alone adds it to the profile of
/// its device among `files`, if there is one.
///
/// # Errors
/// If a file is no profile of the model, contains rows of several devices, or a profile cannot be written.
pub fn import(
    model: Option<&Path>,
    options: &ModelOptions,
    files: &[String],
    output: &Path,
    events: &Events,
) -> Result<Vec<ImportedProfile>, Error> {
    let sources: Vec<Source> = files.iter().map(|file| Source::parse(file)).collect();
    let mut profiles: Vec<ImportedProfile> = Vec::new();
    let mut open: Option<ProfiledModel> = model.map(|path| ProfiledModel::open(path, options)).transpose()?;
    let mut memory: Vec<Imported> = Vec::new();
    for source in &sources {
        if model.is_none() {
            let dump = ProfiledModel::of_dump(&source.path)?.ok_or_else(|| {
                let what = "neither a graph dump nor an execution trace of TVM's debug executor in the same folder; a \
                            profile of EOP's is of a Relay module and one of ONNX Runtime's of a model, which is to be given as MODEL";
                Error::BadInput(format!("{}: {what}", source.path.display()).into())
            });
            open = Some(ProfiledModel::open(&dump?, options)?);
        }
        let Some(subject) = &open else { continue };
        let imported = source.read(subject)?;
        events.notices(&imported.notes);
        if imported.is_memory {
            memory.push(imported);
            continue;
        }
        let has_binding = |row: &ProfileRow| !row.binding.is_empty();
        if let (Some(a), Some(b)) = (profiles.iter().flat_map(|profile| &profile.rows).next(), imported.rows.first())
            && has_binding(a) != has_binding(b)
        {
            let what = "some of the files have a column `binding`, others have none: import them one by one";
            return Err(Error::BadInput(format!("{}: {what}", source.path.display()).into()));
        }
        let path = keep(subject, &imported.rows, output)?;
        events.status(format_args!("profile written to {}", path.display()));
        profiles.push(ImportedProfile::of(imported, path));
    }
    // Only a model that was given has memory: it is the same for all files.
    for imported in memory {
        let Some(subject) = &open else { continue };
        if let Some(timed) = profiles.iter_mut().find(|timed| is_of_device_of(&imported, timed)) {
            add_memory(&mut timed.rows, &imported.rows);
            keep(subject, &timed.rows, output)?;
            continue;
        }
        let path = keep(subject, &imported.rows, output)?;
        events.status(format_args!("profile written to {}", path.display()));
        profiles.push(ImportedProfile::of(imported, path));
    }
    Ok(profiles)
}

/// Whether `imported` is of the same device as a profile with times.
fn is_of_device_of(imported: &Imported, timed: &ImportedProfile) -> bool {
    let has_times = timed.rows.iter().any(|row| row.time_us_median.is_some());
    has_times && timed.rows.first().zip(imported.rows.first()).is_some_and(is_of_one_device)
}

/// Writes the rows where a profile of the same model and device lies.
fn keep(subject: &ProfiledModel, rows: &[ProfileRow], output: &Path) -> Result<PathBuf, Error> {
    let Some(row) = rows.first() else {
        return Err(Error::BadInput(format!("{}: no operators", subject.path().display()).into()));
    };
    let of = |row: &ProfileRow| (row.server.clone(), row.device.clone(), row.mode, row.binding.clone());
    if let Some(other) = rows.iter().find(|other| of(other) != of(row)) {
        let devices = format!("{}/{} and {}/{}", row.server, row.device, other.server, other.device);
        let what =
            format!("the file has rows of {devices}, or of several modes or bindings: import those of one at a time");
        return Err(Error::BadInput(what.into()));
    }
    let key = ProfileKey {
        model: subject.path().file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        model_hash: subject.hash().to_string(),
        device: row.profiled_device(),
        mode: row.mode,
        granularity: row.granularity,
        binding: match row.binding.as_str() {
            "" => ProfiledBinding::default(),
            binding => ProfiledBinding::OneOfSeveral(binding.to_string()),
        },
    };
    let mut store = ProfileStore::open(output, &key).map_err(Error::profile)?;
    store.replace_rows(rows.to_vec()).map_err(Error::failed)?;
    ProfileSummary::of(rows).write(store.path(), None).map_err(Error::failed)?;
    Ok(store.path().to_path_buf())
}

impl ImportedProfile {
    fn of(imported: Imported, profile: PathBuf) -> ImportedProfile {
        let first = imported.rows.first();
        ImportedProfile {
            device: first.map_or(String::new(), |row| row.profiled_device().device_name().to_string()),
            operators: imported.rows.len(),
            sum_us: ProfileSummary::of(&imported.rows).sum.time.0,
            missing: imported.missing,
            unused: imported.unused,
            unused_us: imported.unused_time.0,
            profile,
            rows: imported.rows,
        }
    }
}
