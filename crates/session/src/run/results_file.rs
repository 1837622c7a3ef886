//! The results file, to which every run is appended.

use std::{io, path::Path};

use edgecut_agent::results::file::{RunResult, RunResults, check_csv, to_csv};
use edgecut_values::{
    files::lock,
    input_file::{self, MAX_TABLE_BYTES},
};

use crate::{Error, located::Located, output};

/// The encoding of results, by the extension of the file.
#[derive(Clone, Copy)]
enum Encoding {
    Csv,
    Json,
}

impl Encoding {
    fn of(path: &Path) -> Result<Encoding, Error> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str() {
            Some("csv") => Ok(Encoding::Csv),
            Some("json") => Ok(Encoding::Json),
            // A device file or FIFO needs no extension.
            _ if !output::is_file(path) => Ok(Encoding::Json),
            _ => {
                let what = format!("option `output={}`: expected FILE.csv or FILE.json", path.display());
                Err(Error::BadInput(what.into()))
            }
        }
    }
}

/// Checks that results can be appended to the file, before anything runs.
///
/// # Errors
/// If they cannot.
pub fn check(path: &Path) -> Result<(), Error> {
    output::check_writable(path)?;
    let encoding = Encoding::of(path)?;
    read(path, encoding).map(|_| ())
}

/// Writes the content of a file.
pub type WriteFile<'a> = dyn Fn(&Path, &[u8]) -> Result<(), Error> + 'a;

/// Appends one run to the file by `write`. The file is locked, so several processes can append to it.
///
/// # Errors
/// If the file contains something other than results, or cannot be written.
pub fn append(path: &Path, result: RunResult, write: &WriteFile<'_>) -> Result<(), Error> {
    let encoding = Encoding::of(path)?;
    let _lock = match output::is_file(path) {
        true => Some(lock(path).map_err(|error| Error::unwritable(path, &error))?),
        false => None,
    };
    let (mut text, mut results) = read(path, encoding)?;
    match encoding {
        Encoding::Csv => {
            // The whole file is rewritten, so that a crash leaves no partial row.
            text.extend(to_csv(&result, text.is_empty()).map_err(Error::failed)?);
            write(path, &text)
        }
        Encoding::Json => {
            results.runs.push(result);
            write(path, results.to_json().map_err(Error::failed)?.as_bytes())
        }
    }
}

/// The content of the file with its last line ended, and its runs if it is JSON. Empty if the file is missing or a
/// stream.
fn read(path: &Path, encoding: Encoding) -> Result<(Vec<u8>, RunResults), Error> {
    let mut text = match output::is_file(path).then(|| input_file::read(path, MAX_TABLE_BYTES)) {
        None => Vec::new(),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Some(read) => read.map_err(|error| Error::unreadable(path, &error))?,
    };
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let results = match encoding {
        _ if text.is_empty() => Ok(RunResults::default()),
        Encoding::Csv => check_csv(&text).map(|()| RunResults::default()),
        Encoding::Json => RunResults::from_json(&text),
    };
    Ok((text, results.map_err(|error| Error::bad_input(Located::new(path, error)))?))
}
