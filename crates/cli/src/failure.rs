//! Errors of verbs on the command line: a report on stderr, and an exit code.

use std::io::{self, Write};

use edgecut_session::{
    Error,
    error::{Message, Place},
};
use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report};

use crate::{diagnostic::ImportDiagnostic, flag_text::with_flags};

/// Exit code after Ctrl-C.
pub const EXIT_INTERRUPTED: u8 = 130;

/// What a verb returns.
pub type Outcome = Result<(), Error>;

/// 1: the verb failed while running; 2: bad input or usage; 3: no plan satisfies the targets; 130: cancelled.
pub fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Failed(_) | Error::Agent(_) => 1,
        Error::BadInput(_) | Error::Model(_) | Error::Cluster(_) => 2,
        Error::NoPlan(_) => 3,
        Error::Cancelled => EXIT_INTERRUPTED,
    }
}

/// Writes the report of `error` to stderr. A cancellation is not reported.
pub fn print(error: &Error) {
    if let Some(message) = error.message() {
        // If stderr cannot be written, the exit code still reports the failure.
        let _ = writeln!(io::stderr(), "{:?}", report(message));
    }
}

fn report(message: &Message) -> Report {
    let mut diagnostic = MietteDiagnostic::new(with_flags(&message.text));
    diagnostic.help = message.help.as_deref().map(with_flags);
    match message.place.as_deref() {
        Some(Place::Model(error)) => ImportDiagnostic::report(error.clone()),
        Some(Place::Toml { file, content, span }) => {
            diagnostic.labels = span.clone().map(|span| vec![LabeledSpan::new_with_span(None, span)]);
            Report::new(diagnostic).with_source_code(NamedSource::new(file, content.clone()).with_language("toml"))
        }
        None => Report::new(diagnostic),
    }
}
