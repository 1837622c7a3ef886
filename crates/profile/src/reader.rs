//! Profile files given by the user: single files, and folders searched for profiles.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{ProfileError, ProfileRow};
use edgecut_values::input_file::{MAX_TABLE_BYTES, read_text};

/// Maximum depth of subfolders that are searched.
const MAX_DEPTH: usize = 4;

/// The columns that every profile has: the one first that no other table has. A time may be empty, but not its column: rows
/// without any time would look like those of operators that the device cannot compute.
const COLUMNS: [&str; 22] = [
    "signature",
    "server",
    "device",
    "hardware",
    "engine",
    "engine_version",
    "threads",
    "mode",
    "granularity",
    "id",
    "operators",
    "operator",
    "shapes",
    "dtype",
    "flops",
    "accessed_bytes",
    "n",
    "time_us_median",
    "output_bytes",
    "parameter_bytes",
    "disturbed",
    "note",
];

/// Renamed columns: the name in files of older versions, and that in [`COLUMNS`].
const RENAMED: [(&str, &str); 1] = [("bytes", "accessed_bytes")];

/// The rows of the profile at `path`.
///
/// # Errors
/// If the file cannot be read, or a line is not a profile row; the error names the line and the column.
pub fn read(path: &Path) -> Result<Vec<ProfileRow>, ProfileError> {
    let text =
        read_text(path, MAX_TABLE_BYTES).map_err(|source| ProfileError::File { path: path.to_path_buf(), source })?;
    parse(&text).map_err(|what| ProfileError::Malformed { path: path.to_path_buf(), what })
}

/// The rows of a profile given as text.
///
/// # Errors
/// What is wrong, with line and column.
pub fn parse(text: &str) -> Result<Vec<ProfileRow>, String> {
    // A profile to which no row has been appended yet.
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let current = |name| RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, current)| *current);
    let header: csv::StringRecord = reader.headers().map_err(|e| e.to_string())?.iter().map(current).collect();
    reader.set_headers(header.clone());
    if let Some(missing) = COLUMNS.iter().find(|column| !header.iter().any(|name| name == **column)) {
        let found = text.lines().next().unwrap_or_default();
        return Err(format!("line 1: a profile needs a column `{missing}`; found the header `{}`", truncated(found)));
    }
    reader.deserialize::<ProfileRow>().map(|row| row.map_err(|error| describe(&error, &header))).collect()
}

/// The error of a line, with the name of the column.
fn describe(error: &csv::Error, header: &csv::StringRecord) -> String {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|field| header.get(field as usize));
            let column = column.map_or(String::new(), |name| format!(", column `{name}`"));
            format!("line {line}{column}: {}", err.kind())
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line}: {len} cells where the header has {expected_len} columns")
        }
        _ => error.to_string(),
    }
}

/// At most the first 80 characters of `text`, for error messages that quote a file.
pub fn truncated(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Other tables in the folder of profiles.
const OTHER_TABLES: [&str; 2] = ["links.csv", "calibration.csv"];

/// The rows of all profiles at `paths`: files, and every `.csv` file in folders that is neither a summary nor the table
/// of links or of calibrations.
///
/// # Errors
/// As [`read`].
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<ProfileRow>, ProfileError> {
    let mut rows = Vec::new();
    for path in paths {
        for file in files(path, MAX_DEPTH)? {
            rows.extend(read(&file)?);
        }
    }
    Ok(rows)
}

fn files(path: &Path, depth: usize) -> Result<Vec<PathBuf>, ProfileError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let error = |source| ProfileError::File { path: path.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(error)? {
        let inside = entry.map_err(error)?.path();
        let name = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_profile =
            name.ends_with(".csv") && !name.ends_with(".summary.csv") && !OTHER_TABLES.contains(&name.as_str());
        match inside.is_dir() {
            true if depth > 0 => found.extend(files(&inside, depth - 1)?),
            false if is_profile => found.push(inside),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Micros;

    #[test]
    fn errors_name_line_and_column() {
        let header = "server,device,hardware,engine,engine_version,threads,mode,granularity,id,operators,operator,\
                      signature,shapes,dtype,flops,accessed_bytes,n,time_us_median,time_us_mad,time_us_min,time_us_p95,\
                      cpu_us_median,workspace_bytes,output_bytes,parameter_bytes,held_bytes,disturbed,note";
        let row = |threads: &str, mode: &str| {
            format!("s,cpu,h,e,1,{threads},{mode},op,0,0,nn.relu,0011,s,f,1,8,5,1.5,0,1,2,1.5,0,4,0,0,0,")
        };
        let good = format!("{header}\n{}\n", row("1", "isolated"));
        assert_eq!(parse(&good).unwrap()[0].time_us_median, Some(Micros(1.5)));
        assert_eq!(parse(&good.replace("accessed_bytes", "bytes")), parse(&good));
        for (text, why) in [
            (format!("{good}{}\n", row("x", "isolated")), "line 3, column `threads`"),
            (format!("{good}{}\n", row("1", "guessed")), "line 3: unknown variant `guessed`"),
            (format!("{good}s,cpu\n"), "line 3: 2 cells where the header has 28 columns"),
            ("a_name,forward_fw_mean_time\n".to_string(), "line 1: a profile needs a column `signature`"),
            (good.replace("time_us_median,", "median,"), "line 1: a profile needs a column `time_us_median`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
