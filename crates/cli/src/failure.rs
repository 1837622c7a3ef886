//! Failure of a verb: the message for the user and the exit code.

use std::io::{self, Write};

use miette::Report;

use super::diagnostic::ImportDiagnostic;
use edgecut_profile::ProfileError;
use edgecut_relay::ImportError;

/// Exit code of a program that Ctrl-C ended.
pub const EXIT_INTERRUPTED: u8 = 130;

/// What a verb returns.
pub type Outcome = Result<(), Failure>;

/// Why a verb failed; each variant has its own exit code.
#[derive(Debug)]
pub enum Failure {
    /// Failed while running: exit code 1.
    Failed(Report),
    /// Bad input or usage: exit code 2.
    BadInput(Report),
    /// A model that cannot be read or used: exit code 2.
    Model(Report),
    /// A cluster file that cannot be used: exit code 2.
    Cluster(Report),
    /// An agent that does not answer, fails or is lost: exit code 1.
    Agent(Report),
    /// No plan satisfies the targets: exit code 3.
    NoPlan(Report),
    /// The [`Caller`](crate::caller::Caller) stopped it.
    Stopped,
}

impl Failure {
    pub fn failed(error: impl std::error::Error) -> Failure {
        Failure::Failed(Report::msg(chain(&error)))
    }

    pub fn bad_input(error: impl std::error::Error) -> Failure {
        Failure::BadInput(Report::msg(chain(&error)))
    }

    /// A model or parameter file that could not be read, shown with its line and a caret.
    pub fn import(error: ImportError) -> Failure {
        Failure::Model(ImportDiagnostic::report(error))
    }

    /// A profile that cannot be read or written.
    pub fn profile(error: ProfileError) -> Failure {
        match error {
            ProfileError::File { path, source } => Failure::unwritable(&path.display().to_string(), &source),
            ProfileError::Malformed { .. } | ProfileError::Content { .. } => Failure::bad_input(error),
        }
    }

    pub fn agent(error: impl std::error::Error) -> Failure {
        Failure::Agent(Report::msg(chain(&error)))
    }

    /// A file that does not exist or cannot be opened.
    pub fn unreadable(file: &str, error: &std::io::Error) -> Failure {
        Failure::BadInput(Report::msg(format!("{file}: {error}")))
    }

    /// A file that cannot be written, or that is a folder.
    pub fn unwritable(file: &str, error: &std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::IsADirectory {
            return Failure::BadInput(Report::msg(format!("{file} is a folder: name a file in it")));
        }
        Failure::Failed(Report::msg(format!("{file} cannot be written: {error}")))
    }

    /// The same failure, with the message prefixed by the location of its cause, such as a file or a flag.
    pub fn at(self, place: impl std::fmt::Display) -> Failure {
        let located = |report: Report| Report::msg(format!("{place}: {report}"));
        match self {
            Failure::Failed(report) => Failure::Failed(located(report)),
            Failure::BadInput(report) => Failure::BadInput(located(report)),
            Failure::Model(report) => Failure::Model(located(report)),
            Failure::Cluster(report) => Failure::Cluster(located(report)),
            Failure::Agent(report) => Failure::Agent(located(report)),
            Failure::NoPlan(report) => Failure::NoPlan(located(report)),
            Failure::Stopped => Failure::Stopped,
        }
    }

    /// The same failure as one of the model, if its input is bad.
    pub fn of_model(self) -> Failure {
        match self {
            Failure::BadInput(report) => Failure::Model(report),
            other => other,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Agent(_) => 1,
            Failure::BadInput(_) | Failure::Model(_) | Failure::Cluster(_) => 2,
            Failure::NoPlan(_) => 3,
            Failure::Stopped => EXIT_INTERRUPTED,
        }
    }

    /// What is reported; nothing where the caller knows.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Failure::Failed(report)
            | Failure::BadInput(report)
            | Failure::Model(report)
            | Failure::Cluster(report)
            | Failure::Agent(report)
            | Failure::NoPlan(report) => Some(report),
            Failure::Stopped => None,
        }
    }

    /// The place in a model's file, if the failure is of one.
    pub fn import_error(&self) -> Option<&ImportError> {
        self.report()?.downcast_ref::<ImportDiagnostic>().map(ImportDiagnostic::error)
    }

    /// Writes the report to stderr.
    pub fn print(&self) {
        if let Some(report) = self.report() {
            // If stderr cannot be written, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "{report:?}");
        }
    }
}

/// An error's message followed by its causes', for errors without a location in a source text.
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
