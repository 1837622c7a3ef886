//! `run --output`: the file of results, to which every run is appended.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use miette::Report;

use crate::{Failure, Outcome, caller::status, located::Located, source_file as file};
use edgecut_cluster::run::results::{RunResult, RunResults, check_csv, to_csv};
use edgecut_values::files::lock;

/// How results are written, by the name of the file.
#[derive(Clone, Copy)]
enum Encoding {
    Csv,
    Json,
}

impl Encoding {
    fn of(path: &Path) -> Result<Encoding, Failure> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str() {
            Some("csv") => Ok(Encoding::Csv),
            Some("json") => Ok(Encoding::Json),
            _ => {
                let what = format!("--output {}: expected FILE.csv or FILE.json", path.display());
                Err(Failure::BadInput(Report::msg(what)))
            }
        }
    }
}

/// Finds out whether results can be appended to the file, before anything runs.
pub(super) fn check(path: &Path) -> Outcome {
    let encoding = Encoding::of(path)?;
    file::check_place(path)?;
    read(path, encoding).map(|_| ())
}

/// Appends one run to the file. Other processes may do the same meanwhile.
pub(super) fn append(path: &Path, result: RunResult) -> Outcome {
    let encoding = Encoding::of(path)?;
    let unwritable = |error: io::Error| Failure::unwritable(&path.display().to_string(), &error);
    let _lock = lock(path).map_err(unwritable)?;
    let (is_empty, mut results) = read(path, encoding)?;
    match encoding {
        Encoding::Csv => {
            let rows = to_csv(&result, is_empty).map_err(Failure::failed)?;
            let append = |mut file: File| file.write_all(&rows).and_then(|()| file.sync_all());
            File::options().append(true).create(true).open(path).and_then(append).map_err(unwritable)?;
        }
        Encoding::Json => {
            results.runs.push(result);
            file::write(path, results.to_json().map_err(Failure::failed)?.as_bytes())?;
        }
    }
    status!("results appended to {}", path.display());
    Ok(())
}

/// Whether the file is empty or missing, and the runs that it has so far if it is JSON.
fn read(path: &Path, encoding: Encoding) -> Result<(bool, RunResults), Failure> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|error| Failure::unreadable(&path.display().to_string(), &error))?,
    };
    let results = match encoding {
        _ if text.is_empty() => Ok(RunResults::default()),
        Encoding::Csv => check_csv(&text).map(|()| RunResults::default()),
        Encoding::Json => RunResults::from_json(&text),
    };
    Ok((text.is_empty(), results.map_err(|error| Failure::bad_input(Located::new(path, error)))?))
}
