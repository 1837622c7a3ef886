//! `edgecut profile --import`: what others measured, kept as profiles are that were taken here.

use std::path::{Path, PathBuf};

use crate::stderr::status;
use edgecut_session::{
    error::Message,
    profile_source::{ProfiledModel, Source},
};
use serde::Serialize;

use crate::{
    Failure, Outcome,
    format::{Format, print_csv, print_json},
    model::ModelFlags,
    stdout::print_line,
    table::table,
};
use edgecut_graph::units::Micros;
use edgecut_interop::profile_import::Imported;
use edgecut_profile::{ProfileKey, ProfileRow, ProfileStore, ProfileSummary, ProfiledBinding};

/// One imported profile as a line of the table, and as JSON.
#[derive(Serialize)]
struct Line {
    device: String,
    operators: usize,
    sum_us: f64,
    /// Operators without a time.
    missing: usize,
    /// Number of entries of the file that are not operators of the model, and their time.
    unused: usize,
    unused_us: f64,
    profile: PathBuf,
}

/// Imports `files` for `model` into the folder `output`.
pub(crate) fn run(
    model: Option<&Path>,
    flags: &ModelFlags,
    files: &[String],
    output: &Path,
    format: Format,
) -> Outcome {
    let options = flags.options();
    let sources: Vec<Source> = files.iter().map(|file| Source::parse(file)).collect();
    let (mut lines, mut rows): (Vec<Line>, Vec<ProfileRow>) = Default::default();
    let mut open: Option<ProfiledModel> = model.map(|path| ProfiledModel::open(path, &options)).transpose()?;
    for source in &sources {
        if model.is_none() {
            let dump = ProfiledModel::of_dump(&source.path)?.ok_or_else(|| {
                let what = "neither a graph dump nor an execution trace of TVM's debug executor in the same folder; a \
                            profile of EOP's is of a Relay module, which is to be given as MODEL";
                Failure::BadInput(Message::from(format!("{}: {what}", source.path.display())))
            });
            open = Some(ProfiledModel::open(&dump?, &options)?);
        }
        let Some(subject) = &open else { continue };
        let imported = source.read(subject)?;
        let has_binding = |row: &ProfileRow| !row.binding.is_empty();
        if let (Some(a), Some(b)) = (rows.first(), imported.rows.first())
            && has_binding(a) != has_binding(b)
        {
            let what = "some of the files have a column `binding`, others have none: import them one by one";
            return Err(Failure::BadInput(Message::from(format!("{}: {what}", source.path.display()))));
        }
        let path = keep(subject, &imported, output)?;
        status!("profile written to {}", path.display());
        lines.push(line(&imported, path));
        rows.extend(imported.rows);
    }
    match format {
        Format::Csv => print_csv(&rows),
        Format::Json => print_json(&lines),
        Format::Table => {
            let mut table = table(["device", ">operators", ">sum", ">without time", ">other entries"]);
            for line in &lines {
                table.add_row([
                    line.device.clone(),
                    line.operators.to_string(),
                    Micros(line.sum_us).to_string(),
                    line.missing.to_string(),
                    format!("{}, {}", line.unused, Micros(line.unused_us)),
                ]);
            }
            print_line!("{table}");
            Ok(())
        }
    }
}

/// Writes the rows where a profile of the same model and device lies.
fn keep(subject: &ProfiledModel, imported: &Imported, output: &Path) -> Result<PathBuf, Failure> {
    let Some(row) = imported.rows.first() else {
        return Err(Failure::BadInput(Message::from(format!("{}: no operators", subject.path().display()))));
    };
    let of = |row: &ProfileRow| (row.server.clone(), row.device.clone(), row.mode, row.binding.clone());
    let same = |other: &&ProfileRow| of(other) == of(row);
    if let Some(other) = imported.rows.iter().find(|other| !same(other)) {
        let devices = format!("{}/{} and {}/{}", row.server, row.device, other.server, other.device);
        let what =
            format!("the file has rows of {devices}, or of several modes or bindings: import those of one at a time");
        return Err(Failure::BadInput(Message::from(what)));
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
    let mut store = ProfileStore::open(output, &key).map_err(Failure::profile)?;
    store.replace_rows(imported.rows.clone()).map_err(Failure::failed)?;
    ProfileSummary::of(&imported.rows).write(store.path(), None).map_err(Failure::failed)?;
    Ok(store.path().to_path_buf())
}

fn line(imported: &Imported, profile: PathBuf) -> Line {
    let first = imported.rows.first();
    Line {
        device: first.map_or(String::new(), |row| row.profiled_device().device_name().to_string()),
        operators: imported.rows.len(),
        sum_us: ProfileSummary::of(&imported.rows).sum.time.0,
        missing: imported.missing,
        unused: imported.unused,
        unused_us: imported.unused_time.0,
        profile,
    }
}
