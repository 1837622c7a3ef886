//! Errors of the import: where in the model, and what.

/// Why an ONNX model could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{file}: {}{what}", place.as_deref().map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct OnnxError {
    /// The file name that the caller passed.
    pub file: String,
    /// The operator or tensor, with the graph that contains it.
    pub place: Option<String>,
    pub what: String,
}

/// A message without its place.
pub(crate) type Message = String;

pub(crate) type Result<T> = std::result::Result<T, Message>;

/// Length of a message, which may quote text of any length from a file.
const MAX_MESSAGE_CHARS: usize = 1000;

/// A name of the file, without control characters and truncated, as messages quote it.
pub(crate) fn shown(name: &str) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut shown: String = name.chars().take(60).map(visible).collect();
    if name.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}

impl OnnxError {
    pub(crate) fn new(file: &str, place: Option<String>, what: impl Into<String>) -> OnnxError {
        let mut what = what.into();
        if let Some((end, _)) = what.char_indices().nth(MAX_MESSAGE_CHARS) {
            what.truncate(end);
            what.push('…');
        }
        OnnxError { file: file.to_string(), place, what }
    }
}
