//! Names of devices: `server/device`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A device by its server and its name there; displays as `server/device`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DeviceName {
    pub server: SmolStr,
    pub device: SmolStr,
}

/// Text that is not a device name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device: expected `server/device`, such as `local/cpu`")]
pub struct DeviceNameError(String);

/// A name that a server or a device cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot be called `{}`: expected letters, digits, `-`, `_` and `.`", .0.escape_debug())]
pub struct NameError(String);

/// Checks the name of a server or a device, which stands in messages, tables and names of files.
///
/// # Errors
/// If it is empty, of dots alone, or has characters that are not letters, digits, `-`, `_` and `.`.
pub fn check_name(name: &str) -> Result<SmolStr, NameError> {
    let fits = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let is_folder = name.chars().all(|c| c == '.');
    match !is_folder && name.chars().all(fits) {
        true => Ok(SmolStr::new(name)),
        false => Err(NameError(name.to_string())),
    }
}

impl DeviceName {
    pub fn new(server: impl Into<SmolStr>, device: impl Into<SmolStr>) -> DeviceName {
        DeviceName { server: server.into(), device: device.into() }
    }

    /// `names` in one text, with `separator` between them.
    pub fn join(names: impl IntoIterator<Item = DeviceName>, separator: &str) -> String {
        let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
        names.join(separator)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.server, self.device))
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;
    fn from_str(text: &str) -> Result<DeviceName, DeviceNameError> {
        match text.split_once('/') {
            Some((server, device)) if !server.is_empty() && !device.is_empty() => Ok(DeviceName::new(server, device)),
            _ => Err(DeviceNameError(text.to_string())),
        }
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for DeviceName {
    type Error = DeviceNameError;
    fn try_from(text: String) -> Result<DeviceName, DeviceNameError> {
        text.parse()
    }
}
