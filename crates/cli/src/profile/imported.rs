//! `edgecut profile --import`: what others measured, kept as profiles are that were taken here.

use std::path::Path;

use edgecut_graph::units::Micros;
use edgecut_profile::ProfileRow;
use edgecut_session::profile_import::{ImportedProfile, import};

use crate::{
    Outcome,
    format::{Format, print_csv, print_json},
    model::ModelFlags,
    stderr,
    stdout::print_line,
    table::table,
};

/// Imports `files` for `model` into the folder `output`.
pub(crate) fn run(
    model: Option<&Path>,
    flags: &ModelFlags,
    files: &[String],
    output: &Path,
    format: Format,
) -> Outcome {
    let profiles = import(model, &flags.options(), files, output, &stderr::events())?;
    match format {
        Format::Csv => {
            let rows: Vec<&ProfileRow> = profiles.iter().flat_map(|profile| &profile.rows).collect();
            print_csv(&rows)
        }
        Format::Json => print_json(&profiles),
        Format::Table => {
            let mut table = table(["device", ">operators", ">sum", ">without time", ">other entries"]);
            for ImportedProfile { device, operators, sum_us, missing, unused, unused_us, .. } in &profiles {
                table.add_row([
                    device.clone(),
                    operators.to_string(),
                    Micros(*sum_us).to_string(),
                    missing.to_string(),
                    format!("{unused}, {}", Micros(*unused_us)),
                ]);
            }
            print_line!("{table}");
            Ok(())
        }
    }
}
