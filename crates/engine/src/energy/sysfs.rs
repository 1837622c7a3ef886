//! Files of sysfs, which have one value each.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{Absence, EnergyLost};

/// The longest value that is read: sysfs has none above a page.
const LONGEST: u64 = 4096;

/// Why a file has no value.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    NotANumber(String),
}

/// The text of a file, without the line break.
pub(super) fn text(file: &Path) -> Result<String, ReadError> {
    let mut text = String::new();
    File::open(file).and_then(|file| file.take(LONGEST).read_to_string(&mut text)).map_err(ReadError::Io)?;
    Ok(text.trim().to_string())
}

/// The number in a file.
pub(super) fn number<T: FromStr>(file: &Path) -> Result<T, ReadError> {
    let text = text(file)?;
    text.parse().map_err(|_| ReadError::NotANumber(text))
}

/// The names of the entries of a folder, in alphabetic order; `None` if there is no such folder.
pub(super) fn entries(folder: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(folder).ok()?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Some(names)
}

impl ReadError {
    /// Whether the sensor has no value now: one that is switched off, as channels without a shunt are.
    pub fn is_no_data(&self) -> bool {
        matches!(self, ReadError::Io(error) if error.raw_os_error() == Some(libc::ENODATA))
    }

    /// Why the source of `file` cannot be used.
    pub fn absence(self, file: PathBuf) -> Absence {
        match self {
            ReadError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => Absence::Permission(file),
            error => Absence::Unreadable { file, why: error.reason() },
        }
    }

    /// Why the source of `file`, which was read before, is lost.
    pub fn lost(self, file: &Path) -> EnergyLost {
        EnergyLost { what: file.display().to_string(), why: self.reason() }
    }

    fn reason(self) -> String {
        match self {
            ReadError::Io(error) => error.to_string(),
            ReadError::NotANumber(text) => format!("`{}` is not a number", text.chars().take(40).collect::<String>()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A folder of files of one value each, made below `root`.
    pub fn write(root: &Path, folder: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (file, value) in files {
            fs::write(folder.join(file), format!("{value}\n")).unwrap();
        }
        folder
    }

    #[test]
    fn a_value_is_a_number_or_an_error_that_says_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("energy_uj");
        let read = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            number::<u64>(&file).map_err(ReadError::reason)
        };
        assert_eq!(read(b"42\n"), Ok(42));
        assert_eq!(read(b"many\n"), Err("`many` is not a number".to_string()));
        assert_eq!(read(b"-1"), Err("`-1` is not a number".to_string()));
        assert_eq!(read(b""), Err("`` is not a number".to_string()));
        assert!(read(&[0xff; 8]).unwrap_err().contains("UTF-8"));
        assert!(read(&[b'7'; 10_000]).unwrap_err().ends_with("is not a number"), "beyond the largest number");
        assert!(matches!(number::<u64>(folder.path()), Err(ReadError::Io(_))), "a folder");
        assert_eq!(entries(&file), None);
    }
}
