//! Failure of a verb: the message for the user and the exit code.

use std::process::ExitCode;

use miette::Report;

use super::diagnostic::ImportDiagnostic;
use edgecut_relay::ImportError;

/// What a verb returns.
pub type Outcome = Result<(), Failure>;

/// Why a verb failed; each variant has its own exit code.
#[derive(Debug)]
pub enum Failure {
    /// Failed while running: exit code 1.
    Failed(Report),
    /// Bad input or usage: exit code 2.
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

    /// The same failure, with the message prefixed by the location of its cause, such as a file or a flag.
    pub fn at(self, place: impl std::fmt::Display) -> Failure {
        let located = |report: Report| Report::msg(format!("{place}: {report}"));
        match self {
            Failure::Failed(report) => Failure::Failed(located(report)),
            Failure::BadInput(report) => Failure::BadInput(located(report)),
            Failure::NoPlan(report) => Failure::NoPlan(located(report)),
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
