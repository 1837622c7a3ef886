//! Failure of a verb: the message for the user and the exit code.

use std::process::ExitCode;

use miette::Report;

use super::diagnostic::ImportDiagnostic;
use edgecut_relay::ImportError;

/// What a verb returns.
pub type Outcome = Result<(), Failure>;

/// Why a verb did not succeed; each kind has an exit code of its own.
#[derive(Debug)]
pub enum Failure {
    /// It failed while running: exit code 1.
    Failed(Report),
    /// The input or the usage is bad: exit code 2.
    BadInput(Report),
    /// No plan satisfies the targets: exit code 3.
    NoPlan(Report),
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
        Failure::BadInput(ImportDiagnostic::report(error))
    }

    /// A file that does not exist or cannot be opened.
    pub fn unreadable(file: &str, error: &std::io::Error) -> Failure {
        Failure::BadInput(Report::msg(format!("{file}: {error}")))
    }

    /// A file that cannot be written.
    pub fn unwritable(file: &str, error: &std::io::Error) -> Failure {
        Failure::Failed(Report::msg(format!("{file} cannot be written: {error}")))
    }

    /// The same, with where the input stands that led to it.
    pub fn at(self, place: impl std::fmt::Display) -> Failure {
        let told = |report: Report| Report::msg(format!("{place}: {report}"));
        match self {
            Failure::Failed(report) => Failure::Failed(told(report)),
            Failure::BadInput(report) => Failure::BadInput(told(report)),
            Failure::NoPlan(report) => Failure::NoPlan(told(report)),
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) => 1,
            Failure::BadInput(_) => 2,
            Failure::NoPlan(_) => 3,
        })
    }

    /// Writes the report to stderr.
    pub fn print(&self) {
        let (Failure::Failed(report) | Failure::BadInput(report) | Failure::NoPlan(report)) = self;
        eprintln!("{report:?}");
    }
}

/// An error's message with its causes, for errors that point at no text.
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
