//! `genai_config.json`: what ONNX Runtime's model builder writes about a decoder.
//!
//! Source: <https://onnxruntime.ai/docs/genai/reference/config.html>.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use smol_str::SmolStr;

use crate::{Error, input::read_document, located::Located};

/// The name of the file.
pub(super) const FILE_NAME: &str = "genai_config.json";

#[derive(Debug, Clone, Deserialize)]
pub(super) struct GenaiConfig {
    pub model: ModelConfig,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ModelConfig {
    #[serde(default)]
    pub context_length: Option<u64>,
    pub decoder: DecoderConfig,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct DecoderConfig {
    pub filename: PathBuf,
    #[serde(default)]
    pub head_size: Option<u64>,
    #[serde(default)]
    pub inputs: InputNames,
    #[serde(default)]
    pub outputs: OutputNames,
}

/// The names of inputs; in those of caches, `%d` is the number of the layer.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct InputNames {
    pub input_ids: SmolStr,
    pub attention_mask: SmolStr,
    pub position_ids: SmolStr,
    pub past_key_names: SmolStr,
    pub past_value_names: SmolStr,
}

/// The names of outputs, as [`InputNames`].
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct OutputNames {
    pub logits: SmolStr,
    pub present_key_names: SmolStr,
    pub present_value_names: SmolStr,
}

impl InputNames {
    /// Whether `name` is that of a KV cache.
    pub fn is_cache(&self, name: &str) -> bool {
        [&self.past_key_names, &self.past_value_names].into_iter().any(|pattern| layer(name, pattern).is_some())
    }
}

impl Default for InputNames {
    fn default() -> InputNames {
        InputNames {
            input_ids: "input_ids".into(),
            attention_mask: "attention_mask".into(),
            position_ids: "position_ids".into(),
            past_key_names: "past_key_values.%d.key".into(),
            past_value_names: "past_key_values.%d.value".into(),
        }
    }
}

impl Default for OutputNames {
    fn default() -> OutputNames {
        OutputNames {
            logits: "logits".into(),
            present_key_names: "present.%d.key".into(),
            present_value_names: "present.%d.value".into(),
        }
    }
}

impl GenaiConfig {
    /// The configuration of the model at `path`: the one in a folder, or the one next to a file that it names.
    ///
    /// # Errors
    /// If the one in a folder cannot be read.
    pub fn of_model(path: &Path) -> Result<Option<GenaiConfig>, Error> {
        if path.is_dir() {
            return GenaiConfig::in_folder(path);
        }
        // What cannot be read may be of another model in the folder.
        let named = GenaiConfig::in_folder(path.parent().unwrap_or(Path::new(""))).ok().flatten();
        Ok(named.filter(|config| path.file_name() == Some(config.model.decoder.filename.as_os_str())))
    }

    fn in_folder(folder: &Path) -> Result<Option<GenaiConfig>, Error> {
        let path = folder.join(FILE_NAME);
        if !path.is_file() {
            return Ok(None);
        }
        let text = read_document(&path).map_err(|error| Error::unreadable(&path, &error))?;
        let config: GenaiConfig =
            serde_json::from_str(&text).map_err(|error| Error::bad_input(Located::new(&path, error)))?;
        let file = &config.model.decoder.filename;
        if file.file_name() != Some(file.as_os_str()) {
            let what = format!("filename: `{}`: expected a file in the same folder", file.display());
            return Err(Error::BadInput(Located::new(&path, what).to_string().into()));
        }
        Ok(Some(config))
    }
}

/// The number that takes the place of `%d` where `name` is `pattern`.
pub(super) fn layer<'n>(name: &'n str, pattern: &str) -> Option<&'n str> {
    let (before, after) = pattern.split_once("%d")?;
    let layer = name.strip_prefix(before)?.strip_suffix(after)?;
    (!layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit())).then_some(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_numbers_in_names() {
        for (name, pattern, want) in [
            ("past_key_values.12.key", "past_key_values.%d.key", Some("12")),
            ("past_key_values.12.value", "past_key_values.%d.key", None),
            ("past_key_values..key", "past_key_values.%d.key", None),
            ("past_key_values.x.key", "past_key_values.%d.key", None),
            ("past_3", "past_%d", Some("3")),
            ("past", "past", None),
        ] {
            assert_eq!(layer(name, pattern), want, "{name} {pattern}");
        }
    }
}
