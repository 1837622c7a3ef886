//! The identity of a profile, and the name of its file.

use std::path::{Path, PathBuf};

use crate::{MeasurementMode, ProfileRow, ProfiledDevice};
use edgecut_graph::Granularity;

/// The identity of a profile. Measurements are reused only if every field is equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileKey {
    /// Name of the model's file, without folder and extension.
    pub model: String,
    /// BLAKE3 of the model's file, in hexadecimal.
    pub model_hash: String,
    pub device: ProfiledDevice,
    pub mode: MeasurementMode,
    pub granularity: Granularity,
    pub binding: ProfiledBinding,
}

/// The binding of a profile, i.e. the sizes of the model's unknown dimensions, as text; empty if none were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfiledBinding {
    /// The only one that was requested. The profile has no binding in its name, unless one exists from a request of several.
    Sole(String),
    /// One of several that were requested. Each has its own file.
    OneOfSeveral(String),
}

impl Default for ProfiledBinding {
    fn default() -> ProfiledBinding {
        ProfiledBinding::Sole(String::new())
    }
}

impl ProfiledBinding {
    /// The binding in file names and rows; empty where the profile has none in its name.
    pub(super) fn label(&self) -> &str {
        match self {
            ProfiledBinding::Sole(_) => "",
            ProfiledBinding::OneOfSeveral(label) => label,
        }
    }
}

/// Maximum number of characters of the binding in a file name.
const MAX_BINDING_NAME: usize = 60;

impl ProfileKey {
    /// `<model>-<hash>/<server>-<device>-<hardware and engine>-<threads>t-<mode>-<granularity>.csv`: profiles of
    /// different machines have different names. For one of several bindings, `-<binding>-<its hash>` is appended.
    pub fn file(&self) -> PathBuf {
        let ProfileKey { device, .. } = self;
        let identity = format!("{}\n{}", device.hardware, device.engine);
        let identity: String = blake3::hash(identity.as_bytes()).to_hex().chars().take(4).collect();
        let mode = match self.mode {
            MeasurementMode::Isolated => "isolated",
            MeasurementMode::InSitu => "in-situ",
        };
        let granularity = match self.granularity {
            Granularity::Op => "op",
            Granularity::Fused => "fused",
        };
        let hash: String = self.model_hash.chars().take(8).collect();
        let (server, name) = (file_name_safe(&device.server), file_name_safe(&device.device));
        let binding = match self.binding.label() {
            "" => String::new(),
            label => {
                let name: String = file_name_safe(label).chars().take(MAX_BINDING_NAME).collect();
                let hash: String = blake3::hash(label.as_bytes()).to_hex().chars().take(4).collect();
                format!("-{name}-{hash}")
            }
        };
        let file = format!("{server}-{name}-{identity}-{}t-{mode}-{granularity}{binding}.csv", device.threads);
        Path::new(&format!("{}-{hash}", file_name_safe(&self.model))).join(file)
    }

    /// The same profile as one of several bindings.
    pub(super) fn among_several(&self) -> ProfileKey {
        let (ProfiledBinding::Sole(label) | ProfiledBinding::OneOfSeveral(label)) = &self.binding;
        ProfileKey { binding: ProfiledBinding::OneOfSeveral(label.clone()), ..self.clone() }
    }

    /// Whether `row` belongs to a profile with this device, mode, granularity and binding.
    pub(super) fn matches(&self, row: &ProfileRow) -> bool {
        let is_same =
            (row.mode, row.granularity, row.binding.as_str()) == (self.mode, self.granularity, self.binding.label());
        self.is_of_device(row) && is_same
    }

    /// Whether `row`, of any model, was measured on the same device with the same engine and threads.
    pub fn is_of_device(&self, row: &ProfileRow) -> bool {
        row.profiled_device() == self.device
    }
}

/// `name` with every character replaced that is not portable in file names.
fn file_name_safe(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let name: String = name.trim_start_matches('.').chars().map(safe).collect();
    if name.is_empty() { "unnamed".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_portable() {
        for (name, want) in
            [("..", "unnamed"), ("", "unnamed"), (".hidden", "hidden"), ("a/b c", "a-b-c"), ("v1.5_x", "v1.5_x")]
        {
            assert_eq!(file_name_safe(name), want, "{name}");
        }
    }
}
