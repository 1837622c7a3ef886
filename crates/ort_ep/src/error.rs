//! Errors of the provider, which a session raises.

use edgecut_session::Error as SessionError;

/// Why the provider cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A function of ONNX Runtime failed.
    #[error("{0}")]
    Runtime(String),
    #[error("{}", described(.0))]
    Session(#[from] SessionError),
    /// An option or a feed cannot be used.
    #[error("{0}")]
    Refused(String),
    /// The model cannot be computed by a plan.
    #[error("{0}")]
    Model(String),
}

impl Error {
    /// `self`, which the loss of an agent has led to.
    pub fn of_loss(self) -> Error {
        Error::Runtime(self.to_string())
    }

    /// Whether only this model is refused: ONNX Runtime can compute it by itself.
    pub fn is_of_model(&self) -> bool {
        matches!(self, Error::Model(_) | Error::Session(SessionError::Model(_)))
    }
}

fn described(error: &SessionError) -> String {
    match error.message().and_then(|message| message.help.as_deref()) {
        Some(help) => format!("{error}: {help}"),
        None => error.to_string(),
    }
}
