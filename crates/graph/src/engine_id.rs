//! Names and versions of engines: `tract 0.23.9+0.1.0`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An engine by its name and its version; displays as `name version`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct EngineId {
    /// Without spaces.
    pub name: String,
    /// Empty if it is not known.
    pub version: String,
}

impl EngineId {
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> EngineId {
        EngineId { name: name.into(), version: version.into() }
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(format!("{} {}", self.name, self.version).trim_end())
    }
}

impl From<String> for EngineId {
    fn from(text: String) -> EngineId {
        EngineId::from(text.as_str())
    }
}

impl From<&str> for EngineId {
    fn from(text: &str) -> EngineId {
        let text = text.trim();
        let (name, version) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        EngineId::new(name, version)
    }
}

impl From<EngineId> for String {
    fn from(id: EngineId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_names_with_versions_are_the_same() {
        for (text, name, version) in [
            ("tract 0.23.9+0.1.0", "tract", "0.23.9+0.1.0"),
            ("auto tract 1, onnxruntime 2", "auto", "tract 1, onnxruntime 2"),
            ("tvm", "tvm", ""),
            ("", "", ""),
        ] {
            let id = EngineId::from(text);
            assert_eq!((id.name.as_str(), id.version.as_str()), (name, version));
            assert_eq!(id.to_string(), text);
            assert_eq!(serde_json::from_str::<EngineId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        }
    }
}
