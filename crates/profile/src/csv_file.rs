//! CSV files of profiles: encoding rows, replacing a file atomically, and the path of the summary next to a profile.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ProfileError;
use edgecut_values::files::write_atomic;

/// `rows` as CSV, with the header line if `header`.
pub(super) fn encode<T: Serialize>(rows: &[T], header: bool) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(header).from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(std::io::Error::other)?;
    }
    writer.into_inner().map_err(|e| std::io::Error::other(e.to_string()))
}

/// Replaces the file at `path` with `rows`: written under a temporary name, then renamed. A file that has these rows is left
/// alone, so that what is complete can be read where nothing can be written.
pub(super) fn replace<T: Serialize>(path: &Path, rows: &[T]) -> Result<(), ProfileError> {
    let written = encode(rows, true).and_then(|text| match std::fs::read(path) {
        Ok(known) if known == text => Ok(()),
        _ => write_atomic(path, |file| file.write_all(&text)),
    });
    written.map_err(|source| ProfileError::File { path: path.to_path_buf(), source })
}

/// `profile.csv` → `profile.summary.csv`.
pub(super) fn summary_path(profile: &Path) -> PathBuf {
    profile.with_extension("summary.csv")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_encoded_with_or_without_header() {
        #[derive(Serialize)]
        struct Pair {
            name: &'static str,
            time_us: Option<f64>,
        }
        let rows = [Pair { name: "a,b", time_us: Some(1.5) }, Pair { name: "c", time_us: None }];
        assert_eq!(encode(&rows, true).unwrap(), b"name,time_us\n\"a,b\",1.5\nc,\n");
        assert_eq!(encode(&rows[1..], false).unwrap(), b"c,\n");
        assert_eq!(summary_path(Path::new("p/a.csv")), Path::new("p/a.summary.csv"));
    }
}
