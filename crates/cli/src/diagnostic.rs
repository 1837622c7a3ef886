//! How an import error is shown: the line of the file with a caret under the place.

use std::fmt;

use miette::{Diagnostic, LabeledSpan, MietteError, MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents};

use edgecut_session::error::{ImportError, SourceSnippet};

use crate::flag_text::with_flags;

/// An [`ImportError`] as miette renders it.
pub struct ImportDiagnostic {
    error: ImportError,
    source: Option<Excerpt>,
}

/// The part of a line that is shown, at its true place in the file.
struct Excerpt {
    file: String,
    spot: SourceSnippet,
}

impl ImportDiagnostic {
    pub fn report(error: ImportError) -> Report {
        let source = error.spot.clone().map(|spot| Excerpt { file: error.file.clone(), spot: *spot });
        Report::new(ImportDiagnostic { error, source })
    }
}

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let excerpt = self.spot.excerpt.as_bytes();
        // Without context miette asks for the place that it puts into the heading; with context, for the whole line.
        let start = if (before, after) == (0, 0) { span.offset() } else { 0 };
        let (hidden, data) = excerpt.split_at_checked(start).ok_or(MietteError::OutOfBounds)?;
        // miette counts lines and columns from 0.
        let column = self.spot.skipped as usize + String::from_utf8_lossy(hidden).chars().count();
        Ok(Box::new(MietteSpanContents::new_named(
            self.file.clone(),
            data,
            (start, data.len()).into(),
            self.spot.line as usize - 1,
            column,
            1,
        )))
    }
}

impl Diagnostic for ImportDiagnostic {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let spot = &self.source.as_ref()?.spot;
        Some(Box::new(std::iter::once(LabeledSpan::underline((spot.at, spot.len)))))
    }
}

impl fmt::Display for ImportDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_flags(&self.error.to_string()))
    }
}

impl fmt::Debug for ImportDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ImportDiagnostic {}
