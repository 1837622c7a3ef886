//! Errors of verbs: a kind for programs, and a message for people.

use std::{fmt, ops::Range, path::Path};

use edgecut_profile::ProfileError;
pub use edgecut_relay::{ImportError, SourceSnippet};
use edgecut_values::destination::Destination;

/// Why a verb failed.
///
/// Messages name options by the fields of the options structs: ``option `bind_dim` ``. See [`crate::option_text`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The verb failed while running.
    #[error("{0}")]
    Failed(Message),
    /// An option or a file cannot be used.
    #[error("{0}")]
    BadInput(Message),
    /// A model cannot be read or used.
    #[error("{0}")]
    Model(Message),
    /// A cluster file cannot be used.
    #[error("{0}")]
    Cluster(Message),
    /// An agent does not answer, fails or is lost.
    #[error("{0}")]
    Agent(Message),
    /// No plan satisfies the targets.
    #[error("{0}")]
    NoPlan(Message),
    /// The caller cancelled the work.
    #[error("cancelled")]
    Cancelled,
}

/// The message of an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub text: String,
    /// What to do about it, if the text does not say it.
    pub help: Option<String>,
    /// Where the cause is in a file.
    pub place: Option<Box<Place>>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// In a model or a file of parameters.
    Model(ImportError),
    /// In a TOML file.
    Toml { file: String, content: String, span: Option<Range<usize>> },
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message { text, help: None, place: None }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::from(text.to_string())
    }
}

impl fmt::Display for Message {
    /// The text, after the place in a TOML file. A text about a model contains its own place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place::Toml { file, content, span }) = self.place.as_deref() {
            write!(f, "{file}:")?;
            let before = span.as_ref().and_then(|span| content.get(..span.start));
            if let Some(before) = before {
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                let line = before.matches('\n').count() + 1;
                write!(f, "{line}:{}:", before[line_start..].chars().count() + 1)?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.text)
    }
}

impl Message {
    /// The same message with advice.
    #[must_use]
    pub(crate) fn with_help(self, help: impl Into<String>) -> Message {
        Message { help: Some(help.into()), ..self }
    }

    /// A message about the TOML file `file`, at `span` of its `content` if the span is known.
    pub fn in_toml(text: impl Into<String>, file: &Path, content: String, span: Option<Range<usize>>) -> Message {
        let place = Place::Toml { file: file.display().to_string(), content, span };
        Message { place: Some(Box::new(place)), ..Message::from(text.into()) }
    }
}

impl Error {
    /// The error and its causes as [`Error::Failed`].
    pub fn failed(error: impl std::error::Error) -> Error {
        Error::Failed(chain(&error).into())
    }

    /// The error and its causes as [`Error::BadInput`].
    pub fn bad_input(error: impl std::error::Error) -> Error {
        Error::BadInput(chain(&error).into())
    }

    /// The error for a model or parameter file that cannot be read.
    pub fn import(error: ImportError) -> Error {
        let text = error.to_string();
        Error::Model(Message { place: Some(Box::new(Place::Model(error))), ..Message::from(text) })
    }

    /// The error for a profile that cannot be read or written.
    pub fn profile(error: ProfileError) -> Error {
        match error {
            ProfileError::File { path, source } => Error::unwritable(&path, &source),
            ProfileError::Malformed { .. } | ProfileError::Content { .. } => Error::bad_input(error),
        }
    }

    /// The error and its causes as [`Error::Agent`].
    pub fn agent(error: impl std::error::Error) -> Error {
        Error::Agent(chain(&error).into())
    }

    /// The error for a file that does not exist or cannot be opened.
    pub fn unreadable(file: &Path, error: &std::io::Error) -> Error {
        Error::BadInput(format!("{}: {error}", file.display()).into())
    }

    /// The error for a file or stream that cannot be written, or for a folder in place of a file.
    pub fn unwritable(path: &Path, error: &std::io::Error) -> Error {
        let name = match Destination::of(path) {
            Ok(Destination::Stdout) => "stdout".to_string(),
            _ => path.display().to_string(),
        };
        if error.kind() == std::io::ErrorKind::IsADirectory {
            return Error::BadInput(format!("{name} is a folder: name a file in it").into());
        }
        Error::Failed(format!("{name} cannot be written: {error}").into())
    }

    /// The same error with the message prefixed by `place`, such as a file or an option.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Error {
        self.map(|message| Message::from(format!("{place}: {message}")))
    }

    /// [`Error::BadInput`] as [`Error::Model`]. Other errors are unchanged.
    #[must_use]
    pub fn of_model(self) -> Error {
        match self {
            Error::BadInput(message) => Error::Model(message),
            other => other,
        }
    }

    /// The same kind of error with a changed message.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Message) -> Message) -> Error {
        match self {
            Error::Failed(message) => Error::Failed(change(message)),
            Error::BadInput(message) => Error::BadInput(change(message)),
            Error::Model(message) => Error::Model(change(message)),
            Error::Cluster(message) => Error::Cluster(change(message)),
            Error::Agent(message) => Error::Agent(change(message)),
            Error::NoPlan(message) => Error::NoPlan(change(message)),
            Error::Cancelled => Error::Cancelled,
        }
    }

    /// The message; `None` for [`Error::Cancelled`].
    pub fn message(&self) -> Option<&Message> {
        match self {
            Error::Failed(message)
            | Error::BadInput(message)
            | Error::Model(message)
            | Error::Cluster(message)
            | Error::Agent(message)
            | Error::NoPlan(message) => Some(message),
            Error::Cancelled => None,
        }
    }

    /// The error of the importer, with its place in the model's file, if there is one.
    pub fn import_error(&self) -> Option<&ImportError> {
        match self.message()?.place.as_deref()? {
            Place::Model(error) => Some(error),
            Place::Toml { .. } => None,
        }
    }
}

/// The message of an error, followed by those of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}
