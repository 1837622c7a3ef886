//! Profiles that somebody names: files read as they are, folders with all that is below them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Row, StoreError};

/// Folders below one that is named are looked into so deeply.
const DEPTH: usize = 4;

/// The rows of the profile at `path`.
///
/// # Errors
/// If it cannot be read, or a line is no row of a profile; then which, which column of it, and why.
pub fn read(path: &Path) -> Result<Vec<Row>, StoreError> {
    let text = fs::read_to_string(path).map_err(|source| StoreError::File { path: path.to_path_buf(), source })?;
    parse(&text).map_err(|what| StoreError::Malformed { path: path.to_path_buf(), what })
}

/// The rows of the text of a profile.
///
/// # Errors
/// What is wrong, by line and column.
pub fn parse(text: &str) -> Result<Vec<Row>, String> {
    // A profile that was begun.
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| e.to_string())?.clone();
    if !header.iter().any(|name| name == "signature") {
        let found = text.lines().next().unwrap_or_default();
        return Err(format!("line 1: a profile's header has a column `signature`; found `{}`", clipped(found)));
    }
    reader.deserialize::<Row>().map(|row| row.map_err(|error| told(&error, &header))).collect()
}

/// What is wrong with a line, with the column by its name.
fn told(error: &csv::Error, header: &csv::StringRecord) -> String {
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

/// At most the first 80 characters.
pub(super) fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The rows of all profiles at `paths`: files, and every `.csv` below folders that is neither a summary nor the links.
///
/// # Errors
/// As [`read`].
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::new();
    for path in paths {
        for file in files(path, DEPTH)? {
            rows.extend(read(&file)?);
        }
    }
    Ok(rows)
}

fn files(path: &Path, depth: usize) -> Result<Vec<PathBuf>, StoreError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let error = |source| StoreError::File { path: path.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(error)? {
        let inside = entry.map_err(error)?.path();
        let name = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_profile = name.ends_with(".csv") && !name.ends_with(".summary.csv") && name != "links.csv";
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

    #[test]
    fn what_is_wrong_is_told_by_line_and_column() {
        let header = "server,device,hardware,engine,engine_version,threads,mode,granularity,id,operators,operator,\
                      signature,shapes,dtype,flops,bytes,n,time_us_median,time_us_mad,time_us_min,time_us_p95,\
                      cpu_us_median,workspace_bytes,output_bytes,parameter_bytes,held_bytes,disturbed,note";
        let row = |threads: &str, mode: &str| {
            format!("s,cpu,h,e,1,{threads},{mode},op,0,0,nn.relu,0011,s,f,1,8,5,1.5,0,1,2,1.5,0,4,0,0,0,")
        };
        let good = format!("{header}\n{}\n", row("1", "isolated"));
        assert_eq!(parse(&good).unwrap()[0].time_us_median, Some(1.5));
        for (text, why) in [
            (format!("{good}{}\n", row("x", "isolated")), "line 3, column `threads`"),
            (format!("{good}{}\n", row("1", "guessed")), "line 3: unknown variant `guessed`"),
            (format!("{good}s,cpu\n"), "line 3: 2 cells where the header has 28 columns"),
            ("a_name,forward_fw_mean_time\n".to_string(), "line 1: a profile's header has a column `signature`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
