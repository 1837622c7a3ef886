//! The conditions of a measurement: when it was made, how the processor's clock was governed, and what else ran.

use std::{fmt, fs, path::Path};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use time::OffsetDateTime;

use crate::machine_load::MachineLoad;

/// The conditions of a measurement; what is unknown, as of imported times, is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// UTC, in whole seconds.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub measured_at: Option<OffsetDateTime>,
    #[serde(default, deserialize_with = "if_known")]
    pub governor: Option<Governor>,
    /// Processors of this machine that others kept busy meanwhile: other processes, and other virtual machines where the
    /// system reports what they take.
    pub load: Option<f64>,
}

/// A value; `None` if this version does not know it, such as one that a newer agent has sent.
pub(crate) fn if_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Found<T> {
        Known(T),
        Unknown(IgnoredAny),
    }
    Ok(match Option::<Found<T>>::deserialize(reader)? {
        Some(Found::Known(value)) => Some(value),
        Some(Found::Unknown(IgnoredAny)) | None => None,
    })
}

/// What sets the clock rate of a processor on Linux; see the kernel's `Documentation/admin-guide/pm/cpufreq.rst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Governor {
    Performance,
    Powersave,
    Userspace,
    Ondemand,
    Conservative,
    Schedutil,
}

impl Governor {
    const ALL: [Governor; 6] = [
        Governor::Performance,
        Governor::Powersave,
        Governor::Userspace,
        Governor::Ondemand,
        Governor::Conservative,
        Governor::Schedutil,
    ];

    /// That of the first processor; `None` where the system tells none, as in most virtual machines.
    fn current() -> Option<Governor> {
        Governor::read(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
    }

    fn read(file: &Path) -> Option<Governor> {
        Governor::named(fs::read_to_string(file).ok()?.trim())
    }

    /// The governor that the kernel calls `name`.
    pub fn named(name: &str) -> Option<Governor> {
        Governor::ALL.into_iter().find(|governor| governor.to_string() == name)
    }
}

impl fmt::Display for Governor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Governor::Performance => "performance",
            Governor::Powersave => "powersave",
            Governor::Userspace => "userspace",
            Governor::Ondemand => "ondemand",
            Governor::Conservative => "conservative",
            Governor::Schedutil => "schedutil",
        })
    }
}

impl Conditions {
    /// Those of what is measured now; `load` was started together with the measurement.
    pub(super) fn now(load: &MachineLoad) -> Conditions {
        let now = OffsetDateTime::now_utc();
        Conditions {
            measured_at: Some(now.replace_nanosecond(0).unwrap_or(now)),
            governor: Governor::current(),
            load: load.so_far().map(|busy| (busy.others * 10.0).round() / 10.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_governor_is_read_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scaling_governor");
        for governor in Governor::ALL {
            fs::write(&file, format!("{governor}\n")).unwrap();
            assert_eq!(Governor::read(&file), Some(governor));
        }
        fs::write(&file, "interactive\n").unwrap();
        assert_eq!((Governor::read(&file), Governor::read(folder.path())), (None, None));
    }
}
