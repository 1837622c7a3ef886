//! Import errors, with line, column and an excerpt of the line.

use std::{borrow::Cow, fmt};

use crate::suggest;
use edgecut_graph::{DTypeError, TensorError};
use edgecut_ops as ops;
use edgecut_ops::TypeError;

/// A range of bytes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

/// Why a file could not be imported. Displayed as `file:line:column: message`.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportError {
    pub fault: Fault,
    /// The file name that the caller passed.
    pub file: String,
    /// `None` for errors without a location (an empty file, a `.params` file).
    pub spot: Option<Box<SourceSnippet>>,
}

/// A location in a file with the surrounding line, truncated to a readable width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSnippet {
    /// Counted from 1.
    pub line: u32,
    /// In characters, counted from 1.
    pub column: u32,
    /// The line, or the part of it around the location.
    pub excerpt: String,
    /// Start and length of the error in `excerpt`, in bytes.
    pub at: usize,
    pub len: usize,
    /// Number of characters of the line before `excerpt`.
    pub skipped: u32,
}

/// The kind of an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    #[error("the file is not UTF-8 text; a Relay file is what `mod.astext()` prints")]
    NotText,
    #[error("the file is {0} bytes long; at most 4 GiB can be read")]
    TooLong(usize),
    #[error("expected {expected}, found {found}")]
    Syntax { expected: String, found: String },
    #[error("{0}")]
    Token(String),
    #[error("`{}` is not defined {hint}", shown(name))]
    Undefined { name: String, hint: &'static str },
    #[error("`{}` is defined twice", shown(name))]
    Duplicate { name: String },
    #[error("unknown operator `{}`{like}, and no `ty=` comment gives the type of its result", shown(name))]
    UnknownOperator {
        name: String,
        /// A suggestion of a similar known operator.
        like: String,
    },
    #[error("{0}")]
    Type(#[from] TypeError),
    #[error("the type of `{0}` is not known: annotate it, as in `{0}: Tensor[(1, 3), float32]`", shown(name))]
    Untyped { name: String },
    #[error("{construct} cannot become part of a fixed graph: {reason}")]
    ControlFlow { construct: &'static str, reason: String },
    #[error("{0} nested deeper than {1} levels")]
    TooDeep(&'static str, usize),
    #[error("inlining this makes the graph larger than {0} operators, out of proportion to the file")]
    TooLarge(usize),
    #[error("metadata section: {0}")]
    Metadata(String),
    #[error("tensor record: {0}")]
    Record(String),
    #[error("{0}")]
    DType(#[from] DTypeError),
    #[error("{0}")]
    Tensor(#[from] TensorError),
    #[error("parameter file: {0}")]
    Params(String),
    #[error("{0}")]
    Other(String),
}

/// A fault with its range in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LocatedFault {
    pub fault: Fault,
    pub span: Option<Span>,
}

pub(super) type Result<T> = std::result::Result<T, Box<LocatedFault>>;

impl Span {
    pub fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    pub fn to(self, end: Span) -> Span {
        Span { start: self.start, end: end.end }
    }
}

impl Fault {
    pub(super) fn unknown_operator(name: &str) -> Fault {
        let like = match suggest::closest(name, ops::all().map(|def| def.name)) {
            Some(known) => format!(" (did you mean `{known}`?)"),
            None => String::new(),
        };
        Fault::UnknownOperator { name: name.to_string(), like }
    }

    pub(super) fn at(self, span: Span) -> Box<LocatedFault> {
        Box::new(LocatedFault { fault: self, span: Some(span) })
    }

    pub(super) fn nowhere(self) -> Box<LocatedFault> {
        Box::new(LocatedFault { fault: self, span: None })
    }
}

impl LocatedFault {
    pub(super) fn in_file(self, file: &str, text: &[u8]) -> ImportError {
        ImportError {
            fault: self.fault,
            file: file.to_string(),
            spot: self.span.map(|span| Box::new(SourceSnippet::new(text, span))),
        }
    }
}

/// Maximum length of a message, which may quote text of any length from a file.
const MAX_MESSAGE_CHARS: usize = 1000;

/// A word of the file, truncated for a message.
pub(super) fn shown(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}…", &word[..end])),
        None => Cow::Borrowed(word),
    }
}

/// Characters of a long line that are shown before and after an error.
const CONTEXT_CHARS: usize = 60;

impl SourceSnippet {
    /// Finds line and column of `span` in `text`, and extracts the excerpt.
    pub fn new(text: &[u8], span: Span) -> SourceSnippet {
        let start = (span.start as usize).min(text.len());
        let before = &text[..start];
        let line = memchr::memchr_iter(b'\n', before).count() as u32 + 1;
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
        let line_end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |i| start + i);
        let left = String::from_utf8_lossy(&text[line_start..start]);
        let right = String::from_utf8_lossy(&text[start..line_end.min(start + 8 * CONTEXT_CHARS)]);
        let column = left.chars().count();
        let skipped = column.saturating_sub(CONTEXT_CHARS);
        // Control characters are not printed to the terminal.
        let visible = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        let shown: String = left.chars().skip(skipped).map(visible).collect();
        let rest: String = right.trim_end_matches('\r').chars().take(CONTEXT_CHARS).map(visible).collect();
        let len = ((span.end as usize).saturating_sub(start)).clamp(1, rest.len().max(1));
        SourceSnippet {
            line,
            column: column as u32 + 1,
            at: shown.len(),
            len,
            skipped: skipped as u32,
            excerpt: format!("{shown}{rest}"),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut what = self.fault.to_string();
        if let Some((end, _)) = what.char_indices().nth(MAX_MESSAGE_CHARS) {
            what.truncate(end);
            what.push('…');
        }
        match &self.spot {
            Some(spot) => write!(f, "{}:{}:{}: {what}", self.file, spot.line, spot.column),
            None => write!(f, "{}: {what}", self.file),
        }
    }
}

impl std::error::Error for ImportError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_shows_the_line_around_the_fault() {
        let spot = SourceSnippet::new("first\nsecond line\n".as_bytes(), Span::new(13, 17));
        assert_eq!((spot.line, spot.column, spot.at, spot.len), (2, 8, 7, 4));
        assert_eq!(spot.excerpt, "second line");
    }

    #[test]
    fn a_long_line_is_cut_and_a_span_past_the_end_is_harmless() {
        let text = "x".repeat(10_000);
        let spot = SourceSnippet::new(text.as_bytes(), Span::new(5000, 5001));
        assert_eq!((spot.column, spot.at, spot.excerpt.len(), spot.skipped), (5001, 60, 120, 4940));
        assert_eq!(SourceSnippet::new(b"ab", Span::new(90, 99)).column, 3);
    }
}
